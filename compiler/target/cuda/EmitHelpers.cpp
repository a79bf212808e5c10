//===- EmitHelpers.cpp - kernels that the runtime itself calls ------------===//
//
// Of any length: a number is passed in place of a pointer. Their names and
// arguments are in StageAbi.h.
//
//===----------------------------------------------------------------------===//
#include "compiler/target/cuda/EmitTask.h"
#include "compiler/target/cuda/PlainKernel.h"
#include "compiler/target/fusion/Math.h"
#include "runtime/StageAbi.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

using namespace mlir;
using namespace pipec;
using namespace pipec::cuda;

static Value asNumber(PlainKernel &k, Value pointer) {
  return LLVM::PtrToIntOp::create(k.b, k.b.getI64Type(), pointer);
}

static Value globalNumber(PlainKernel &k) {
  return k.add(k.times(k.wide(blockNumber(k.b)), PIPEC_HELPER_THREADS),
               k.wide(threadNumber(k.b)));
}

/// pipec_sum(to, count, t0 ... t7): to[i] = t0[i] + t1[i] + ..., terms that are
/// null left out; t0 is there. One thread an element.
static void emitSum(ModuleOp device) {
  SmallVector<fusion::KernelArgument> arguments(2 + PIPEC_SUM_TERMS, {0, 0});
  PlainKernel k(device, "pipec_sum", arguments);
  k.beginBlocks(1, PIPEC_HELPER_THREADS);
  Value item = globalNumber(k);
  Value inside = arith::CmpIOp::create(k.b, arith::CmpIPredicate::ult, item,
                                       asNumber(k, k.argument(1)));
  Type real = k.b.getF32Type();
  k.when(inside, [&] {
    Value sum = k.load(k.argument(2), real, item);
    for (int term = 1; term < PIPEC_SUM_TERMS; ++term) {
      Value from = k.argument(2 + term);
      Value isThere = arith::CmpIOp::create(k.b, arith::CmpIPredicate::ne,
                                            asNumber(k, from), k.integer(0));
      Value value = k.load(k.select(isThere, from, k.argument(2)), real, item);
      sum = k.select(isThere, arith::AddFOp::create(k.b, sum, value), sum);
    }
    k.store(sum, k.argument(0), item);
  });
}

/// pipec_squares(to, count, from): to[t] = the sum of from[i]^2 in f64 over
/// i = t, t + T, ... below count, of the launch's T = all threads.
static void emitSquares(ModuleOp device) {
  SmallVector<fusion::KernelArgument> arguments(3, {0, 0});
  PlainKernel k(device, "pipec_squares", arguments);
  k.beginBlocks(PIPEC_SQUARES_BLOCKS, PIPEC_HELPER_THREADS);
  Value thread = globalNumber(k);
  Type real = k.b.getF32Type(), wide = k.b.getF64Type();
  Value zero = arith::ConstantOp::create(k.b, k.b.getF64FloatAttr(0));
  auto sums = k.loop(thread, asNumber(k, k.argument(1)),
                     PIPEC_SQUARES_BLOCKS * PIPEC_HELPER_THREADS, {zero},
                     [&](Value i, PlainKernel::Values &values) {
                       Value x = arith::ExtFOp::create(
                           k.b, wide, k.load(k.argument(2), real, i));
                       values[0] = arith::AddFOp::create(
                           k.b, values[0], arith::MulFOp::create(k.b, x, x));
                     });
  k.store(sums[0], k.argument(0), thread);
}

/// pipec_widen(to, count, from), pipec_round: to[i] = from[i] in another type.
static void emitConversion(ModuleOp device, StringRef name, bool widens) {
  SmallVector<fusion::KernelArgument> arguments(3, {0, 0});
  PlainKernel k(device, name, arguments);
  k.beginBlocks(1, PIPEC_HELPER_THREADS);
  Value item = globalNumber(k);
  Value inside = arith::CmpIOp::create(k.b, arith::CmpIPredicate::ult, item,
                                       asNumber(k, k.argument(1)));
  Type real = k.b.getF32Type(), narrow = k.b.getBF16Type();
  k.when(inside, [&] {
    Value from = k.load(k.argument(2), widens ? narrow : real, item);
    Value to = fusion::convertFloat(
        k.b, fusion::Machine{.nvptx = true, .roundsPairs = true}, from,
        widens ? real : narrow);
    k.store(to, k.argument(0), item);
  });
}

void cuda::emitHelpers(ModuleOp device) {
  emitSum(device);
  emitSquares(device);
  emitConversion(device, "pipec_widen", /*widens=*/true);
  emitConversion(device, "pipec_round", /*widens=*/false);
}
