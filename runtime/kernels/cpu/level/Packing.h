//===- Packing.h - operands into panels, for one level ----------*- C++ -*-===//
//
// For files that are compiled once per processor level; see Vector.h.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "runtime/kernels/cpu/level/Tile.h"

namespace pipec::cpu {
namespace {

template <int...> struct Indices {};
template <int N, int... Rest>
struct MakeIndices : MakeIndices<N - 1, N - 1, Rest...> {};
template <int... I> struct MakeIndices<0, I...> {
  using type = Indices<I...>;
};

/// Exchanges bit `Bit` of the row number with bit `Bit` of the lane number in
/// a pair of rows whose numbers differ in that bit.
template <int Bit, typename T, int... L>
void exchange(Vector<T> &low, Vector<T> &high, Indices<L...>) {
  constexpr int n = kLanes<T>;
  const Vector<T> a = low, b = high;
  low = __builtin_shufflevector(a, b, (L & Bit ? n + (L ^ Bit) : L)...);
  high = __builtin_shufflevector(a, b, (L & Bit ? n + L : (L ^ Bit))...);
}

template <int Bit, int Lines, typename T> void exchangeAll(Vector<T> *v) {
  using All = typename MakeIndices<kLanes<T>>::type;
  if constexpr (Bit < Lines) {
#pragma unroll
    for (int i = 0; i < Lines; ++i)
      if (!(i & Bit))
        exchange<Bit, T>(v[i], v[i | Bit], All());
    exchangeAll<Bit * 2, Lines, T>(v);
  }
}

/// Lines i < count of `src`, `depth` steps long, zero elsewhere.
template <int Lines, typename T>
void loadLines(Vector<T> *v, const Part<T> *src, int64_t ld, int64_t count,
               int64_t depth) {
#pragma unroll
  for (int i = 0; i < Lines; ++i)
    v[i] = i < count ? loadLanes(src + i * ld, depth) : Vector<T>{};
}

/// A full square, its edges cut off on both sides.
template <typename T>
void transposeSquare(T *dst, int64_t ldDst, const T *src, int64_t ldSrc,
                     int64_t rows, int64_t columns) {
  constexpr int lanes = kLanes<T>;
  Vector<T> v[lanes];
  loadLines<lanes, T>(v, src, ldSrc, rows, columns);
  exchangeAll<1, lanes, T>(v);
  const int64_t last = columns < lanes ? columns : lanes;
#pragma unroll
  for (int i = 0; i < lanes; ++i)
    if (i < last)
      storeLanes<T>(dst + i * ldDst, v[i], rows);
}

template <typename T>
void transpose(T *dst, int64_t ldDst, const T *src, int64_t ldSrc, int64_t rows,
               int64_t columns) {
  constexpr int lanes = kLanes<T>;
  for (int64_t r = 0; r < rows; r += lanes)
    for (int64_t c = 0; c < columns; c += lanes)
      transposeSquare<T>(dst + c * ldDst + r, ldDst, src + r * ldSrc + c, ldSrc,
                         rows - r, columns - c);
}

/// dst[k * width + i] = lines[i][k] for i < Lines and k < depth <= lanes. Lines
/// is a power of two, at most the number of lanes.
template <int Lines, typename T>
void packSquare(T *dst, int64_t width, const Part<T> *src, int64_t ld,
                int64_t count, int64_t depth) {
  constexpr int lanes = kLanes<T>;
  Vector<T> v[Lines];
  loadLines<Lines, T>(v, src, ld, count, depth);
  exchangeAll<1, Lines, T>(v);
  // Row i now holds k = i, i + Lines, ...: `Lines` lanes each.
  typedef T Part
      __attribute__((vector_size(Lines * sizeof(T)), aligned(alignof(T))));
#pragma unroll
  for (int g = 0; g < lanes / Lines; ++g)
#pragma unroll
    for (int i = 0; i < Lines; ++i) {
      if (g * Lines + i >= depth)
        return;
      Part part;
      __builtin_memcpy(&part, reinterpret_cast<T *>(&v[i]) + g * Lines,
                       sizeof(part));
      *reinterpret_cast<Part *>(dst + (g * Lines + i) * width) = part;
    }
}

template <int Lines, typename T>
void packGroups(T *dst, int64_t width, const Part<T> *src, int64_t ld,
                int64_t count, int64_t kc) {
  for (int64_t k = 0; k < kc; k += kLanes<T>)
    for (int64_t i = 0; i < width; i += Lines)
      packSquare<Lines, T>(dst + k * width + i, width,
                           src + i * ld + k * kParts<T>, ld, count - i, kc - k);
}

template <typename T>
void packLines(T *dst, int64_t width, const Part<T> *src, int64_t ld,
               int64_t count, int64_t kc) {
  constexpr int lanes = kLanes<T>;
  if (width % lanes == 0)
    return packGroups<lanes, T>(dst, width, src, ld, count, kc);
  if constexpr (kRows <= lanes)
    if (width % kRows == 0)
      return packGroups<kRows, T>(dst, width, src, ld, count, kc);
  for (int64_t k = 0; k < kc; ++k)
    for (int64_t i = 0; i < width; ++i) {
      T value(0);
      if (i < count)
        __builtin_memcpy(&value, src + i * ld + k * kParts<T>, sizeof(T));
      dst[k * width + i] = value;
    }
}

/// Rows that packing asks for in advance: every row is on a page of its own,
/// which the processor does not foresee.
constexpr int64_t kAhead = 24;

/// A few panels at a time: whole cache lines of the source, and no more streams
/// to write than a first-level cache can keep apart when kc * rows is a power
/// of two.
template <typename T>
void packBand(T *dst, int64_t panels, const T *src, int64_t ld, int64_t kc) {
  typedef T Row
      __attribute__((vector_size(kRows * sizeof(T)), aligned(alignof(T))));
  constexpr int64_t perCacheLine = 64 / sizeof(T), group = 4;
  for (int64_t first = 0; first < panels; first += group) {
    const int64_t last = first + group < panels ? first + group : panels;
    const T *from = src;
    for (int64_t k = 0; k < kc; ++k, from += ld) {
      for (int64_t i = first * kRows; i < last * kRows; i += perCacheLine)
        __builtin_prefetch(from + kAhead * ld + i);
      for (int64_t p = first; p < last; ++p)
        *reinterpret_cast<Row *>(dst + (p * kc + k) * kRows) =
            *reinterpret_cast<const Row *>(from + p * kRows);
    }
  }
}

template <typename T>
void packRows(T *dst, int64_t width, const T *src, int64_t ld, int64_t count,
              int64_t kc) {
  constexpr int lanes = kLanes<T>;
  const int64_t whole = count / lanes * lanes;
  for (int64_t k = 0; k < kc; ++k, dst += width, src += ld) {
    int64_t i = 0;
    for (; i < whole; i += lanes) {
      __builtin_prefetch(src + kAhead * ld + i);
      store<T>(dst + i, load(src + i));
    }
    for (; i < count; ++i)
      dst[i] = src[i];
    for (; i < width; ++i)
      dst[i] = T(0);
  }
}

} // namespace
} // namespace pipec::cpu
