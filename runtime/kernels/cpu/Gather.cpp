//===- Gather.cpp - rows by index and their gradient ----------------------===//

#include "runtime/kernels/cpu/Parallel.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>

using pipec::cpu::parallelRanges;

namespace {

std::atomic<int32_t> faultSeen{0};
std::atomic<int64_t> faultId{0}, faultAxis{0};

void recordFault(int64_t id, int64_t axis) {
  int32_t none = 0;
  if (faultSeen.compare_exchange_strong(none, 1)) {
    faultId = id;
    faultAxis = axis;
  }
}

/// The row that ids[i] names, or -1 (recorded) when there is none.
template <typename Id> int64_t rowOf(const Id *ids, int64_t i, int64_t axis) {
  const int64_t id = ids[i], row = id < 0 ? id + axis : id;
  if (row >= 0 && row < axis)
    return row;
  recordFault(id, axis);
  return -1;
}

template <typename T> void fillMissing(T *y, int64_t n) {
  std::fill_n(y, n, std::numeric_limits<T>::quiet_NaN()); // 0 for integers
}

template <typename T, typename Id>
void gather(const PipecGather &d, const T *table, const Id *ids, T *y) {
  const int64_t rows = d.outer * d.ids;
  const int64_t grain = 4096 / std::max<int64_t>(d.inner, 1) + 1;
  parallelRanges(rows, grain, [&](int64_t lo, int64_t hi) {
    for (int64_t r = lo; r < hi; ++r) {
      const int64_t o = r / d.ids, row = rowOf(ids, r % d.ids, d.axis);
      if (row < 0)
        fillMissing(y + r * d.inner, d.inner);
      else
        std::memcpy(y + r * d.inner, table + (o * d.axis + row) * d.inner,
                    d.inner * sizeof(T));
    }
  });
}

/// Cut by column blocks and by outer index, never by rows: the additions into
/// one element stay on one thread, in ascending order of i.
template <typename T, typename Id>
void scatterAdd(const PipecGather &d, const Id *ids, const T *dy, T *table) {
  constexpr int64_t kColumns = 64;
  const int64_t blocks = (d.inner + kColumns - 1) / kColumns;
  const int64_t grain = 4096 / (std::max<int64_t>(d.ids, 1) * kColumns) + 1;
  parallelRanges(d.outer * blocks, grain, [&](int64_t lo, int64_t hi) {
    while (lo < hi) { // one pass over ids for all blocks of one outer index
      const int64_t o = lo / blocks, first = lo % blocks;
      const int64_t last = std::min(blocks, first + (hi - lo));
      const int64_t c0 = first * kColumns;
      const int64_t width = std::min(last * kColumns, d.inner) - c0;
      for (int64_t i = 0; i < d.ids; ++i) {
        const int64_t row = rowOf(ids, i, d.axis);
        if (row < 0)
          continue;
        T *dst = table + (o * d.axis + row) * d.inner + c0;
        const T *src = dy + (o * d.ids + i) * d.inner + c0;
        for (int64_t c = 0; c < width; ++c)
          dst[c] += src[c];
      }
      lo += last - first;
    }
  });
}

template <typename T>
void gatherIds(const PipecGather &d, const void *table, const void *ids,
               void *y) {
  if (d.id_type == PIPEC_I32)
    gather(d, static_cast<const T *>(table), static_cast<const int32_t *>(ids),
           static_cast<T *>(y));
  else
    gather(d, static_cast<const T *>(table), static_cast<const int64_t *>(ids),
           static_cast<T *>(y));
}

template <typename T>
void scatterIds(const PipecGather &d, const void *ids, const void *dy,
                void *table) {
  if (d.id_type == PIPEC_I32)
    scatterAdd(d, static_cast<const int32_t *>(ids), static_cast<const T *>(dy),
               static_cast<T *>(table));
  else
    scatterAdd(d, static_cast<const int64_t *>(ids), static_cast<const T *>(dy),
               static_cast<T *>(table));
}

} // namespace

extern "C" void pipec_gather(const PipecGather *d, const void *table,
                             const void *ids, void *y) {
  switch (d->dtype) {
  case PIPEC_F32:
    return gatherIds<float>(*d, table, ids, y);
  case PIPEC_F64:
    return gatherIds<double>(*d, table, ids, y);
  case PIPEC_I32:
    return gatherIds<int32_t>(*d, table, ids, y);
  case PIPEC_I64:
    return gatherIds<int64_t>(*d, table, ids, y);
  case PIPEC_I8:
    return gatherIds<int8_t>(*d, table, ids, y);
  }
}

extern "C" void pipec_scatter_add(const PipecGather *d, const void *ids,
                                  const void *dy, void *table_grad) {
  switch (d->dtype) {
  case PIPEC_F32:
    return scatterIds<float>(*d, ids, dy, table_grad);
  case PIPEC_F64:
    return scatterIds<double>(*d, ids, dy, table_grad);
  case PIPEC_I32:
    return scatterIds<int32_t>(*d, ids, dy, table_grad);
  case PIPEC_I64:
    return scatterIds<int64_t>(*d, ids, dy, table_grad);
  case PIPEC_I8:
    return scatterIds<int8_t>(*d, ids, dy, table_grad);
  }
}

extern "C" int32_t pipec_take_fault(int64_t *id, int64_t *axis) {
  if (!faultSeen.load())
    return 0;
  if (id)
    *id = faultId;
  if (axis)
    *axis = faultAxis;
  faultSeen = 0;
  return 1;
}
