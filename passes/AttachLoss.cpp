//===- AttachLoss.cpp - the loss of a microbatch --------------------------===//
#include "dialects/nn/Build.h"
#include "dialects/pipe/Pipe.h"
#include "passes/ClassAxis.h"
#include "passes/Graph.h"
#include "passes/Passes.h"
#include "passes/WrongOption.h"

#include "mlir/IR/PatternMatch.h"

namespace pipec {
#define GEN_PASS_DEF_ATTACHLOSS
#include "passes/Passes.h.inc"
} // namespace pipec

using namespace mlir;
using namespace pipec;
using namespace pipec::nn;

namespace {

struct LossOptions {
  std::string label;
  int64_t ignoreIndex;
  double labelSmoothing;
  ArrayRef<double> classWeights; ///< empty: 1 for every class
  double posWeight;
  int64_t classAxis; ///< -1: not said
};

constexpr StringLiteral kLabelRemedy =
    "; give label=NAME of an input of that shape, or a new name, which the "
    "loss adds";

/// A loss is the sum of its terms over how much they count.
struct Terms {
  Value terms;
  Value counted; ///< of the same shape, or null: each counts 1
  Value scalar;  ///< instead of both: the loss that the model computes
};

/// Builds one loss; `label` adds or finds the label argument.
struct LossBuilder {
  NNBuilder &b;
  func::FuncOp main;
  const LossOptions &options;
  IntegerAttr samplesOn; ///< the axis of the output, where it is not the first

  /// Samples of a microbatch; -1 when no input counts them.
  int64_t samples() {
    for (unsigned i = 0; i < main.getNumArguments(); ++i)
      if (auto axis = main.getArgAttrOfType<IntegerAttr>(i, "nn.batch_axis"))
        if (auto type = tensorType(main.getArgument(i));
            axis.getInt() == 0 && type.getRank() > 0)
          return type.getDimSize(0);
    return -1;
  }

  /// A label has an entry for each sample, and the shape of what it is for.
  LogicalResult checkSamples(StringRef kind, RankedTensorType type) {
    const int64_t wanted = samples();
    if (!samplesOn &&
        (wanted < 0 || (type.getRank() > 0 && type.getDimSize(0) == wanted)))
      return success();
    auto error = main.emitError("--loss ")
                 << kind << " needs an output whose axis 0 counts the "
                 << (wanted < 0 ? "" : std::to_string(wanted) + " ")
                 << "samples of a microbatch, not " << type;
    if (samplesOn)
      error << " with the samples on axis " << samplesOn.getInt();
    if (auto input =
            main->getParentOp()->getAttrOfType<StringAttr>("nn.batch_second"))
      return error << "; the samples of input '" << input.getValue()
                   << "' seem to be on axis 1: export the model with the batch "
                      "first (batch_first=True of recurrent layers, or a "
                      "transpose of the input)";
    return error << "; name another with --logits"
                 << (type.getRank() == 0
                         ? ", or say --loss output if it is the loss"
                         : ", or reshape it in the model");
  }

  /// The argument called `name`, or null.
  Value known(StringRef name) {
    for (unsigned i = 0; i < main.getNumArguments(); ++i)
      if (auto attr = main.getArgAttrOfType<StringAttr>(i, "nn.name"))
        if (attr.getValue() == name)
          return main.getArgument(i);
    return {};
  }

  /// The same, added when missing.
  Value argument(StringRef name, RankedTensorType type) {
    if (Value found = known(name))
      return found;
    unsigned index = main.getNumArguments();
    NamedAttribute attrs[] = {
        b.getNamedAttr("nn.name", b.getStringAttr(name)),
        b.getNamedAttr("nn.batch_axis", b.getI64IntegerAttr(0))};
    if (failed(main.insertArgument(index, type, b.getDictionaryAttr(attrs),
                                   main.getLoc())))
      return {};
    return main.getArgument(index);
  }
  StringRef labelOr(StringRef fallback) {
    return options.label.empty() ? fallback : StringRef(options.label);
  }

  /// Notes for the runtime which values an integer label may have.
  void limitLabel(StringRef name, int64_t classes) {
    for (unsigned i = 0; i < main.getNumArguments(); ++i) {
      auto attr = main.getArgAttrOfType<StringAttr>(i, "nn.name");
      if (!attr || attr.getValue() != name)
        continue;
      main.setArgAttr(i, "nn.upper", b.getI64IntegerAttr(classes));
      main.setArgAttr(i, "nn.ignored",
                      b.getI64IntegerAttr(options.ignoreIndex));
    }
  }

  Value sumAll(Value x) {
    auto axes = llvm::to_vector(llvm::seq<int64_t>(0, tensorType(x).getRank()));
    return reshape(b, nn::reduce(b, "sum", x, axes), {});
  }
  Value loss(const Terms &of) {
    if (of.scalar)
      return of.scalar;
    Value count = of.counted ? sumAll(of.counted) : Value();
    Value sum = sumAll(of.terms);
    double n = tensorType(of.terms).getNumElements();
    return div(b, sum, count ? count : splatLike(b, sum, n));
  }

  /// The terms of each sample and how much they count, [samples, 2]. Null where
  /// axis 0 is not that of the samples.
  Value lossOfSamples(const Terms &of) {
    const int64_t samples = this->samples();
    if (of.scalar || tensorType(of.terms).getShape().front() != samples)
      return {};
    auto sum = [&](Value x) {
      auto axes =
          llvm::to_vector(llvm::seq<int64_t>(1, tensorType(x).getRank()));
      if (!axes.empty())
        x = nn::reduce(b, "sum", x, axes);
      return nn::cast(b, reshape(b, x, {samples, 1}), b.getF32Type());
    };
    Value sums = sum(of.terms);
    double each = static_cast<double>(tensorType(of.terms).getNumElements()) /
                  static_cast<double>(samples);
    Value counts = of.counted ? sum(of.counted) : splatLike(b, sums, each);
    return ConcatOp::create(b, ValueRange{sums, counts}, 1);
  }

  static SmallVector<int64_t> without(ArrayRef<int64_t> shape, int64_t axis) {
    SmallVector<int64_t> rest(shape);
    rest.erase(rest.begin() + axis);
    return rest;
  }

  /// ", [2, 5] or [2, 7]": what a label may be where there are two ways.
  std::string labelShapes(RankedTensorType type) {
    int64_t usual = usualClassAxis(type.getRank()),
            other = otherClassAxis(type.getRank());
    if (other < 0 || options.classAxis >= 0)
      return "";
    std::string text;
    llvm::raw_string_ostream out(text);
    for (int64_t axis : {usual, other}) {
      out << (axis == usual ? ", [" : " or [");
      llvm::interleaveComma(without(type.getShape(), axis), out);
      out << "]";
    }
    return text;
  }

  /// The classes' axis of [batch, length, classes] and [batch, classes,
  /// length]: a label that the model has tells the two apart. Of one that the
  /// loss adds, the layer before may; where it does not, what is taken is said.
  FailureOr<int64_t> classAxis(Value y, StringRef name) {
    auto type = tensorType(y);
    int64_t rank = type.getRank();
    if (options.classAxis >= rank)
      return wrongOption(main.emitError("--loss cross-entropy:axis=")
                         << options.classAxis << " is no axis of " << type
                         << "; its classes are on one from 1 to " << rank - 1);
    if (options.classAxis >= 0)
      return options.classAxis;
    int64_t usual = usualClassAxis(rank), other = otherClassAxis(rank);
    if (other < 0)
      return usual;
    Value label = known(name);
    auto isFor = [&](int64_t axis) {
      return label && tensorType(label).getShape() ==
                          ArrayRef(without(type.getShape(), axis));
    };
    if (isFor(other) && !isFor(usual))
      return other;
    bool isClear =
        isFor(usual) ? !isFor(other) : axisThatLayerMakes(y) == usual;
    if (!isClear && (!label || isFor(usual)) && type.getDimSize(other) > 1)
      main.emitRemark("--loss cross-entropy takes axis ")
          << usual << " of " << type
          << " for the classes; where they are on axis " << other
          << ", say --loss cross-entropy:axis=" << other;
    return usual;
  }

  LogicalResult checkClasses(StringRef kind, RankedTensorType type,
                             int64_t axis) {
    if (type.getDimSize(axis) > 1)
      return checkClassWeights(type.getDimSize(axis));
    return wrongOption(
        main.emitError("--loss ")
        << kind << " of one class is always 0, and axis " << axis << " of "
        << type << " has one; take --loss bce for yes or no, --loss mse for "
        << "numbers, or another output with --logits");
  }

  LogicalResult checkClassWeights(int64_t classes) {
    auto given = static_cast<int64_t>(options.classWeights.size());
    if (given == 0 || given == classes)
      return success();
    return main.emitError("--loss has ")
           << given << " class weights for " << classes
           << " classes; its weight=FILE.npy needs a number for each";
  }

  /// The class weights as a tensor like `x`.
  Value spreadClassWeights(Value x, int64_t axis) {
    auto type = tensorType(x);
    auto element = cast<FloatType>(type.getElementType());
    SmallVector<APFloat> numbers;
    for (double w : options.classWeights) {
      numbers.emplace_back(w);
      bool inexact;
      numbers.back().convert(element.getFloatSemantics(),
                             APFloat::rmNearestTiesToEven, &inexact);
    }
    SmallVector<int64_t> shape(type.getRank(), 1);
    shape[axis] = type.getDimSize(axis);
    Value w = ConstantOp::create(
        b,
        DenseElementsAttr::get(RankedTensorType::get(shape, element), numbers));
    return broadcast(b, w, type.getShape());
  }

  /// Mean over the counted rows of logsumexp(x) - x[label]. `x` has the classes
  /// on `axis`; `labels` is i64 with size 1 there. With class weights a row
  /// counts as much as its class; with smoothing, all classes share a part of
  /// the target.
  Terms crossEntropy(Value x, Value labels, int64_t axis) {
    auto type = tensorType(x);
    ArrayRef<int64_t> shape = type.getShape();
    Value top = nn::reduce(b, "max", StopGradientOp::create(b, x), {axis});
    Value e = exp(b, sub(b, x, broadcast(b, top, shape)));
    Value logSum = nn::add(b, top, log(b, nn::reduce(b, "sum", e, {axis})));
    Value classes = iota(b, type.clone(b.getI64Type()), axis);
    Value hit = compare(b, "eq", classes, broadcast(b, labels, shape));
    Value picked = nn::reduce(b, "sum", selectOrZero(b, hit, x), {axis});
    Value counted =
        compare(b, "ne", labels,
                splatLike(b, labels, static_cast<double>(options.ignoreIndex)));
    Value row = sub(b, logSum, picked), share = splatLike(b, row, 1), weights;
    if (!options.classWeights.empty()) {
      weights = spreadClassWeights(x, axis);
      share = nn::reduce(b, "sum", selectOrZero(b, hit, weights), {axis});
      row = mul(b, share, row);
    }
    if (double smooth = options.labelSmoothing; smooth > 0) {
      Value all = sub(b, broadcast(b, logSum, shape), x);
      all = weights ? mul(b, weights, all) : all;
      row = nn::add(b, mulScalar(b, row, 1 - smooth),
                    mulScalar(b, nn::reduce(b, "sum", all, {axis}),
                              smooth / type.getDimSize(axis)));
    }
    Value rows = selectOrZero(b, counted, row);
    return {rows, selectOrZero(b, counted, share), {}};
  }

  FailureOr<Terms> build(StringRef kind, Value y) {
    auto type = tensorType(y);
    int64_t rank = type.getRank();
    if (kind == "output")
      return output(y);
    if (kind == "mse" || kind == "bce")
      if (failed(checkSamples(kind, type)))
        return failure();
    if (kind == "mse" || kind == "bce") {
      FailureOr<Value> targets = targetsLike(kind, type);
      if (failed(targets))
        return failure();
      if (kind == "bce")
        return Terms{binaryCrossEntropy(y, *targets), {}, {}};
      Value d = sub(b, y, *targets);
      return Terms{mul(b, d, d), {}, {}};
    }
    if (kind == "next-token")
      return nextToken(y);
    if (kind != "cross-entropy")
      return main.emitError("unknown loss '") << kind << "'";
    StringRef name = labelOr("labels");
    FailureOr<int64_t> found = rank < 2 ? -1 : classAxis(y, name);
    if (failed(found))
      return failure();
    int64_t axis = *found;
    if (axis < 0 || type.getDimSize(axis) == 0)
      return main.emitError(
                 "cross-entropy needs logits with a class axis, not ")
             << type;
    if (failed(checkClasses(kind, type, axis)) ||
        failed(checkSamples(kind, type)))
      return failure();
    SmallVector<int64_t> rows = without(type.getShape(), axis);
    Value labels = argument(name, RankedTensorType::get(rows, b.getI64Type()));
    if (tensorType(labels).getShape() != ArrayRef(rows) || isFloat(labels))
      return wrongOption(main.emitError("label '")
                         << name << "' has type " << labels.getType()
                         << ", the logits need one integer label for each of "
                         << type << labelShapes(type) << kLabelRemedy);
    limitLabel(name, type.getDimSize(axis));
    labels = nn::cast(b, labels, b.getI64Type());
    rows.insert(rows.begin() + axis, 1);
    return crossEntropy(y, reshape(b, labels, rows), axis);
  }

  /// The label that has a number for each of the output's.
  FailureOr<Value> targetsLike(StringRef kind, RankedTensorType type) {
    StringRef name = labelOr("targets");
    Value targets = argument(name, type);
    if (tensorType(targets).getShape() != type.getShape())
      return wrongOption(
          main.emitError("label '")
          << name << "' has type " << targets.getType() << ", --loss " << kind
          << " needs a number for each of " << type << kLabelRemedy);
    return nn::cast(b, targets, type.getElementType());
  }

  FailureOr<Terms> output(Value y) {
    if (tensorType(y).getNumElements() != 1)
      return wrongOption(
          main.emitError("--loss output needs a scalar first output, not ")
          << y.getType()
          << "; name the loss with --logits, or take a loss that is computed "
             "of "
             "this output (pipec list losses)");
    return Terms{{}, {}, reshape(b, y, {})};
  }

  /// max(x, 0) - x t + log(1 + exp(-|x|)), PyTorch's stable form. With a weight
  /// p of the positive class (1 - t) x + (1 + (p - 1) t) log(1 + exp(-x)).
  Value binaryCrossEntropy(Value x, Value t) {
    Value tail = Log1pOp::create(b, exp(b, neg(b, AbsOp::create(b, x))));
    if (options.posWeight != 1) {
      Value weight = addScalar(b, mulScalar(b, t, options.posWeight - 1), 1);
      Value below = nn::add(b, tail, ReluOp::create(b, neg(b, x)));
      return nn::add(b, mul(b, sub(b, splatLike(b, t, 1), t), x),
                     mul(b, weight, below));
    }
    return nn::add(b, sub(b, ReluOp::create(b, x), mul(b, x, t)), tail);
  }

  /// Position i predicts token i + 1. All positions stay in place (no slice of
  /// the logits, which would copy them); the last one is not counted.
  FailureOr<Terms> nextToken(Value y) {
    auto type = tensorType(y);
    StringRef name = labelOr("input_ids");
    Value ids = known(name);
    if (!ids || isFloat(ids))
      return main.emitError("--loss next-token needs an integer model input '")
             << name << "'; name another with label=";
    if (type.getRank() != 3 ||
        tensorType(ids).getShape() != type.getShape().drop_back() ||
        type.getDimSize(1) < 2)
      return main.emitError("--loss next-token needs logits [batch, length, "
                            "classes] and ids [batch, length], not ")
             << type << " and " << ids.getType();
    if (failed(checkClasses("next-token", type, 2)))
      return failure();
    limitLabel(name, type.getDimSize(2));
    int64_t batch = type.getDimSize(0), length = type.getDimSize(1);
    Value wide = nn::cast(b, ids, b.getI64Type());
    Value next = nn::slice(b, wide, {0, 1}, {batch, length - 1}, {1, 1});
    Value labels =
        PadOp::create(b, next, ArrayRef<int64_t>{0, 0}, ArrayRef<int64_t>{0, 1},
                      ArrayRef<int64_t>{0, 0},
                      llvm::APFloat(static_cast<double>(options.ignoreIndex)));
    return crossEntropy(y, reshape(b, labels, {batch, length, 1}), 2);
  }
};

struct AttachLossPass : public pipec::impl::AttachLossBase<AttachLossPass> {
  using AttachLossBase::AttachLossBase;

  /// Position of the output that the loss takes, or -1 after an error.
  int findLogits(func::FuncOp main, func::ReturnOp ret) {
    for (unsigned i = 0; i < ret.getNumOperands(); ++i) {
      auto name = main.getResultAttrOfType<StringAttr>(i, "nn.name");
      if (logits.empty() ? isFloat(ret.getOperand(i))
                         : name && name.getValue() == logits.getValue())
        return i;
    }
    if (logits.empty())
      main.emitError("the model has no floating-point output for a loss");
    else
      main.emitError("the model has no output '") << logits << "' for --logits";
    return -1;
  }

  void runOnOperation() override {
    func::FuncOp main = mainFunction(getOperation());
    if (!main)
      return signalPassFailure();
    auto ret = cast<func::ReturnOp>(main.front().getTerminator());
    int index = findLogits(main, ret);
    if (index < 0)
      return signalPassFailure();
    NNBuilder b(NameLoc::get(StringAttr::get(&getContext(), "loss")), ret);
    SmallVector<double> weights(classWeights.begin(), classWeights.end());
    LossOptions options{label,   ignoreIndex, labelSmoothing,
                        weights, posWeight,   classAxis};
    // Narrow logits are only how the model hands them over.
    Value y = ret.getOperand(index);
    if (tensorType(y).getElementTypeBitWidth() < 32)
      y = nn::cast(b, y, b.getF32Type());
    LossBuilder builder{
        b, main, options,
        main.getResultAttrOfType<IntegerAttr>(index, "nn.samples_on")};
    FailureOr<Terms> terms = builder.build(kind, y);
    if (failed(terms))
      return signalPassFailure();
    Value samples;
    if (!perSample.empty())
      samples = builder.lossOfSamples(*terms);
    if (samples)
      pipe::OutputOp::create(b, samples, b.getStringAttr(perSample),
                             b.getI64IntegerAttr(0));
    replaceOutputs(main, ret,
                   samples ? Value()
                           : nn::cast(b, builder.loss(*terms), b.getF32Type()));
  }

  void replaceOutputs(func::FuncOp main, func::ReturnOp ret, Value loss) {
    while (main.getNumResults() > 0)
      if (failed(main.eraseResult(main.getNumResults() - 1)))
        return signalPassFailure();
    Builder b(&getContext());
    auto name =
        b.getDictionaryAttr(b.getNamedAttr("nn.name", b.getStringAttr("loss")));
    ret.getOperandsMutable().clear();
    if (loss && failed(main.insertResult(0, loss.getType(), name)))
      return signalPassFailure();
    if (loss)
      ret.getOperandsMutable().assign(loss);
    for (Operation &op :
         llvm::make_early_inc_range(llvm::reverse(main.front())))
      if (isOpTriviallyDead(&op))
        op.erase();
  }
};

} // namespace
