//===- Outputs.cpp - what is done when all nodes are imported -------------===//
//
// The results of the program, the declarations of its parameters, and the
// report.
//
//===----------------------------------------------------------------------===//
#include "compiler/onnx/Dropped.h"
#include "compiler/onnx/Importer.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;

namespace pipec::onnx {

bool Importer::makeOutputs(const Scope &scope) {
  OpBuilder b = OpBuilder::atBlockEnd(&function.getBody().front());
  SmallVector<Value> values;
  SmallVector<Attribute *> unused;
  bool ok = true;
  for (const ValueInfo &output : model.graph.outputs) {
    const Val *v = scope.find(output.name);
    if (!v || !*v) {
      if (diagnostics.empty()) // else reported where it should have been made
        diagnostics.add(Exit::BadModel,
                        "output '" + output.name +
                            "' is no tensor of a supported type",
                        "leave it out of the export");
      ok = false;
      continue;
    }
    if (v->isSequence()) {
      diagnostics.add(Exit::BadModel,
                      "output '" + output.name + "' is a sequence of tensors",
                      "make it a tensor, or leave it out of the export");
      ok = false;
      continue;
    }
    const Type declared = elementType(&context, output.type);
    if (declared && declared != v->getElementType()) {
      diagnostics.add(Exit::BadModel,
                      "output '" + output.name + "' is declared as " +
                          typeName(output.type) + " but computed as " +
                          typeText(v->getElementType()),
                      "the file is malformed; export the model again");
      ok = false;
    }
    emitter->beginNode(NameLoc::get(StringAttr::get(&context, output.name)),
                       output.name);
    values.push_back(emitter->value(*v));
  }
  if (!ok)
    return false;
  noteOtherShapes(values);
  func::ReturnOp::create(b, function.getLoc(), values);
  SmallVector<Type> types(
      llvm::map_range(values, [](Value v) { return v.getType(); }));
  function.setType(b.getFunctionType(function.getArgumentTypes(), types));
  const llvm::DenseSet<Value> counted = valuesThatCountSamples();
  for (size_t i = 0; i < values.size(); ++i) {
    const ValueInfo &output = model.graph.outputs[i];
    function.setResultAttr(i, "nn.name", b.getStringAttr(output.name));
    const int64_t axis =
        counted.contains(values[i]) ? outputBatchAxis(output, values[i]) : -1;
    if (options.forwardOnly)
      function.setResultAttr(i, "nn.batch_axis", b.getI64IntegerAttr(axis));
    if (const int64_t other = samplesElsewhere(output); other > 0)
      function.setResultAttr(i, "nn.samples_on", b.getI64IntegerAttr(other));
  }
  return true;
}

/// Whether a shape contradicts what the file declares: another rank, or another
/// size where it names one. What it leaves open may be any size.
static bool contradicts(const std::vector<Dim> &declared,
                        ArrayRef<int64_t> computed) {
  if (declared.size() != computed.size())
    return true;
  for (size_t i = 0; i < declared.size(); ++i)
    if (declared[i].value && *declared[i].value != computed[i])
      return true;
  return false;
}

/// "[batch,10]"
static std::string declaredText(const std::vector<Dim> &dims) {
  std::string text;
  for (const Dim &dim : dims)
    text += (text.empty() ? "" : ",") + (dim.value ? std::to_string(*dim.value)
                                         : dim.symbol.empty() ? "?"
                                                              : dim.symbol);
  return "[" + text + "]";
}

/// Exporters write a wrong shape at times, which changes nothing of what the
/// nodes compute. Whoever wrote the model by hand may have meant another one.
void Importer::noteOtherShapes(ArrayRef<Value> values) {
  for (auto [output, value] : llvm::zip_equal(model.graph.outputs, values)) {
    const ArrayRef<int64_t> computed = nn::tensorType(value).getShape();
    if (output.shape && contradicts(*output.shape, computed))
      note("the file declares output '" + output.name + "' as " +
           declaredText(*output.shape) + ", but its nodes compute " +
           shapeText(computed) +
           ", which is what the program takes: where that is not what you "
           "mean, check the model and --dim, or export it again");
  }
}

/// The axis, if it is not the first, that the file calls as it calls the one of
/// the inputs that counts samples; or -1.
int64_t Importer::samplesElsewhere(const ValueInfo &output) const {
  const std::string batch = batchSymbol();
  if (batch.empty() || !output.shape)
    return -1;
  for (size_t axis = 0; axis < output.shape->size(); ++axis)
    if (const Dim &dim = (*output.shape)[axis];
        !dim.value && dim.symbol == batch)
      return axis == 0 ? -1 : static_cast<int64_t>(axis);
  return -1;
}

/// What depends on an input that counts samples.
llvm::DenseSet<Value> Importer::valuesThatCountSamples() {
  llvm::DenseSet<Value> found;
  for (size_t i = 0; i < inputs.size(); ++i)
    if (batchAxis(*inputs[i]) == 0)
      found.insert(function.getArgument(i));
  for (Operation &op : function.getBody().front())
    if (llvm::any_of(op.getOperands(),
                     [&](Value v) { return found.contains(v); }))
      found.insert(op.result_begin(), op.result_end());
  return found;
}

/// Axis 0 counts samples if the file calls it as it calls the inputs' one;
/// where it says nothing, if it is as long.
int64_t Importer::outputBatchAxis(const ValueInfo &output, Value value) {
  const auto type = nn::tensorType(value);
  int64_t samples = -1;
  for (size_t i = 0; i < inputs.size() && samples < 0; ++i)
    if (batchAxis(*inputs[i]) == 0)
      samples = nn::tensorType(function.getArgument(i)).getDimSize(0);
  if (type.getRank() == 0 || type.getDimSize(0) != samples)
    return -1;
  const bool declared = output.shape && !output.shape->empty();
  const bool fixed = declared && (*output.shape)[0].value.has_value();
  return fixed && !batchSymbol().empty() ? -1 : 0;
}

void Importer::removeDeadOps() {
  for (Operation &op :
       llvm::make_early_inc_range(llvm::reverse(function.getBody().front())))
    if (isOpTriviallyDead(&op))
      op.erase();
}

/// Library kernels take f32 and f64: contractions, pools and gathers of
/// narrower floats compute in f32, as generated code does anyhow.
void Importer::widenNarrowOps() {
  const auto isNarrow = [](Type type) {
    auto element = dyn_cast<FloatType>(getElementTypeOrSelf(type));
    return element && element.getWidth() < 32;
  };
  for (Operation &op : llvm::make_early_inc_range(function.getBody().front())) {
    if (!isa<nn::MatmulOp, nn::ConvOp, nn::ConvGradInputOp, nn::MaxPoolOp,
             nn::AvgPoolOp, nn::GatherOp, nn::ScatterAddOp, nn::CumsumOp>(op) ||
        llvm::none_of(op.getOperandTypes(), isNarrow))
      continue;
    nn::NNBuilder b(op.getLoc(), &op);
    for (OpOperand &operand : op.getOpOperands())
      if (isNarrow(operand.get().getType()))
        operand.set(nn::cast(b, operand.get(), b.getF32Type()));
    b.setInsertionPointAfter(&op);
    for (Value result : op.getResults()) {
      const auto type = nn::tensorType(result);
      if (!isNarrow(type))
        continue;
      result.setType(withElement(type, b.getF32Type()));
      Value narrow = nn::cast(b, result, type.getElementType());
      result.replaceAllUsesExcept(narrow, narrow.getDefiningOp());
    }
  }
}

void Importer::declareParameters() {
  // Reads that were removed as dead leave parameters without a use.
  std::set<std::string> read;
  function.walk([&](Operation *op) {
    if (auto weight = dyn_cast<nn::WeightOp>(op))
      read.insert(weight.getParameter().str());
    else if (auto track = dyn_cast<nn::TrackOp>(op))
      read.insert(track.getParameter().str());
  });
  OpBuilder b(function);
  const auto integer = [&](int64_t v) { return b.getI64IntegerAttr(v); };
  std::vector<std::shared_ptr<Initializer>> all = initializers;
  llvm::append_range(all, emitter->getEmbedded());
  for (const auto &init : all) {
    if (!read.count(init->symbol))
      continue;
    const TensorData &t = *init->data;
    const bool inFile = t.file >= 0;
    const bool tracks = init->role == Role::State && !options.forwardOnly &&
                        options.batchNorm != BatchNorm::Inference;
    const char *role = init->role == Role::Weight ? "weight"
                       : tracks                   ? "state"
                                                  : "frozen";
    const RankedTensorType type = init->programType(&context);
    const RankedTensorType stored = tensorType(&context, t);
    ElementsAttr value;
    if (!inFile)
      value = type == stored
                  ? readAttr(&context, model, t)
                  : nn::Literal(type, readLiteral(&context, model, t).doubles())
                        .toAttr();
    nn::ParameterOp::create(
        b, NameLoc::get(b.getStringAttr(t.name)), init->symbol, type, role,
        inFile ? integer(t.file) : IntegerAttr(),
        inFile ? integer(t.offset) : IntegerAttr(),
        inFile ? integer(t.length) : IntegerAttr(),
        inFile && type != stored ? TypeAttr::get(stored.getElementType())
                                 : TypeAttr(),
        value, b.getStringAttr(init->reason));
  }
  for (nn::ParameterOp folded : emitter->getFolded()) {
    if (read.count(folded.getSymName().str()))
      b.insert(folded);
    else
      folded.erase();
  }
  SmallVector<mlir::Attribute> files;
  for (const DataFile &file : model.files)
    files.push_back(b.getDictionaryAttr(
        {b.getNamedAttr("path", b.getStringAttr(file.path)),
         b.getNamedAttr("relative", b.getStringAttr(file.relative)),
         b.getNamedAttr("size", integer(file.size))}));
  (*module)->setAttr("nn.files", b.getArrayAttr(files));
}

static std::string plainType(Type type) {
  std::string text = typeText(type);
  return text.substr(7, text.size() - 8); // tensor<...>
}

/// Whether the exporter folded batch norms away. The dynamo exporter lists the
/// statistics it was given; other files show it by the names of new biases.
static bool hasFoldedBatchNorms(const Model &model) {
  const auto has = [&](const char *op) {
    return llvm::any_of(model.graph.nodes,
                        [&](const Node &n) { return n.op == op; });
  };
  std::set<std::string> statistics = bufferTargets(model.graph.metadata);
  for (const TensorData &t : model.graph.initializers)
    statistics.erase(t.name);
  if (has("BatchNormalization"))
    return false;
  if (llvm::any_of(statistics, [](llvm::StringRef name) {
        return name.ends_with("running_mean");
      }))
    return true;
  return has("Conv") &&
         llvm::any_of(model.graph.initializers, [](const TensorData &t) {
           const llvm::StringRef name = t.name;
           return name.ends_with(".weight_bias") ||
                  name.starts_with("onnx::Conv_");
         });
}

static void noteFoldedBatchNorms(const Model &model, Diagnostics &diagnostics) {
  if (hasFoldedBatchNorms(model))
    diagnostics.note("batch norms are folded into the layers before them in "
                     "this file; it trains "
                     "as a network without them. To keep them, export with "
                     "optimize=False (dynamo) or training=PRESERVE and "
                     "do_constant_folding=False (TorchScript)");
}

/// A product of a parameter and numbers that the dynamo exporter computed
/// trains otherwise than the parameter: the note names the first of them.
void Importer::noteComputedWeights() {
  std::vector<size_t> computed;
  for (size_t i = 0; i < classes.size(); ++i)
    if (classes[i].role == Role::Weight && !classes[i].computedFrom.empty())
      computed.push_back(i);
  if (!computed.empty())
    note("the exporter computed '" +
         model.graph.initializers[computed[0]].name + "'" +
         (computed.size() == 1
              ? ""
              : " (and " + std::to_string(computed.size() - 1) + " more)") +
         " from the parameter '" + classes[computed[0]].computedFrom +
         "': what stands in the file trains, not the "
         "parameter. To keep the computation, export with optimize=False");
}

void Importer::noteDroppedBiases() {
  const std::vector<std::string> dropped = droppedBiases(model, mergedInto);
  if (dropped.empty())
    return;
  constexpr size_t kNamed = 3;
  std::string names;
  for (size_t i = 0; i < dropped.size() && i < kNamed; ++i)
    names += (i ? ", '" : "'") + dropped[i] + "'";
  if (dropped.size() > kNamed)
    names += " and " + std::to_string(dropped.size() - kNamed) + " more";
  note("the exporter left out " + names +
       ", as it does with biases of zeros: what is not in the file does not "
       "train. To keep them, export with optimize=False");
}

void Importer::fillReport() {
  noteFoldedBatchNorms(model, diagnostics);
  noteDroppedBiases();
  noteComputedWeights();
  noteMergedTensors();
  report.batchDimension = batchSymbol();
  for (size_t i = 0; i < inputs.size(); ++i)
    report.inputs.push_back({inputs[i]->name,
                             plainType(function.getArgumentTypes()[i]),
                             batchAxis(*inputs[i])});
  for (size_t i = 0; i < model.graph.outputs.size(); ++i)
    report.outputs.push_back({model.graph.outputs[i].name,
                              plainType(function.getResultTypes()[i]), -1});
  for (size_t i = 0; i < classes.size(); ++i) {
    const TensorData &t = model.graph.initializers[i];
    report.tensors.push_back({t.name, isFloating(t.type),
                              classes[i].role == Role::Weight,
                              initializers[i]->data->elements(),
                              classes[i].reason, classes[i].uses});
  }
  report.notes = diagnostics.getNotes();
}

} // namespace pipec::onnx
