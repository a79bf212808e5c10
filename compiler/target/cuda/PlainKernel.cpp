//===- PlainKernel.cpp - device functions written by hand -----------------===//
#include "compiler/target/cuda/PlainKernel.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace pipec;
using namespace pipec::cuda;
using namespace pipec::fusion;

KernelArgument cuda::argumentOf(const Placement &place, Type element) {
  return {place.buffer, place.offset * elementBytes(element)};
}

PlainKernel::PlainKernel(ModuleOp module, StringRef name,
                         ArrayRef<KernelArgument> arguments)
    : b(UnknownLoc::get(module.getContext()), module.getContext()) {
  b.setInsertionPointToEnd(module.getBody());
  SmallVector<Type> types(arguments.size(),
                          LLVM::LLVMPointerType::get(b.getContext()));
  code.arguments.assign(arguments.begin(), arguments.end());
  code.function = func::FuncOp::create(b, name, b.getFunctionType(types, {}));
  Block *body = code.function.addEntryBlock();
  b.setInsertionPointToEnd(body);
  auto end = func::ReturnOp::create(b);
  b.setInsertionPoint(end);
}

void PlainKernel::beginBlocks(int64_t blocks, int64_t threads) {
  code.blocks = blocks;
  code.threads = threads;
  code.function->setAttr(kThreadsAttr, b.getI64IntegerAttr(threads));
}

void PlainKernel::setLeastBlocks(int64_t blocks) {
  code.function->setAttr(kLeastBlocksAttr, b.getI64IntegerAttr(blocks));
}

Value PlainKernel::beginItems(int64_t total, int64_t threads) {
  beginBlocks(llvm::divideCeil(total, threads), threads);
  Value item = add(times(wide(blockNumber(b)), threads), wide(threadNumber(b)));
  if (total % threads) {
    auto inside = scf::IfOp::create(b, less(item, total), /*withElse=*/false);
    b.setInsertionPointToStart(inside.thenBlock());
  }
  return item;
}

KernelCode PlainKernel::finish() { return std::move(code); }

Value PlainKernel::times(Value x, int64_t factor) {
  return factor == 1 ? x : arith::MulIOp::create(b, x, integer(factor));
}

Value PlainKernel::wide(Value word) {
  return arith::ExtUIOp::create(b, b.getI64Type(), word);
}

Value PlainKernel::less(Value x, int64_t end) {
  return arith::CmpIOp::create(b, arith::CmpIPredicate::ult, x, integer(end));
}

Value PlainKernel::equal(Value x, Value y) {
  return arith::CmpIOp::create(b, arith::CmpIPredicate::eq, x, y);
}

SmallVector<Value> PlainKernel::indices(Value number, ArrayRef<int64_t> sizes) {
  SmallVector<Value> result(sizes.size());
  for (size_t d = sizes.size(); d-- > 0;) {
    if (d == 0) {
      result[d] = number;
      break;
    }
    result[d] = arith::RemUIOp::create(b, number, integer(sizes[d]));
    number = arith::DivUIOp::create(b, number, integer(sizes[d]));
  }
  return result;
}

Value PlainKernel::pointer(Value base, Type element, Value index) {
  return LLVM::GEPOp::create(b, base.getType(), element, base,
                             ArrayRef<LLVM::GEPArg>{index});
}

Value PlainKernel::load(Value base, Type element, Value index,
                        int64_t alignment) {
  Type step = getElementTypeOrSelf(element);
  return LLVM::LoadOp::create(b, element, pointer(base, step, index),
                              alignment ? alignment : elementBytes(step));
}

void PlainKernel::store(Value value, Value base, Value index,
                        int64_t alignment) {
  Type step = getElementTypeOrSelf(value.getType());
  LLVM::StoreOp::create(b, value, pointer(base, step, index),
                        alignment ? alignment : elementBytes(step));
}

void PlainKernel::when(Value condition, llvm::function_ref<void()> body) {
  auto inside = scf::IfOp::create(b, condition, /*withElse=*/false);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(inside.thenBlock());
  body();
}

PlainKernel::Values
PlainKernel::loop(Value begin, Value end, int64_t step, Values values,
                  llvm::function_ref<void(Value, Values &)> body) {
  auto loop = scf::ForOp::create(b, begin, end, integer(step), values);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Values inner(loop.getRegionIterArgs());
  body(loop.getInductionVar(), inner);
  if (!inner.empty()) {
    b.setInsertionPointToEnd(loop.getBody());
    scf::YieldOp::create(b, inner);
  }
  return Values(loop.getResults());
}

KernelCode cuda::emitScalarKernel(ModuleOp module, StringRef name,
                                  const KernelArgument &from,
                                  const KernelArgument &to) {
  PlainKernel k(module, name, {from, to});
  k.beginItems(1, 1);
  Value zero = k.integer(0);
  Value count = k.load(k.argument(0), k.b.getI64Type(), zero);
  k.store(arith::SIToFPOp::create(k.b, k.b.getF64Type(), count), k.argument(1),
          zero);
  return k.finish();
}
