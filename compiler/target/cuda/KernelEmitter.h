//===- KernelEmitter.h - writes one device function ------------*- C++ -*-===//
//
// The parts of EmitKernel: which thread does what (EmitKernel.cpp), loads and
// stores (EmitMemory.cpp), reductions over a row (EmitReduce.cpp), long rows in
// shared memory (EmitHeldRows.cpp), sums of columns (EmitChunks.cpp), also by
// several warps (EmitWarpRows.cpp).
//
// A point is up to 16 bytes side by side of every operand: `width` lanes. The
// points of a row are dealt out to its threads in turn, the same ones in every
// phase, so that what a thread wrote is what it reads again. Lanes behind the
// last whole point of a long row are points of one lane: its `tail`.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/target/cuda/EmitKernel.h"
#include "compiler/target/cuda/Threads.h"

#include "mlir/Dialect/SCF/IR/SCF.h"

#include <utility>

namespace pipec::cuda {

/// Threads of a block where nothing asks for another number, and of a long row.
constexpr int64_t kThreads = 256, kMostRowThreads = 512;

/// Values as they run through the loops of a row, one for each reduction.
using Running = llvm::SmallVector<mlir::Value>;

class KernelEmitter : public fusion::PointEmitter {
public:
  KernelEmitter(mlir::ModuleOp module, llvm::StringRef name,
                const fusion::KernelPlan &plan,
                llvm::ArrayRef<fusion::Buffer> buffers, bool mayHold);
  mlir::FailureOr<KernelCode> run();

private:
  using Access = fusion::Access;
  using Body = llvm::function_ref<void(Running &)>;

  // Set-up
  void chooseWidth();
  void chooseSumWidth();
  mlir::LogicalResult checkSize();
  void beginFunction();
  void setShape(int64_t blocks, int64_t threads);
  bool mayHaveTail(int64_t least) const;
  /// Whole ones of a row.
  int64_t points() const { return columns() / width; }
  /// How many points each of `threads` threads has at most.
  int64_t share() const;

  // Threads
  void emitPoints();
  void emitPointsOfPartials(int64_t across);
  void enterItem(Value item);
  void writeItem();
  void emitRows();
  void emitChunks();
  void emitChunkRows(Value chunk);
  int64_t registersInTurn();
  void emitRowsAhead(Value first, Running &sums);
  /// The first row of a chunk and the one behind its last.
  std::pair<Value, Value> rowsOfChunk(Value chunk);
  void chooseRowThreads(int64_t most);
  void choosePoints();
  /// Moves to a row; sets the row's pointers.
  void enterRow(Value row);
  void emitRow(Running *columnSums);
  void emitPhase(Running *columnSums);
  /// Calls `body` at each point of this thread in the row.
  Running forPoints(Running running, Body body);
  Running forTail(const Running &running, Body body);
  int64_t readRegisters();
  void readPoints(llvm::ArrayRef<size_t> written,
                  llvm::ArrayRef<size_t> summed);
  void collectReads(Value value, llvm::SetVector<Value> &reads,
                    llvm::DenseSet<Value> &seen);
  void enterPoint(Value point);
  void guarded(Value condition, llvm::function_ref<void()> body);
  Value both(Value a, Value b);

  // Column sums
  Running columnIdentities();
  void placePartials(Value chunk);
  void clearPartials();
  /// Adds the current point to its sum, in memory when `sums` is null.
  void addColumn(size_t column, Running *sums);
  void storePartials(const Running &sums);

  // Rows in shared memory (EmitHeldRows.cpp)
  llvm::MapVector<Value, int> countReads();
  bool mayFetch(Value value) const;
  void chooseHeldRows();
  Value heldAt(Value value, Value lane);
  void fetchHeldRows();

  // Several warps of a chunk (EmitWarpRows.cpp)
  int64_t leftBytes(size_t column) const;
  int64_t warpsOfChunk() const;
  Value leftAt(size_t column, Value warp, Value point);
  void leave(size_t column, Value x);
  llvm::SmallVector<std::pair<Value, Value>> ownColumns();
  void takeLeft(Running &sums, llvm::ArrayRef<Value> isThere);
  void emitWarpRows();
  void emitRound(Value first, Value last, Running &sums);

  // Memory
  Value loadAt(const Access &access, Value extra = {}) override;
  Value readMemory(Value value, const Access &access) override;
  void storeAt(const Access &access, Value value) override;
  Value sumPartials(nn::ReduceOp op, const fusion::Leaf &leaf,
                    const Access &access) override;
  bool isOfAllRows(const Access &access) const;
  bool isAligned(const Access &access) const;
  Value lanePointer(const Access &access, Value pointer, int64_t lane);

  // Reductions
  void startReductions();
  Running identities();
  void accumulate(Running &running);
  void finishReductions(const Running &running);
  Value foldLanes(llvm::StringRef kind, Value lanes);
  Value foldThreads(llvm::StringRef kind, Value value, int64_t threads);
  void foldWarps(llvm::MutableArrayRef<Value> sums);
  /// Of shared memory, for one sum of each warp of a row.
  int64_t slotBytes() const;

  /// In the tail a point is one lane.
  template <typename Emit> void inTail(Value lane, Emit emit) {
    int64_t whole = std::exchange(width, 1);
    laneIndex = lane;
    atPoint.clear();
    emit();
    atPoint.clear();
    width = whole;
  }

  mlir::ModuleOp module;
  std::string name;
  llvm::ArrayRef<fusion::Buffer> buffers;
  KernelCode code;
  llvm::SmallVector<nn::ReduceOp> reductions; // that this phase completes

  /// Threads that share the partial sums of a point, and the thread's number
  /// among them.
  int64_t partialThreads = 1;
  Value partialThread;
  int64_t partialPoints = 1; ///< of a block, then
  /// Threads of a row, rows of a block, and the thread's number in its row.
  int64_t rowThreads = 1, blockRows = 1;
  int64_t tail = 0;
  /// The number of a point in its row, of a kernel of points alone.
  Value itemInRow;
  /// Blocks that the columns of a chunk are dealt out to.
  int64_t columnBlocks = 1;
  /// Warps that take the rows of a chunk in turns, and the thread's among them.
  int64_t chunkWarps = 1;
  Value chunkWarp;
  Value within;
  /// The points of a thread when they are unrolled, with their values, which
  /// then last over the phases of a row, or else over one.
  struct Point {
    llvm::SmallVector<Value> walk;
    Value lane, inside, number;
    llvm::DenseMap<Value, Value> values;
  };
  bool unrolled = false, keepsPoints = false;
  llvm::SmallVector<Point> unrolledPoints;
  size_t pointIndex = 0;
  Value pointNumber; ///< of the current point in its row
  llvm::SmallVector<int64_t> denseColumns;
  /// Whether a block may have more shared memory than kSharedLimit, for rows.
  const bool mayHold;
  /// Where the block's row of a leaf lies in shared memory.
  llvm::MapVector<Value, int64_t> held;
  /// Sums of warps so far: none shares its place in shared memory.
  int64_t firstSlot = 0;
  /// Conditions under which the thread stores; null: always.
  Value rowInside, pointInside;
};

} // namespace pipec::cuda
