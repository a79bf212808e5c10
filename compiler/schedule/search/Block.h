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
  int width = 8;     ///< partial blocks kept from task to task
};

/// Walks one microbatch forwards and backwards through the stages, each task at
/// one of the times when its device is free in every period, and keeps the
/// walks that wait least while least is held; then the weight gradients take
/// what is left. Those that found a place, of the least waiting first.
std::vector<Block> makeBlocks(const Problem &problem,
                              const BlockOptions &options);

/// Task visits that makeBlocks amounts to.
double blockEffort(const Problem &problem, const BlockOptions &options);

/// The block for every microbatch, as an order.
Order unroll(const Problem &problem, const Block &block);

/// The unrolled block of the least waiting that fits; empty when none does.
Order fittingBlock(const Problem &problem, const BlockOptions &options);

} // namespace pipec::schedule::search
