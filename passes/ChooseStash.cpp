//===- ChooseStash.cpp - keep or compute again ----------------------------===//
//
// A value that the backward pass reads is computed again when its op is cheap
// and what it needs is kept anyhow. Decided in program order, so that what is
// kept early serves later values, and a residual stream is kept once a layer
// instead of growing a chain of additions.
//
//===----------------------------------------------------------------------===//
#include "dialects/nn/NN.h"
#include "passes/EarlyGradients.h"
#include "passes/Passes.h"

#include "mlir/IR/IRMapping.h"

namespace pipec {
#define GEN_PASS_DEF_CHOOSESTASH
#include "passes/Passes.h.inc"
} // namespace pipec

using namespace mlir;
using namespace pipec;
using namespace pipec::nn;

namespace {

/// Values this much smaller than the one in question are simply kept: row
/// statistics beside rows.
constexpr int64_t kSmallPart = 8;
/// The longest chain worth repeating for one value.
constexpr unsigned kLongestChain = 32;

class Chooser {
public:
  /// What stages keep beside what `isAgain` of them compute again: what is no
  /// cheap op's, with `keepsRead` also what other ops than cheap ones read in
  /// the backward pass, which would be written to memory once more for them.
  Chooser(func::FuncOp main, bool keepsRead,
          llvm::function_ref<bool(int64_t stage)> isAgain)
      : main(main), keepsRead(keepsRead), isAgain(isAgain), sources(main) {}

  void run() {
    early = moveEarlyGradients(main, sources,
                               [&](int64_t stage) { return !isAgain(stage); });
    for (Operation &op : main.front())
      (isBackward(&op) ? backward : forward).push_back(&op);
    collectDemand();
    decide();
    for (Operation *op : backward)
      rewrite(op);
  }

private:
  /// What stage `stage` has without keeping it: model inputs and what it
  /// receives (both stay in their slots until the backward pass).
  bool isGiven(Value v, int64_t stage) {
    Operation *def = v.getDefiningOp();
    return !def || (stageOf(def) != stage && !sources.contains(def));
  }

  /// Given or kept, or joined of what is.
  bool isHere(Value v, int64_t stage) {
    if (isGiven(v, stage) || kept.contains(v))
      return true;
    Operation *def = v.getDefiningOp();
    return def->hasAttr(kOpJoins) &&
           llvm::all_of(def->getOperands(),
                        [&](Value x) { return isHere(x, stage); });
  }

  void collectDemand() {
    for (Operation *op : backward)
      for (Value v : op->getOperands())
        if (Operation *def = v.getDefiningOp())
          if (!isBackward(def) && !sources.contains(def) &&
              !isAgain(stageOf(def))) {
            demanded.insert(v);
            if (!isCheap(op) && !isa<ReduceOp>(op))
              read.insert(v);
          }
  }

  void decide() {
    // What no cheap op makes is kept if read at all.
    for (Value v : demanded)
      if (early.contains(v) || !isCheap(v.getDefiningOp()))
        keep(v);
      else if (keepsRead && read.contains(v))
        keepViewed(v);
    for (Operation *op : forward)
      for (Value v : op->getResults())
        if (demanded.contains(v) && isCheap(op) && !early.contains(v))
          decideCheap(v);
  }

  /// Keeps what `v` is a view of.
  void keepViewed(Value v) {
    Operation *op = v.getDefiningOp();
    while (op->hasTrait<View>() && op->getNumOperands() == 1 &&
           !op->hasAttr(kOpJoins)) {
      Value before = op->getOperand(0);
      Operation *def = before.getDefiningOp();
      if (isGiven(before, stageOf(op)) || sources.contains(def))
        return;
      v = before, op = def;
    }
    keep(v);
  }

  /// Of positions that were joined, those of this piece.
  void keep(Value v) {
    Operation *op = v.getDefiningOp();
    if (!op->hasAttr(kOpJoins))
      kept.insert(v);
    else
      for (Value x : op->getOperands())
        if (!isGiven(x, stageOf(op)))
          kept.insert(x);
  }

  void decideCheap(Value v) {
    int64_t bytes = byteSize(v.getType());
    llvm::SetVector<Value> large, missing;
    unsigned length = 0;
    if (!leaves(v, bytes, large, missing, length)) {
      keepSource(v);
      return;
    }
    // One tensor that is no larger stands for this one: keep that instead.
    bool replace = large.size() == 1 && missing.size() == 1 &&
                   byteSize(missing.front().getType()) <= bytes;
    if (missing.empty() || replace) {
      for (Value x : missing)
        keep(x);
      keepSmall(v, bytes);
      return;
    }
    keepSource(v);
  }

  /// Whether a value is small beside `bytes`, or a small one seen as large.
  bool isSmall(Value x, int64_t bytes) {
    while (isa_and_nonnull<BroadcastOp, ReshapeOp>(x.getDefiningOp()))
      x = x.getDefiningOp()->getOperand(0);
    return byteSize(x.getType()) * kSmallPart <= bytes;
  }

  /// The one tensor that `v` is made of beside small ones, if it is no larger.
  Value sourceOf(Value v) {
    Operation *op = v.getDefiningOp();
    const int64_t bytes = byteSize(v.getType());
    Value source;
    for (Value x : op->getOperands()) {
      Operation *def = x.getDefiningOp();
      if ((def && sources.contains(def)) || isSmall(x, bytes))
        continue;
      if (source)
        return {};
      source = x;
    }
    Operation *def = source ? source.getDefiningOp() : nullptr;
    if (!def || stageOf(def) != stageOf(op) || !isCheap(def) ||
        byteSize(source.getType()) > bytes)
      return {};
    return source;
  }

  /// Keeps what `v` is made of rather than `v`, as far back as that is one
  /// tensor: what is joined of several, as a residual stream is, is often in
  /// memory anyhow, for others, and a row's distance from its mean is not.
  void keepSource(Value v) {
    Value source = v;
    while (Value before = sourceOf(source))
      source = before;
    kept.insert(source);
    if (source != v)
      keepSmall(v, byteSize(v.getType()));
  }

  /// Collects what a repetition of `v` would read: `large` tensors, and those
  /// of them that are not kept yet. False when the chain is too long.
  bool leaves(Value v, int64_t bytes, llvm::SetVector<Value> &large,
              llvm::SetVector<Value> &missing, unsigned &length) {
    Operation *op = v.getDefiningOp();
    if (++length > kLongestChain)
      return false;
    for (Value x : op->getOperands()) {
      Operation *def = x.getDefiningOp();
      if (def && sources.contains(def))
        continue;
      bool given = isHere(x, stageOf(op));
      if (!given && byteSize(x.getType()) * kSmallPart <= bytes)
        continue;
      if (given || !isCheap(def)) {
        large.insert(x);
        if (!given)
          missing.insert(x);
      } else if (!leaves(x, bytes, large, missing, length)) {
        return false;
      }
    }
    return true;
  }

  /// Keeps the small parts that the chain of `v` stops at.
  void keepSmall(Value v, int64_t bytes) {
    Operation *op = v.getDefiningOp();
    for (Value x : op->getOperands()) {
      Operation *def = x.getDefiningOp();
      if (isHere(x, stageOf(op)) || sources.contains(def))
        continue;
      if (byteSize(x.getType()) * kSmallPart <= bytes)
        kept.insert(x);
      else
        keepSmall(x, bytes);
    }
  }

  /// Lets a backward op read repetitions instead of what is not kept.
  void rewrite(Operation *op) {
    for (OpOperand &operand : op->getOpOperands())
      operand.set(available(operand.get(), op));
  }

  Value available(Value v, Operation *reader) {
    Operation *def = v.getDefiningOp();
    if (!def || isBackward(def) || kept.contains(v) ||
        (isGiven(v, stageOf(reader)) && !sources.contains(def)))
      return v;
    if (Value again = repeated.lookup({v, stageOf(reader)}))
      return again;
    if (isa<WeightOp, ConstantOp, TrackOp>(def))
      return v; // the split repeats what has no operands
    IRMapping map;
    for (Value x : def->getOperands())
      map.map(x, available(x, reader));
    OpBuilder b(reader);
    Operation *copy = b.clone(*def, map);
    copy->setAttr(kOpPhase, b.getStringAttr("backward"));
    copy->setAttr(kOpStage, reader->getAttr(kOpStage));
    for (auto [from, to] : llvm::zip(def->getResults(), copy->getResults()))
      repeated[{from, stageOf(reader)}] = to;
    return repeated.lookup({v, stageOf(reader)});
  }

  func::FuncOp main;
  bool keepsRead;
  llvm::function_ref<bool(int64_t stage)> isAgain;
  Sources sources;
  SmallVector<Operation *> forward, backward;
  llvm::SetVector<Value> early; ///< gradients that forward computes
  llvm::SetVector<Value> demanded;
  llvm::DenseSet<Value> read; ///< of those, by other ops than cheap ones
  llvm::DenseSet<Value> kept;
  llvm::DenseMap<std::pair<Value, int64_t>, Value> repeated;
};

struct ChooseStashPass : public pipec::impl::ChooseStashBase<ChooseStashPass> {
  using ChooseStashBase::ChooseStashBase;
  void runOnOperation() override {
    func::FuncOp main = mainFunction(getOperation());
    if (!main)
      return signalPassFailure();
    if (mode != "none" && mode != "selective" && mode != "full") {
      main.emitError("unknown recomputation mode '") << mode << "'";
      return signalPassFailure();
    }
    const llvm::DenseSet<int64_t> stages(again.begin(), again.end());
    const auto isAgain = [&](int64_t stage) {
      return mode == "full" || stages.contains(stage);
    };
    Chooser(main, mode == "none", isAgain).run();
  }
};

} // namespace
