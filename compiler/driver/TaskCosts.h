//===- TaskCosts.h - times of the code that a model becomes -----*- C++ -*-===//
//
// The code generator computes many operators in one pass over memory, others by
// a library, so that a sum over operators says little of a program of small
// ones. Here the model is planned as one stage, down to the calls that a task
// consists of, and each call's time goes to the nodes it computes.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/plan/DeviceModel.h"
#include "compiler/target/fusion/Plan.h"
#include "mlir/IR/BuiltinOps.h"
#include "passes/Pipelines.h"

#include <array>
#include <string>
#include <vector>

namespace pipec {

/// What an op's time counts as; `pipe.part` on it.
enum class Part { Forward, BackwardInput, BackwardWeight };
inline constexpr llvm::StringLiteral kNode = "pipe.node", kPart = "pipe.part";

/// An optimizer by its name and settings.
struct OptimizerChoice {
  std::string name; ///< empty: nothing is trained
  std::vector<std::string> settings;
};

struct TaskCosts {
  /// By node and part, s.
  std::vector<std::array<double, 3>> nodes;
  double update = 0; ///< of all weights, a step
  double track = 0;  ///< of running statistics, a microbatch
  /// Whether threads share calls of a forward or a backward pass.
  bool forwardShares = false, backwardShares = false;
};

/// Whether the device's calibration knows what calls cost.
bool knowsCalls(const plan::DeviceModel &device);

/// Times of `module`, which is differentiated, in one stage, and consumed; its
/// ops carry their node and part. Between two tasks that touch the same each of
/// `caches` sees `workingSet` bytes. Fails after a diagnostic.
mlir::FailureOr<TaskCosts> taskCosts(mlir::ModuleOp module, size_t nodes,
                                     const OptimizerChoice &optimizer,
                                     const plan::DeviceModel &device,
                                     double workingSet, int caches,
                                     const MemoryChoice &memory);

/// Adds the times of a task's calls on a GPU of which peaks are known: each
/// moves every tensor once, or computes as fast as its kind does at best, and
/// is launched. Ops carry their node and part.
mlir::LogicalResult addCallCosts(fusion::TaskPlan &task,
                                 const plan::DeviceModel &device,
                                 TaskCosts &costs);

} // namespace pipec
