//===- KnownValues.cpp - tensors whose elements are known now -------------===//
#include "passes/KnownValues.h"

#include "dialects/nn/eval/Evaluate.h"

#include <fstream>

using namespace mlir;
using namespace pipec;
using namespace pipec::nn;

const Literal &KnownValues::of(Operation *op) {
  const bool isKnown = op->getNumResults() == 1 && sources.contains(op);
  if (isKnown)
    op = firstLike(op);
  if (auto it = literals.find(op); it != literals.end())
    return *it->second;
  auto value = std::make_unique<Literal>(isKnown ? compute(op) : Literal());
  return *(literals[op] = std::move(value));
}

/// The first source that was asked for and has the same value as `op`.
Operation *KnownValues::firstLike(Operation *op) {
  if (auto it = firsts.find(op); it != firsts.end())
    return it->second;
  Operation *first = op;
  if (op->getNumResults() == 1 && op->getNumRegions() == 0) {
    std::vector<const void *> key{
        op->getName().getAsOpaquePointer(),
        // Its own attributes: which stage it is on makes no other value.
        op->getPropertiesAsAttribute().getAsOpaquePointer(),
        op->getResult(0).getType().getAsOpaquePointer()};
    for (Value v : op->getOperands())
      key.push_back(firstLike(v.getDefiningOp()));
    first = alike.try_emplace(std::move(key), op).first->second;
  }
  return firsts[op] = first;
}

Literal KnownValues::compute(Operation *op) {
  if (auto constant = dyn_cast<ConstantOp>(op)) {
    auto dense = dyn_cast<DenseElementsAttr>(constant.getValue());
    return dense ? Literal::fromAttr(dense) : Literal();
  }
  if (auto weight = dyn_cast<WeightOp>(op))
    return parameter(weight.getParameter());
  SmallVector<Literal> operands;
  for (Value v : op->getOperands()) {
    operands.push_back(of(v.getDefiningOp()));
    if (!operands.back())
      return {};
  }
  std::string why;
  auto results = evaluate(op, operands, {}, why);
  return succeeded(results) ? (*results)[0] : Literal();
}

/// The elements of a parameter that does not train.
Literal KnownValues::parameter(StringRef name) {
  auto [it, isNew] = parameters.insert({name, Literal()});
  if (!isNew)
    return it->second;
  auto module = main->getParentOfType<ModuleOp>();
  auto p = module.lookupSymbol<ParameterOp>(name);
  if (!p || p.isTrained())
    return {};
  if (auto value = p.getValue()) {
    if (auto dense = dyn_cast<DenseElementsAttr>(*value))
      it->second = Literal::fromAttr(dense);
    return it->second;
  }
  auto files = module->getAttrOfType<ArrayAttr>("nn.files");
  if (!p.getFile() || !files)
    return {};
  auto entry = cast<DictionaryAttr>(files[*p.getFile()]);
  std::ifstream file(entry.getAs<StringAttr>("path").str(), std::ios::binary);
  std::vector<char> bytes(*p.getLength());
  file.seekg(static_cast<std::streamoff>(*p.getOffset()));
  auto stored = RankedTensorType::get(
      p.getTensorType().getShape(),
      p.getStored() ? *p.getStored() : p.getTensorType().getElementType());
  bool splat = false;
  if (!file.read(bytes.data(), static_cast<std::streamsize>(bytes.size())))
    return {};
  if (stored.getElementType().isInteger(1))
    it->second =
        Literal(stored, std::vector<int64_t>(bytes.begin(), bytes.end()));
  else if (DenseElementsAttr::isValidRawBuffer(stored, bytes, splat))
    it->second =
        Literal::fromAttr(DenseElementsAttr::getFromRawBuffer(stored, bytes));
  return it->second;
}
