//===- Held.h - what a task holds at a time ---------------------*- C++ -*-===//
#pragma once

#include "compiler/target/fusion/Plan.h"

namespace pipec::fusion {

/// Bytes of the workspace that are in use at one time for the sake of ops with
/// numbers from `first` to `last`: what runs then and what has made values that
/// are still to be read.
struct Held {
  int64_t first, last, bytes;
};

/// What a planned task holds, by the numbers that its ops carry as attributes
/// `numbers`: at every time for its ops alone, and with more and more of the
/// ops before and behind. None that says less than another of the same last op.
std::vector<Held> heldBy(const TaskPlan &plan,
                         llvm::ArrayRef<llvm::StringRef> numbers);

/// A value that is there while most is: its maker's number and its readers'
/// from then on.
struct Carried {
  int64_t maker, bytes;
  std::vector<int64_t> readers;
};

/// What is in use when most of the workspace is, of what ops with the attribute
/// `mark` have made and others are to read.
std::vector<Carried> carriedBy(const TaskPlan &plan,
                               llvm::ArrayRef<llvm::StringRef> numbers,
                               llvm::StringRef mark);

} // namespace pipec::fusion
