//===- JoinKernel.cpp - several launches of a kernel as one ---------------===//
#include "compiler/target/cuda/JoinKernel.h"
#include "compiler/target/cuda/Threads.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/IR/IRMapping.h"

using namespace mlir;
using namespace pipec;

func::FuncOp cuda::joinKernel(ModuleOp module, StringRef name,
                              func::FuncOp kernel, int64_t blocks,
                              size_t count) {
  const unsigned each = kernel.getNumArguments();
  ImplicitLocOpBuilder b(kernel.getLoc(), module.getContext());
  b.setInsertionPointToEnd(module.getBody());
  const SmallVector<Type> types(each * count, kernel.getArgument(0).getType());
  auto joined = func::FuncOp::create(b, name, b.getFunctionType(types, {}));
  joined->setDiscardableAttrs(kernel->getDiscardableAttrDictionary());
  Block *body = joined.addEntryBlock();
  b.setInsertionPointToStart(body);
  auto word = [&](int64_t number) -> Value {
    return arith::ConstantIntOp::create(b, number, 32);
  };
  Value block = blockNumber(b);
  Value which = arith::DivUIOp::create(b, block, word(blocks)),
        own = arith::RemUIOp::create(b, block, word(blocks));
  IRMapping map;
  for (unsigned i = 0; i < each; ++i) {
    Value argument = body->getArgument(i);
    for (size_t j = 1; j < count; ++j) {
      Value isThis = arith::CmpIOp::create(b, arith::CmpIPredicate::eq, which,
                                           word(static_cast<int64_t>(j)));
      argument = LLVM::SelectOp::create(
          b, isThis, body->getArgument(static_cast<unsigned>(j) * each + i),
          argument);
    }
    map.map(kernel.getArgument(i), argument);
  }
  for (Operation &op : kernel.front())
    b.clone(op, map);
  joined.walk([&](NVVM::BlockIdXOp number) {
    if (number.getResult() != block)
      number.getResult().replaceAllUsesWith(own);
  });
  return joined;
}
