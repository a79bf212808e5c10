//===- DeviceCalls.cpp - what emulated kernels call -----------------------===//
#include "test/unit/target/Fibers.h"

#include <cstring>

using namespace pipec::test;

extern "C" {
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
}
