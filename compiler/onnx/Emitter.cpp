//===- Emitter.cpp - nn ops, folded as they are written -------------------===//
#include "compiler/onnx/Emitter.h"
#include "compiler/onnx/NodeContext.h"

#include "mlir/IR/Verifier.h"
#include "llvm/ADT/ScopeExit.h"

#include <algorithm>
#include <limits>

using namespace mlir;

namespace pipec::onnx {

/// Elements that folding computes for one op, and in all.
static constexpr int64_t kFoldWork = int64_t(1) << 25;
/// Results up to this size are searched for dimensions that repeat, so that
/// what is computed from them stays small: a mask of positions is the same for
/// every sample.
static constexpr int64_t kLookedAt = int64_t(1) << 20;
static constexpr int64_t kTotalFoldWork = int64_t(1) << 31;

/// The number of elements; throws when a size is negative or the product
/// absurd.
static int64_t checkedCount(ArrayRef<int64_t> shape) {
  int64_t n = 1, nonZero = 1;
  for (const int64_t size : shape) {
    n *= size > 0 ? 1 : 0;
    if (size < 0 ||
        __builtin_mul_overflow(nonZero, std::max<int64_t>(size, 1), &nonZero) ||
        nonZero > (int64_t(1) << 46))
      throw NodeError{"a tensor of shape " + shapeText(shape) +
                          " is impossible",
                      "check the sizes given with --dim"};
  }
  return n * nonZero;
}

Emitter::Emitter(MLIRContext *context, const Model &model, Block *block,
                 std::set<std::string> takenSymbols)
    : context(context), model(model),
      builder(UnknownLoc::get(context), context),
      location(UnknownLoc::get(context)), scratch(std::make_unique<Block>()),
      symbols(std::move(takenSymbols)) {
  builder.setInsertionPointToEnd(block);
}

Emitter::~Emitter() = default;

void Emitter::beginNode(Location loc, const std::string &name) {
  location = loc;
  builder.setLoc(loc);
  nodeName = name;
  reads.clear();
}

//===----------------------------------------------------------------------===//
// Folding
//===----------------------------------------------------------------------===//

/// Throws NodeError when an operand has a type that the operation does not
/// take: files may say what they like.
static void checkOp(Operation &op) {
  std::string problem;
  ScopedDiagnosticHandler handler(op.getContext(), [&](mlir::Diagnostic &d) {
    if (problem.empty())
      problem = d.str();
    return success();
  });
  if (failed(mlir::verify(&op)))
    throw NodeError{problem, "the file is malformed; export the model again"};
}

std::optional<Val> Emitter::fold(ArrayRef<Val> operands, const Body &body) {
  if (!llvm::all_of(operands, [](const Val &v) { return v.isKnown(); }))
    return std::nullopt;
  if (work > kTotalFoldWork)
    return std::nullopt;
  llvm::DenseMap<Value, nn::Literal> known;
  SmallVector<Value> arguments;
  for (const Val &v : operands) {
    arguments.push_back(scratch->addArgument(v.type, location));
    known[arguments.back()] = literal(v);
  }
  nn::NNBuilder b(location, context);
  b.setInsertionPointToEnd(scratch.get());
  std::optional<Val> out;
  std::string why;
  const Value result = body(b, arguments);
  const llvm::scope_exit clear([&] {
    while (!scratch->empty())
      scratch->back().erase();
    scratch->eraseArguments(0, scratch->getNumArguments());
  });
  for (Operation &op : *scratch) {
    checkOp(op);
    SmallVector<nn::Literal> in;
    for (Value operand : op.getOperands())
      in.push_back(known.lookup(operand));
    const int64_t cost = nn::evaluationWork(&op, in);
    if (cost > kFoldWork)
      break;
    work += cost;
    FailureOr<SmallVector<nn::Literal>> results =
        nn::evaluate(&op, in, {}, why);
    if (failed(results))
      break;
    for (auto [value, literal] : llvm::zip_equal(op.getResults(), *results))
      known[value] =
          cost > 0 && cost <= kLookedAt ? literal.withoutRepetition() : literal;
  }
  if (auto found = known.find(result); found != known.end())
    out = Val(found->second);
  if (!out && !why.empty())
    throw NodeError{why, ""};
  return out;
}

Val Emitter::apply(ArrayRef<Val> operands, const Body &body) {
  if (std::optional<Val> known = fold(operands, body))
    return *known;
  SmallVector<Value> values;
  for (const Val &v : operands)
    values.push_back(value(v));
  Block &block = *builder.getInsertionBlock();
  Operation *before = block.empty() ? nullptr : &block.back();
  const Value result = body(builder, values);
  for (Operation &op :
       before ? llvm::make_range(std::next(before->getIterator()), block.end())
              : llvm::make_range(block.begin(), block.end()))
    checkOp(op);
  return Val(result);
}

nn::Literal Emitter::literal(const Val &v) {
  if (v.literal)
    return v.literal;
  if (!v.source->literal)
    v.source->literal = readLiteral(context, model, *v.source->data);
  sources[v.source->literal.getStorage()] = v.source;
  return v.source->literal;
}

Val Emitter::splat(RankedTensorType type, double value) {
  checkedCount(type.getShape());
  if (nn::holdsFloats(type.getElementType()))
    return nn::Literal::splat(type, value);
  const double bounded = std::clamp(value, -0x1p63, 0x1p63);
  const int64_t integer = bounded == 0x1p63
                              ? std::numeric_limits<int64_t>::max()
                              : static_cast<int64_t>(bounded);
  return nn::Literal::splatInt(type, integer);
}

Val Emitter::scalar(Type element, double value) {
  return splat(RankedTensorType::get({}, element), value);
}

Val Emitter::ints(ArrayRef<int64_t> values) {
  return nn::Literal::ints(context, values);
}

Val Emitter::iota(RankedTensorType type, int64_t axis) {
  checkedCount(type.getShape());
  return apply({}, [&](nn::NNBuilder &b, ArrayRef<Value>) {
    return nn::iota(b, type, axis);
  });
}

//===----------------------------------------------------------------------===//
// Elementwise
//===----------------------------------------------------------------------===//

void Emitter::requireSameElement(const Val &x, const Val &y) {
  if (x.getElementType() != y.getElementType())
    throw NodeError{"its operands have different element types, " +
                        typeText(x.type) + " and " + typeText(y.type),
                    ""};
}

Val Emitter::compare(StringRef predicate, const Val &x, const Val &y) {
  requireSameElement(x, y);
  auto [p, q] = broadcastPair(x, y);
  return apply({p, q}, [&](nn::NNBuilder &b, ArrayRef<Value> v) {
    return nn::compare(b, predicate, v[0], v[1]);
  });
}

Val Emitter::select(const Val &condition, const Val &x, const Val &y) {
  requireSameElement(x, y);
  if (!condition.getElementType().isInteger(1))
    throw NodeError{"its condition is not boolean", ""};
  const auto [p, q] = broadcastPair(x, y);
  const auto [c, p2] = broadcastPair(condition, p);
  const Val q2 = broadcast(q, p2.getShape());
  return apply({c, p2, q2}, [](nn::NNBuilder &b, ArrayRef<Value> v) {
    return nn::select(b, v[0], v[1], v[2]);
  });
}

Val Emitter::cast(const Val &x, Type element) {
  if (x.getElementType() == element)
    return x;
  return apply({x}, [&](nn::NNBuilder &b, ArrayRef<Value> v) {
    return nn::cast(b, v[0], element);
  });
}

//===----------------------------------------------------------------------===//
// Shape
//===----------------------------------------------------------------------===//

Val Emitter::reshape(const Val &x, ArrayRef<int64_t> shape) {
  if (x.getShape() == shape)
    return x;
  if (checkedCount(shape) != x.type.getNumElements())
    throw NodeError{"it reshapes " + shapeText(x.getShape()) + " to " +
                        shapeText(shape) + ", another number of elements",
                    "check the sizes given with --dim against those the model "
                    "was exported for"};
  if (const Val direct = reshapeOfTranspose(x, shape))
    return direct;
  return apply({x}, [&](nn::NNBuilder &b, ArrayRef<Value> v) {
    return nn::reshape(b, v[0], shape);
  });
}

/// Exporters transpose K of attention as reshape to 3-D, transpose, reshape
/// back: leading dimensions that are joined, stay in front, and are split
/// again. That is one transpose of what there was before.
Val Emitter::reshapeOfTranspose(const Val &x, ArrayRef<int64_t> shape) {
  auto transposed =
      x.value ? x.value.getDefiningOp<nn::TransposeOp>() : nn::TransposeOp();
  auto joined = transposed ? transposed.getX().getDefiningOp<nn::ReshapeOp>()
                           : nn::ReshapeOp();
  if (!joined || transposed.getPermutation()[0] != 0)
    return {};
  const Val source = joined.getX();
  const int64_t extra = source.getRank() - x.getRank();
  if (extra < 1 || source.getRank() != static_cast<int64_t>(shape.size()) ||
      source.getShape().drop_front(extra + 1) !=
          nn::tensorType(joined.getY()).getShape().drop_front() ||
      source.getShape().take_front(extra + 1) != shape.take_front(extra + 1) ||
      x.getShape().drop_front() != shape.drop_front(extra + 1))
    return {};
  SmallVector<int64_t> permutation(
      llvm::to_vector(llvm::seq<int64_t>(0, extra + 1)));
  for (const int64_t axis : transposed.getPermutation().drop_front())
    permutation.push_back(axis + extra);
  return transpose(source, permutation);
}

Val Emitter::broadcast(const Val &x, ArrayRef<int64_t> shape) {
  if (x.getShape() == shape)
    return x;
  const int64_t extra = static_cast<int64_t>(shape.size()) - x.getRank();
  bool fits = extra >= 0;
  for (int64_t i = 0; fits && i < x.getRank(); ++i)
    fits = x.dim(i) == 1 || x.dim(i) == shape[extra + i];
  checkedCount(shape);
  if (!fits)
    throw NodeError{"shape " + shapeText(x.getShape()) +
                        " does not broadcast to " + shapeText(shape),
                    "check the sizes given with --dim against those the model "
                    "was exported for"};
  SmallVector<int64_t> aligned(extra, 1);
  llvm::append_range(aligned, x.getShape());
  return apply({reshape(x, aligned)}, [&](nn::NNBuilder &b, ArrayRef<Value> v) {
    return nn::broadcast(b, v[0], shape);
  });
}

std::pair<Val, Val> Emitter::broadcastPair(const Val &x, const Val &y) {
  if (x.getShape() == y.getShape())
    return {x, y};
  const int64_t rank = std::max(x.getRank(), y.getRank());
  SmallVector<int64_t> shape(rank, 1);
  for (int64_t i = 0; i < rank; ++i) {
    const int64_t p = i + x.getRank() - rank, q = i + y.getRank() - rank;
    const int64_t a = p < 0 ? 1 : x.dim(p), b = q < 0 ? 1 : y.dim(q);
    if (a != b && a != 1 && b != 1)
      throw NodeError{"shapes " + shapeText(x.getShape()) + " and " +
                          shapeText(y.getShape()) + " do not broadcast",
                      "check the sizes given with --dim against those the "
                      "model was exported for"};
    shape[i] = a == 1 ? b : a;
  }
  return {broadcast(x, shape), broadcast(y, shape)};
}

Val Emitter::transpose(const Val &x, ArrayRef<int64_t> permutation) {
  SmallVector<int64_t> sorted(permutation);
  llvm::sort(sorted);
  if (!llvm::equal(sorted, llvm::seq<int64_t>(0, x.getRank())))
    throw NodeError{"its permutation " + shapeText(permutation) +
                        " does not fit a tensor of rank " +
                        std::to_string(x.getRank()),
                    ""};
  if (llvm::is_sorted(permutation))
    return x;
  return apply({x}, [&](nn::NNBuilder &b, ArrayRef<Value> v) {
    return nn::transpose(b, v[0], permutation);
  });
}

Val Emitter::slice(const Val &x, ArrayRef<int64_t> starts,
                   ArrayRef<int64_t> sizes, ArrayRef<int64_t> strides) {
  if (x.getShape() == sizes &&
      llvm::all_of(strides, [](int64_t s) { return s == 1; }))
    return x;
  return apply({x}, [&](nn::NNBuilder &b, ArrayRef<Value> v) {
    return nn::slice(b, v[0], starts, sizes, strides);
  });
}

Val Emitter::sliceAxis(const Val &x, int64_t axis, int64_t start,
                       int64_t size) {
  SmallVector<int64_t> starts(x.getRank(), 0), sizes(x.getShape()),
      strides(x.getRank(), 1);
  starts[axis] = start;
  sizes[axis] = size;
  return slice(x, starts, sizes, strides);
}

Val Emitter::concat(ArrayRef<Val> parts, int64_t axis) {
  SmallVector<Val> joined;
  for (const Val &part : parts) {
    requireSameElement(parts[0], part);
    SmallVector<int64_t> expected(parts[0].getShape());
    if (part.getRank() == parts[0].getRank())
      expected[axis] = part.dim(axis);
    if (part.getShape() != ArrayRef(expected))
      throw NodeError{"shapes " + shapeText(parts[0].getShape()) + " and " +
                          shapeText(part.getShape()) +
                          " do not join along axis " + std::to_string(axis),
                      ""};
    if (part.dim(axis) > 0)
      joined.push_back(part);
  }
  if (joined.empty())
    return parts[0];
  if (joined.size() == 1)
    return joined[0];
  return apply(joined, [&](nn::NNBuilder &b, ArrayRef<Value> v) {
    return nn::ConcatOp::create(b, v, axis).getResult();
  });
}

Val Emitter::pad(const Val &x, ArrayRef<int64_t> low, ArrayRef<int64_t> high,
                 ArrayRef<int64_t> interior, double value) {
  const auto isZero = [](int64_t n) { return n == 0; };
  if (llvm::all_of(low, isZero) && llvm::all_of(high, isZero) &&
      llvm::all_of(interior, isZero))
    return x;
  SmallVector<int64_t> shape;
  for (int64_t i = 0; i < x.getRank(); ++i) {
    int64_t size = 0;
    if (__builtin_add_overflow(low[i], high[i], &size) ||
        __builtin_add_overflow(size, x.dim(i) * (interior[i] + 1), &size))
      size = -1;
    shape.push_back(size);
  }
  checkedCount(shape);
  return apply({x}, [&](nn::NNBuilder &b, ArrayRef<Value> v) {
    return nn::PadOp::create(b, v[0], b.getDenseI64ArrayAttr(low),
                             b.getDenseI64ArrayAttr(high),
                             b.getDenseI64ArrayAttr(interior),
                             b.getF64FloatAttr(value))
        .getResult();
  });
}

Val Emitter::reverse(const Val &x, ArrayRef<int64_t> axes) {
  return apply({x}, [&](nn::NNBuilder &b, ArrayRef<Value> v) {
    return nn::ReverseOp::create(b, v[0], axes).getResult();
  });
}

//===----------------------------------------------------------------------===//
// Indexing, reduction, contraction
//===----------------------------------------------------------------------===//

Val Emitter::gather(const Val &x, const Val &indices, int64_t axis) {
  if (indices.isFloat())
    throw NodeError{"its indices are not integers", ""};
  SmallVector<int64_t> shape(x.getShape().take_front(axis));
  llvm::append_range(shape, indices.getShape());
  llvm::append_range(shape, x.getShape().drop_front(axis + 1));
  checkedCount(shape);
  return apply({x, indices}, [&](nn::NNBuilder &b, ArrayRef<Value> v) {
    return nn::GatherOp::create(b, v[0], v[1], axis).getResult();
  });
}

Val Emitter::scatterAdd(RankedTensorType type, const Val &indices,
                        const Val &updates, int64_t axis) {
  return apply({indices, updates}, [&](nn::NNBuilder &b, ArrayRef<Value> v) {
    return nn::ScatterAddOp::create(b, type, v[0], v[1], axis).getResult();
  });
}

Val Emitter::cumsum(const Val &x, int64_t axis, bool exclusive, bool reverse) {
  return apply({x}, [&](nn::NNBuilder &b, ArrayRef<Value> v) {
    return nn::CumsumOp::create(b, v[0].getType(), v[0], axis, exclusive,
                                reverse)
        .getResult();
  });
}

Val Emitter::reduce(StringRef kind, const Val &x, ArrayRef<int64_t> axes) {
  if (axes.empty())
    return x;
  return apply({x}, [&](nn::NNBuilder &b, ArrayRef<Value> v) {
    return nn::reduce(b, kind, v[0], axes);
  });
}

Val Emitter::mean(const Val &x, ArrayRef<int64_t> axes) {
  int64_t count = 1;
  for (const int64_t axis : axes)
    count *= x.dim(axis);
  const Val sum = reduce("sum", x, axes);
  return count == 1 ? sum
                    : div(sum, splatLike(sum, static_cast<double>(count)));
}

Val Emitter::softmax(const Val &x) {
  return apply({x}, [](nn::NNBuilder &b, ArrayRef<Value> v) {
    return nn::SoftmaxOp::create(b, v[0].getType(), v[0]).getResult();
  });
}

Val Emitter::matmul(const Val &x, const Val &y, bool transposeX,
                    bool transposeY) {
  requireSameElement(x, y);
  const int64_t rank = x.getRank();
  const bool ranks = rank >= 2 && y.getRank() == rank;
  if (!ranks || x.getShape().drop_back(2) != y.getShape().drop_back(2) ||
      x.dim(rank - (transposeX ? 2 : 1)) != y.dim(rank - (transposeY ? 1 : 2)))
    throw NodeError{"shapes " + shapeText(x.getShape()) + " and " +
                        shapeText(y.getShape()) + " do not multiply",
                    ""};
  SmallVector<int64_t> shape(x.getShape().drop_back(2));
  shape.push_back(x.dim(rank - (transposeX ? 1 : 2)));
  shape.push_back(y.dim(rank - (transposeY ? 2 : 1)));
  checkedCount(shape);
  if (!x.isFloat()) {
    // The contraction is floating-point; integers multiply exactly this way.
    Val a = x, b = y;
    SmallVector<int64_t> swap(llvm::to_vector(llvm::seq<int64_t>(0, rank)));
    std::swap(swap[rank - 1], swap[rank - 2]);
    if (transposeX)
      a = transpose(a, swap);
    if (!transposeY)
      b = transpose(b, swap);
    SmallVector<int64_t> left(a.getShape()), right(b.getShape());
    left.insert(left.end() - 1, 1);
    right.insert(right.end() - 2, 1);
    const Val products = mul(reshape(a, left), reshape(b, right));
    const Val sum = reduce("sum", products, {rank});
    return reshape(sum, sum.getShape().drop_back());
  }
  const Val p = withoutTranspose(x), q = withoutTranspose(y);
  return apply(
      {p ? p : x, q ? q : y}, [&](nn::NNBuilder &b, ArrayRef<Value> v) {
        return nn::matmul(b, v[0], v[1], transposeX != static_cast<bool>(p),
                          transposeY != static_cast<bool>(q));
      });
}

/// What `x` is the transpose of (its last two dimensions swapped), looking
/// through a product with a number; null when it is none.
Val Emitter::withoutTranspose(const Val &x) {
  if (!x.value)
    return {};
  if (auto op = x.value.getDefiningOp<nn::TransposeOp>()) {
    SmallVector<int64_t> swap(
        llvm::to_vector(llvm::seq<int64_t>(0, x.getRank())));
    std::swap(swap[x.getRank() - 1], swap[x.getRank() - 2]);
    return op.getPermutation() == ArrayRef(swap) ? Val(op.getX()) : Val();
  }
  if (auto op = x.value.getDefiningOp<nn::MulOp>()) {
    auto factor = op.getB().getDefiningOp<nn::ConstantOp>();
    auto dense = factor ? dyn_cast<DenseElementsAttr>(factor.getValue())
                        : DenseElementsAttr();
    if (!dense || !dense.isSplat())
      return {};
    if (const Val inner = withoutTranspose(op.getA()))
      return mul(inner,
                 Val(nn::Literal::fromAttr(dense.resizeSplat(inner.type))));
  }
  return {};
}

void Emitter::track(const Val &x, const Val &running, double momentum) {
  running.source->used = true;
  nn::TrackOp::create(builder, value(x),
                      FlatSymbolRefAttr::get(context, running.source->symbol),
                      builder.getF64FloatAttr(momentum));
}

std::vector<std::string> Emitter::originsOf(const Val &v) const {
  std::set<std::string> names;
  SmallVector<Value> stack;
  llvm::DenseSet<Value> seen;
  if (v.value)
    stack.push_back(v.value);
  while (!stack.empty()) {
    const Value at = stack.pop_back_val();
    if (!seen.insert(at).second)
      continue;
    if (auto argument = dyn_cast<BlockArgument>(at)) {
      auto function = cast<func::FuncOp>(argument.getOwner()->getParentOp());
      if (auto name = function.getArgAttrOfType<StringAttr>(
              argument.getArgNumber(), "nn.name"))
        names.insert(name.str());
      continue;
    }
    for (Value operand : at.getDefiningOp()->getOperands())
      stack.push_back(operand);
  }
  return {names.begin(), names.end()};
}

} // namespace pipec::onnx
