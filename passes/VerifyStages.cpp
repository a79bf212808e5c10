//===- VerifyStages.cpp - what the split promised -------------------------===//
#include "dialects/nn/NN.h"
#include "dialects/pipe/Pipe.h"
#include "passes/Graph.h"
#include "passes/Passes.h"

namespace pipec {
#define GEN_PASS_DEF_VERIFYSTAGES
#include "passes/Passes.h.inc"
} // namespace pipec

using namespace mlir;
using namespace pipec;

namespace {

struct VerifyStagesPass
    : public pipec::impl::VerifyStagesBase<VerifyStagesPass> {
  struct End {
    Operation *op;
    Type type;
    int64_t stage, peer;
  };
  std::map<int64_t, SmallVector<End>> sends, recvs;
  bool bad = false;

  void runOnOperation() override {
    sends.clear();
    recvs.clear();
    bad = false;
    for (auto stage : getOperation().getOps<ModuleOp>())
      if (auto id = stage->getAttrOfType<IntegerAttr>(pipe::kStageAttr)) {
        collect(stage, id.getInt());
        checkStash(stage);
        checkGradients(stage);
      }
    checkEdges();
    if (bad)
      signalPassFailure();
  }

  InFlightDiagnostic complain(Operation *op) {
    bad = true;
    return op->emitError();
  }

  void collect(ModuleOp stage, int64_t id) {
    stage.walk([&](Operation *op) {
      if (auto send = dyn_cast<pipe::SendOp>(op))
        sends[send.getEdge()].push_back(
            {op, send.getX().getType(), id, (int64_t)send.getTo()});
      if (auto recv = dyn_cast<pipe::RecvOp>(op))
        recvs[recv.getEdge()].push_back(
            {op, recv.getY().getType(), id, (int64_t)recv.getFrom()});
    });
  }

  void checkEdges() {
    for (auto &[edge, ends] : recvs)
      if (!sends.count(edge))
        complain(ends[0].op) << "edge " << edge << " is received but not sent";
    for (auto &[edge, ends] : sends) {
      if (ends.size() != 1)
        complain(ends[1].op) << "edge " << edge << " is sent twice";
      auto it = recvs.find(edge);
      if (it == recvs.end()) {
        complain(ends[0].op) << "edge " << edge << " is sent but not received";
        continue;
      }
      for (const End &end : it->second)
        if (end.type != ends[0].type || end.stage != ends[0].peer ||
            end.peer != ends[0].stage)
          complain(end.op) << "edge " << edge
                           << " has ends that do not agree on type or stages";
      bool backward =
          ends[0].op->getParentOfType<func::FuncOp>().getSymName() != "forward";
      if (backward ? ends[0].peer > ends[0].stage
                   : ends[0].peer < ends[0].stage)
        complain(ends[0].op) << "edge " << edge << " runs against the pipeline";
    }
  }

  void checkStash(ModuleOp stage) {
    std::map<std::pair<StringRef, int64_t>, Type> kept;
    stage.walk([&](pipe::StashOp op) {
      if (!kept.insert({{op.getKind(), op.getSlot()}, op.getX().getType()})
               .second)
        complain(op) << op.getKind() << " " << op.getSlot()
                     << " is written twice";
    });
    stage.walk([&](pipe::UnstashOp op) {
      auto it = kept.find({op.getKind(), op.getSlot()});
      if (it == kept.end() || it->second != op.getY().getType())
        complain(op) << op.getKind() << " " << op.getSlot()
                     << " is read but was not kept with this type";
    });
  }

  void checkGradients(ModuleOp stage) {
    std::set<std::pair<StringRef, int64_t>> seen;
    SymbolTable parameters(stage);
    stage.walk([&](pipe::AccumulateOp op) {
      if (!seen.insert({op.getParameter(), op.getUse()}).second)
        complain(op) << "use " << op.getUse() << " of @" << op.getParameter()
                     << " has two gradients";
      auto parameter = parameters.lookup<nn::ParameterOp>(op.getParameter());
      if (!parameter || parameter.getType() != op.getGradient().getType())
        complain(op) << "gradient of another type than @" << op.getParameter();
    });
  }
};

} // namespace
