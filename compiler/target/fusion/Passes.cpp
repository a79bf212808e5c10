//===- Passes.cpp - the steps that all targets share ----------------------===//
#include "compiler/target/fusion/Passes.h"
#include "compiler/target/fusion/Expand.h"
#include "compiler/target/fusion/WidenContractions.h"
#include "dialects/nn/NN.h"
#include "dialects/pipe/Pipe.h"

namespace pipec::fusion {
#define GEN_PASS_DEF_FUSIONEXPAND
#define GEN_PASS_DEF_FUSIONSTASH
#define GEN_PASS_DEF_FUSIONWIDENCONTRACTIONS
#include "compiler/target/fusion/Passes.h.inc"
} // namespace pipec::fusion

using namespace pipec;

namespace {
struct FusionExpand : fusion::impl::FusionExpandBase<FusionExpand> {
  void runOnOperation() override { fusion::expandComposedOps(getOperation()); }
};

struct FusionWidenContractions
    : fusion::impl::FusionWidenContractionsBase<FusionWidenContractions> {
  void runOnOperation() override {
    fusion::widenContractions(getOperation(), fusion::Bf16Products::Sums);
  }
};

struct FusionStash : fusion::impl::FusionStashBase<FusionStash> {
  void runOnOperation() override { fusion::settleStash(getOperation()); }
};
} // namespace
