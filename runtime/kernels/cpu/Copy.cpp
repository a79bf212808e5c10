//===- Copy.cpp - general strided copies ----------------------------------===//
//
// A copy is first reduced to its essential loops (unit sizes dropped, loops
// ordered by destination stride, neighbours that walk both sides alike merged).
// What remains is rows that are contiguous on both sides, a tiled transpose of
// the two loops that are contiguous on one side each, or a plain strided loop.
//
//===----------------------------------------------------------------------===//

#include "runtime/kernels/cpu/Parallel.h"
#include "runtime/kernels/cpu/level/MicroKernels.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace {

struct Loop {
  int64_t size, src, dst;
};

/// The loops of a copy, outermost first, and where index 0 lies.
struct Nest {
  Loop loops[8];
  int rank = 0;
  int64_t src = 0, dst = 0;
  bool empty = false;

  explicit Nest(const PipecCopy &d) {
    for (int i = 0; i < d.rank; ++i) {
      empty |= d.size[i] <= 0;
      if (d.size[i] != 1)
        loops[rank++] = {d.size[i], d.src_stride[i], d.dst_stride[i]};
    }
    if (!empty)
      simplify();
  }

  Loop pop() { return loops[--rank]; }

  /// Takes the loop with source stride 1 out of the outer loops.
  bool takeUnitSource(Loop &unit) {
    for (int i = 0; i < rank; ++i)
      if (loops[i].src == 1) {
        unit = loops[i];
        std::copy(loops + i + 1, loops + rank, loops + i);
        --rank;
        return true;
      }
    return false;
  }

private:
  void simplify() {
    for (int i = 0; i < rank; ++i)
      if (loops[i].dst < 0) { // walk the destination upwards
        src += (loops[i].size - 1) * loops[i].src;
        dst += (loops[i].size - 1) * loops[i].dst;
        loops[i] = {loops[i].size, -loops[i].src, -loops[i].dst};
      }
    std::sort(loops, loops + rank,
              [](const Loop &a, const Loop &b) { return a.dst > b.dst; });
    int kept = 0;
    for (int i = 0; i < rank; ++i) {
      const Loop &in = loops[i];
      if (kept && loops[kept - 1].src == in.src * in.size &&
          loops[kept - 1].dst == in.dst * in.size)
        loops[kept - 1] = {loops[kept - 1].size * in.size, in.src, in.dst};
      else
        loops[kept++] = in;
    }
    rank = kept;
  }
};

/// Walks the outer loops of a nest in order, from any position.
class Odometer {
public:
  Odometer(const Nest &nest, int64_t position) : nest(nest) {
    for (int i = nest.rank - 1; i >= 0; --i) {
      index[i] = position % nest.loops[i].size;
      position /= nest.loops[i].size;
      src += index[i] * nest.loops[i].src;
      dst += index[i] * nest.loops[i].dst;
    }
  }
  void next() {
    for (int i = nest.rank - 1; i >= 0; --i) {
      src += nest.loops[i].src;
      dst += nest.loops[i].dst;
      if (++index[i] < nest.loops[i].size)
        return;
      src -= nest.loops[i].size * nest.loops[i].src;
      dst -= nest.loops[i].size * nest.loops[i].dst;
      index[i] = 0;
    }
  }
  int64_t src = 0, dst = 0;

private:
  const Nest &nest;
  int64_t index[8];
};

int64_t countOf(const Nest &nest) {
  int64_t count = 1;
  for (int i = 0; i < nest.rank; ++i)
    count *= nest.loops[i].size;
  return count;
}

/// Elements that make a thread worth waking.
constexpr int64_t kGrain = 8192;

/// One strided row per outer index. Long rows are cut into pieces.
template <typename T>
void copyRows(Nest nest, const Loop &row, const T *src, T *dst) {
  const int64_t piece = 4 * kGrain, pieces = (row.size - 1) / piece + 1;
  const int64_t grain = kGrain / std::min(row.size, piece) + 1;
  nest.loops[nest.rank++] = {pieces, piece * row.src, piece * row.dst};
  pipec::cpu::parallelRanges(countOf(nest), grain, [&](int64_t lo, int64_t hi) {
    Odometer at(nest, lo);
    for (int64_t i = lo; i < hi; ++i, at.next()) {
      const T *s = src + at.src;
      T *t = dst + at.dst;
      const int64_t n = std::min(piece, row.size - i % pieces * piece);
      if (row.src == 1 && row.dst == 1)
        std::memcpy(t, s, n * sizeof(T));
      else if (row.dst == 1)
        for (int64_t j = 0; j < n; ++j)
          t[j] = s[j * row.src];
      else
        for (int64_t j = 0; j < n; ++j)
          t[j * row.dst] = s[j * row.src];
    }
  });
}

constexpr int64_t kTile = 16;

/// dst[p * dstStride + q] = src[q * srcStride + p], p < np, q < nq.
template <typename T>
void transposeTile(const T *src, int64_t srcStride, T *dst, int64_t dstStride,
                   int64_t np, int64_t nq) {
  for (int64_t p = 0; p < np; ++p)
    for (int64_t q = 0; q < nq; ++q)
      dst[p * dstStride + q] = src[q * srcStride + p];
}
// Through vector registers; these only move bits.
template <>
void transposeTile(const uint32_t *src, int64_t srcStride, uint32_t *dst,
                   int64_t dstStride, int64_t np, int64_t nq) {
  pipec::cpu::microKernels<float>().transpose(
      reinterpret_cast<float *>(dst), dstStride,
      reinterpret_cast<const float *>(src), srcStride, nq, np);
}
template <>
void transposeTile(const uint64_t *src, int64_t srcStride, uint64_t *dst,
                   int64_t dstStride, int64_t np, int64_t nq) {
  pipec::cpu::microKernels<double>().transpose(
      reinterpret_cast<double *>(dst), dstStride,
      reinterpret_cast<const double *>(src), srcStride, nq, np);
}

/// `p` is contiguous in the source, `q` in the destination. A panel is several
/// tiles of p, so that whole stretches of source rows are read together; the
/// rows of the next tile are asked for in advance, as each is on another page.
template <typename T>
void transpose(Nest nest, const Loop &p, const Loop &q, const T *src, T *dst) {
  constexpr int64_t panel = 4 * kTile;
  const int64_t panels = (p.size - 1) / panel + 1;
  const int64_t grain = kGrain / (panel * q.size) + 1;
  nest.loops[nest.rank++] = {panels, panel, panel * p.dst};
  pipec::cpu::parallelRanges(countOf(nest), grain, [&](int64_t lo, int64_t hi) {
    Odometer at(nest, lo);
    for (int64_t i = lo; i < hi; ++i, at.next()) {
      const int64_t np = std::min(panel, p.size - i % panels * panel);
      for (int64_t j = 0; j < q.size; j += kTile) {
        const T *from = src + at.src + j * q.src;
        const int64_t nq = std::min(kTile, q.size - j);
        for (int64_t r = 0; r < nq; ++r)
          for (int64_t k = 0; k < np; k += 64 / int64_t(sizeof(T)))
            __builtin_prefetch(from + (kTile + r) * q.src + k);
        for (int64_t k = 0; k < np; k += kTile)
          transposeTile(from + k, q.src, dst + at.dst + k * p.dst + j, p.dst,
                        std::min(kTile, np - k), nq);
      }
    }
  });
}

/// Takes the loops of a transposition out of a nest whose innermost is `inner`.
bool transposes(Nest &nest, const Loop &inner, Loop &unit) {
  return inner.dst == 1 && inner.src != 1 && inner.src != 0 &&
         nest.takeUnitSource(unit);
}

template <typename T> void copy(Nest nest, const void *src, void *dst) {
  const T *s = static_cast<const T *>(src) + nest.src;
  T *t = static_cast<T *>(dst) + nest.dst;
  if (nest.rank == 0) {
    *t = *s;
    return;
  }
  const Loop inner = nest.pop();
  Loop unit;
  if (transposes(nest, inner, unit))
    return transpose<T>(nest, unit, inner, s, t);
  copyRows<T>(nest, inner, s, t);
}

} // namespace

extern "C" void pipec_copy(const PipecCopy *d, const void *src, void *dst) {
  Nest nest(*d);
  if (nest.empty)
    return;
  switch (d->element_size) {
  case 1:
    return copy<uint8_t>(nest, src, dst);
  case 2:
    return copy<uint16_t>(nest, src, dst);
  case 4:
    return copy<uint32_t>(nest, src, dst);
  case 8:
    return copy<uint64_t>(nest, src, dst);
  }
}

extern "C" PipecCopyWalk pipec_copy_walk(const PipecCopy *d) {
  Nest nest(*d);
  if (nest.empty)
    return {PIPEC_COPY_NOTHING, 0, 0, 1};
  if (nest.rank == 0)
    return {PIPEC_COPY_CONTIGUOUS, 1, 1, 1};
  const Loop inner = nest.pop();
  Loop unit;
  if (transposes(nest, inner, unit))
    return {PIPEC_COPY_TRANSPOSED, countOf(nest), inner.size, unit.size};
  return {inner.src == 1 && inner.dst == 1 ? PIPEC_COPY_CONTIGUOUS
                                           : PIPEC_COPY_STRIDED,
          countOf(nest), inner.size, 1};
}
