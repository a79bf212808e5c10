//===- Demand.cpp - what each piece of a sequence needs -------------------===//
#include "passes/sequence/Demand.h"

using namespace mlir;
using namespace pipec::nn;

namespace pipec::sequence {

namespace {

/// Depends on inputs, and on weights of the model.
struct Depends {
  bool input = false, weight = false;
};

using Dependence = llvm::DenseMap<Value, Depends>;

Dependence dependence(func::FuncOp main) {
  Dependence known;
  auto module = main->getParentOfType<ModuleOp>();
  SymbolTable parameters(module);
  for (Value argument : main.getArguments())
    known[argument].input = true;
  for (Operation &op : main.front().without_terminator()) {
    Depends depends;
    for (Value v : op.getOperands()) {
      Depends of = known.lookup(v);
      depends.input |= of.input, depends.weight |= of.weight;
    }
    if (auto weight = dyn_cast<WeightOp>(op))
      depends.weight =
          parameters.lookup<ParameterOp>(weight.getParameter()).getRole() !=
          "constant";
    for (Value v : op.getResults())
      known[v] = depends;
  }
  return known;
}

/// A sum over the second dimension of a tensor: positions of a batch.
bool sumsPositions(Operation *op) {
  auto reduce = dyn_cast<ReduceOp>(op);
  return reduce && reduce.getKind() == "sum" &&
         tensorType(reduce.getX()).getRank() >= 2 &&
         llvm::is_contained(reduce.getAxes(), 1);
}

constexpr llvm::StringLiteral kRemedy =
    "; only language models whose mask hides later tokens (-inf, or at most "
    "-1e9) train in pieces of a sequence: take another strategy";

} // namespace

//===----------------------------------------------------------------------===//
// The length
//===----------------------------------------------------------------------===//

FailureOr<int64_t> sequenceLength(func::FuncOp main) {
  Dependence depends = dependence(main);
  auto ret = cast<func::ReturnOp>(main.front().getTerminator());
  llvm::SmallVector<Value> open(ret.getOperands());
  llvm::DenseSet<Value> seen;
  int64_t length = 0;
  while (!open.empty()) {
    Value v = open.pop_back_val();
    Operation *def = v.getDefiningOp();
    Depends of = depends.lookup(v);
    if (!def || !of.input || !of.weight || !seen.insert(v).second)
      continue;
    if (sumsPositions(def)) {
      length = std::max(length, tensorType(def->getOperand(0)).getDimSize(1));
      continue;
    }
    llvm::append_range(open, def->getOperands());
  }
  if (length < 2)
    return emitError(ret.getOperand(0).getLoc(),
                     "the loss is no sum over the positions of a sequence")
           << "; pieces of sequences need logits [batch, length, classes]: "
              "take another --strategy than seq1f1b, without --slices";
  return length;
}

//===----------------------------------------------------------------------===//
// The walk
//===----------------------------------------------------------------------===//

Demands::Demands(func::FuncOp main, const Pieces &pieces)
    : main(main), pieces(pieces), facts(main, pieces) {
  for (auto &[v, of] : dependence(main))
    if (of.input && of.weight)
      computed.insert(v);
}

ArrayRef<Demand> Demands::of(Value v) const {
  auto it = demands.find(v);
  return it == demands.end() ? ArrayRef<Demand>() : ArrayRef(it->second);
}

void Demands::complain(Operation *op, const Twine &why) {
  // The walk goes backwards: what comes first in the program is the cause of
  // what the same fault makes of later layers.
  wrong = op, reason = why.str();
}

bool Demands::isSequenceSum(Operation *op) const {
  return sumsPositions(op) && isComputed(op->getResult(0)) &&
         tensorType(op->getOperand(0)).getDimSize(1) == pieces.length;
}

LogicalResult Demands::run() {
  auto ret = cast<func::ReturnOp>(main.front().getTerminator());
  for (Value v : ret.getOperands())
    add(v, allOf(tensorType(v).getRank()), true);
  for (Operation &op : llvm::reverse(main.front().without_terminator())) {
    if (op.getNumResults() == 0)
      complain(&op, op.getName().getStringRef() +
                        " takes statistics of whole sequences");
    for (Value v : op.getResults())
      for (const Demand &demand : SmallVector<Demand>(of(v)))
        visit(&op, demand);
  }
  if (wrong)
    wrong->emitError() << reason << kRemedy;
  return success(!wrong);
}

void Demands::visit(Operation *op, const Demand &demand) {
  Value result = op->getResult(0);
  const bool whole =
      !has(demand.region, Part::Piece) && !has(demand.region, Part::Prefix);
  if (whole && demand.lastOnly && isSequenceSum(op)) {
    Parts region = allOf(tensorType(op->getOperand(0)).getRank());
    region[1].part = Part::Piece;
    return require(op, op->getOperand(0), region, false);
  }
  if (whole && isComputed(result))
    checkLast(op);
  if (auto regions = operandRegions(op, demand.region)) {
    for (auto [operand, region] : llvm::zip(op->getOperands(), *regions))
      require(op, operand, region, demand.lastOnly);
    return;
  }
  if (isComputed(result))
    return complain(op, "cannot compute a piece of a sequence alone");
  // Made of inputs and constants: all of it, then the part.
  for (Value operand : op->getOperands())
    require(op, operand, allOf(tensorType(operand).getRank()), demand.lastOnly);
}

/// Behind the sum over positions the loss may only do arithmetic.
void Demands::checkLast(Operation *op) {
  bool reads = !op->hasTrait<nn::Elementwise>() && !op->hasTrait<nn::View>() &&
               !isa<ReduceOp>(op);
  for (Value v : op->getOperands())
    reads = reads || (!isComputed(v) && v.getDefiningOp<WeightOp>());
  if (reads)
    complain(op, "needs a result of the whole sequence, which is not the "
                 "loss's sum over its positions");
}

void Demands::require(Operation *op, Value operand, const Parts &region,
                      bool lastOnly) {
  const bool prefix = has(region, Part::Prefix),
             piece = has(region, Part::Piece);
  if (!isComputed(operand))
    return add(operand, region, lastOnly);
  if (!prefix && !piece && !lastOnly)
    return complain(op, "reads the whole sequence to compute a piece of it, so "
                        "that a token sees later ones");
  if (prefix && !piece && joinsPieces(operand, region))
    return add(operand, pieceOf(region), false);
  add(operand, region, lastOnly);
}

void Demands::add(Value v, const Parts &region, bool lastOnly) {
  for (Demand &known : demands[v])
    if (known.region == region) {
      known.lastOnly = known.lastOnly && lastOnly;
      return;
    }
  demands[v].push_back({region, lastOnly});
}

/// Views, and arithmetic on one computed operand, are cheaper done again than
/// kept for every later piece (the heads of grouped keys are repeated).
bool Demands::joinsPieces(Value v, const Parts &region) const {
  Operation *op = v.getDefiningOp();
  if (has(region, Part::Piece) || !has(region, Part::Prefix))
    return false;
  const auto operands =
      llvm::count_if(op->getOperands(), [&](Value x) { return isComputed(x); });
  const bool cheap =
      isa<BroadcastOp, ReshapeOp, TransposeOp>(op) ||
      (isa<AddOp, SubOp, MulOp, DivOp, NegOp, CastOp>(op) && operands == 1);
  return !cheap || !operandRegions(op, region);
}

//===----------------------------------------------------------------------===//
// What is read of operands
//===----------------------------------------------------------------------===//

int64_t Demands::queryOf(Value x, const Parts &region, int64_t key,
                         Later fact) const {
  for (auto [d, dim] : llvm::enumerate(region)) {
    const auto query = static_cast<int64_t>(d);
    if (query != key && dim.part == Part::Piece && dim.alone() &&
        facts.of(x, query, key) == fact)
      return query;
  }
  return -1;
}

Demands::Operands Demands::ofMatmul(MatmulOp op, const Parts &region) const {
  const size_t rank = region.size(), rows = rank - 2, columns = rank - 1;
  Parts a = region, b = region;
  const size_t aRow = op.getTransposeA() ? columns : rows,
               aInner = op.getTransposeA() ? rows : columns,
               bColumn = op.getTransposeB() ? rows : columns,
               bInner = op.getTransposeB() ? columns : rows;
  a[aRow] = region[rows], b[bColumn] = region[columns];
  a[aInner] = b[bInner] = Dim();
  // Keys whose weight is 0 need not be there.
  if (queryOf(op.getA(), a, aInner, Later::Zero) >= 0 ||
      queryOf(op.getB(), b, bInner, Later::Zero) >= 0)
    a[aInner].part = b[bInner].part = Part::Prefix;
  return SmallVector<Parts>{a, b};
}

Demands::Operands Demands::ofReduce(ReduceOp op, const Parts &region) const {
  Parts x = region;
  for (int64_t axis : op.getAxes()) {
    x[axis] = Dim();
    const Later neutral = op.getKind() == "sum"   ? Later::Zero
                          : op.getKind() == "max" ? Later::Low
                                                  : Later::Unknown;
    if (neutral != Later::Unknown &&
        queryOf(op.getX(), region, axis, neutral) >= 0)
      x[axis].part = Part::Prefix;
  }
  return SmallVector<Parts>{x};
}

Demands::Operands Demands::ofSoftmax(SoftmaxOp op, const Parts &region) const {
  const auto last = static_cast<int64_t>(region.size()) - 1;
  const bool fits = region[last].part == Part::Full ||
                    (region[last].part == Part::Prefix &&
                     queryOf(op.getX(), region, last, Later::Low) >= 0);
  if (!fits)
    return std::nullopt;
  return SmallVector<Parts>{region};
}

namespace {

using Operands = std::optional<SmallVector<Parts>>;

bool isFull(const Parts &region, int64_t axis) {
  return region[axis].part == Part::Full;
}

/// x[i] for every i where the shapes agree; other dimensions must be whole.
Operands whereEqual(Value x, Value y, const Parts &region) {
  Parts result = region;
  for (auto [d, dim] : llvm::enumerate(result))
    if (tensorType(x).getDimSize(d) != tensorType(y).getDimSize(d)) {
      if (dim.part != Part::Full)
        return std::nullopt;
      dim = Dim();
    }
  return SmallVector<Parts>{result};
}

Operands ofBroadcast(BroadcastOp op, const Parts &region) {
  Parts x = region;
  for (auto [d, dim] : llvm::enumerate(x))
    if (tensorType(op.getX()).getDimSize(d) == 1)
      dim = Dim();
  return SmallVector<Parts>{x};
}

Operands ofSlice(SliceOp op, const Parts &region) {
  for (auto [d, stride] : llvm::enumerate(op.getStrides()))
    if (stride != 1 && !isFull(region, d))
      return std::nullopt;
  return whereEqual(op.getX(), op.getY(), region);
}

Operands ofTranspose(TransposeOp op, const Parts &region) {
  Parts x = region;
  for (auto [i, from] : llvm::enumerate(op.getPermutation()))
    x[from] = region[i];
  return SmallVector<Parts>{x};
}

Operands ofGather(GatherOp op, const Parts &region) {
  const int64_t axis = op.getAxis();
  const int64_t rank = tensorType(op.getIndices()).getRank();
  Parts x(region.begin(), region.begin() + axis), indices;
  indices.append(region.begin() + axis, region.begin() + axis + rank);
  x.push_back(Dim());
  x.append(region.begin() + axis + rank, region.end());
  return SmallVector<Parts>{x, indices};
}

/// Every operand as the result, which has all of `axes`.
Operands alongOthers(Operation *op, ArrayRef<int64_t> axes,
                     const Parts &region) {
  for (int64_t axis : axes)
    if (!isFull(region, axis))
      return std::nullopt;
  return SmallVector<Parts>(op->getNumOperands(), region);
}

} // namespace

std::optional<SmallVector<Parts>>
Demands::operandRegions(Operation *op, const Parts &region) const {
  if (isa<WeightOp>(op))
    return has(region, Part::Piece) || has(region, Part::Prefix)
               ? Operands()
               : Operands(SmallVector<Parts>());
  if (auto iota = dyn_cast<IotaOp>(op))
    return alongOthers(op, {static_cast<int64_t>(iota.getAxis())}, region);
  if (auto constant = dyn_cast<ConstantOp>(op)) {
    auto dense = dyn_cast<DenseElementsAttr>(constant.getValue());
    const bool splat = dense && dense.isSplat();
    return splat || region == allOf(region.size())
               ? Operands(SmallVector<Parts>())
               : Operands();
  }
  if (op->hasTrait<nn::Elementwise>())
    return SmallVector<Parts>(op->getNumOperands(), region);
  if (auto broadcast = dyn_cast<BroadcastOp>(op))
    return ofBroadcast(broadcast, region);
  if (auto reshape = dyn_cast<ReshapeOp>(op)) {
    auto x =
        throughReshape(tensorType(reshape.getY()).getShape(), region,
                       tensorType(reshape.getX()).getShape(), pieces.length);
    return x ? Operands(SmallVector<Parts>{*x}) : Operands();
  }
  if (auto transpose = dyn_cast<TransposeOp>(op))
    return ofTranspose(transpose, region);
  if (auto slice = dyn_cast<SliceOp>(op))
    return ofSlice(slice, region);
  if (auto pad = dyn_cast<PadOp>(op))
    return whereEqual(pad.getX(), pad.getY(), region);
  if (auto reverse = dyn_cast<ReverseOp>(op))
    return alongOthers(op, reverse.getAxes(), region);
  if (auto concat = dyn_cast<ConcatOp>(op))
    return alongOthers(op, {static_cast<int64_t>(concat.getAxis())}, region);
  if (auto sum = dyn_cast<CumsumOp>(op))
    return alongOthers(op, {static_cast<int64_t>(sum.getAxis())}, region);
  if (auto gather = dyn_cast<GatherOp>(op))
    return ofGather(gather, region);
  if (auto reduce = dyn_cast<ReduceOp>(op))
    return ofReduce(reduce, region);
  if (auto softmax = dyn_cast<SoftmaxOp>(op))
    return ofSoftmax(softmax, region);
  if (auto matmul = dyn_cast<MatmulOp>(op))
    return ofMatmul(matmul, region);
  if (region == allOf(region.size())) {
    SmallVector<Parts> all;
    for (Value v : op->getOperands())
      all.push_back(allOf(tensorType(v).getRank()));
    return all;
  }
  return std::nullopt;
}

} // namespace pipec::sequence
