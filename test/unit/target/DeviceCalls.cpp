//===- DeviceCalls.cpp - what emulated kernels call -----------------------===//
#include "test/unit/target/Fibers.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <vector>

using namespace pipec::test;

static float fromBFloat(uint32_t bits) {
  bits <<= 16;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

/// The upper half of a float's bits, to nearest even.
static uint32_t toBFloat(uint32_t bits) {
  if ((bits & 0x7fffffff) > 0x7f800000)
    return 0x7fff;
  return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

/// What a device calls a misaligned address, after which it does nothing more.
[[noreturn]] static void stopAt(uint64_t address, uint64_t alignment) {
  std::fprintf(stderr,
               "thread %d of block %lld: %#llx is not aligned to %llu bytes\n",
               currentThread(), static_cast<long long>(currentBlock()),
               static_cast<unsigned long long>(address),
               static_cast<unsigned long long>(alignment));
  std::abort();
}

/// ldmatrix: thread t says where row t % 8 of matrix t / 8 is, and gets two
/// neighbours of each.
static void loadMatrices(uint64_t address, uint32_t *out, bool turned) {
  const uint32_t words[] = {static_cast<uint32_t>(address),
                            static_cast<uint32_t>(address >> 32)};
  const uint32_t *all = exchangeWithWarp(words, 2);
  const int lane = currentThread() % 32, major = lane / 4, minor = lane % 4 * 2;
  auto at = [&](int matrix, int row, int column) -> uint32_t {
    const int thread = matrix * 8 + row;
    const uint64_t start = all[thread] | uint64_t(all[32 + thread]) << 32;
    if (start % 16)
      stopAt(start, 16);
    uint16_t value;
    std::memcpy(&value, reinterpret_cast<const char *>(start) + 2 * column, 2);
    return value;
  };
  for (int i = 0; i < 4; ++i) {
    const uint32_t low = turned ? at(i, minor, major) : at(i, major, minor);
    const uint32_t high =
        turned ? at(i, minor + 1, major) : at(i, major, minor + 1);
    out[i] = low | high << 16;
  }
}

namespace {
/// cp.async: what a thread has under way. In one order of threads it is done as
/// late as it may be, which shows waits that are missing, in the other at once,
/// which shows what is still being read.
struct Copy {
  char *to;
  const char *from;
  size_t bytes, read; ///< zeros behind what is read
};
std::map<int, std::vector<Copy>> underWay;
int64_t blockOfCopies = 0;
} // namespace

static void endCopies() {
  for (const Copy &copy : underWay[currentThread()]) {
    std::memset(copy.to, 0, copy.bytes);
    std::memcpy(copy.to, copy.from, copy.read);
  }
  underWay[currentThread()].clear();
}

static void beginCopy(char *to, const char *from, size_t bytes, size_t read) {
  const size_t beside = (reinterpret_cast<uintptr_t>(to) % bytes) |
                        (reinterpret_cast<uintptr_t>(from) % bytes);
  if (beside)
    stopAt(reinterpret_cast<uintptr_t>(from), bytes);
  if (blockOfCopies != currentBlock()) {
    for (auto &[thread, copies] : underWay)
      if (!copies.empty()) {
        std::fprintf(stderr, "block %lld has ended before its copies\n",
                     static_cast<long long>(blockOfCopies));
        std::abort();
      }
    blockOfCopies = currentBlock();
  }
  underWay[currentThread()].push_back({to, from, bytes, read});
  if (isDescending())
    endCopies();
}

extern "C" {
__attribute__((visibility("default"))) void pipec_test_copy_16(char *to,
                                                               char *from) {
  beginCopy(to, from, 16, 16);
}
__attribute__((visibility("default"))) void
pipec_test_copy_16_of(char *to, char *from, int32_t read) {
  beginCopy(to, from, 16, static_cast<size_t>(read));
}
__attribute__((visibility("default"))) void
pipec_test_copy_4_of(char *to, char *from, int32_t read) {
  beginCopy(to, from, 4, static_cast<size_t>(read));
}
__attribute__((visibility("default"))) void pipec_test_commit() {}
/// Of all groups: no kernel waits for a part of them.
__attribute__((visibility("default"))) void pipec_test_wait(int32_t others) {
  if (others)
    std::abort();
  endCopies();
}
__attribute__((visibility("default"))) void
pipec_test_misaligned(uint64_t address, uint64_t alignment) {
  stopAt(address, alignment);
}
__attribute__((visibility("default"))) int32_t pipec_test_tid_x() {
  return currentThread();
}
__attribute__((visibility("default"))) int32_t pipec_test_ctaid_x() {
  return static_cast<int32_t>(currentBlock());
}
__attribute__((visibility("default"))) void pipec_test_barrier(int32_t) {
  meetBlock();
}
__attribute__((visibility("default"))) int32_t
pipec_test_shfl_i32(int32_t, int32_t value, int32_t bits, int32_t) {
  uint32_t mine;
  std::memcpy(&mine, &value, 4);
  return static_cast<int32_t>(
      exchangeWithWarp(mine)[(currentThread() % 32) ^ bits]);
}
__attribute__((visibility("default"))) float
pipec_test_shfl_f32(int32_t, float value, int32_t bits, int32_t) {
  uint32_t mine;
  std::memcpy(&mine, &value, 4);
  uint32_t theirs = exchangeWithWarp(mine)[(currentThread() % 32) ^ bits];
  std::memcpy(&value, &theirs, 4);
  return value;
}
__attribute__((visibility("default"))) int32_t
pipec_test_ballot(int32_t, bool condition) {
  const uint32_t *all = exchangeWithWarp(condition);
  uint32_t bits = 0;
  for (int i = 0; i < 32; ++i)
    bits |= (all[i] & 1) << i;
  return static_cast<int32_t>(bits);
}
__attribute__((visibility("default"))) void pipec_test_warp(int32_t) {
  exchangeWithWarp(0);
}

/// What code of processors without AVX512-BF16 calls to round, which GCC's
/// library has from version 13 on. Like a float, a bf16 is returned in the
/// lowest bits of a vector register.
__attribute__((visibility("default"))) float __truncsfbf2(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  bits = toBFloat(bits);
  std::memcpy(&value, &bits, 4);
  return value;
}

// Those with operands and results in memory (DeviceCode.cpp).
__attribute__((visibility("default"))) void
pipec_test_matrices(const uint64_t *in, uint32_t *out) {
  loadMatrices(in[0], out, false);
}
__attribute__((visibility("default"))) void
pipec_test_matrices_turned(const uint64_t *in, uint32_t *out) {
  loadMatrices(in[0], out, true);
}
__attribute__((visibility("default"))) void pipec_test_mma(const uint64_t *in,
                                                           float *out) {
  uint32_t words[6];
  for (int i = 0; i < 6; ++i)
    words[i] = static_cast<uint32_t>(in[i]);
  const uint32_t *all = exchangeWithWarp(words, 6);
  const int lane = currentThread() % 32;
  // a [16, 16] and b [16, 8]: word w of thread t has two neighbours along k.
  auto half = [&](int word, int thread, int k) {
    return fromBFloat(all[word * 32 + thread] >> (16 * (k % 2)));
  };
  for (int i = 0; i < 4; ++i) {
    const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
    const auto start = static_cast<uint32_t>(in[6 + i]);
    float sum;
    std::memcpy(&sum, &start, 4);
    for (int k = 0; k < 16; ++k) {
      const int pair = k % 8 / 2;
      sum += half(row / 8 + k / 8 * 2, row % 8 * 4 + pair, k) *
             half(4 + k / 8, column * 4 + pair, k);
    }
    out[i] = sum;
  }
}
__attribute__((visibility("default"))) void
pipec_test_bf16x2(const uint64_t *in, uint32_t *out) {
  *out = toBFloat(static_cast<uint32_t>(in[0])) << 16 |
         toBFloat(static_cast<uint32_t>(in[1]));
}
/// A unit in the last place too much, which a device may be off.
__attribute__((visibility("default"))) float pipec_test_rcp(float x) {
  return std::nextafter(1 / x, INFINITY);
}
__attribute__((visibility("default"))) float pipec_test_power(float x) {
  const float power = std::exp2(x);
  return power < 0x1p-126F ? 0 : power;
}
}
