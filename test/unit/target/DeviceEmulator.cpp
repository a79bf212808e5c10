//===- DeviceEmulator.cpp - GPU kernels on the processor ------------------===//
#include "test/unit/target/DeviceEmulator.h"
#include "compiler/target/cpu/Codegen.h"
#include "runtime/kernels/cpu/Kernels.h"
#include "test/unit/target/Fibers.h"

#include "llvm/AsmParser/Parser.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/Verifier.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/raw_ostream.h"

#include <cstring>
#include <dlfcn.h>
#include <gtest/gtest.h>

using namespace pipec;
using namespace pipec::test;

//===----------------------------------------------------------------------===//
// What kernels call
//===----------------------------------------------------------------------===//

extern "C" {
__attribute__((visibility("default"))) int32_t pipec_test_tid_x() {
  return currentThread();
}
__attribute__((visibility("default"))) int32_t pipec_test_ctaid_x() {
  return static_cast<int32_t>(currentBlock());
}
__attribute__((visibility("default"))) void pipec_test_barrier(int32_t) {
  meetBlock();
}
__attribute__((visibility("default"))) int32_t
pipec_test_shfl_i32(int32_t, int32_t value, int32_t bits, int32_t) {
  uint32_t mine;
  std::memcpy(&mine, &value, 4);
  return static_cast<int32_t>(
      exchangeWithWarp(mine)[(currentThread() % 32) ^ bits]);
}
__attribute__((visibility("default"))) float
pipec_test_shfl_f32(int32_t, float value, int32_t bits, int32_t) {
  uint32_t mine;
  std::memcpy(&mine, &value, 4);
  uint32_t theirs = exchangeWithWarp(mine)[(currentThread() % 32) ^ bits];
  std::memcpy(&value, &theirs, 4);
  return value;
}
__attribute__((visibility("default"))) int32_t
pipec_test_ballot(int32_t, bool condition) {
  const uint32_t *all = exchangeWithWarp(condition);
  uint32_t bits = 0;
  for (int i = 0; i < 32; ++i)
    bits |= (all[i] & 1) << i;
  return static_cast<int32_t>(bits);
}
}

//===----------------------------------------------------------------------===//
// Code
//===----------------------------------------------------------------------===//

namespace {
constexpr size_t kSharedBytes = 48 * 1024;

struct Replacement {
  const char *intrinsic, *function;
  bool meets;
};
constexpr Replacement kReplacements[] = {
    {"llvm.nvvm.read.ptx.sreg.tid.x", "pipec_test_tid_x", false},
    {"llvm.nvvm.read.ptx.sreg.ctaid.x", "pipec_test_ctaid_x", false},
    {"llvm.nvvm.barrier.cta.sync.aligned.all", "pipec_test_barrier", true},
    {"llvm.nvvm.shfl.sync.bfly.i32", "pipec_test_shfl_i32", true},
    {"llvm.nvvm.shfl.sync.bfly.f32", "pipec_test_shfl_f32", true},
    {"llvm.nvvm.vote.ballot.sync", "pipec_test_ballot", true},
};

/// Rewrites device code as code of this machine; names of kernels whose
/// threads meet are collected.
class Rewriter {
public:
  explicit Rewriter(llvm::Module &module) : module(module) {}

  std::set<std::string> run() {
    std::vector<llvm::Function *> all;
    for (llvm::Function &function : module)
      all.push_back(&function);
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
    return meeting;
  }

private:
  void replaceIntrinsic(llvm::Function &intrinsic) {
    const Replacement *with = nullptr;
    for (const Replacement &candidate : kReplacements)
      if (intrinsic.getName() == candidate.intrinsic)
        with = &candidate;
    if (!with) {
      ADD_FAILURE() << "no emulation of " << intrinsic.getName().str();
      return;
    }
    llvm::Function *function = llvm::Function::Create(
        intrinsic.getFunctionType(), llvm::Function::ExternalLinkage,
        with->function, module);
    for (llvm::User *user : llvm::make_early_inc_range(intrinsic.users())) {
      auto *call = llvm::cast<llvm::CallInst>(user);
      call->setCalledFunction(function);
      call->setAttributes({});
      if (with->meets)
        meeting.insert(call->getFunction()->getName().str());
    }
  }

  /// void <kernel>_entry(char **arguments)
  void makeEntry(llvm::Function &kernel) {
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

  llvm::Module &module;
  std::set<std::string> meeting;
};

const char *symbol(void *library, const char *name) {
  auto *found = static_cast<const char *>(dlsym(library, name));
  EXPECT_NE(found, nullptr) << "the stage exports no " << name;
  return found;
}
} // namespace

DeviceEmulator::DeviceEmulator(const std::string &llvm, void *library) {
  int32_t count;
  std::memcpy(&count, symbol(library, "pipec_kernel_count"), sizeof count);
  kernels.resize(count);
  compile(llvm);
  int64_t bytes;
  std::memcpy(&bytes, symbol(library, "pipec_literals_bytes"), sizeof bytes);
  literals.assign(bytes + 64, 0);
  char *aligned = reinterpret_cast<char *>(
      llvm::alignTo(reinterpret_cast<uintptr_t>(literals.data()), 64));
  std::memcpy(aligned, symbol(library, "pipec_literals"), bytes);
  device.emulator = this;
  PipecDevice &t = device.table;
  t.literals = aligned;
  t.fault = reinterpret_cast<char *>(fault);
  t.launch = [](PipecDevice *d, int32_t kernel, int64_t blocks, int32_t threads,
                int32_t sharedBytes, char *const *arguments, int32_t) {
    reinterpret_cast<Device *>(d)->emulator->launch(kernel, blocks, threads,
                                                    sharedBytes, arguments);
  };
  t.matmul = [](PipecDevice *, const PipecMatmul *d, const char *a,
                const char *b, char *c) { pipec_matmul(d, a, b, c); };
  t.conv = [](PipecDevice *, const PipecConv *d, int32_t kind,
              const char *first, const char *second, char *result) {
    PipecConv own = *d;
    std::vector<char> scratch(pipec_conv_scratch_bytes(d, kind) + 64);
    char *at = reinterpret_cast<char *>(
        llvm::alignTo(reinterpret_cast<uintptr_t>(scratch.data()), 64));
    auto *run = kind == PIPEC_CONV_FORWARD ? pipec_conv_forward
                : kind == PIPEC_CONV_BACKWARD_INPUT
                    ? pipec_conv_backward_input
                    : pipec_conv_backward_weight;
    run(&own, first, second, result, at);
    pipec_release_conv(&own);
  };
  t.clear = [](PipecDevice *, char *at, int64_t bytes) {
    std::memset(at, 0, bytes);
  };
}

DeviceEmulator::~DeviceEmulator() {
  if (code)
    dlclose(code);
}

void DeviceEmulator::compile(const std::string &text) {
  llvm::LLVMContext context;
  llvm::SMDiagnostic error;
  std::unique_ptr<llvm::Module> module =
      llvm::parseAssemblyString(text, error, context);
  ASSERT_TRUE(module) << error.getMessage().str();
  std::set<std::string> meeting = Rewriter(*module).run();
  mlir::MLIRContext diagnostics;
  mlir::Location loc = mlir::UnknownLoc::get(&diagnostics);
  auto machine = cpu::createMachine(loc, "native");
  ASSERT_TRUE(succeeded(machine));
  module->setTargetTriple((*machine)->getTargetTriple());
  module->setDataLayout((*machine)->createDataLayout());
  std::string broken;
  llvm::raw_string_ostream why(broken);
  ASSERT_FALSE(llvm::verifyModule(*module, &why)) << broken;
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream os(bytes);
  llvm::legacy::PassManager emit;
  ASSERT_FALSE((*machine)->addPassesToEmitFile(
      emit, os, nullptr, llvm::CodeGenFileType::ObjectFile));
  emit.run(*module);
  llvm::SmallString<128> path;
  ASSERT_FALSE(llvm::sys::fs::createTemporaryFile("pipec-test", "so", path));
  bool linked = succeeded(
      cpu::linkShared(loc, llvm::StringRef(bytes.data(), bytes.size()), path));
  code = linked ? dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr;
  llvm::sys::fs::remove(path);
  ASSERT_NE(code, nullptr) << dlerror();
  shared = static_cast<char *>(dlsym(code, "pipec_test_shared"));
  for (size_t i = 0; i < kernels.size(); ++i) {
    std::string name = "kernel" + std::to_string(i);
    kernels[i].entry =
        reinterpret_cast<Entry>(dlsym(code, (name + "_entry").c_str()));
    kernels[i].meets = meeting.count(name) != 0;
    ASSERT_NE(kernels[i].entry, nullptr) << name;
  }
}

void DeviceEmulator::launch(int32_t number, int64_t blocks, int32_t threads,
                            int32_t sharedBytes, char *const *arguments) {
  ASSERT_LT(static_cast<size_t>(number), kernels.size());
  ASSERT_TRUE(threads >= 1 && threads <= 1024 && blocks >= 1) << threads;
  ASSERT_LE(static_cast<size_t>(sharedBytes), kSharedBytes);
  const Kernel &kernel = kernels[number];
  for (int64_t i = 0; i < blocks; ++i) {
    int64_t block = descending ? blocks - 1 - i : i;
    std::memset(shared, 0xff, sharedBytes);
    runBlock(block, threads, kernel.meets, descending,
             [&] { kernel.entry(arguments); });
  }
}

bool DeviceEmulator::takeFault() {
  bool seen = fault[0] != 0;
  fault[0] = 0;
  return seen;
}
