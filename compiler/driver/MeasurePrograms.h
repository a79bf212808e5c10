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

  /// What a thread runs steps of a program in, one task after the other. Of
  /// microbatches two are kept.
  class Worker {
  public:
    virtual ~Worker() = default;
    virtual void begin() = 0; ///< of a step
    virtual void forward(int microbatch) = 0;
    virtual void backward(int microbatch) = 0;
    virtual void end() = 0; ///< with the update
    /// Core seconds of its "forward", "backward" or "update": the mean of most.
    virtual double usual(const std::string &task) = 0;
  };
  std::unique_ptr<Worker> worker(int number) const;
  const int narrow; ///< the numbers of narrow ones are below

private:
  class Program;
  std::vector<std::unique_ptr<Program>> programs;
};

} // namespace pipec
