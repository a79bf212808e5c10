//===- Threads.cpp - threads, warps and blocks ----------------------------===//
#include "compiler/target/cuda/Threads.h"
#include "compiler/target/cuda/EmitKernel.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"

using namespace mlir;
using namespace pipec;
using namespace pipec::cuda;

static Value number(ImplicitLocOpBuilder &b, int64_t value, unsigned width) {
  return arith::ConstantIntOp::create(b, value, width);
}

Value cuda::word(ImplicitLocOpBuilder &b, int64_t value) {
  return number(b, value, 32);
}

Value cuda::wide(ImplicitLocOpBuilder &b, Value value) {
  return arith::ExtUIOp::create(b, b.getI64Type(), value);
}

Value cuda::threadNumber(ImplicitLocOpBuilder &b) {
  return NVVM::ThreadIdXOp::create(b, b.getI32Type());
}

Value cuda::blockNumber(ImplicitLocOpBuilder &b) {
  return NVVM::BlockIdXOp::create(b, b.getI32Type());
}

Value cuda::globalThread(ImplicitLocOpBuilder &b, int64_t threads) {
  Value first =
      arith::MulIOp::create(b, blockNumber(b), number(b, threads, 32));
  return arith::AddIOp::create(b, first, threadNumber(b));
}

void cuda::barrier(ImplicitLocOpBuilder &b) { NVVM::Barrier0Op::create(b); }

static Value shuffleWord(ImplicitLocOpBuilder &b, Value word, int64_t bits) {
  return NVVM::ShflOp::create(b, word.getType(), number(b, -1, 32), word,
                              number(b, bits, 32), number(b, kWarp - 1, 32),
                              NVVM::ShflKind::bfly, UnitAttr());
}

Value cuda::shuffleXor(ImplicitLocOpBuilder &b, Value value, int64_t bits) {
  Type type = value.getType(), word = b.getI32Type();
  unsigned width = type.getIntOrFloatBitWidth();
  if (type.isF32() || type.isInteger(32))
    return shuffleWord(b, value, bits);
  Type integer = b.getIntegerType(width);
  Value raw = isa<FloatType>(type) ? arith::BitcastOp::create(b, integer, value)
                                   : value;
  if (width < 32) {
    raw = arith::ExtUIOp::create(b, word, raw);
    raw = arith::TruncIOp::create(b, integer, shuffleWord(b, raw, bits));
  } else {
    Value half = number(b, 32, 64);
    Value low = arith::TruncIOp::create(b, word, raw);
    Value high =
        arith::TruncIOp::create(b, word, arith::ShRUIOp::create(b, raw, half));
    low = arith::ExtUIOp::create(b, integer, shuffleWord(b, low, bits));
    high = arith::ExtUIOp::create(b, integer, shuffleWord(b, high, bits));
    raw = arith::OrIOp::create(b, low, arith::ShLIOp::create(b, high, half));
  }
  return isa<FloatType>(type) ? arith::BitcastOp::create(b, type, raw) : raw;
}

Value cuda::sharedMemory(ImplicitLocOpBuilder &b, int64_t offset) {
  constexpr unsigned kShared = 3;
  auto module =
      b.getInsertionBlock()->getParentOp()->getParentOfType<ModuleOp>();
  if (!module.lookupSymbol(kSharedMemory)) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(module.getBody());
    LLVM::GlobalOp::create(b, LLVM::LLVMArrayType::get(b.getI8Type(), 0),
                           /*isConstant=*/false, LLVM::Linkage::External,
                           kSharedMemory, Attribute(), /*alignment=*/16,
                           kShared);
  }
  auto pointer = LLVM::LLVMPointerType::get(b.getContext(), kShared);
  Value base = LLVM::AddressOfOp::create(b, pointer, kSharedMemory);
  return LLVM::GEPOp::create(
      b, pointer, b.getI8Type(), base,
      ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(offset)});
}

void cuda::copyAhead(ImplicitLocOpBuilder &b, Value to, Value from,
                     int64_t bytes, Value read) {
  constexpr unsigned kGlobal = 1;
  from = LLVM::AddrSpaceCastOp::create(
      b, LLVM::LLVMPointerType::get(b.getContext(), kGlobal), from);
  NVVM::CpAsyncOp::create(b, to, from, static_cast<uint32_t>(bytes),
                          bytes == 16 ? NVVM::LoadCacheModifierKind::CG
                                      : NVVM::LoadCacheModifierKind::CA,
                          read);
}

void cuda::waitForCopies(ImplicitLocOpBuilder &b) {
  NVVM::CpAsyncCommitGroupOp::create(b);
  NVVM::CpAsyncWaitGroupOp::create(b, 0);
}
