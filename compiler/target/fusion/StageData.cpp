//===- StageData.cpp - what a stage has once ------------------------------===//
#include "compiler/target/fusion/StageData.h"

#include "mlir/IR/DialectResourceBlobManager.h"
#include "mlir/IR/OperationSupport.h"

using namespace mlir;
using namespace pipec::fusion;

static llvm::hash_code structureOf(func::FuncOp function) {
  llvm::hash_code hash(0);
  function.getBody().walk([&](Operation *op) {
    hash =
        llvm::hash_combine(hash, OperationEquivalence::computeHash(
                                     op, OperationEquivalence::ignoreHashValue,
                                     OperationEquivalence::ignoreHashValue,
                                     OperationEquivalence::IgnoreLocations));
  });
  return hash;
}

func::FuncOp KernelTable::unique(func::FuncOp function) {
  size_t hash = structureOf(function);
  auto [first, last] = known.equal_range(hash);
  for (auto it = first; it != last; ++it)
    if (it->second->getDiscardableAttrDictionary() ==
            function->getDiscardableAttrDictionary() &&
        OperationEquivalence::isRegionEquivalentTo(
            &it->second.getBody(), &function.getBody(),
            OperationEquivalence::IgnoreLocations)) {
      function.erase();
      return it->second;
    }
  known.emplace(hash, function);
  return function;
}

std::string pipec::fusion::constantBytes(ElementsAttr value) {
  if (auto resource = dyn_cast<DenseResourceElementsAttr>(value)) {
    ArrayRef<char> raw = resource.getData();
    return std::string(raw.begin(), raw.end());
  }
  auto dense = cast<DenseElementsAttr>(value);
  std::string bytes;
  if (dense.getElementType().isInteger(1)) {
    for (bool b : dense.getValues<bool>())
      bytes.push_back(b);
    return bytes;
  }
  ArrayRef<char> raw = dense.getRawData();
  if (!dense.isSplat())
    return std::string(raw.begin(), raw.end());
  for (int64_t i = 0; i < dense.getNumElements(); ++i)
    bytes.append(raw.begin(), raw.end());
  return bytes;
}
