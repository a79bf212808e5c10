//===- Compiler.h - one attempt at a plan -----------------------*- C++ -*-===//
#pragma once

#include "compiler/driver/CompileMemory.h"
#include "compiler/driver/PlanBuilder.h"
#include "compiler/driver/PlanFolder.h"
#include "compiler/driver/WithinLimit.h"
#include "compiler/plan/WhatIf.h"
#include "compiler/target/Target.h"
#include "passes/Optimizer.h"
#include "support/Diagnostics.h"

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace mlir {
class PassManager;
}

namespace pipec {

/// Reads a model, decides about its stages, lowers it to tasks and makes what
/// was asked for. What is wrong with the model is collected, all else thrown.
class Compiler {
public:
  Compiler(const CompileOptions &options, Purpose purpose,
           mlir::MLIRContext &context, CompileMemory *memory = nullptr)
      : options(options), purpose(purpose), context(context), memory(memory) {}

  /// Makes the plan, its exit code. Throws OverLimit, Failure.
  int run();

  /// The plan that would be made; -1 byte for a model too large to tell.
  Prospect prospect();

  /// prospect(), as a row of a what-if table.
  plan::Replanned replanned();

private:
  // Compiler.cpp: from the model to tasks. False: there is a problem.
  void checkOptimizer();
  void readOptions();
  void checkEmit();
  void noteFewMicrobatches();
  void noteLimitAboveDevice();
  void noteOddWeights();
  void sayNotes();
  int report();
  bool forGpus() const { return facts.topology.device.kind != "cpu"; }
  bool fusesAttention() const;
  MemoryChoice memoryChoice() const;
  bool import();
  bool checkPieces();
  KnownModel *knownModel();
  int64_t microbatchSize();
  bool findCosts(plan::CostGraph &graph, ModelFacts &measured);
  bool makeDecision(std::optional<int> ranks);
  bool lowerToTasks();
  bool keepsToLimit();
  std::vector<std::string> optimizerSettings() const;
  bool phase(const std::string &name,
             const std::function<void(mlir::PassManager &)> &addPasses);
  void dump(const std::string &name);
  std::string text();

  // CompilerOutput.cpp: from tasks to a plan folder, code or a summary.
  int emitCode(const std::vector<std::string> &stages);
  bool isPlanned() const;
  bool findWorkspace(std::vector<int64_t> &workspace);
  OverLimit fullest(const plan::Plan &plan) const;
  plan::Plan planFor(const std::vector<int64_t> &workspace);
  std::string cubinOf(const target::StageCode &code);
  bool compileStages(PlanFolder *folder, std::vector<int64_t> &workspace,
                     std::vector<std::string> &codes);
  int generate();
  int generate(PlanFolder &folder);
  bool evaluate(const plan::Plan &training, const PlanFolder &outer);
  int printDryRun();
  int printSharded();
  plan::Replanned planUnder(const CompileOptions &asked,
                            const plan::Topology &topology);
  plan::Replanned ownPlan(const plan::Plan &plan) const;
  std::vector<plan::WhatIfRow> whatIf(const plan::Replanned &own);
  void showPlan(const plan::Plan &plan,
                const std::vector<plan::WhatIfRow> &rows);

  const CompileOptions &options;
  const Purpose purpose;
  mlir::MLIRContext &context;
  CompileMemory *const memory;
  Diagnostics diagnostics;
  onnx::ImportReport importReport;
  std::vector<std::string> importNotes;
  std::vector<std::string> inputs; ///< files that are read
  ModelFacts facts;
  Optimizer::Settings settings;
  const Optimizer *optimizer = nullptr;
  LossChoice loss;
  mlir::OwningOpRef<mlir::ModuleOp> module, original;
  Decision decision;
  int dumped = 0;
};

} // namespace pipec
