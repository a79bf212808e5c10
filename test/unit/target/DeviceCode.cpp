//===- DeviceCode.cpp - device code as a library of this machine ----------===//
#include "test/unit/target/DeviceCode.h"
#include "compiler/target/native/Codegen.h"

#include "llvm/AsmParser/Parser.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/Verifier.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Transforms/Utils/BasicBlockUtils.h"

#include <map>
#include <set>
#include <stdexcept>

using namespace pipec;
using namespace pipec::test;

namespace {
struct Replacement {
  const char *intrinsic, *function;
  bool meets;
  /// Operands and results by memory: void (const void *in, void *out).
  bool byMemory = false;
};
constexpr Replacement kReplacements[] = {
    {"llvm.nvvm.read.ptx.sreg.tid.x", "pipec_test_tid_x", false},
    {"llvm.nvvm.read.ptx.sreg.ctaid.x", "pipec_test_ctaid_x", false},
    {"llvm.nvvm.barrier.cta.sync.aligned.all", "pipec_test_barrier", true},
    {"llvm.nvvm.shfl.sync.bfly.i32", "pipec_test_shfl_i32", true},
    {"llvm.nvvm.shfl.sync.bfly.f32", "pipec_test_shfl_f32", true},
    {"llvm.nvvm.vote.ballot.sync", "pipec_test_ballot", true},
    {"llvm.nvvm.bar.warp.sync", "pipec_test_warp", true},
    {"llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.b16.p3", "pipec_test_matrices",
     true, true},
    {"llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.trans.b16.p3",
     "pipec_test_matrices_turned", true, true},
    {"llvm.nvvm.mma.m16n8k16.row.col.bf16", "pipec_test_mma", true, true},
    {"llvm.nvvm.cp.async.cg.shared.global.16", "pipec_test_copy_16", false},
    {"llvm.nvvm.cp.async.cg.shared.global.16.s", "pipec_test_copy_16_of",
     false},
    {"llvm.nvvm.cp.async.ca.shared.global.4.s", "pipec_test_copy_4_of", false},
    {"llvm.nvvm.cp.async.commit.group", "pipec_test_commit", false},
    {"llvm.nvvm.cp.async.wait.group", "pipec_test_wait", false},
    {"llvm.nvvm.ff2bf16x2.rn", "pipec_test_bf16x2", false, true},
    {"llvm.nvvm.rcp.approx.ftz.f", "pipec_test_rcp", false},
    {"llvm.nvvm.ex2.approx.ftz.f", "pipec_test_power", false},
    {"llvm.nvvm.ex2.approx.ftz.f32", "pipec_test_power", false},
};

/// Rewrites device code as code of this machine.
class Rewriter {
public:
  explicit Rewriter(llvm::Module &module) : module(module) {}

  void run() {
    std::vector<llvm::Function *> all;
    for (llvm::Function &function : module)
      all.push_back(&function);
    for (llvm::Function *function : all)
      checkAlignment(*function);
    for (llvm::Function *function : all) {
      llvm::StringRef name = function->getName();
      if (name.starts_with("llvm.nvvm."))
        replaceIntrinsic(*function);
      else if (name.consume_front("__nv_"))
        function->setName(name); // the C library's
      else if (!function->isDeclaration())
        makeEntry(*function);
    }
    defineSharedMemory();
    for (auto &[name, arguments] : kernels) {
      exportNumber(name + "_meets", meeting.count(name));
      exportNumber(name + "_arguments", arguments);
    }
  }

private:
  void replaceIntrinsic(llvm::Function &intrinsic) {
    const Replacement *with = nullptr;
    for (const Replacement &candidate : kReplacements)
      if (intrinsic.getName() == candidate.intrinsic)
        with = &candidate;
    if (!with)
      throw std::runtime_error("no emulation of " + intrinsic.getName().str());
    auto *pointer = llvm::PointerType::get(module.getContext(), 0);
    auto *type = with->byMemory
                     ? llvm::FunctionType::get(
                           llvm::Type::getVoidTy(module.getContext()),
                           {pointer, pointer}, false)
                     : intrinsic.getFunctionType();
    llvm::Function *function = llvm::Function::Create(
        type, llvm::Function::ExternalLinkage, with->function, module);
    for (llvm::User *user : llvm::make_early_inc_range(intrinsic.users())) {
      auto *call = llvm::cast<llvm::CallInst>(user);
      if (with->meets)
        meeting.insert(call->getFunction()->getName().str());
      if (with->byMemory) {
        callByMemory(*call, function);
        continue;
      }
      call->setCalledFunction(function);
      call->setAttributes({});
    }
  }

  /// A device stops at an access that is not where its instruction says;
  /// this machine mostly reads on.
  void checkAlignment(llvm::Function &function) {
    std::vector<llvm::Instruction *> accesses;
    for (llvm::Instruction &instruction : llvm::instructions(function))
      if (llvm::getLoadStorePointerOperand(&instruction) &&
          llvm::getLoadStoreAlignment(&instruction).value() > 1)
        accesses.push_back(&instruction);
    for (llvm::Instruction *access : accesses) {
      llvm::IRBuilder<> b(access);
      llvm::Value *align =
          b.getInt64(llvm::getLoadStoreAlignment(access).value());
      llvm::Value *at = b.CreatePtrToInt(
          llvm::getLoadStorePointerOperand(access), b.getInt64Ty());
      llvm::Value *beside = b.CreateAnd(at, b.CreateSub(align, b.getInt64(1)));
      b.SetInsertPoint(
          llvm::SplitBlockAndInsertIfThen(b.CreateIsNotNull(beside), access,
                                          /*Unreachable=*/true));
      llvm::FunctionCallee stop =
          module.getOrInsertFunction("pipec_test_misaligned", b.getVoidTy(),
                                     b.getInt64Ty(), b.getInt64Ty());
      b.CreateCall(stop, {at, align});
    }
  }

  /// Operands one after the other, 8 bytes each; then what it leaves.
  void callByMemory(llvm::CallInst &call, llvm::Function *function) {
    llvm::BasicBlock &entry = call.getFunction()->getEntryBlock();
    llvm::IRBuilder<> atEntry(&entry, entry.begin());
    auto *words = llvm::ArrayType::get(atEntry.getInt64Ty(), call.arg_size());
    llvm::Value *in = atEntry.CreateAlloca(words),
                *out = atEntry.CreateAlloca(call.getType());
    llvm::IRBuilder<> b(&call);
    for (unsigned i = 0; i < call.arg_size(); ++i)
      b.CreateStore(call.getArgOperand(i),
                    b.CreateConstGEP1_64(b.getInt64Ty(), in, i));
    b.CreateCall(function, {in, out});
    call.replaceAllUsesWith(b.CreateLoad(call.getType(), out));
    call.eraseFromParent();
  }

  /// void <kernel>_entry(char **arguments)
  void makeEntry(llvm::Function &kernel) {
    kernels[kernel.getName().str()] = static_cast<int>(kernel.arg_size());
    kernel.setCallingConv(llvm::CallingConv::C);
    kernel.setAttributes({});
    llvm::LLVMContext &context = module.getContext();
    auto *pointer = llvm::PointerType::get(context, 0);
    llvm::Function *entry = llvm::Function::Create(
        llvm::FunctionType::get(llvm::Type::getVoidTy(context), {pointer},
                                false),
        llvm::Function::ExternalLinkage, kernel.getName() + "_entry", module);
    llvm::IRBuilder<> b(llvm::BasicBlock::Create(context, "", entry));
    std::vector<llvm::Value *> arguments;
    for (size_t i = 0; i < kernel.arg_size(); ++i)
      arguments.push_back(b.CreateLoad(
          pointer, b.CreateConstGEP1_64(pointer, entry->getArg(0), i)));
    b.CreateCall(&kernel, arguments);
    b.CreateRetVoid();
  }

  void defineSharedMemory() {
    auto *type = llvm::ArrayType::get(
        llvm::Type::getInt8Ty(module.getContext()), kSharedBytes);
    llvm::GlobalVariable *old = module.getGlobalVariable("pipec_shared");
    unsigned space = old ? old->getAddressSpace() : 0;
    auto *memory = new llvm::GlobalVariable(
        module, type, false, llvm::GlobalValue::ExternalLinkage,
        llvm::ConstantAggregateZero::get(type), "pipec_test_shared", nullptr,
        llvm::GlobalValue::NotThreadLocal, space);
    memory->setAlignment(llvm::Align(16));
    if (old) {
      old->replaceAllUsesWith(memory);
      old->eraseFromParent();
    }
  }

  void exportNumber(const std::string &name, int value) {
    auto *type = llvm::Type::getInt32Ty(module.getContext());
    new llvm::GlobalVariable(module, type, true,
                             llvm::GlobalValue::ExternalLinkage,
                             llvm::ConstantInt::get(type, value), name);
  }

  llvm::Module &module;
  std::set<std::string> meeting;      // kernels whose threads do
  std::map<std::string, int> kernels; // and their arguments
};
} // namespace

void pipec::test::buildDeviceCode(const std::string &text,
                                  const std::string &path) {
  llvm::LLVMContext context;
  llvm::SMDiagnostic error;
  std::unique_ptr<llvm::Module> module =
      llvm::parseAssemblyString(text, error, context);
  if (!module)
    throw std::runtime_error(error.getMessage().str());
  Rewriter(*module).run();
  mlir::MLIRContext diagnostics;
  mlir::Location loc = mlir::UnknownLoc::get(&diagnostics);
  auto machine = native::createMachine(loc, "native");
  if (failed(machine))
    throw std::runtime_error("no code for this machine");
  module->setTargetTriple((*machine)->getTargetTriple());
  module->setDataLayout((*machine)->createDataLayout());
  std::string broken;
  llvm::raw_string_ostream why(broken);
  if (llvm::verifyModule(*module, &why))
    throw std::runtime_error(broken);
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream os(bytes);
  llvm::legacy::PassManager emit;
  if ((*machine)->addPassesToEmitFile(emit, os, nullptr,
                                      llvm::CodeGenFileType::ObjectFile))
    throw std::runtime_error("no object files for this machine");
  emit.run(*module);
  if (failed(native::linkShared(
          loc, llvm::StringRef(bytes.data(), bytes.size()), path)))
    throw std::runtime_error("cannot link " + path);
}
