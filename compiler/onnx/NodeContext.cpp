//===- NodeContext.cpp - what the importer of an operator sees ------------===//
#include "compiler/onnx/NodeContext.h"
#include "compiler/onnx/Importer.h"

#include <algorithm>

using namespace mlir;

namespace pipec::onnx {

NodeContext::NodeContext(const Node &node, int64_t opset, Emitter &e,
                         Importer &importer, std::vector<Val> inputs,
                         const std::map<std::string, Attribute> &bindings)
    : node(node), opset(opset), e(e), importer(importer),
      options(importer.getOptions()), inputs(std::move(inputs)),
      outputs(node.outputs.size()), bindings(bindings) {}

//===----------------------------------------------------------------------===//
// Operands
//===----------------------------------------------------------------------===//

const Val &NodeContext::in(size_t i) const {
  if (!has(i))
    fail("its input " + std::to_string(i) + " is missing");
  if (inputs[i].isSequence())
    fail("its input " + std::to_string(i) + " is a sequence, not a tensor");
  return inputs[i];
}

const Val &NodeContext::floatIn(size_t i) const {
  const Val &v = in(i);
  if (!v.isFloat())
    fail("its input " + std::to_string(i) + " is not floating-point but " +
         typeText(v.getElementType()));
  return v;
}

const std::vector<Val> &NodeContext::sequenceIn(size_t i) const {
  if (!has(i) || !inputs[i].isSequence())
    fail("its input " + std::to_string(i) + " is not a sequence");
  return *inputs[i].sequence;
}

nn::Literal NodeContext::known(size_t i, const char *what) const {
  const Val &v = in(i);
  if (v.isKnown() && v.type.getNumElements() > (int64_t(1) << 26))
    fail(std::string("its ") + what + " has " +
         std::to_string(v.type.getNumElements()) + " elements");
  if (v.isKnown())
    return e.literal(v);
  std::string remedy = "it must not depend on data";
  const std::vector<std::string> origins = e.originsOf(v);
  if (!origins.empty()) {
    remedy = "make the graph input it is computed from a constant:";
    for (const std::string &name : origins)
      remedy += " --constant " + name + "=FILE.npy";
  }
  fail(std::string("its ") + what + " is not known at compile time", remedy);
}

void NodeContext::limitLengths(size_t i, int64_t longest) const {
  const Val &lengths = in(i);
  if (lengths.isKnown()) {
    for (const int64_t n : e.literal(lengths).integers())
      if (n < 0 || n > longest)
        fail("its length " + std::to_string(n) + " is not one from 0 to " +
             std::to_string(longest));
    return;
  }
  Value origin = lengths.value;
  while (origin &&
         isa_and_nonnull<nn::ReshapeOp, nn::CastOp>(origin.getDefiningOp()))
    origin = origin.getDefiningOp()->getOperand(0);
  const auto argument = dyn_cast_or_null<BlockArgument>(origin);
  if (!argument || nn::holdsFloats(nn::tensorType(argument).getElementType()))
    return;
  auto function = dyn_cast<func::FuncOp>(argument.getOwner()->getParentOp());
  if (!function)
    return;
  // Of several that read the same input, the strictest counts.
  const unsigned number = argument.getArgNumber();
  int64_t upper = longest + 1;
  if (auto other = function.getArgAttrOfType<IntegerAttr>(number, "nn.upper"))
    upper = std::min(upper, other.getInt());
  function.setArgAttr(number, "nn.upper",
                      Builder(function).getI64IntegerAttr(upper));
}

std::vector<int64_t> NodeContext::ints(size_t i, const char *what) const {
  const nn::Literal literal = known(i, what);
  if (literal.isFloat())
    fail(std::string("its ") + what + " is not of integers");
  return literal.integers();
}

int64_t NodeContext::scalarInt(size_t i, const char *what) const {
  const std::vector<int64_t> values = ints(i, what);
  if (values.size() != 1)
    fail(std::string("its ") + what + " is not one number");
  return values[0];
}

double NodeContext::scalar(size_t i, const char *what) const {
  const std::vector<double> values = known(i, what).doubles();
  if (values.size() != 1)
    fail(std::string("its ") + what + " is not one number");
  return values[0];
}

//===----------------------------------------------------------------------===//
// Attributes
//===----------------------------------------------------------------------===//

const Attribute *NodeContext::attribute(const char *name) const {
  for (const Attribute &a : node.attributes) {
    if (a.name != name)
      continue;
    if (a.reference.empty())
      return &a;
    const auto bound = bindings.find(a.reference);
    return bound == bindings.end() ? nullptr : &bound->second;
  }
  return nullptr;
}

const Attribute *NodeContext::typed(const char *name,
                                    Attribute::Kind kind) const {
  const Attribute *a = attribute(name);
  if (a && a->kind != kind && a->kind != Attribute::Undefined)
    fail(std::string("its attribute '") + name + "' is of another type than " +
         "the operator has");
  return a;
}

int64_t NodeContext::intAttr(const char *name, int64_t otherwise) const {
  const Attribute *a = typed(name, Attribute::Int);
  return a ? a->i : otherwise;
}

int64_t NodeContext::intAttr(const char *name) const {
  const Attribute *a = typed(name, Attribute::Int);
  if (!a)
    fail(std::string("its attribute '") + name + "' is missing");
  return a->i;
}

double NodeContext::floatAttr(const char *name, double otherwise) const {
  const Attribute *a = typed(name, Attribute::Float);
  return a ? static_cast<double>(a->f) : otherwise;
}

std::string NodeContext::stringAttr(const char *name,
                                    const std::string &otherwise) const {
  const Attribute *a = typed(name, Attribute::String);
  return a ? a->s : otherwise;
}

std::optional<std::vector<int64_t>>
NodeContext::intsAttr(const char *name) const {
  const Attribute *a = typed(name, Attribute::Ints);
  if (!a)
    return std::nullopt;
  return a->ints;
}

std::optional<std::vector<float>>
NodeContext::floatsAttr(const char *name) const {
  const Attribute *a = typed(name, Attribute::Floats);
  if (!a)
    return std::nullopt;
  return a->floats;
}

std::optional<std::vector<int64_t>>
NodeContext::intsInputOrAttr(size_t i, const char *name) const {
  return has(i) ? ints(i, name) : intsAttr(name);
}

Type NodeContext::typeAttr(const char *name, ElementType otherwise) const {
  const auto wanted =
      static_cast<ElementType>(intAttr(name, static_cast<int64_t>(otherwise)));
  const Type type = elementType(e.getContext(), wanted);
  if (!type)
    fail("the element type " + typeName(wanted) + " is not supported");
  return type;
}

//===----------------------------------------------------------------------===//
// Results and errors
//===----------------------------------------------------------------------===//

void NodeContext::out(size_t i, Val v) {
  if (i < outputs.size())
    outputs[i] = std::move(v);
}

void NodeContext::note(const std::string &text) const { importer.note(text); }

void NodeContext::fail(const std::string &cause,
                       const std::string &remedy) const {
  throw NodeError{cause, remedy};
}

int64_t NodeContext::axis(int64_t axis, int64_t rank) const {
  if (axis < -rank || axis >= rank)
    fail("its axis " + std::to_string(axis) + " is none of a tensor of rank " +
         std::to_string(rank));
  return axis < 0 ? axis + rank : axis;
}

std::vector<int64_t> NodeContext::axes(const std::vector<int64_t> &given,
                                       int64_t rank) const {
  std::vector<int64_t> out;
  for (const int64_t a : given)
    out.push_back(axis(a, rank));
  std::sort(out.begin(), out.end());
  if (std::adjacent_find(out.begin(), out.end()) != out.end())
    fail("its axes repeat");
  return out;
}

std::string shapeText(ArrayRef<int64_t> shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i)
    text += (i ? "," : "") + std::to_string(shape[i]);
  return text + "]";
}

std::string typeText(Type type) {
  std::string text;
  llvm::raw_string_ostream(text) << type;
  return text;
}

} // namespace pipec::onnx
