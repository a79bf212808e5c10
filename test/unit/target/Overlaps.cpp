//===- Overlaps.cpp - the index of loads and stores against all pairs -----===//
#include "compiler/target/fusion/Overlaps.h"

#include "dialects/nn/NN.h"
#include "dialects/pipe/Pipe.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include <gtest/gtest.h>
#include <random>

using namespace mlir;
using namespace pipec;

namespace {

struct Bytes {
  std::string region;
  int64_t begin, end;
};

Bytes bytesOf(Operation *op) {
  if (auto load = dyn_cast<pipe::LoadOp>(op)) {
    const auto at = static_cast<int64_t>(load.getOffset());
    return {load.getRegion().str(), at, at + load.bytes()};
  }
  auto store = cast<pipe::StoreOp>(op);
  const auto at = static_cast<int64_t>(store.getOffset());
  return {store.getRegion().str(), at, at + store.bytes()};
}

/// Weights are read where new ones are written.
bool share(Operation *a, Operation *b) {
  const Bytes one = bytesOf(a), other = bytesOf(b);
  const bool isPair = isa<pipe::LoadOp>(a) != isa<pipe::LoadOp>(b);
  const Bytes &read = isa<pipe::LoadOp>(a) ? one : other,
              &written = isa<pipe::LoadOp>(a) ? other : one;
  const bool sameRegion =
      one.region == other.region ||
      (isPair && read.region == "weights" && written.region == "new_weights");
  return sameRegion && one.begin < other.end && other.begin < one.end;
}

/// Loads and stores at random places, some of no bytes, few enough of these
/// that many overlap.
class RandomTask {
public:
  explicit RandomTask(uint32_t seed) : random(seed), b(&context) {
    context.loadDialect<func::FuncDialect, nn::NNDialect, pipe::PipeDialect>();
    module = ModuleOp::create(b.getUnknownLoc());
    b.setInsertionPointToEnd(module->getBody());
    auto task = func::FuncOp::create(b, b.getUnknownLoc(), "task",
                                     b.getFunctionType({}, {}));
    b.setInsertionPointToEnd(task.addEntryBlock());
    const int count = below(40);
    for (int i = 0; i < count; ++i)
      below(2) ? void(load()) : store();
  }

  SmallVector<Operation *> loads, stores;

private:
  int below(int n) { return static_cast<int>(random() % n); }

  Operation *load() {
    const char *regions[] = {"weights", "new_weights", "in", "stash"};
    auto op = pipe::LoadOp::create(
        b, b.getUnknownLoc(),
        RankedTensorType::get({below(8) * 20}, b.getF32Type()),
        b.getStringAttr(regions[below(4)]), b.getI64IntegerAttr(below(30) * 64),
        b.getI64IntegerAttr(0));
    loads.push_back(op);
    return op;
  }

  void store() {
    const char *regions[] = {"weights", "new_weights", "out", "stash"};
    auto value = cast<pipe::LoadOp>(load()).getY();
    stores.push_back(pipe::StoreOp::create(b, b.getUnknownLoc(), value,
                                           b.getStringAttr(regions[below(4)]),
                                           b.getI64IntegerAttr(below(30) * 64),
                                           UnitAttr(), b.getI64IntegerAttr(0)));
  }

  std::mt19937 random;
  MLIRContext context;
  OpBuilder b;
  OwningOpRef<ModuleOp> module;
};

TEST(Overlaps, AreThoseOfAllPairs) {
  size_t found = 0, crossing = 0;
  for (uint32_t seed = 0; seed < 300; ++seed) {
    const RandomTask task(seed);
    for (const auto *indexed : {&task.loads, &task.stores}) {
      const fusion::Overlaps index(*indexed);
      for (const auto *asked : {&task.loads, &task.stores})
        for (Operation *op : *asked) {
          SmallVector<Operation *> expected;
          for (Operation *other : *indexed)
            if (share(op, other))
              expected.push_back(other);
          EXPECT_EQ(index.with(op), expected) << "seed " << seed;
          found += expected.size();
          for (Operation *other : expected)
            crossing += bytesOf(op).region != bytesOf(other).region;
        }
    }
  }
  EXPECT_GT(found, 10000u);
  EXPECT_GT(crossing, 1000u);
}

} // namespace
