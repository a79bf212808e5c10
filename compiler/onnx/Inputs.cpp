//===- Inputs.cpp - the inputs of the program and their shapes ------------===//
#include "compiler/onnx/Generated.h"
#include "compiler/onnx/Importer.h"
#include "compiler/onnx/Npy.h"
#include "support/UnknownName.h"

using namespace mlir;

namespace pipec::onnx {

/// The option that fixes a dimension: its symbol, or INPUT.AXIS.
static std::string dimName(const ValueInfo &input, size_t axis) {
  const Dim &dim = (*input.shape)[axis];
  return dim.symbol.empty() ? input.name + "." + std::to_string(axis)
                            : dim.symbol;
}

/// The symbol that counts samples: the one on axis 0 of most inputs.
std::string Importer::batchSymbol() const {
  std::map<std::string, int> count;
  std::string best;
  for (const ValueInfo *input : inputs)
    if (input->shape && !input->shape->empty() && !(*input->shape)[0].value)
      ++count[dimName(*input, 0)];
  for (const ValueInfo *input : inputs)
    if (input->shape && !input->shape->empty() && !(*input->shape)[0].value) {
      const std::string name = dimName(*input, 0);
      if (best.empty() || count[name] > count[best])
        best = name;
    }
  return best;
}

/// Whether an exporter numbered the samples of this input apart from those of
/// the others: a symbol of its own on axis 0 alone, of the same size.
bool Importer::countsSamplesToo(const ValueInfo &input,
                                const std::string &batch) const {
  const std::string own = dimName(input, 0);
  if (!isGeneratedSymbol((*input.shape)[0].symbol))
    return false;
  for (const ValueInfo *other : inputs)
    for (size_t i = 1; other->shape && i < other->shape->size(); ++i)
      if (!(*other->shape)[i].value && dimName(*other, i) == own)
        return false;
  const auto size = options.dims.find(own), samples = options.dims.find(batch);
  return size != options.dims.end() && samples != options.dims.end() &&
         size->second == samples->second;
}

int64_t Importer::batchAxis(const ValueInfo &input) const {
  if (input.shape->empty() || (*input.shape)[0].value == 0)
    return -1; // nothing to count
  const std::string symbol = batchSymbol();
  const Dim &first = (*input.shape)[0];
  if (!symbol.empty())
    return !first.value && (dimName(input, 0) == symbol ||
                            countsSamplesToo(input, symbol))
               ? 0
               : -1;
  // A file without symbols on axis 0: the first input says what a batch is.
  for (const ValueInfo *other : inputs)
    if (!other->shape->empty())
      return (*other->shape)[0].value == first.value ? 0 : -1;
  return -1;
}

//===----------------------------------------------------------------------===//
// Samples on another axis than the first
//===----------------------------------------------------------------------===//

/// PyTorch's recurrent layers take [length, batch, features] unless they are
/// told otherwise: the program would take every step for a sample. The loss
/// reads the attribute where an output does not fit.
void Importer::noteBatchSecond(const std::string &input,
                               const std::string &why) {
  (*module)->setAttr("nn.batch_second", StringAttr::get(&context, input));
  note("axis 0 of input '" + input + "' is taken for the samples, but " + why +
       ": where they are on axis 1, export the model with the batch first "
       "(batch_first=True of recurrent layers, or a transpose of the input)");
}

static bool isCalledBatch(const Dim &dim) {
  return StringRef(dim.symbol).contains_insensitive("batch");
}

void Importer::noteBatchNamedSecond() {
  for (const ValueInfo *input : inputs)
    if (input->shape->size() > 1 && batchAxis(*input) == 0 &&
        !isCalledBatch((*input->shape)[0]) &&
        isCalledBatch((*input->shape)[1])) {
      noteBatchSecond(input->name, "the file calls axis 1 '" +
                                       (*input->shape)[1].symbol + "'");
      return;
    }
}

void Importer::samplesOnSecondAxis(Value x, const std::string &who) {
  while (Operation *def = x ? x.getDefiningOp() : nullptr) {
    auto gather = dyn_cast<nn::GatherOp>(def);
    if (gather && gather.getAxis() == 0) // an embedding
      x = gather.getIndices();
    else if (isa<nn::CastOp>(def))
      x = def->getOperand(0);
    else
      return;
  }
  const auto argument = dyn_cast_if_present<BlockArgument>(x);
  if (!argument || !isa<func::FuncOp>(argument.getOwner()->getParentOp()) ||
      (*module)->hasAttr("nn.batch_second"))
    return;
  const ValueInfo &input = *inputs[argument.getArgNumber()];
  if (batchAxis(input) == 0)
    noteBatchSecond(input.name, who + " has its steps there");
}

/// What is given can be given smaller: it is blamed, unless the sizes in the
/// file are too much alone. Of several, the largest is.
static bool reportTooLarge(const ValueInfo &input, ArrayRef<int64_t> shape,
                           Diagnostics &diagnostics) {
  constexpr int64_t kMost = int64_t(1) << 40;
  const std::string why = ", more than any machine holds";
  const auto grows = [](int64_t &elements, int64_t size) {
    return __builtin_mul_overflow(elements, size, &elements) ||
           elements > kMost;
  };
  int64_t fixed = 1;
  size_t wide = shape.size();
  bool tooWide = false;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (!(*input.shape)[i].value)
      continue;
    tooWide = tooWide || grows(fixed, shape[i]);
    if (wide == shape.size() || shape[i] > shape[wide])
      wide = i;
  }
  if (tooWide) {
    diagnostics.add(Exit::BadModel,
                    "axis " + std::to_string(wide) + " of input '" +
                        input.name + "' has size " +
                        std::to_string(shape[wide]) + why,
                    "give the dimension a sensible size");
    return true;
  }
  int64_t all = fixed;
  size_t largest = shape.size();
  bool tooLarge = false;
  for (size_t i = 0; i < shape.size(); ++i) {
    if ((*input.shape)[i].value)
      continue;
    tooLarge = tooLarge || grows(all, shape[i]);
    if (largest == shape.size() || shape[i] > shape[largest])
      largest = i;
  }
  if (tooLarge)
    diagnostics.add(Exit::Usage,
                    "--dim " + dimName(input, largest) + "=" +
                        std::to_string(shape[largest]) + ": makes input '" +
                        input.name + "' of shape " + shapeText(shape) + why,
                    "give a smaller size");
  return tooLarge;
}

std::optional<SmallVector<int64_t>> Importer::fixShape(const ValueInfo &input) {
  if (!input.shape) {
    diagnostics.add(Exit::BadModel,
                    "input '" + input.name + "' has no shape, not even a rank",
                    "export the model again with example inputs");
    return std::nullopt;
  }
  SmallVector<int64_t> shape;
  bool known = true;
  for (size_t i = 0; i < input.shape->size(); ++i) {
    const Dim &dim = (*input.shape)[i];
    int64_t size = dim.value.value_or(0);
    if (!dim.value) {
      const std::string name = dimName(input, i);
      const auto given = options.dims.find(name);
      if (given == options.dims.end()) {
        missingDims[name].push_back(input.name);
        known = false;
        continue;
      }
      size = given->second;
    }
    const int64_t least = options.forwardOnly && dim.value ? 0 : 1;
    if (size < least) {
      diagnostics.add(dim.value ? Exit::BadModel : Exit::Usage,
                      "axis " + std::to_string(i) + " of input '" + input.name +
                          "' has size " + std::to_string(size) +
                          ", nothing to compute with",
                      "give the dimension a sensible size");
      return std::nullopt;
    }
    shape.push_back(size);
  }
  if (!known || reportTooLarge(input, shape, diagnostics))
    return std::nullopt;
  return shape;
}

/// NAME=FILE.npy with the names of this model.
void Importer::readConstants() {
  for (auto [name, file] : options.constants) {
    const std::string whole = name + "=" + file;
    size_t end = 0;
    for (const ValueInfo &input : model.graph.inputs)
      if (const size_t size = input.name.size();
          size > end && size + 1 < whole.size() &&
          whole.starts_with(input.name + "="))
        end = size;
    if (end > 0)
      name = whole.substr(0, end), file = whole.substr(end + 1);
    if (!constants.emplace(name, file).second)
      diagnostics.add(Exit::Usage,
                      "--constant " + whole + ": the input is given twice",
                      "leave one of the two out");
  }
}

bool Importer::constantInput(const ValueInfo &input, Scope &scope) {
  const auto given = constants.find(input.name);
  if (given == constants.end())
    return false;
  const TensorData array = readNpy(given->second);
  const auto bad = [&](const std::string &why, const std::string &remedy) {
    diagnostics.add(
        array.missingFile ? Exit::NoInput : Exit::BadModel,
        "--constant " + input.name + "=" + given->second + ": " + why, remedy);
  };
  if (!array.problem.empty()) {
    bad(array.problem, "write it with numpy.save");
    return true;
  }
  if (array.type != input.type) {
    bad("it holds " + typeName(array.type) + ", the input takes " +
            typeName(input.type),
        "convert the array with astype");
    return true;
  }
  bool fits = !input.shape || input.shape->size() == array.dims.size();
  for (size_t i = 0; fits && input.shape && i < array.dims.size(); ++i) {
    const Dim &dim = (*input.shape)[i];
    const auto fixed = options.dims.find(dimName(input, i));
    fits = dim.value
               ? *dim.value == array.dims[i]
               : fixed == options.dims.end() || fixed->second == array.dims[i];
  }
  if (!fits) {
    bad("its shape " + shapeText(array.dims) + " is not that of the input",
        "give an array of the input's shape");
    return true;
  }
  scope.values[input.name] = readLiteral(&context, model, array);
  return true;
}

/// The remedy for a --dim where there is nothing to give a size.
static std::string sizesAreFixed(const Graph &graph) {
  std::string first;
  for (const ValueInfo &input : graph.inputs)
    if (input.shape && first.empty()) {
      SmallVector<int64_t> sizes;
      for (const Dim &dim : *input.shape)
        sizes.push_back(*dim.value);
      first = ", '" + input.name + "' is " + shapeText(sizes);
    }
  return "all sizes are fixed in the file" + first +
         ": leave --dim out, or export the model with a symbolic batch";
}

/// Options that name nothing in the model are typing errors.
void Importer::reportUnknownOptions() {
  std::set<std::string> names, symbols;
  for (const ValueInfo &input : model.graph.inputs) {
    names.insert(input.name);
    if (input.shape)
      for (size_t i = 0; i < input.shape->size(); ++i)
        if (!(*input.shape)[i].value)
          symbols.insert(dimName(input, i));
  }
  const std::vector<std::string> dims(symbols.begin(), symbols.end()),
      inputNames(names.begin(), names.end());
  for (const auto &[name, size] : options.dims)
    if (!symbols.count(name))
      diagnostics.add(Exit::Usage,
                      "--dim " + name + "=" + std::to_string(size) +
                          ": the model has no symbolic dimension '" + name +
                          "'" + didYouMean(name, dims),
                      dims.empty()
                          ? sizesAreFixed(model.graph)
                          : "its symbolic dimensions: " + listed(dims));
  for (const auto &[name, file] : constants)
    if (!names.count(name))
      diagnostics.add(
          Exit::Usage,
          "--constant " + name + "=" + file + ": the model has no input '" +
              name + "'" + didYouMean(name, inputNames),
          "its inputs: " + (names.empty() ? "none" : listed(inputNames)));
}

bool Importer::makeInputs(Scope &scope) {
  std::set<std::string> initialized;
  for (const TensorData &t : model.graph.initializers)
    initialized.insert(t.name);
  readConstants();
  reportUnknownOptions();
  SmallVector<Type> types;
  std::vector<const ValueInfo *> data;
  for (const ValueInfo &input : model.graph.inputs) {
    // An input with an initializer is a default nobody overrides.
    if (initialized.count(input.name) || constantInput(input, scope))
      continue;
    if (input.shape)
      inputs.push_back(&input);
    if (!input.isTensor || !elementType(&context, input.type)) {
      diagnostics.add(Exit::BadModel,
                      "input '" + input.name + "' is " +
                          (input.isTensor ? "of type " + typeName(input.type)
                                          : "no tensor") +
                          ", which is not supported",
                      "leave it out of the export, or give it as --constant");
      continue;
    }
    if (const auto shape = fixShape(input)) {
      types.push_back(
          RankedTensorType::get(*shape, elementType(&context, input.type)));
      data.push_back(&input);
    }
  }
  if (!missingDims.empty()) {
    std::string names, flags;
    for (const auto &[name, of] : missingDims) {
      names += (names.empty() ? "" : ", ") + name;
      flags +=
          (flags.empty() ? "" : " ") + std::string("--dim ") + name + "=SIZE";
    }
    diagnostics.add(Exit::Usage, "symbolic dimensions without a size: " + names,
                    "give them: " + flags);
  }
  if (!diagnostics.empty())
    return false;
  inputs = data;
  Builder b(&context);
  for (size_t i = 0; i < types.size(); ++i) {
    const ValueInfo &input = *inputs[i];
    (void)function.insertArgument(
        i, types[i],
        b.getDictionaryAttr(
            {b.getNamedAttr("nn.name", b.getStringAttr(input.name)),
             b.getNamedAttr("nn.batch_axis",
                            b.getI64IntegerAttr(batchAxis(input)))}),
        NameLoc::get(b.getStringAttr(input.name)));
    scope.values[input.name] = Val(Value(function.getArgument(i)));
  }
  noteBatchNamedSecond();
  return true;
}

} // namespace pipec::onnx
