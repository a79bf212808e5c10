//===- Fibers.cpp - the threads of a block --------------------------------===//
#include "test/unit/target/Fibers.h"

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

using namespace pipec::test;

// Saves the registers that a call preserves, and continues on another stack.
extern "C" void pipec_test_switch(void **save, void *to);
asm(R"(
.text
.globl pipec_test_switch
pipec_test_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
)");

namespace {

constexpr int kWarp = 32;
constexpr size_t kStack = 64 * 1024;

struct Warp {
  int64_t arrivals = 0;
  int size = 0;
  uint32_t values[2][kMostWords * kWarp] = {};
};

struct Fiber {
  std::unique_ptr<char[]> stack;
  void *pointer = nullptr;
  bool done = false;
  int64_t blockMeetings = 0, warpMeetings = 0;
  bool waitsForBlock = false, waitsForWarp = false;
};

struct Block {
  std::vector<Fiber> fibers;
  std::vector<Warp> warps;
  int64_t number = 0, arrivals = 0;
  bool descending = false;
  int threads = 0, current = 0;
  void *scheduler = nullptr;
  const std::function<void()> *body = nullptr;

  bool isReady(const Fiber &fiber, int thread) const {
    if (fiber.done)
      return false;
    const Warp &warp = warps[thread / kWarp];
    if (fiber.waitsForBlock)
      return arrivals >= fiber.blockMeetings * threads;
    if (fiber.waitsForWarp)
      return warp.arrivals >= fiber.warpMeetings * warp.size;
    return true;
  }
};

Block theBlock;

void yieldFiber() {
  Fiber &fiber = theBlock.fibers[theBlock.current];
  pipec_test_switch(&fiber.pointer, theBlock.scheduler);
}

extern "C" void pipec_test_fiber() {
  (*theBlock.body)();
  theBlock.fibers[theBlock.current].done = true;
  yieldFiber();
  __builtin_unreachable();
}

void prepare(Fiber &fiber) {
  if (!fiber.stack)
    fiber.stack = std::make_unique<char[]>(kStack);
  auto top = reinterpret_cast<uintptr_t>(fiber.stack.get() + kStack) & ~15ULL;
  auto *at = reinterpret_cast<void **>(top);
  *--at = nullptr; // a return address would be here: keeps calls aligned
  *--at = reinterpret_cast<void *>(&pipec_test_fiber);
  for (int i = 0; i < 6; ++i)
    *--at = nullptr;
  fiber.pointer = at;
  fiber.done = fiber.waitsForBlock = fiber.waitsForWarp = false;
  fiber.blockMeetings = fiber.warpMeetings = 0;
}

} // namespace

int pipec::test::currentThread() { return theBlock.current; }
bool pipec::test::isDescending() { return theBlock.descending; }
int64_t pipec::test::currentBlock() { return theBlock.number; }

void pipec::test::meetBlock() {
  Fiber &fiber = theBlock.fibers[theBlock.current];
  ++fiber.blockMeetings;
  ++theBlock.arrivals;
  fiber.waitsForBlock = true;
  yieldFiber();
  fiber.waitsForBlock = false;
}

const uint32_t *pipec::test::exchangeWithWarp(uint32_t value) {
  return exchangeWithWarp(&value, 1);
}

const uint32_t *pipec::test::exchangeWithWarp(const uint32_t *words,
                                              int count) {
  int thread = theBlock.current;
  Fiber &fiber = theBlock.fibers[thread];
  Warp &warp = theBlock.warps[thread / kWarp];
  // Two sets in turn: some may be one meeting ahead.
  uint32_t *values = warp.values[fiber.warpMeetings % 2];
  for (int i = 0; i < count; ++i)
    values[i * kWarp + thread % kWarp] = words[i];
  ++fiber.warpMeetings;
  ++warp.arrivals;
  fiber.waitsForWarp = true;
  yieldFiber();
  fiber.waitsForWarp = false;
  return values;
}

void pipec::test::runBlock(int64_t block, int threads, bool meets,
                           bool descending, const std::function<void()> &body) {
  theBlock.number = block;
  theBlock.descending = descending;
  theBlock.threads = threads;
  auto nth = [&](int i) { return descending ? threads - 1 - i : i; };
  if (!meets) {
    for (int i = 0; i < threads; ++i) {
      theBlock.current = nth(i);
      body();
    }
    return;
  }
  theBlock.body = &body;
  theBlock.arrivals = 0;
  if (theBlock.fibers.size() < static_cast<size_t>(threads))
    theBlock.fibers.resize(threads);
  theBlock.warps.assign((threads + kWarp - 1) / kWarp, {});
  for (int i = 0; i < threads; ++i) {
    prepare(theBlock.fibers[i]);
    ++theBlock.warps[i / kWarp].size;
  }
  int left = threads;
  while (left > 0) {
    bool moved = false;
    for (int i = 0; i < threads; ++i) {
      int thread = nth(i);
      Fiber &fiber = theBlock.fibers[thread];
      if (!theBlock.isReady(fiber, thread))
        continue;
      theBlock.current = thread;
      pipec_test_switch(&theBlock.scheduler, fiber.pointer);
      left -= fiber.done;
      moved = true;
    }
    if (!moved) {
      throw std::logic_error(std::to_string(left) + " threads of block " +
                             std::to_string(block) +
                             " wait for threads that have ended");
    }
  }
}
