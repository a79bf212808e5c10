//===- StepTotals.h - what a rank's steps consist of ------------*- C++ -*-===//
#pragma once

#include <cstdint>
#include <vector>

namespace pipec {

/// All that a rank did of one kind for a stage in some steps.
struct TaskTotal {
  char kind; ///< as of an Event
  int stage;
  int64_t calls;
  double seconds;     ///< on the clock
  double coreSeconds; ///< while its thread had a core
};

/// Adds the tasks of every step up, and tells what a usual one consists of. A
/// step that was disturbed (another process on its core, a checkpoint) says
/// nothing of the others; a mean would have it.
class StepTotals {
public:
  /// Leaves steps before `first` out.
  explicit StepTotals(int64_t first = 0) : first(first) {}

  void add(char kind, int stage, int64_t step, double seconds,
           double coreSeconds);
  /// A step is over, after `seconds`. Without a call all is one step.
  void endStep(int64_t step, double seconds);

  /// Sums over those steps that are the middle half by their seconds.
  std::vector<TaskTotal> middle() const;

private:
  struct Step {
    double seconds = 0;
    std::vector<TaskTotal> totals;
  };
  /// The steps by their seconds.
  std::vector<const Step *> sorted() const;

  int64_t first;
  int64_t stride = 1; ///< one step of so many is kept
  Step open;
  std::vector<Step> steps;
};

} // namespace pipec
