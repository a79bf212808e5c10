//===- MeasurePrograms.h - times of whole tasks -----------------*- C++ -*-===//
#pragma once

#include "compiler/driver/MeasureKernels.h"

#include <memory>
#include <string>
#include <vector>

namespace pipec {

/// Little training programs of several kinds, generated at random.
class MeasuredPrograms {
public:
  /// Throws Failure(Internal) when they do not compile.
  /// `narrow` ones, whose operands a core's own cache holds on most machines,
  /// and `wide` ones, whose it does not.
  MeasuredPrograms(int narrow, int wide);
  ~MeasuredPrograms();
  MeasuredPrograms(const MeasuredPrograms &) = delete;

  /// Runs their steps as ranks do, a rank a worker, and times their tasks.
  std::vector<plan::TaskSample> measure(const Workers &workers,
                                        const plan::DeviceModel &device) const;

private:
  class Program;
  std::vector<std::unique_ptr<Program>> programs;
};

} // namespace pipec
