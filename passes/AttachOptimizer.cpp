//===- AttachOptimizer.cpp - the update and track tasks of a stage --------===//
#include "dialects/pipe/Pipe.h"
#include "passes/Graph.h"
#include "passes/Optimizer.h"
#include "passes/Passes.h"

namespace pipec {
#define GEN_PASS_DEF_ATTACHOPTIMIZER
#include "passes/Passes.h.inc"
} // namespace pipec

using namespace mlir;
using namespace pipec;
using namespace pipec::nn;

namespace {

int64_t regionBytes(ModuleOp stage, StringRef region) {
  auto regions = stage->getAttrOfType<DictionaryAttr>("pipe.regions");
  auto bytes = regions ? regions.getAs<IntegerAttr>(region) : IntegerAttr();
  return bytes ? bytes.getInt() : 0;
}

struct AttachOptimizerPass
    : public pipec::impl::AttachOptimizerBase<AttachOptimizerPass> {
  using AttachOptimizerBase::AttachOptimizerBase;

  void runOnOperation() override {
    const OptimizerRow *row = findOptimizer(kind);
    std::string error = "unknown optimizer '" + kind + "'";
    Optimizer::Settings values;
    std::string text = llvm::join(settings, ",");
    if (!row || !parseSettings(*row, text, values, error)) {
      getOperation().emitError(error);
      return signalPassFailure();
    }
    for (auto stage : getOperation().getOps<ModuleOp>()) {
      if (!stage->hasAttr(pipe::kStageAttr))
        continue;
      if (regionBytes(stage, "weights") > 0)
        addUpdate(stage, *row->optimizer, values);
      auto trackers = stage->getAttrOfType<ArrayAttr>("pipe.trackers");
      if (trackers && !trackers.empty())
        addTrack(stage, trackers);
    }
  }

  func::FuncOp addTask(NNBuilder &b, ModuleOp stage, StringRef name) {
    b.setInsertionPointToEnd(stage.getBody());
    auto task = func::FuncOp::create(b, name, b.getFunctionType({}, {}));
    task->setAttr(pipe::kTaskAttr, b.getStringAttr(name));
    b.setInsertionPointToStart(task.addEntryBlock());
    return task;
  }

  void addUpdate(ModuleOp stage, const Optimizer &rule,
                 const Optimizer::Settings &values) {
    NNBuilder b(stage.getLoc(), &getContext());
    int64_t bytes = regionBytes(stage, "weights"), done = 0;
    auto rounded = stage->getAttrOfType<ArrayAttr>("pipe.rounded");
    addTask(b, stage, "update");
    if (rounded) {
      bytes = number(cast<DictionaryAttr>(rounded[0]), "to");
      for (auto piece : rounded.getAsRange<DictionaryAttr>()) {
        const int64_t begin = number(piece, "offset");
        if (done < begin)
          update(b, rule, values, bytes, done, begin);
        done = begin + number(piece, "rows") * number(piece, "row") * 4;
        storeRounded(b, update(b, rule, values, bytes, begin, done), piece);
        done = llvm::alignTo(done, 64);
      }
    }
    if (done < bytes)
      update(b, rule, values, bytes, done, bytes);
    func::ReturnOp::create(b);
    recordStates(stage, rule.states(values), bytes);
  }

  static int64_t number(DictionaryAttr of, StringRef name) {
    return of.getAs<IntegerAttr>(name).getInt();
  }

  /// Those at the offsets from `begin` to `end`, of `bytes` of all; their new
  /// values.
  static Value update(NNBuilder &b, const Optimizer &rule,
                      const Optimizer::Settings &values, int64_t bytes,
                      int64_t begin, int64_t end) {
    auto flat = RankedTensorType::get({(end - begin) / 4}, b.getF32Type());
    auto scalar = RankedTensorType::get({}, b.getF64Type());
    const auto stateAt = [&](size_t i) { return int64_t(i) * bytes + begin; };
    Optimizer::Inputs in;
    in.weight = pipe::LoadOp::create(b, flat, "weights", begin);
    Value scale = pipe::ScalarOp::create(b, scalar, "grad_scale");
    in.gradient = mul(b, pipe::LoadOp::create(b, flat, "gradients", begin),
                      spread(b, scale, in.weight));
    for (size_t i = 0; i < rule.states(values).size(); ++i)
      in.state.push_back(
          pipe::LoadOp::create(b, flat, "optimizer", stateAt(i)));
    Value factor = pipe::ScalarOp::create(b, scalar, "lr_factor");
    in.learningRate = mulScalar(b, factor, values.at("lr"));
    in.update = pipe::ScalarOp::create(b, scalar, "update");
    Optimizer::Outputs out = rule.emit(b, in, values);
    pipe::StoreOp::create(b, out.weight, "new_weights", begin, false);
    for (auto [i, state] : llvm::enumerate(out.state))
      pipe::StoreOp::create(b, state, "optimizer", stateAt(i), false);
    return out.weight;
  }

  static void storeRounded(NNBuilder &b, Value weights, DictionaryAttr piece) {
    const int64_t rows = number(piece, "rows"), row = number(piece, "row"),
                  pitch = number(piece, "pitch");
    if (pitch != row)
      weights = nn::reshape(b, weights, {rows, row});
    pipe::StoreOp::create(b, nn::cast(b, weights, b.getBF16Type()),
                          "new_weights", number(piece, "to"), false,
                          pitch == row ? 0 : pitch);
  }

  /// `pipe.optimizer = [{name, offset}]`: weight w's part is at offset + its
  /// own.
  void recordStates(ModuleOp stage, ArrayRef<std::string> states,
                    int64_t bytes) {
    Builder b(&getContext());
    SmallVector<Attribute> list;
    for (auto [i, name] : llvm::enumerate(states))
      list.push_back(b.getDictionaryAttr(
          {b.getNamedAttr("name", b.getStringAttr(name)),
           b.getNamedAttr("offset", b.getI64IntegerAttr(int64_t(i) * bytes))}));
    stage->setAttr("pipe.optimizer", b.getArrayAttr(list));
    auto regions = stage->getAttrOfType<DictionaryAttr>("pipe.regions");
    SmallVector<NamedAttribute> entries(regions.getValue());
    if (!states.empty())
      entries.push_back(b.getNamedAttr(
          "optimizer", b.getI64IntegerAttr(int64_t(states.size()) * bytes)));
    stage->setAttr("pipe.regions", b.getDictionaryAttr(entries));
  }

  /// running = (1 - momentum) running + momentum statistic, for one microbatch.
  void addTrack(ModuleOp stage, ArrayAttr trackers) {
    NNBuilder b(stage.getLoc(), &getContext());
    addTask(b, stage, "track");
    SymbolTable parameters(stage);
    llvm::StringMap<int64_t> offsets;
    for (auto entry : stage->getAttrOfType<ArrayAttr>("pipe.weights")
                          .getAsRange<DictionaryAttr>())
      offsets[entry.getAs<StringAttr>("parameter").getValue()] =
          entry.getAs<IntegerAttr>("offset").getInt();
    for (auto tracker : trackers.getAsRange<DictionaryAttr>()) {
      auto name = tracker.getAs<FlatSymbolRefAttr>("parameter");
      double momentum = tracker.getAs<FloatAttr>("momentum").getValueAsDouble();
      auto parameter = parameters.lookup<ParameterOp>(name.getValue());
      int64_t offset = offsets.lookup(name.getValue());
      auto type = parameter.getTensorType();
      Value old = pipe::LoadOp::create(b, type, "state", offset);
      Value x = pipe::LoadOp::create(
          b, type, "stats", tracker.getAs<IntegerAttr>("offset").getInt());
      Value next =
          add(b, mulScalar(b, old, 1 - momentum), mulScalar(b, x, momentum));
      pipe::StoreOp::create(b, next, "state", offset, false);
    }
    func::ReturnOp::create(b);
  }
};

} // namespace
