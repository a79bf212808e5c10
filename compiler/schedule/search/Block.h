//===- Block.h - cost-aware building blocks ---------------------*- C++ -*-===//
#pragma once

#include "compiler/schedule/search/Problem.h"

namespace pipec::schedule::search {

/// When each row runs for microbatch 0; microbatch k follows k periods later.
struct Block {
  double period = 0;
  std::vector<double> at;   ///< by row
  std::vector<double> peak; ///< by device, in the steady state
};

struct BlockOptions {
  double period = 1; ///< of the busiest device's work for a microbatch
  /// Only gaps that hold a weight gradient may stay between tasks.
  bool tidy = false;
  /// Wait this part of a task's time before each next stage.
  double stretch = 0;
  /// Wait this part of a period at the last stage before turning back.
  double turn = 0;
  /// Delay tasks at random, from this seed; 0: none.
  unsigned jitter = 0;
};

/// Walks one microbatch forwards and backwards through the stages and gives
/// each task the first time at which its device is free in every period, then
/// the weight gradients what is left. Empty `at` when they do not fit.
Block makeBlock(const Problem &problem, const BlockOptions &options);

/// The block for every microbatch, as an order.
Order unroll(const Problem &problem, const Block &block);

} // namespace pipec::schedule::search
