//===- AttentionMask.h - what is done to scores before softmax -*- C++ -*-===//
//
// Masks add numbers to scores or put a low number in their place. Softmax
// leaves such a key no weight beside one in use, but a row whose keys are all
// masked by finite numbers attends to those that are masked the least. As one
// bias of attention the masks must say the same of such rows, too.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "dialects/nn/Build.h"
#include "passes/KnownValues.h"

#include <map>
#include <tuple>

namespace pipec {

/// One mask, on its way from the softmax to the scores.
struct MaskStep {
  mlir::Value value; ///< what is added, or a condition; to be repeated
  /// Of a condition: what scores that it does not keep become.
  std::optional<double> low;
  bool keepsTrue = true;
  llvm::SmallVector<int64_t> full; ///< shape of the scores it is done to
  double factor = 1;               ///< on what is added, and on `low`
  bool isTriangle = false;         ///< hides keys behind the query, no others
};

class AttentionMask {
public:
  explicit AttentionMask(mlir::func::FuncOp main) : known(main) {}

  /// The step that adds `value`; null when it adds nothing but zeros.
  std::optional<MaskStep> added(mlir::Value value, double factor);
  /// The step of a condition; null when the number is not low enough.
  std::optional<MaskStep> selected(mlir::Value condition,
                                   llvm::ArrayRef<int64_t> full, double low,
                                   bool keepsTrue, double factor);

  struct Settled {
    bool causal = false;   ///< instead of a triangle among the steps
    bool replaces = false; ///< the bias's lowest number stands for the score
    llvm::SmallVector<MaskStep> steps;
  };
  /// None where a bias could not say the same as `steps`, the outermost first.
  std::optional<Settled> settle(llvm::ArrayRef<MaskStep> steps);

  /// The bias, repeated as late as can be; null for none.
  static mlir::Value bias(nn::NNBuilder &b, const Settled &settled,
                          llvm::ArrayRef<int64_t> shape);

private:
  using Test = llvm::function_ref<bool(double)>;
  /// What is asked of a step whose elements are known.
  enum class Question { AddsNothing, IsTriangle, EndsRows, LeavesTop };
  /// The answer of `look`, which goes through all elements: most layers of a
  /// model have one mask, for which that is done once. `detail` tells apart
  /// what else it depends on.
  int remembered(Question question, const MaskStep &step, int detail,
                 llvm::function_ref<int()> look);
  bool isTriangle(const MaskStep &step, Test upTo, Test later);
  bool leavesTops(llvm::ArrayRef<MaskStep> steps, bool causal);
  bool endsRows(const MaskStep &step);
  bool isNeutral(const MaskStep &step);
  bool leavesTop(const MaskStep &step, bool causal, bool &hides);
  bool looksForTop(const MaskStep &step, bool causal, bool &hides);
  bool forRows(mlir::Value value,
               llvm::function_ref<bool(int64_t, int64_t, double)> test);
  bool forBias(const MaskStep &step,
               llvm::function_ref<bool(int64_t, int64_t, double)> test);

  KnownValues known;
  /// By which elements it is, of what shape, and what is done to them.
  using Asked =
      std::tuple<Question, int, const void *, int64_t,
                 llvm::SmallVector<int64_t>, llvm::SmallVector<int64_t>, bool,
                 uint64_t, bool, uint64_t>;
  std::map<Asked, int> answers;
};

/// The number that all elements of a constant have.
std::optional<double> splatOf(mlir::Value value);

} // namespace pipec
