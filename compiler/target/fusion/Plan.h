//===- Plan.h - a task as a list of units over buffers ---------*- C++ -*-===//
#pragma once

#include "compiler/target/fusion/Group.h"
#include "compiler/target/fusion/View.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <functional>

namespace pipec::fusion {

struct Buffer {
  enum Kind {
    Region,   // a region of the frame, from `offset`
    Frame,    // a field of the frame itself, at `offset`
    Arena,    // the workspace; `offset` is set by layoutArena
    Constant, // read-only data of the object
  };
  Kind kind = Arena;
  int region = 0;
  int64_t offset = 0, bytes = 0;
  mlir::ElementsAttr constant;
  /// Of rows with gaps: elements of one, and from one to the next; else 0. What
  /// is in a gap means nothing, and there is nothing else.
  int64_t row = 0, pitch = 0;

  void leaveGaps(mlir::RankedTensorType type, int64_t from) {
    if (from)
      row = type.getShape().back(), pitch = from;
  }
};

/// Where a kernel writes a value that it evaluates.
struct Target {
  mlir::Value value;
  Placement place;
  bool accumulate = false;
};

/// What a kernel reads: a tensor in memory, an index (iota), or the partial
/// column sums of the kernel before.
struct Leaf {
  enum Kind { Memory, Index, Partials };
  Kind kind = Memory;
  Placement place;
  /// Partials: how many, and how far apart.
  int64_t partials = 0, partialStride = 0;
};

/// A group with its loops settled. Strides are one for every loop, in the order
/// outer, rows, walk, lane.
struct KernelPlan {
  const Group *group = nullptr;
  Nest nest;
  llvm::SmallVector<int64_t> outer, rows, walk;
  int64_t lane = 1;
  llvm::MapVector<mlir::Value, Leaf> leaves;
  llvm::DenseMap<mlir::Value, llvm::SmallVector<int64_t>> leafStrides;
  llvm::SmallVector<Target> targets;
  llvm::SmallVector<llvm::SmallVector<int64_t>> targetStrides;
  /// Values that are dear to compute, kept in memory for a later phase.
  llvm::SmallVector<Target> spills;
  llvm::SmallVector<llvm::SmallVector<int64_t>> spillStrides;
  /// Partial sums of the column reductions: placement of each.
  llvm::SmallVector<Placement> partials;
  int64_t chunks = 0;

  int64_t rowCount() const;
  /// One flat loop over elements, split among threads by element.
  bool isFlat() const;
};

/// Rows that one partial column sum covers. Part of the result's bits.
constexpr int64_t kChunkRows = 32;
/// Accumulators of a row reduction. Part of the result's bits.
constexpr int64_t kLanes = 64;

struct Unit {
  enum Kind { Kernel, Library, Copy, Scalar };
  Kind kind = Copy;
  /// Kernel.
  std::unique_ptr<Group> ownGroup;
  KernelPlan kernel;
  /// Library call, or pipe.scalar. Operands in the op's order, then results.
  mlir::Operation *op = nullptr;
  llvm::SmallVector<Placement> operands;
  bool accumulate = false;
  int scratch = -1;
  /// A product to which the library may add a bias, a vector at `from`, so that
  /// `kernel`, which else adds it, is not needed; where the sum goes.
  struct {
    int kernel = -1;
    Placement from, to;
  } bias;
  /// Attention's gradient of keys, which a library computes together with that
  /// of queries, a unit, and from attention's result, at `y`, instead of the
  /// row sums that the kernel `delta` makes for these two.
  struct {
    int queries = -1, delta = -1;
    Placement y;
  } attention;
  /// A unit in `bias` or `attention` of another one, which runs it.
  bool isDeferred = false;
  /// Copy.
  Placement from, to;
  llvm::SmallVector<int64_t> shape;
  mlir::Type element;

  llvm::SmallVector<int> after;   // units that come before this one
  llvm::SmallVector<int> touches; // buffers read or written
  int64_t priority = 0;
};

struct TaskPlan {
  mlir::func::FuncOp func;
  std::string name;
  std::vector<Buffer> buffers;
  std::vector<Group> groups;
  std::vector<Unit> units;
  /// Units in the order they run.
  std::vector<int> order;
  int64_t workspace = 0;
};

struct PlanOptions {
  bool fuse = true;
  /// Libraries may do more than one unit: products add biases (Epilogue.cpp),
  /// attention has both gradients in one call (AttentionGradients.cpp).
  bool epilogues = false;
  /// Rows that products read or write begin at whole 16 bytes
  /// (dialects/nn/EvenRows.h).
  bool evenRows = false;
  /// Values that are dear to compute again are kept in memory from one phase of
  /// a kernel to the next (Spill.cpp).
  bool spills = true;
  /// Bytes of scratch that the target's call for a library op needs.
  std::function<mlir::FailureOr<int64_t>(mlir::Operation *)> scratch;
};

/// Plans one task: groups, units, their order, the workspace. Rewrites composed
/// ops of `func` on the way.
mlir::LogicalResult planTask(mlir::func::FuncOp func, llvm::StringRef name,
                             const PlanOptions &options, TaskPlan &plan);

/// Contractions, windows and rows by index: units of their own, for which a
/// target has a call or a kernel.
bool isLibraryOp(mlir::Operation *op);

/// Attention and its gradients, whose operands and results have contiguous rows
/// anywhere.
bool isAttention(mlir::Operation *op);

/// Groups the ops of a task (Fuse.cpp).
std::vector<Group> formGroups(mlir::func::FuncOp func, const PlanOptions &);
/// Buffers and units (Place.cpp).
mlir::LogicalResult placeTask(TaskPlan &plan, const PlanOptions &options);
/// Where results are written, chosen so that what reads them needs no copy
/// (Homes.cpp).
struct Homes {
  llvm::DenseMap<mlir::Value, Placement> place;
  /// Contraction and scatter results that are added to what is there.
  llvm::DenseSet<mlir::Value> accumulated;
  /// What each group writes.
  std::vector<llvm::SmallVector<Target>> targets;
  /// Stores that their producer performs.
  llvm::DenseSet<mlir::Operation *> stored;
  /// Operands of concat and pad written where they belong by their producer.
  llvm::DenseSet<mlir::OpOperand *> inPlace;
};
Homes chooseHomes(TaskPlan &plan, bool evenRows);
/// Where operand `index` of a concat is in the result's place, or the operand
/// of a pad.
Placement partPlace(mlir::Operation *op, unsigned index,
                    const Placement &whole);
/// Leaves and targets (by position) that no loop nest of the kernel can walk
/// where they are; they need a dense place.
struct Misfits {
  llvm::SmallVector<mlir::Value> leaves;
  llvm::SmallVector<size_t> targets;
  bool empty() const { return leaves.empty() && targets.empty(); }
};
/// Loops and strides of a kernel whose leaves and targets are placed
/// (Loops.cpp).
Misfits settleLoops(KernelPlan &plan);
/// Gives products the biases of kernels that do nothing else (Epilogue.cpp).
void chooseEpilogues(TaskPlan &plan);
/// Makes one unit of both gradients of attention (AttentionGradients.cpp).
void pairAttentionGradients(TaskPlan &plan);
/// Order of the units and offsets in the workspace (Arena.cpp).
mlir::LogicalResult orderUnits(TaskPlan &plan);
void layoutArena(TaskPlan &plan);

/// A value that a later phase should read rather than compute again.
struct Spill {
  mlir::Value value;
  /// Position of a target whose place is free until then; -1 when there is
  /// none.
  int target = -1;
};
llvm::SmallVector<Spill> chooseSpills(const KernelPlan &plan);

/// The strides by loop dimension of a value placed with `strides`.
llvm::SmallVector<int64_t> loopStrides(const Group &group, mlir::Value value,
                                       llvm::ArrayRef<int64_t> strides);
/// Whether two buffers are known to be partly the same memory.
bool overlap(const Buffer &a, const Buffer &b);

/// Whether a matrix product can address its operand or result there.
bool isMatrixPlace(llvm::ArrayRef<int64_t> shape, const Placement &place);

/// How many loops walk the batch dimensions of a matrix product; the library
/// takes 4.
int batchLoops(llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<Placement> places);
constexpr int kMostBatchLoops = 4;

/// Bytes of an element in memory; i1 takes one.
int64_t elementBytes(mlir::Type element);

} // namespace pipec::fusion
