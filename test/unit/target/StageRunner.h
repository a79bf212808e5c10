//===- StageRunner.h - compile a stage, run it, know what it means -*- C++ -*-//
#pragma once

#include "compiler/target/Target.h"
#include "dialects/nn/eval/Evaluate.h"
#include "runtime/StageAbi.h"
#include "test/unit/target/DeviceEmulator.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/OwningOpRef.h"
#include <array>

namespace pipec::test {

/// The regions of a frame.
using Memory = std::array<std::vector<char>, PIPEC_REGION_COUNT>;

/// One stage module, compiled and loaded.
class StageRunner {
public:
  /// Parses and compiles for a row of Targets.def; fails the running test with
  /// the diagnostics. Code for GPUs is run by DeviceEmulator.
  explicit StageRunner(llvm::StringRef text,
                       const target::TargetOptions &options = {},
                       llvm::StringRef target = "cpu");
  ~StageRunner();
  StageRunner(const StageRunner &) = delete;

  bool ok() const { return library != nullptr; }
  const target::StageCode &code() const { return result; }
  mlir::ModuleOp stage() const { return module.get(); }

  /// Regions as large as the loads and stores need, what is loaded filled with
  /// numbers drawn from `seed`. Integers lie in [0, integerLimit).
  Memory randomMemory(unsigned seed, int64_t integerLimit = 7) const;
  /// Runs a task. The workspace is filled with NaN bytes first. `inPlace`: the
  /// new weights are written over the old ones.
  void run(llvm::StringRef task, Memory &memory, bool inPlace = false) const;
  /// The threads of emulated kernels run in the other order.
  void setDescending(bool on) const { emulator->setDescending(on); }
  /// Whether products add biases; how many could, since the last call.
  void setAddsBiases(bool on) const { emulator->setAddsBiases(on); }
  int takeBiasedCalls() const { return emulator->takeBiasedCalls(); }
  void setAttends(DeviceEmulator::Attends which) const {
    emulator->setAttends(which);
  }
  int takeAttendedCalls() const { return emulator->takeAttendedCalls(); }
  /// Whether an emulated kernel met an index out of range.
  bool takeFault() const { return emulator->takeFault(); }
  /// Least seconds of many runs of a task on `memory`.
  double time(llvm::StringRef task, Memory &memory) const;
  /// What the task would do to `memory` in double precision: compares every
  /// pipe.store with `after`. Errors are relative to the largest element, or to
  /// each if `elementwise`.
  void expectMatches(llvm::StringRef task, const Memory &before,
                     const Memory &after, double tolerance,
                     bool elementwise = false) const;
  bool has(llvm::StringRef task) const;
  /// What a task stores is the same in both, to `tolerance` of the largest
  /// element.
  void expectSame(llvm::StringRef task, const Memory &one, const Memory &other,
                  double tolerance) const;
  /// Whether a task stored no NaN and no infinity.
  bool isFinite(llvm::StringRef task, const Memory &memory) const;
  /// randomMemory, run, expectMatches for every task.
  void check(double tolerance = 2e-6, int64_t integerLimit = 7) const;

  PipecFrame frame = {};

private:
  int64_t workspaceOf(llvm::StringRef task) const;
  mlir::func::FuncOp taskOf(llvm::StringRef task) const;
  PipecTask function(llvm::StringRef task) const;

  std::unique_ptr<mlir::MLIRContext> context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  target::StageCode result;
  void *library = nullptr;
  std::unique_ptr<DeviceEmulator> emulator; // of code for GPUs
};

/// One task of a stage, called t<number>: `inputs` are types loaded in order as
/// %0, %1, … from "in"; what `body` computes is stored as `outputs` say, a
/// value and its type. Tasks of one stage have places of their own.
std::string
stageText(llvm::ArrayRef<std::string> inputs, llvm::StringRef body,
          llvm::ArrayRef<std::pair<std::string, std::string>> outputs,
          int number = 0);

/// Fills what the tasks load with NaN, infinities, zeros of both signs, the
/// largest and smallest numbers and ordinary ones.
void fillSpecial(const StageRunner &runner, Memory &memory);

/// Compiles with and without fusion, checks the values of both and that all
/// their bytes agree; then the values of the GPU's code.
void checkStage(const std::string &text, double tolerance = 2e-6,
                int64_t integerLimit = 7);

} // namespace pipec::test
