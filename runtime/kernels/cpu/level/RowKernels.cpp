//===- RowKernels.cpp - loops over image rows, for one processor level ----===//

#include "runtime/kernels/cpu/level/RowKernels.h"
#include "runtime/kernels/cpu/level/Vector.h"

namespace pipec::cpu {
namespace {

//===----------------------------------------------------------------------===//
// Copies
//===----------------------------------------------------------------------===//

template <int N, int... I> struct LaneLists : LaneLists<N - 1, N - 1, I...> {};
template <int... I> struct LaneLists<0, I...> {
  /// Lane i is from[i * step], step 1 or 2; no element beyond the last is read.
  template <typename T> static Vector<T> load(const T *from, int64_t step) {
    constexpr int lanes = kLanes<T>;
    const Vector<T> low = cpu::load(from);
    if (step == 1)
      return low;
    return __builtin_shufflevector(low, cpu::load(from + lanes - 1),
                                   (2 * I < lanes ? 2 * I : 2 * I + 1)...);
  }

  /// The first `count` of them, at least one, and zeros or repetitions.
  template <typename T>
  static Vector<T> loadSome(const T *from, int64_t step, int64_t count) {
    constexpr int64_t lanes = kLanes<T>;
    const int64_t all = step * (count - 1) + 1;
    const Vector<T> low = loadLanes(from, all < lanes ? all : lanes);
    if (step == 1)
      return low;
    const Vector<T> high =
        all > lanes ? loadLanes(from + lanes, all - lanes) : Vector<T>{};
    return __builtin_shufflevector(low, high, (2 * I)...);
  }
};

template <typename T>
void putApart(T *to, int64_t stride, const T *from, int64_t n, bool add) {
  for (int64_t i = 0; i < n; ++i)
    to[i * stride] = add ? to[i * stride] + from[i] : from[i];
}

template <typename T>
void putRun(T *to, int64_t stride, const T *from, int64_t n, bool add) {
  putApart(to, stride, from, n, add);
}

template <typename T>
void packRunsApart(T *dst, int64_t ld, int64_t vectors, const T *src,
                   int64_t plane, int64_t channels,
                   const typename RowKernels<T>::Run *runs, int64_t runCount,
                   int64_t step) {
  for (int64_t c = 0; c < channels; ++c, dst += ld, src += plane) {
    for (int64_t i = 0; i < vectors * kLanes<T>; ++i)
      dst[i] = T(0);
    for (int64_t r = 0; r < runCount; ++r) {
      T *to = dst + runs[r].vector * kLanes<T>;
      const T *from = src + runs[r].base;
      for (int64_t l = runs[r].first; l < runs[r].last; ++l)
        to[l] = from[l * step];
    }
  }
}

template <typename T>
void packRuns(T *dst, int64_t ld, int64_t vectors, const T *src, int64_t plane,
              int64_t channels, const typename RowKernels<T>::Run *runs,
              int64_t runCount, int64_t step) {
  packRunsApart(dst, ld, vectors, src, plane, channels, runs, runCount, step);
}

#ifdef __AVX512F__

__mmask16 laneMask(int first, int last) {
  return __mmask16((0xffffu << first) & (0xffffu >> (16 - last)));
}

/// Every second float of to, from the low half of a vector.
void putSecond(float *to, __m512 v, __mmask8 lanes, bool add) {
  const __m512i spread =
      _mm512_set_epi32(7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0);
  const __mmask16 slots = __mmask16(_pdep_u32(lanes, 0x5555u));
  __m512 wide = _mm512_permutexvar_ps(spread, v);
  if (add)
    wide = _mm512_add_ps(_mm512_maskz_loadu_ps(slots, to), wide);
  _mm512_mask_storeu_ps(to, slots, wide);
}

template <>
void putRun<float>(float *to, int64_t stride, const float *from, int64_t n,
                   bool add) {
  if (stride > 2)
    return putApart(to, stride, from, n, add);
  for (int64_t i = 0; i < n; i += 16) {
    const __mmask16 lanes = __mmask16(n - i < 16 ? (1u << (n - i)) - 1 : ~0u);
    __m512 v = _mm512_maskz_loadu_ps(lanes, from + i);
    if (stride == 1) {
      if (add)
        v = _mm512_add_ps(_mm512_maskz_loadu_ps(lanes, to + i), v);
      _mm512_mask_storeu_ps(to + i, lanes, v);
      continue;
    }
    putSecond(to + 2 * i, v, __mmask8(lanes), add);
    if (lanes >> 8)
      putSecond(to + 2 * i + 16, _mm512_shuffle_f32x4(v, v, 0xee),
                __mmask8(lanes >> 8), add);
  }
}

/// Neighbouring positions: one masked load a run, merged into the vector.
void packRunsUnit(float *dst, int64_t ld, int64_t vectors, const float *src,
                  int64_t plane, int64_t channels,
                  const RowKernels<float>::Run *runs, int64_t runCount) {
  for (int64_t c = 0; c < channels; ++c, dst += ld, src += plane) {
    int64_t r = 0;
    for (int64_t v = 0; v < vectors; ++v) {
      __m512 value = _mm512_setzero_ps();
      for (; r < runCount && runs[r].vector == v; ++r)
        value = _mm512_mask_loadu_ps(
            value, laneMask(runs[r].first, runs[r].last), src + runs[r].base);
      _mm512_storeu_ps(dst + v * 16, value);
    }
  }
}

/// Every second position: two masked loads, the even lanes of both.
void packRunsHalf(float *dst, int64_t ld, int64_t vectors, const float *src,
                  int64_t plane, int64_t channels,
                  const RowKernels<float>::Run *runs, int64_t runCount) {
  const __m512i even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12,
                                        10, 8, 6, 4, 2, 0);
  for (int64_t c = 0; c < channels; ++c, dst += ld, src += plane) {
    int64_t r = 0;
    for (int64_t v = 0; v < vectors; ++v) {
      __m512 value = _mm512_setzero_ps();
      for (; r < runCount && runs[r].vector == v; ++r) {
        const __mmask16 lanes = laneMask(runs[r].first, runs[r].last);
        const uint32_t spread = _pdep_u32(lanes, 0x55555555u);
        const float *from = src + runs[r].base;
        const __m512 low = _mm512_maskz_loadu_ps(__mmask16(spread), from);
        const __m512 high =
            _mm512_maskz_loadu_ps(__mmask16(spread >> 16), from + 16);
        value = _mm512_mask_mov_ps(value, lanes,
                                   _mm512_permutex2var_ps(low, even, high));
      }
      _mm512_storeu_ps(dst + v * 16, value);
    }
  }
}

#elif defined(__AVX2__)

/// Lanes [first, last) of a vector.
__m256i laneMask(int64_t first, int64_t last) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_andnot_si256(
      _mm256_cmpgt_epi32(_mm256_set1_epi32(int(first)), lane),
      _mm256_cmpgt_epi32(_mm256_set1_epi32(int(last)), lane));
}

/// to[0], to[2], ... of 8 floats = or += the lanes of half a vector.
void putSecond(float *to, __m128 half, int64_t count, bool add) {
  const __m256i slots = laneMask(0, 2 * count);
  __m256 wide =
      _mm256_castsi256_ps(_mm256_cvtepu32_epi64(_mm_castps_si128(half)));
  const __m256i even = _mm256_and_si256(slots, _mm256_set1_epi64x(0xffffffff));
  if (add)
    wide = _mm256_add_ps(_mm256_maskload_ps(to, even), wide);
  _mm256_maskstore_ps(to, even, wide);
}

template <>
void putRun<float>(float *to, int64_t stride, const float *from, int64_t n,
                   bool add) {
  if (stride > 2)
    return putApart(to, stride, from, n, add);
  for (int64_t i = 0; i < n; i += 8) {
    const int64_t count = n - i < 8 ? n - i : 8;
    __m256 v = __m256(loadLanes(from + i, count));
    if (stride == 1) {
      if (add)
        v = _mm256_add_ps(__m256(loadLanes(to + i, count)), v);
      storeLanes<float>(to + i, Vector<float>(v), count);
      continue;
    }
    putSecond(to + 2 * i, _mm256_castps256_ps128(v), count < 4 ? count : 4,
              add);
    if (count > 4)
      putSecond(to + 2 * i + 8, _mm256_extractf128_ps(v, 1), count - 4, add);
  }
}

/// A panel has few columns; each could be a run of its own.
constexpr int64_t kMaxRuns = 64;

/// Neighbouring positions: one masked load a run, merged into the vector.
void packRunsUnit(float *dst, int64_t ld, int64_t vectors, const float *src,
                  int64_t plane, int64_t channels,
                  const RowKernels<float>::Run *runs, int64_t runCount) {
  __m256i masks[kMaxRuns];
  for (int64_t r = 0; r < runCount; ++r)
    masks[r] = laneMask(runs[r].first, runs[r].last);
  for (int64_t c = 0; c < channels; ++c, dst += ld, src += plane) {
    int64_t r = 0;
    for (int64_t v = 0; v < vectors; ++v) {
      __m256 value = _mm256_setzero_ps();
      for (; r < runCount && runs[r].vector == v; ++r)
        value = _mm256_or_ps(value,
                             _mm256_maskload_ps(src + runs[r].base, masks[r]));
      _mm256_storeu_ps(dst + v * 8, value);
    }
  }
}

/// Every second position: two masked loads, the even lanes of both.
void packRunsHalf(float *dst, int64_t ld, int64_t vectors, const float *src,
                  int64_t plane, int64_t channels,
                  const RowKernels<float>::Run *runs, int64_t runCount) {
  __m256i low[kMaxRuns], high[kMaxRuns];
  for (int64_t r = 0; r < runCount; ++r) {
    low[r] = laneMask(2 * runs[r].first, 2 * runs[r].last - 1);
    high[r] = laneMask(2 * runs[r].first - 8, 2 * runs[r].last - 9);
  }
  for (int64_t c = 0; c < channels; ++c, dst += ld, src += plane) {
    int64_t r = 0;
    for (int64_t v = 0; v < vectors; ++v) {
      __m256 value = _mm256_setzero_ps();
      for (; r < runCount && runs[r].vector == v; ++r) {
        const float *from = src + runs[r].base;
        const __m256 even =
            _mm256_shuffle_ps(_mm256_maskload_ps(from, low[r]),
                              _mm256_maskload_ps(from + 8, high[r]), 0x88);
        const __m256i inOrder =
            _mm256_permute4x64_epi64(_mm256_castps_si256(even), 0xd8);
        const __m256i mask = laneMask(runs[r].first, runs[r].last);
        value = _mm256_or_ps(
            value, _mm256_castsi256_ps(_mm256_and_si256(inOrder, mask)));
      }
      _mm256_storeu_ps(dst + v * 8, value);
    }
  }
}

#endif

#if defined(__AVX512F__) || defined(__AVX2__)
template <>
void packRuns<float>(float *dst, int64_t ld, int64_t vectors, const float *src,
                     int64_t plane, int64_t channels,
                     const RowKernels<float>::Run *runs, int64_t runCount,
                     int64_t step) {
  if (step == 1)
    return packRunsUnit(dst, ld, vectors, src, plane, channels, runs, runCount);
  if (step == 2)
    return packRunsHalf(dst, ld, vectors, src, plane, channels, runs, runCount);
  packRunsApart(dst, ld, vectors, src, plane, channels, runs, runCount, step);
}
#endif

//===----------------------------------------------------------------------===//
// Filters
//===----------------------------------------------------------------------===//

/// N vectors of the output at a time: enough sums to hide their latency.
template <typename T, int N>
void filterVectors(T *out, int64_t n, int64_t i, const T *const *rows,
                   const T *weights, int64_t terms) {
  constexpr int lanes = kLanes<T>;
  Vector<T> sum[N] = {};
  for (int64_t t = 0; t < terms; ++t) {
    const Vector<T> weight = splat(weights[t]);
    const T *row = rows[t] + i;
#pragma unroll
    for (int j = 0; j < N; ++j)
      sum[j] = multiplyAdd<T>(weight, load(row + j * lanes), sum[j]);
  }
#pragma unroll
  for (int j = 0; j < N; ++j)
    if (i + j * lanes < n)
      storeLanes<T>(out + i + j * lanes, sum[j], n - i - j * lanes);
}

template <typename T>
void filter(T *out, int64_t n, const T *const *rows, const T *weights,
            int64_t terms) {
  constexpr int lanes = kLanes<T>;
  int64_t i = 0;
  for (; n - i > 2 * lanes; i += 4 * lanes)
    if (n - i > 3 * lanes)
      filterVectors<T, 4>(out, n, i, rows, weights, terms);
    else
      filterVectors<T, 3>(out, n, i, rows, weights, terms);
  if (n - i > lanes)
    filterVectors<T, 2>(out, n, i, rows, weights, terms);
  else if (n > i)
    filterVectors<T, 1>(out, n, i, rows, weights, terms);
}

template <typename T> struct DotLanes {
  typedef T Type
      __attribute__((vector_size(kDotLanes * sizeof(T)), aligned(alignof(T))));
};
template <typename T> using Dot = typename DotLanes<T>::Type;

/// The first n < kDotLanes, and zeros.
template <typename T> Dot<T> loadRest(const T *from, int64_t n) {
  Dot<T> rest = {};
  for (int64_t i = 0; i < n; i += kLanes<T>) {
    const Vector<T> some = loadLanes(from + i, n - i);
    __builtin_memcpy(reinterpret_cast<T *>(&rest) + i, &some, sizeof(some));
  }
  return rest;
}

template <typename T, int N>
void dotVectors(T *sums, const T *dy, int64_t n, const T *const *rows) {
  Dot<T> sum[N];
#pragma unroll
  for (int j = 0; j < N; ++j)
    sum[j] = *reinterpret_cast<const Dot<T> *>(sums + j * kDotLanes);
  const auto add = [&](const Dot<T> &factor, int64_t i) {
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const Dot<T> row = *reinterpret_cast<const Dot<T> *>(rows[j] + i);
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
      sum[j] = __builtin_elementwise_fma(factor, row, sum[j]);
#else
      sum[j] = factor * row + sum[j];
#endif
    }
  };
  int64_t i = 0;
  for (; i + kDotLanes <= n; i += kDotLanes)
    add(*reinterpret_cast<const Dot<T> *>(dy + i), i);
  if (i < n)
    add(loadRest(dy + i, n - i), i);
#pragma unroll
  for (int j = 0; j < N; ++j)
    *reinterpret_cast<Dot<T> *>(sums + j * kDotLanes) = sum[j];
}

template <typename T>
void dots(T *sums, const T *dy, int64_t n, const T *const *rows,
          int64_t terms) {
  int64_t t = 0;
  for (; t + 4 <= terms; t += 4)
    dotVectors<T, 4>(sums + t * kDotLanes, dy, n, rows + t);
  for (; t < terms; ++t)
    dotVectors<T, 1>(sums + t * kDotLanes, dy, n, rows + t);
}

//===----------------------------------------------------------------------===//
// Maxima
//===----------------------------------------------------------------------===//

template <typename T> struct Maxima {
  typedef int32_t Places
      __attribute__((vector_size(kLanes<T> * 4), aligned(alignof(int32_t))));
  Vector<T> top;
  Places place;

  /// Of output positions from i on; load(row) gives what one row has for them.
  template <typename Load>
  Maxima(const T *const *rows, const int32_t *at, int64_t i, int64_t terms,
         int64_t step, const Load &load) {
    Places offset;
    for (int l = 0; l < kLanes<T>; ++l)
      offset[l] = int32_t((i + l) * step);
    top = load(rows[0] + i * step);
    place = offset + at[0];
    for (int64_t t = 1; t < terms; ++t) {
      const Vector<T> v = load(rows[t] + i * step);
      const auto take = (v > top) | (v != v);
      top = take ? v : top;
      place = __builtin_convertvector(take, Places) ? offset + at[t] : place;
    }
  }

  void store(T *best, int32_t *where) const {
    *reinterpret_cast<Vector<T> *>(best) = top;
    *reinterpret_cast<Places *>(where) = place;
  }
  void storeSome(T *best, int32_t *where, int64_t count) const {
    storeLanes<T>(best, top, count);
    for (int64_t l = 0; l < count; ++l)
      where[l] = place[l];
  }
};
template <>
void Maxima<float>::storeSome(float *best, int32_t *where,
                              int64_t count) const {
  storeLanes<float>(best, top, count);
  storeLanes<float>(reinterpret_cast<float *>(where), Vector<float>(place),
                    count);
}

template <typename T>
void maximum(T *best, int32_t *where, int64_t n, const T *const *rows,
             const int32_t *at, int64_t terms, int64_t step) {
  constexpr int64_t lanes = kLanes<T>;
  using Lists = LaneLists<lanes>;
  if (step <= 2 && n >= lanes) {
    for (int64_t i = 0; i < n; i += lanes) {
      // The last vector may overlap the one before.
      const int64_t from = i + lanes <= n ? i : n - lanes;
      Maxima<T>(rows, at, from, terms, step, [&](const T *row) {
        return Lists::load(row, step);
      }).store(best + from, where + from);
    }
    return;
  }
  if (step <= 2 && n > 0)
    return Maxima<T>(
               rows, at, 0, terms, step,
               [&](const T *row) { return Lists::loadSome(row, step, n); })
        .storeSome(best, where, n);
  for (int64_t i = 0; i < n; ++i) {
    best[i] = rows[0][i * step];
    where[i] = int32_t(at[0] + i * step);
    for (int64_t t = 1; t < terms; ++t) {
      const T v = rows[t][i * step];
      if (v > best[i] || v != v) {
        best[i] = v;
        where[i] = int32_t(at[t] + i * step);
      }
    }
  }
}

template <typename T>
constexpr RowKernels<T> kTable = {packRuns<T>, putRun<T>, filter<T>, dots<T>,
                                  maximum<T>};

} // namespace

extern const RowKernels<float> PIPEC_TABLE(floatRows);
extern const RowKernels<double> PIPEC_TABLE(doubleRows);
constexpr RowKernels<float> PIPEC_TABLE(floatRows) = kTable<float>;
constexpr RowKernels<double> PIPEC_TABLE(doubleRows) = kTable<double>;

} // namespace pipec::cpu
