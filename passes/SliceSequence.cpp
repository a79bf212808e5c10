//===- SliceSequence.cpp - a stage for every piece of a sequence ----------===//
//
// Seq1F1B (Sun et al., 2024) and TeraPipe (Li et al., ICML 2021) train causal
// models piece by piece. The program is unrolled: each op is there once for
// every piece that needs it, and keys and values of earlier pieces come in as
// one tensor that grows from piece to piece.
//
//===----------------------------------------------------------------------===//
#include "passes/SliceSequence.h"

#include "dialects/nn/Build.h"
#include "dialects/pipe/Pipe.h"
#include "passes/Graph.h"
#include "passes/Passes.h"
#include "passes/sequence/Demand.h"

#include "mlir/IR/IRMapping.h"

#include <map>

namespace pipec {
#define GEN_PASS_DEF_SLICESEQUENCE
#include "passes/Passes.h.inc"
} // namespace pipec

using namespace mlir;
using namespace pipec;
using namespace pipec::nn;
using namespace pipec::sequence;

namespace {

/// A region in a form that maps can order.
using Key = std::vector<std::tuple<int, int64_t, int64_t>>;

Key keyOf(const Parts &region) {
  Key key;
  for (const Dim &dim : region)
    key.push_back({static_cast<int>(dim.part), dim.outer, dim.inner});
  return key;
}

class Unroller {
public:
  Unroller(func::FuncOp main, const Pieces &pieces, const Demands &demands)
      : main(main), pieces(pieces), demands(demands),
        b(main.getLoc(), main.getContext()) {}

  void run() {
    for (Operation &op : main.front().without_terminator()) {
      ops.push_back(&op);
      stages = std::max(stages, stageOf(&op) + 1);
    }
    for (Operation *op : ops)
      for (Value v : op->getResults())
        for (const Demand &demand : demands.of(v))
          emit(op, demand);
    auto ret = cast<func::ReturnOp>(main.front().getTerminator());
    for (OpOperand &operand : ret->getOpOperands())
      operand.set(whole(operand.get(), last(), stages - 1));
    for (Operation *op : llvm::reverse(ops))
      op->erase();
  }

private:
  int64_t last() const { return pieces.count() - 1; }

  /// New ops go before the op that is unrolled, to stage `stage` of a piece.
  void place(Location loc, int64_t piece, int64_t stage) {
    b.setLoc(loc);
    current = piece * stages + stage;
  }
  Value placed(Value v) {
    v.getDefiningOp()->setAttr(kOpStage, b.getI64IntegerAttr(current));
    return v;
  }

  //===--------------------------------------------------------------------===//
  // One op
  //===--------------------------------------------------------------------===//

  void emit(Operation *op, const Demand &demand) {
    const bool full = demand.region == allOf(demand.region.size());
    auto regions = demands.operandRegions(op, demand.region);
    if (!regions)
      return; // sliced where it is read
    b.setInsertionPoint(op);
    for (int64_t j = demand.lastOnly ? last() : 0; j <= last(); ++j)
      if (full && demand.lastOnly && demands.isSequenceSum(op))
        sumPieces(op);
      else
        clone(op, demand.region, *regions, j);
  }

  Value clone(Operation *op, const Parts &region, ArrayRef<Parts> operands,
              int64_t piece) {
    Value &made =
        values[{op->getResult(0).getAsOpaquePointer(), keyOf(region), piece}];
    if (made)
      return made;
    const int64_t stage = std::max<int64_t>(stageOf(op), 0);
    IRMapping map;
    for (auto [v, part] : llvm::zip(op->getOperands(), operands))
      map.map(v, value(v, part, piece, stage));
    auto type = tensorType(op->getResult(0));
    auto shape = shapeOf(type.getShape(), region, pieces, piece);
    if (auto constant = dyn_cast<ConstantOp>(op)) {
      auto dense = cast<DenseElementsAttr>(constant.getValue());
      place(op->getLoc(), piece, stage);
      return made = placed(ConstantOp::create(
                 b, dense.isSplat() ? dense.resizeSplat(type.clone(shape))
                                    : dense));
    }
    Operation *copy = b.clone(*op, map);
    copy->getResult(0).setType(type.clone(shape));
    place(op->getLoc(), piece, stage);
    if (isa<WeightOp>(op))
      copy->setAttr(kOpUse, b.getI64IntegerAttr(useOf(op)));
    return made = placed(copy->getResult(0));
  }

  /// A number for the op that its copies share.
  int64_t useOf(Operation *op) {
    return uses.insert({op, static_cast<int64_t>(uses.size())}).first->second;
  }

  /// The sum over all positions, made of the pieces' sums in ascending order
  /// by the last piece.
  void sumPieces(Operation *op) {
    Value x = op->getOperand(0);
    Parts region = allOf(tensorType(x).getRank());
    region[1].part = Part::Piece;
    const int64_t stage = stageOf(op);
    Value total;
    for (int64_t j = 0; j <= last(); ++j) {
      IRMapping map;
      map.map(x, value(x, region, j, stage));
      Operation *copy = b.clone(*op, map);
      place(op->getLoc(), j, stage);
      Value sum = placed(copy->getResult(0));
      place(op->getLoc(), last(), stage);
      total = total ? placed(nn::add(b, total, sum)) : sum;
    }
    values[{op->getResult(0).getAsOpaquePointer(),
            keyOf(allOf(tensorType(total).getRank())), last()}] = total;
  }

  //===--------------------------------------------------------------------===//
  // What an op reads
  //===--------------------------------------------------------------------===//

  Value value(Value v, const Parts &region, int64_t piece, int64_t stage) {
    if (demands.isComputed(v)) {
      if (demands.joinsPieces(v, region))
        return joined(v, region, piece, stage);
      return values.at({v.getAsOpaquePointer(), keyOf(region), piece});
    }
    auto it = values.find({v.getAsOpaquePointer(), keyOf(region), piece});
    if (it != values.end())
      return it->second;
    return part(v, region, piece, stage);
  }

  /// All of what is made of inputs, weights and constants.
  Value whole(Value v, int64_t piece, int64_t stage) {
    return v.getDefiningOp()
               ? value(v, allOf(tensorType(v).getRank()), piece, stage)
               : v;
  }

  /// Pieces 0 to `piece`, one behind the other: what the piece before has, and
  /// one more.
  Value joined(Value v, const Parts &region, int64_t piece, int64_t stage) {
    Value &made = joins[{v.getAsOpaquePointer(), keyOf(region), piece, stage}];
    if (made)
      return made;
    Value own =
        values.at({v.getAsOpaquePointer(), keyOf(pieceOf(region)), piece});
    if (piece == 0)
      return made = own;
    Value before = joined(v, region, piece - 1, stage);
    place(v.getLoc(), piece, stage);
    const auto axis = static_cast<size_t>(
        llvm::find_if(region,
                      [](const Dim &dim) { return dim.part == Part::Prefix; }) -
        region.begin());
    auto shape = shapeOf(tensorType(v).getShape(), region, pieces, piece);
    Value both =
        ConcatOp::create(b,
                         ValueRange{apart(before, axis, region[axis].outer),
                                    apart(own, axis, region[axis].outer)},
                         static_cast<int64_t>(axis + (region[axis].outer > 1)));
    placed(both).getDefiningOp()->setAttr(kOpJoins, b.getUnitAttr());
    return made = shaped(both, shape);
  }

  /// Dimension `axis` as [outer, rest].
  Value apart(Value v, size_t axis, int64_t outer) {
    if (outer == 1)
      return v;
    SmallVector<int64_t> shape(tensorType(v).getShape());
    shape[axis] /= outer;
    shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(axis), outer);
    return shaped(v, shape);
  }
  Value shaped(Value v, ArrayRef<int64_t> shape) {
    if (tensorType(v).getShape() == shape)
      return v;
    return placed(ReshapeOp::create(b, tensorType(v).clone(shape), v));
  }

  /// A part of what is there whole: of an input, a weight, a constant.
  Value part(Value v, const Parts &region, int64_t piece, int64_t stage) {
    if (region == allOf(region.size()))
      return v; // an input
    Value &made = parts[{v.getAsOpaquePointer(), keyOf(region), piece, stage}];
    if (made)
      return made;
    Value x = wholeOf(v, piece, stage);
    place(v.getLoc(), piece, stage);
    for (size_t d = 0; d < region.size(); ++d)
      if (region[d].part != Part::Full)
        x = cut(x, d, region[d], piece);
    return made = x;
  }

  /// `v` itself, or its copy in this piece.
  Value wholeOf(Value v, int64_t piece, int64_t stage) {
    Operation *def = v.getDefiningOp();
    if (!def)
      return v;
    const Parts full = allOf(tensorType(v).getRank());
    SmallVector<Parts> operands;
    for (Value x : def->getOperands())
      operands.push_back(allOf(tensorType(x).getRank()));
    auto it = values.find({v.getAsOpaquePointer(), keyOf(full), piece});
    return it != values.end() ? it->second : clone(def, full, operands, piece);
  }

  Value cut(Value x, size_t axis, const Dim &dim, int64_t piece) {
    if (pieces.size(dim.part, piece) == pieces.length)
      return x;
    SmallVector<int64_t> shape(tensorType(x).getShape());
    shape[axis] = dim.outer * pieces.size(dim.part, piece) * dim.inner;
    Value split = apart(x, axis, dim.outer);
    const size_t at = axis + (dim.outer > 1);
    SmallVector<int64_t> sizes(tensorType(split).getShape()),
        starts(sizes.size(), 0), strides(sizes.size(), 1);
    starts[at] = pieces.first(dim.part, piece) * dim.inner;
    sizes[at] = pieces.size(dim.part, piece) * dim.inner;
    return shaped(placed(nn::slice(b, split, starts, sizes, strides)), shape);
  }

  func::FuncOp main;
  const Pieces &pieces;
  const Demands &demands;
  NNBuilder b;
  SmallVector<Operation *> ops;
  int64_t stages = 0;  ///< of the program before
  int64_t current = 0; ///< that new ops belong to
  std::map<std::tuple<void *, Key, int64_t>, Value> values;
  std::map<std::tuple<void *, Key, int64_t, int64_t>, Value> joins, parts;
  llvm::DenseMap<Operation *, int64_t> uses;
};

struct SliceSequencePass
    : public pipec::impl::SliceSequenceBase<SliceSequencePass> {
  using SliceSequenceBase::SliceSequenceBase;

  void runOnOperation() override {
    func::FuncOp main = mainFunction(getOperation());
    if (!main)
      return signalPassFailure();
    for (Operation &op : main.front().without_terminator())
      if (stageOf(&op) < 0) {
        op.emitError("has no stage; run pipe-assign-stages first");
        return signalPassFailure();
      }
    FailureOr<int64_t> length = sequenceLength(main);
    if (failed(length))
      return signalPassFailure();
    const int64_t count = slices;
    if (count < 1 || count > *length) {
      main.emitError("cannot cut ")
          << *length << " positions into " << count << " pieces";
      return signalPassFailure();
    }
    if (count == 1)
      return;
    const Pieces pieces = Pieces::equal(*length, count);
    Demands demands(main, pieces);
    if (failed(demands.run()))
      return signalPassFailure();
    Unroller(main, pieces, demands).run();
    getOperation()->setAttr(kSlices,
                            Builder(&getContext()).getI64IntegerAttr(count));
  }
};

} // namespace

FailureOr<int64_t> pipec::sequenceLength(ModuleOp module) {
  func::FuncOp main = mainFunction(module);
  return main ? sequence::sequenceLength(main) : FailureOr<int64_t>(failure());
}

LogicalResult pipec::checkSlices(ModuleOp module, int64_t length,
                                 int64_t slices) {
  const Pieces pieces = Pieces::equal(length, slices);
  return slices == 1 ? success() : Demands(mainFunction(module), pieces).run();
}
