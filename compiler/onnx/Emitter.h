//===- Emitter.h - nn ops, folded as they are written -----------*- C++ -*-===//
//
// What the importers of single operators write with. Every function emits nn
// ops when an operand is only known at run time, and computes the result at
// once when all operands are known: shape arithmetic and mask programs vanish
// without any pass. Broadcasting follows NumPy's rules and is made explicit.
//
//===----------------------------------------------------------------------===//

#pragma once

#include "compiler/onnx/Literals.h"
#include "compiler/onnx/Trainable.h"
#include "dialects/nn/Build.h"
#include "dialects/nn/eval/Evaluate.h"

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>

namespace pipec::onnx {

/// Why a node cannot be imported. Thrown by importers, becomes a Diagnostic.
struct NodeError {
  std::string cause, remedy;
};

/// The same shape with another element type.
inline mlir::RankedTensorType withElement(mlir::RankedTensorType type,
                                          mlir::Type element) {
  return mlir::RankedTensorType::get(type.getShape(), element);
}

/// Tensors of the file with more elements take no part in folding.
inline constexpr int64_t kFoldedTensor = int64_t(1) << 20;

/// A tensor of the file while it is imported.
struct Initializer {
  const TensorData *data;
  Role role;
  std::string reason, symbol;
  bool masters = false; ///< f32 though it is frozen: a checkpoint has it so
  bool used = false;    ///< an nn.weight or nn.track refers to it
  bool folds = false;   ///< may be read at compile time
  nn::Literal literal;  ///< once read

  /// The type in the program: a trained weight, its gradient and its update are
  /// f32 whatever the file has.
  mlir::RankedTensorType programType(mlir::MLIRContext *context) const {
    const mlir::RankedTensorType type = tensorType(context, *data);
    return role == Role::Weight || masters
               ? withElement(type, mlir::Float32Type::get(context))
               : type;
  }
};

/// A value of the ONNX graph: an SSA value, a tensor known now, an untouched
/// tensor of the file, or a sequence of values.
class Val {
public:
  Val() = default;
  Val(mlir::Value value) : type(nn::tensorType(value)), value(value) {}
  Val(nn::Literal literal)
      : type(literal.getType()), literal(std::move(literal)) {}
  Val(std::shared_ptr<Initializer> source, mlir::RankedTensorType type)
      : type(type), source(std::move(source)) {}

  explicit operator bool() const { return type || isSequence(); }
  bool isSequence() const { return sequence != nullptr; }
  mlir::RankedTensorType getType() const { return type; }
  mlir::Type getElementType() const { return type.getElementType(); }
  bool isFloat() const { return nn::holdsFloats(getElementType()); }
  llvm::ArrayRef<int64_t> getShape() const { return type.getShape(); }
  int64_t getRank() const { return type.getRank(); }
  int64_t dim(int64_t i) const { return type.getDimSize(i); }
  /// Whether the elements are known at compile time.
  bool isKnown() const {
    return static_cast<bool>(literal) || (source && source->folds);
  }

  mlir::RankedTensorType type;
  mlir::Value value;
  nn::Literal literal;
  std::shared_ptr<Initializer> source;
  std::shared_ptr<const std::vector<Val>> sequence;
};

class Emitter {
public:
  using Body =
      std::function<mlir::Value(nn::NNBuilder &, llvm::ArrayRef<mlir::Value>)>;

  Emitter(mlir::MLIRContext *context, const Model &model, mlir::Block *block,
          std::set<std::string> takenSymbols);
  ~Emitter();
  mlir::MLIRContext *getContext() const { return context; }
  mlir::Type i64() const { return mlir::IntegerType::get(context, 64); }

  /// Starts a node: the location of what follows, and the name that folded
  /// tensors take.
  void beginNode(mlir::Location location, const std::string &name);

  //===--- Constants
  //--------------------------------------------------------===//

  /// The elements of a known value.
  nn::Literal literal(const Val &v);
  /// The SSA value, emitting a constant or a parameter read where needed.
  mlir::Value value(const Val &v);
  /// A tensor inside a node: its elements, or a parameter when it is large.
  Val modelTensor(const TensorData &tensor);
  Val splat(mlir::RankedTensorType type, double value);
  /// A tensor like `v` with every element `value`.
  Val splatLike(const Val &v, double value) { return splat(v.type, value); }
  Val scalar(mlir::Type element, double value);
  Val ints(llvm::ArrayRef<int64_t> values);
  /// A number of the run: seed, step or microbatch.
  Val counter(llvm::StringRef name);
  /// Random bits, new ones for every call, microbatch and step: those of a
  /// seed are the same wherever and however often they are computed.
  Val randomBits(llvm::ArrayRef<int64_t> shape);
  /// The index along `axis`.
  Val iota(mlir::RankedTensorType type, int64_t axis);

  //===--- Elementwise
  //------------------------------------------------------===//

  /// Any composition of nn ops over the operands, folded when all are known.
  Val apply(llvm::ArrayRef<Val> operands, const Body &body);
  template <typename Op> Val unary(const Val &x) {
    return apply({x}, [](nn::NNBuilder &b, llvm::ArrayRef<mlir::Value> v) {
      return Op::create(b, v[0]).getResult();
    });
  }
  /// After broadcasting both to a common shape. Types must agree.
  template <typename Op> Val binary(const Val &x, const Val &y) {
    requireSameElement(x, y);
    auto [p, q] = broadcastPair(x, y);
    return apply({p, q}, [](nn::NNBuilder &b, llvm::ArrayRef<mlir::Value> v) {
      return Op::create(b, v[0].getType(), v[0], v[1]).getResult();
    });
  }
  Val add(const Val &x, const Val &y) { return binary<nn::AddOp>(x, y); }
  Val sub(const Val &x, const Val &y) { return binary<nn::SubOp>(x, y); }
  Val mul(const Val &x, const Val &y) { return binary<nn::MulOp>(x, y); }
  Val div(const Val &x, const Val &y) { return binary<nn::DivOp>(x, y); }
  Val max(const Val &x, const Val &y) { return binary<nn::MaxOp>(x, y); }
  Val min(const Val &x, const Val &y) { return binary<nn::MinOp>(x, y); }
  Val add(const Val &x, double s) {
    return s == 0 ? x : add(x, splatLike(x, s));
  }
  Val mul(const Val &x, double s) {
    return s == 1 ? x : mul(x, splatLike(x, s));
  }
  Val neg(const Val &x) { return unary<nn::NegOp>(x); }
  Val compare(llvm::StringRef predicate, const Val &x, const Val &y);
  Val compare(llvm::StringRef predicate, const Val &x, double s) {
    return compare(predicate, x, splatLike(x, s));
  }
  Val select(const Val &condition, const Val &x, const Val &y);
  Val cast(const Val &x, mlir::Type element);

  //===--- Shape
  //------------------------------------------------------------===//

  /// Same number of elements; checked.
  Val reshape(const Val &x, llvm::ArrayRef<int64_t> shape);
  /// NumPy's rules; checked.
  Val broadcast(const Val &x, llvm::ArrayRef<int64_t> shape);
  std::pair<Val, Val> broadcastPair(const Val &x, const Val &y);
  Val transpose(const Val &x, llvm::ArrayRef<int64_t> permutation);
  Val slice(const Val &x, llvm::ArrayRef<int64_t> starts,
            llvm::ArrayRef<int64_t> sizes, llvm::ArrayRef<int64_t> strides);
  /// [start, start + size) of one axis.
  Val sliceAxis(const Val &x, int64_t axis, int64_t start, int64_t size);
  Val concat(llvm::ArrayRef<Val> parts, int64_t axis);
  Val pad(const Val &x, llvm::ArrayRef<int64_t> low,
          llvm::ArrayRef<int64_t> high, llvm::ArrayRef<int64_t> interior,
          double value);
  Val reverse(const Val &x, llvm::ArrayRef<int64_t> axes);

  //===--- Indexing, reduction, contraction
  //---------------------------------===//

  Val gather(const Val &x, const Val &indices, int64_t axis);
  Val scatterAdd(mlir::RankedTensorType type, const Val &indices,
                 const Val &updates, int64_t axis);
  Val cumsum(const Val &x, int64_t axis, bool exclusive, bool reverse);
  /// Reduced axes stay, with size 1.
  Val reduce(llvm::StringRef kind, const Val &x, llvm::ArrayRef<int64_t> axes);
  Val mean(const Val &x, llvm::ArrayRef<int64_t> axes);
  /// Over the last dimension.
  Val softmax(const Val &x);
  /// [batch..., m, k] x [batch..., k, n], equal batch dimensions; checked.
  Val matmul(const Val &x, const Val &y, bool transposeX = false,
             bool transposeY = false);

  /// Notes that a batch norm's running tensor follows `x`.
  void track(const Val &x, const Val &running, double momentum);

  /// nn.parameter ops made for folded tensors, in order of appearance.
  const std::vector<nn::ParameterOp> &getFolded() const { return folded; }

  /// Throws when the element types differ.
  static void requireSameElement(const Val &x, const Val &y);

  /// Tensors of nodes that became parameters.
  const std::vector<std::shared_ptr<Initializer>> &getEmbedded() const {
    return embedded;
  }

  /// Names of the graph inputs that a run-time value is computed from.
  std::vector<std::string> originsOf(const Val &v) const;

private:
  mlir::Value materialize(const nn::Literal &literal);
  mlir::Value wholeSource(const nn::Literal &literal);
  /// One value at places (i, j) of the last two dimensions with
  /// -left <= j - i <= right, another elsewhere: a causal mask, or one with a
  /// window.
  struct Band {
    double inside = 0, outside = 0;
    int64_t left = 0, right = 0;
  };
  static std::optional<Band> findBand(const nn::Literal &literal);
  mlir::Value makeBand(const Band &band, mlir::RankedTensorType type);
  /// How a known tensor stands in the program: as a band, or as a parameter of
  /// that name; of a type without repetition.
  struct Shown {
    mlir::RankedTensorType type;
    std::optional<Band> band;
    std::string symbol;
  };
  Shown decideShown(const nn::Literal &literal);
  const Shown &shownAs(const nn::Literal &literal);
  mlir::Value weight(Initializer &source);
  std::string freshSymbol();
  Val reshapeOfTranspose(const Val &x, llvm::ArrayRef<int64_t> shape);
  Val withoutTranspose(const Val &x);
  std::optional<Val> fold(llvm::ArrayRef<Val> operands, const Body &body);

  mlir::MLIRContext *context;
  const Model &model;
  nn::NNBuilder builder;
  mlir::Location location;
  std::unique_ptr<mlir::Block> scratch; ///< where ops stand while they fold
  std::set<std::string> symbols;
  std::vector<nn::ParameterOp> folded;
  /// Folded tensors of equal elements share a parameter.
  llvm::DenseMap<mlir::Attribute, std::string> foldedSymbols;
  /// Views that were looked through before, by their storage: every layer of a
  /// model has the same mask.
  struct View {
    std::weak_ptr<const void> storage;
    mlir::RankedTensorType type;
    llvm::SmallVector<int64_t> strides;
    int64_t offset = 0;
    Shown shown;
  };
  std::map<const void *, std::deque<View>> views;
  std::vector<std::shared_ptr<Initializer>> embedded;
  std::string nodeName;
  /// Tensors of the file that were read, by the storage of their elements.
  llvm::DenseMap<const void *, std::shared_ptr<Initializer>> sources;
  /// Reads of parameters by the current node: one a tensor.
  std::map<Initializer *, mlir::Value> reads;
  int64_t streams = 0; ///< calls of randomBits
  int64_t work = 0;    ///< elements computed by folding so far
};

} // namespace pipec::onnx
