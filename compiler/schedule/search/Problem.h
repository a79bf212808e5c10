//===- Problem.h - a scheduling problem in flat tables ----------*- C++ -*-===//
//
// What the search works on: one copy of each stage, backward always split into
// I and W, microbatches alike. All tasks of one kind at one stage form a row;
// a row's tasks always run in microbatch order, which loses nothing because
// microbatches are alike. What a task needs and feeds is the same along a row,
// so a problem is one small table, and time running backwards is another.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/schedule/Generator.h"

#include <cstdint>
#include <limits>
#include <vector>

namespace pipec::schedule::search {

constexpr double kNever = std::numeric_limits<double>::infinity();

/// Row * 2^bits + microbatch; row = 3 * stage + (0 F, 1 I, 2 W).
using Task = int32_t;

/// Of so many tasks, a million, each pass over them takes the better part of a
/// second: there are fewer passes, and what they give is kept.
constexpr bool hasManyTasks(int64_t stages, int64_t microbatches) {
  constexpr int64_t kManyTasks = 1'000'000;
  return 3 * stages * microbatches > kManyTasks;
}

/// Per-device task lists.
using Order = std::vector<std::vector<Task>>;

/// One kind at one stage.
struct Row {
  double time = 0;
  double memory = 0; ///< what running it adds
  double hop = 0;    ///< from here to the row it feeds
  int device = 0;
  int feeds = -1;     ///< row on another stage that takes its result
  int after = -1;     ///< row on the same stage whose task must have run
  bool waits = false; ///< takes a result from another stage
};

struct Problem {
  int devices = 0, stages = 0, microbatches = 0, bits = 0;
  std::vector<Row> rows;
  /// The same with time reversed: W before I before F, memory given back.
  std::vector<Row> mirror;
  std::vector<std::vector<int>> rowsOf; ///< [device]
  std::vector<double> limit;            ///< [device]; kNever: none
  std::vector<double> residue;          ///< [device] memory after everything
  Metric metric = Metric::Makespan;
  double work = 0; ///< busiest device's
  bool fused = false;

  int tasks() const { return 3 * stages * microbatches; }
  int taskIds() const { return 3 * stages << bits; }
  Task task(int row, int microbatch) const { return row << bits | microbatch; }
  int rowOf(Task t) const { return t >> bits; }
  int microbatchOf(Task t) const { return t & ((1 << bits) - 1); }
  /// Comparison of memory with a limit, with room for rounding.
  bool fits(double held, int device) const {
    return held <= limit[device] + slack;
  }
  double slack = 0;
};

/// The problem of placing `placement` (one copy each) under the request.
Problem makeProblem(const ScheduleRequest &request,
                    const std::vector<std::vector<int>> &placement);

/// Makes the backward one task: I takes W's time and memory, W neither. Such an
/// order becomes a schedule of whole backwards.
void fuse(Problem &problem);

Schedule toSchedule(const Problem &problem, const Order &order);
/// B becomes I, W; microbatches of a row are renamed to ascend.
Order toOrder(const Problem &problem, const Schedule &schedule);

/// What an order costs.
struct Result {
  double makespan = kNever, span = kNever;
  bool fits = false; ///< within the limits
  double cost(Metric metric) const {
    return metric == Metric::Makespan ? makespan : span;
  }
};

/// As-soon-as-possible execution. Not fitting and infinite on a deadlock.
/// `starts`, when given: by task.
Result evaluate(const Problem &problem, const Order &order,
                std::vector<double> *starts = nullptr);
/// Whether the memory after every task is within the limits.
bool fits(const Problem &problem, const Order &order);

/// The least limit any schedule of this request needs on the device that needs
/// most beyond its limit: one microbatch at a time.
struct LeastLimit {
  int device = 0;
  double needed = 0;
};
LeastLimit leastLimit(const Problem &problem);

} // namespace pipec::schedule::search
