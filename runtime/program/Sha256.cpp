//===- Sha256.cpp - digests of files --------------------------------------===//
#include "runtime/program/Sha256.h"
#include "support/Failure.h"

#include <bit>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace pipec {
namespace {

alignas(16) constexpr uint32_t K[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1,
    0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3,
    0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786,
    0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
    0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13,
    0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
    0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a,
    0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
    0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

void portable(uint32_t *state, const unsigned char *data, size_t blocks) {
  for (; blocks; --blocks, data += 64) {
    uint32_t w[64];
    for (int i = 0; i < 16; ++i)
      w[i] = uint32_t(data[4 * i]) << 24 | uint32_t(data[4 * i + 1]) << 16 |
             uint32_t(data[4 * i + 2]) << 8 | data[4 * i + 3];
    for (int i = 16; i < 64; ++i) {
      const uint32_t a = w[i - 15], b = w[i - 2];
      w[i] = w[i - 16] + w[i - 7] +
             (std::rotr(a, 7) ^ std::rotr(a, 18) ^ (a >> 3)) +
             (std::rotr(b, 17) ^ std::rotr(b, 19) ^ (b >> 10));
    }
    uint32_t v[8];
    std::memcpy(v, state, sizeof v);
    for (int i = 0; i < 64; ++i) {
      const uint32_t e = v[4], a = v[0];
      const uint32_t t1 =
          v[7] + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) +
          ((e & v[5]) ^ (~e & v[6])) + K[i] + w[i];
      const uint32_t t2 =
          (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) +
          ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));
      std::memmove(v + 1, v, 7 * sizeof *v);
      v[4] += t1;
      v[0] = t1 + t2;
    }
    for (int i = 0; i < 8; ++i)
      state[i] += v[i];
  }
}

#if defined(__x86_64__)
bool haveInstructions() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b & (1u << 29)))
    return false;
  return __get_cpuid(1, &a, &b, &c, &d) && (c & (1u << 19)); // SSE4.1
}

/// The state lives in two registers as the instructions want it: ABEF, CDGH.
__attribute__((target("sha,sse4.1,ssse3"))) void
withInstructions(uint32_t *state, const unsigned char *data, size_t blocks) {
  const __m128i swap =
      _mm_set_epi64x(0x0c0d0e0f08090a0bLL, 0x0405060700010203LL);
  __m128i low = _mm_loadu_si128(reinterpret_cast<const __m128i *>(state));
  __m128i high = _mm_loadu_si128(reinterpret_cast<const __m128i *>(state + 4));
  low = _mm_shuffle_epi32(low, 0xB1);
  high = _mm_shuffle_epi32(high, 0x1B);
  __m128i abef = _mm_alignr_epi8(low, high, 8);
  __m128i cdgh = _mm_blend_epi16(high, low, 0xF0);
  for (; blocks; --blocks, data += 64) {
    const __m128i abefBefore = abef, cdghBefore = cdgh;
    __m128i w[4];
    for (int i = 0; i < 4; ++i)
      w[i] = _mm_shuffle_epi8(
          _mm_loadu_si128(reinterpret_cast<const __m128i *>(data) + i), swap);
    for (int i = 0; i < 16; ++i) {
      if (i >= 4) { // w[t] from w[t-16], w[t-15], w[t-7], w[t-2]
        __m128i &x = w[i % 4];
        const __m128i &next = w[(i + 1) % 4], &then = w[(i + 2) % 4],
                      &last = w[(i + 3) % 4];
        x = _mm_add_epi32(_mm_sha256msg1_epu32(x, next),
                          _mm_alignr_epi8(last, then, 4));
        x = _mm_sha256msg2_epu32(x, last);
      }
      __m128i sum = _mm_add_epi32(
          w[i % 4],
          _mm_load_si128(reinterpret_cast<const __m128i *>(K + 4 * i)));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
      sum = _mm_shuffle_epi32(sum, 0x0E);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, sum);
    }
    abef = _mm_add_epi32(abef, abefBefore);
    cdgh = _mm_add_epi32(cdgh, cdghBefore);
  }
  low = _mm_shuffle_epi32(abef, 0x1B);
  high = _mm_shuffle_epi32(cdgh, 0xB1);
  _mm_storeu_si128(reinterpret_cast<__m128i *>(state),
                   _mm_blend_epi16(low, high, 0xF0));
  _mm_storeu_si128(reinterpret_cast<__m128i *>(state + 4),
                   _mm_alignr_epi8(high, low, 8));
}
#endif

using Compress = void (*)(uint32_t *, const unsigned char *, size_t);

const Compress compress = [] {
#if defined(__x86_64__)
  if (haveInstructions())
    return Compress(withInstructions);
#endif
  return Compress(portable);
}();

} // namespace

Sha256::Sha256()
    : state{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
            0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19} {}

void Sha256::add(const void *data, size_t bytes) {
  auto *next = static_cast<const unsigned char *>(data);
  total += bytes;
  if (filled) {
    const size_t take = std::min(bytes, block.size() - filled);
    std::memcpy(block.data() + filled, next, take);
    filled += take, next += take, bytes -= take;
    if (filled < block.size())
      return;
    compress(state.data(), block.data(), 1);
    filled = 0;
  }
  compress(state.data(), next, bytes / 64);
  filled = bytes % 64;
  std::memcpy(block.data(), next + bytes - filled, filled);
}

std::string Sha256::hex() {
  const uint64_t bits = total * 8;
  const unsigned char one = 0x80, zero = 0;
  add(&one, 1);
  while (filled != 56)
    add(&zero, 1);
  unsigned char length[8];
  for (int i = 0; i < 8; ++i)
    length[i] = static_cast<unsigned char>(bits >> (56 - 8 * i));
  add(length, 8);
  std::string text;
  for (uint32_t word : state)
    for (int shift = 28; shift >= 0; shift -= 4)
      text += "0123456789abcdef"[(word >> shift) & 15];
  return text;
}

std::string sha256OfFile(const std::string &path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    throw Failure(Exit::NoInput, path + ": " + std::strerror(errno));
  constexpr size_t kChunk = 1 << 20;
  const auto buffer = std::make_unique<char[]>(kChunk);
  Sha256 digest;
  ssize_t got = 0;
  while ((got = ::read(fd, buffer.get(), kChunk)) > 0)
    digest.add(buffer.get(), static_cast<size_t>(got));
  const int error = errno;
  ::close(fd);
  if (got < 0)
    throw Failure(Exit::NoInput, path + ": " + std::strerror(error));
  return digest.hex();
}

} // namespace pipec
