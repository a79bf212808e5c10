//===- Fibers.h - the threads of a block -----------------------*- C++ -*-===//
#pragma once

#include <cstdint>
#include <functional>

namespace pipec::test {

/// Runs body() once for every thread of a block. Within it the functions below
/// may be called. With `meets` false they may not be, and threads run to their
/// end one by one. Throws std::logic_error when threads wait for others
/// that have ended.
void runBlock(int64_t block, int threads, bool meets, bool descending,
              const std::function<void()> &body);

int currentThread();
int64_t currentBlock();
/// Whether the last thread runs first.
bool isDescending();
/// Returns when all threads of the block are here.
void meetBlock();
/// Leaves a value, waits for all threads of the warp, and returns theirs: 32.
const uint32_t *exchangeWithWarp(uint32_t value);
/// The same with several words of each thread, kMostWords at most: word w of
/// thread t at [w * 32 + t].
constexpr int kMostWords = 6;
const uint32_t *exchangeWithWarp(const uint32_t *words, int count);

} // namespace pipec::test
