//===- Repetitions.cpp - for whom activations are computed again ----------===//
#include "compiler/driver/Repetitions.h"

#include "passes/Graph.h"

#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace pipec;

static bool isRepetition(Operation *op) {
  return isBackward(op) && op->hasAttr(kForwardMark);
}

int64_t pipec::nodeOf(Operation *op) {
  auto attr = op->getAttrOfType<IntegerAttr>(kNode);
  return attr ? attr.getInt() : -1;
}

int64_t pipec::firstReader(Operation *op) {
  auto reader = op->getAttrOfType<IntegerAttr>(kReader);
  return reader ? reader.getInt() : nodeOf(op);
}

void pipec::markForward(func::FuncOp main) {
  for (Operation &op : main.front().without_terminator())
    if (!isBackward(&op))
      op.setAttr(kForwardMark, UnitAttr::get(main.getContext()));
}

void pipec::markReaders(func::FuncOp main) {
  Builder b(main.getContext());
  for (Operation &op : llvm::reverse(main.front())) {
    if (!isRepetition(&op))
      continue;
    int64_t first = INT64_MAX;
    for (Operation *user : op.getUsers())
      if (const int64_t node = firstReader(user); node >= 0)
        first = std::min(first, node);
    if (first < INT64_MAX)
      op.setAttr(kReader, b.getI64IntegerAttr(first));
  }
}

std::set<size_t> pipec::gradientReaders(Value v, bool early) {
  std::set<size_t> readers;
  llvm::SetVector<Operation *> users;
  users.insert(v.getUsers().begin(), v.getUsers().end());
  for (size_t i = 0; i < users.size(); ++i) {
    Operation *user = users[i];
    if (isRepetition(user))
      users.insert(user->getUsers().begin(), user->getUsers().end());
    else if ((isBackward(user) || (early && isEarly(user))) &&
             firstReader(user) >= 0)
      readers.insert(static_cast<size_t>(firstReader(user)));
  }
  return readers;
}
