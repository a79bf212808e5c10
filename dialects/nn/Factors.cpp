#include "dialects/nn/Factors.h"

#include "llvm/ADT/TypeSwitch.h"
#include <numeric>

using namespace mlir;

namespace pipec::nn {
namespace {

using Factors = SmallVector<Factor>;

/// Collects the factors of one op.
class Collector {
public:
  explicit Collector(Operation *op) : op(op) {}

  /// Dimensions of operands and results that run together.
  void add(std::initializer_list<int> operands,
           std::initializer_list<int> results) {
    add(SmallVector<int>(operands), SmallVector<int>(results));
  }
  void add(SmallVector<int> operands, SmallVector<int> results) {
    Factor f{0, std::move(operands), std::move(results), false};
    f.operands.resize(op->getNumOperands(), Factor::kNone);
    f.sums = llvm::all_of(f.results, [](int d) { return d < 0; });
    for (auto [v, d] : llvm::zip(op->getOperands(), f.operands))
      if (d >= 0)
        f.size = std::gcd(f.size, tensorType(v).getDimSize(d));
    for (auto [v, d] : llvm::zip(op->getResults(), f.results))
      if (d >= 0)
        f.size = std::gcd(f.size, tensorType(v).getDimSize(d));
    if (f.size > 1)
      factors.push_back(std::move(f));
  }
  /// The same dimension of everything.
  void addSame(int dim) {
    add(SmallVector<int>(op->getNumOperands(), dim),
        SmallVector<int>(op->getNumResults(), dim));
  }
  int rank() const { return tensorType(op->getOperand(0)).getRank(); }

  Operation *op;
  Factors factors;
};

void collect(BroadcastOp op, Collector &c) {
  for (auto [d, from, to] : llvm::enumerate(tensorType(op.getX()).getShape(),
                                            tensorType(op.getY()).getShape())) {
    const int dim = static_cast<int>(d);
    c.add({from == to ? dim : Factor::kNone}, {dim});
  }
}

/// Dimensions that are split or merged run together where they begin: a slice
/// of the product of several is one of the first of them.
void collect(ReshapeOp op, Collector &c) {
  ArrayRef<int64_t> from = tensorType(op.getX()).getShape(),
                    to = tensorType(op.getY()).getShape();
  if (llvm::is_contained(from, 0))
    return;
  const int ends[] = {static_cast<int>(from.size()),
                      static_cast<int>(to.size())};
  for (int i = 0, j = 0; i < ends[0] && j < ends[1];) {
    if (from[i] == 1) {
      ++i;
      continue;
    }
    if (to[j] == 1) {
      ++j;
      continue;
    }
    c.add({i}, {j});
    int64_t left = from[i++], right = to[j++];
    while (left != right)
      (left < right ? left : right) *= left < right ? from[i++] : to[j++];
  }
}

void collect(TransposeOp op, Collector &c) {
  for (auto [to, from] : llvm::enumerate(op.getPermutation()))
    c.add({static_cast<int>(from)}, {static_cast<int>(to)});
}

void collect(SliceOp op, Collector &c) {
  for (int d = 0; d < c.rank(); ++d)
    if (op.getStarts()[d] == 0 && op.getStrides()[d] == 1 &&
        tensorType(op.getX()).getDimSize(d) ==
            tensorType(op.getY()).getDimSize(d))
      c.addSame(d);
}

void collect(PadOp op, Collector &c) {
  for (int d = 0; d < c.rank(); ++d)
    if (!op.getLow()[d] && !op.getHigh()[d] && !op.getInterior()[d])
      c.addSame(d);
}

void collect(GatherOp op, Collector &c) {
  const int axis = op.getAxis(),
            indices = tensorType(op.getIndices()).getRank();
  for (int d = 0; d < c.rank(); ++d)
    if (d != axis)
      c.add({d, Factor::kNone}, {d < axis ? d : d - 1 + indices});
  for (int d = 0; d < indices; ++d)
    c.add({Factor::kNone, d}, {axis + d});
}

void collect(ScatterAddOp op, Collector &c) {
  const int axis = op.getAxis(),
            indices = tensorType(op.getIndices()).getRank(),
            rank = tensorType(op.getY()).getRank();
  for (int d = 0; d < rank; ++d)
    if (d != axis)
      c.add({Factor::kNone, d < axis ? d : d - 1 + indices}, {d});
  for (int d = 0; d < indices; ++d)
    c.add({d, axis + d}, {Factor::kNone});
}

void collect(ReduceOp op, Collector &c) {
  for (int d = 0; d < c.rank(); ++d) {
    const bool isReduced = llvm::is_contained(op.getAxes(), d);
    if (!isReduced)
      c.addSame(d);
    else if (op.getKind() == "sum") // ties of a maximum are counted by all
      c.add({d}, {Factor::kNone});
  }
}

/// All dimensions but those in `axes`.
void collectBut(ArrayRef<int64_t> axes, Collector &c) {
  for (int d = 0; d < c.rank(); ++d)
    if (!llvm::is_contained(axes, d))
      c.addSame(d);
}

void collect(MatmulOp op, Collector &c) {
  const int rank = c.rank(), rows = rank - 2, columns = rank - 1;
  for (int d = 0; d < rows; ++d)
    c.addSame(d);
  const bool a = op.getTransposeA(), b = op.getTransposeB();
  c.add({a ? columns : rows, Factor::kNone}, {rows});
  c.add({Factor::kNone, b ? rows : columns}, {columns});
  c.add({a ? rows : columns, b ? columns : rows}, {Factor::kNone});
}

/// Groups of channels stay together: their number is an attribute.
template <typename Op> void collectConv(Op op, Collector &c) {
  c.add({0, Factor::kNone}, {0});
  if (op.getGroups() != 1)
    return;
  const bool isForward = isa<ConvOp>(op.getOperation());
  c.add({Factor::kNone, isForward ? 0 : 1}, {1});
  c.add({1, isForward ? 1 : 0}, {Factor::kNone});
}
void collect(ConvOp op, Collector &c) { collectConv(op, c); }
void collect(ConvGradInputOp op, Collector &c) { collectConv(op, c); }
void collect(ConvGradWeightOp op, Collector &c) {
  c.add({0, 0}, {Factor::kNone});
  if (op.getGroups() != 1)
    return;
  c.add({Factor::kNone, 1}, {0});
  c.add({1, Factor::kNone}, {1});
}

void collect(AttentionOp op, Collector &c) {
  const int rank = c.rank(), rows = rank - 2;
  for (int d = 0; d < rows; ++d)
    c.addSame(d);
  if (!op.getCausal())
    c.add({rows, Factor::kNone, Factor::kNone, rows}, {rows, rows, rows});
}

} // namespace

SmallVector<Factor> factorsOf(Operation *op) {
  Collector c(op);
  if (op->getNumOperands() == 0 || op->getNumResults() == 0)
    return {};
  if (op->hasTrait<Elementwise>()) {
    collectBut({}, c);
    return c.factors;
  }
  TypeSwitch<Operation *>(op)
      .Case<BroadcastOp, ReshapeOp, TransposeOp, SliceOp, PadOp, GatherOp,
            ScatterAddOp, ReduceOp, MatmulOp, ConvOp, ConvGradInputOp,
            ConvGradWeightOp, AttentionOp>([&](auto of) { collect(of, c); })
      .Case([&](ReverseOp reverse) { collectBut(reverse.getAxes(), c); })
      .Case([&](ConcatOp concat) {
        collectBut(static_cast<int64_t>(concat.getAxis()), c);
      })
      .Case([&](CumsumOp sum) {
        collectBut(static_cast<int64_t>(sum.getAxis()), c);
      })
      .Case([&](SoftmaxOp) { collectBut(c.rank() - 1, c); })
      .Case<MaxPoolOp, AvgPoolOp, MaxPoolGradOp, AvgPoolGradOp>([&](auto) {
        c.addSame(0);
        c.addSame(1);
      });
  return c.factors;
}

} // namespace pipec::nn
