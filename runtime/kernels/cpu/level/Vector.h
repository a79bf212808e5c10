//===- Vector.h - vectors of one processor level ----------------*- C++ -*-===//
//
// For the files of this folder that are compiled once per processor level.
// Everything is internal to each, and no library templates are used: code built
// for a new processor must not become the definition that an old one links to.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "runtime/kernels/cpu/level/Element.h"

#include <cstdint>

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#endif

namespace pipec::cpu {
namespace {

#if defined(__AVX512F__)
constexpr int kBytes = 64;
#elif defined(__AVX2__)
constexpr int kBytes = 32;
#else
constexpr int kBytes = 16;
#endif

template <typename T> constexpr int kLanes = kBytes / int(sizeof(T));

template <typename T> struct VectorOf {
  typedef T type __attribute__((vector_size(kBytes), aligned(alignof(T))));
};
template <typename T> using Vector = typename VectorOf<T>::type;

template <typename T> Vector<T> load(const T *p) {
  return *reinterpret_cast<const Vector<T> *>(p);
}
template <typename T> void store(T *p, Vector<T> v) {
  *reinterpret_cast<Vector<T> *>(p) = v;
}
template <typename T> Vector<T> splat(T x) { return x - Vector<T>{}; }

template <typename T>
Vector<Sum<T>> multiplyAdd(Vector<T> a, Vector<T> b, Vector<Sum<T>> c) {
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
  return __builtin_elementwise_fma(a, b, c);
#else
  return a * b + c;
#endif
}
#ifdef __AVX512BF16__
template <>
inline Vector<float> multiplyAdd<Pair>(Vector<Pair> a, Vector<Pair> b,
                                       Vector<float> c) {
  return Vector<float>(_mm512_dpbf16_ps(__m512(c), __m512bh(a), __m512bh(b)));
}
#endif

#if defined(__AVX2__) && !defined(__AVX512F__)
inline __m256i firstLanes(int64_t count) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(int(count)),
                            _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
#endif

/// The first `count` lanes; the others are zero, or not touched.
template <typename T> Vector<T> loadLanes(const T *p, int64_t count) {
  if (count >= kLanes<T>)
    return load(p);
#ifdef __AVX512F__
  if constexpr (sizeof(T) == 4)
    return Vector<T>(_mm512_maskz_loadu_ps(__mmask16((1u << count) - 1), p));
#elif defined(__AVX2__)
  if constexpr (sizeof(T) == 4)
    return Vector<T>(_mm256_maskload_ps(p, firstLanes(count)));
#endif
  Vector<T> v = {};
  for (int64_t l = 0; l < count; ++l)
    v[l] = p[l];
  return v;
}
#ifdef __AVX512F__
/// The same of pairs, which may begin at any half.
inline Vector<Pair> loadLanes(const uint16_t *p, int64_t count) {
  const unsigned last = count < kLanes<Pair> ? (1u << count) - 1 : 0xffff;
  return Vector<Pair>(_mm512_maskz_loadu_epi32(__mmask16(last), p));
}
#endif
template <typename T> void storeLanes(T *p, Vector<T> v, int64_t count) {
  if (count >= kLanes<T>)
    return store<T>(p, v);
#ifdef __AVX512F__
  if constexpr (sizeof(T) == 4)
    return _mm512_mask_storeu_ps(p, __mmask16((1u << count) - 1), __m512(v));
#elif defined(__AVX2__)
  if constexpr (sizeof(T) == 4)
    return _mm256_maskstore_ps(p, firstLanes(count), __m256(v));
#endif
  for (int64_t l = 0; l < count; ++l)
    p[l] = v[l];
}

} // namespace
} // namespace pipec::cpu

/// The name of a table of this level.
#define PIPEC_JOIN2(a, b) a##b
#define PIPEC_JOIN(a, b) PIPEC_JOIN2(a, b)
#define PIPEC_TABLE(name) PIPEC_JOIN(name##_, PIPEC_LEVEL)
