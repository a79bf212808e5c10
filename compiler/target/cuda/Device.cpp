//===- Device.cpp - kernels as PTX and cubins -----------------------------===//
#include "compiler/target/cuda/Device.h"
#include "compiler/target/cuda/EmitKernel.h"
#include "compiler/target/cuda/Threads.h"
#include "compiler/target/native/Codegen.h"
#include "support/Failure.h"
#include "support/ScratchFolder.h"

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Target/LLVMIR/Dialect/NVVM/NVVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "llvm/Analysis/LoopAnalysisManager.h"
#include "llvm/Bitcode/BitcodeReader.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/Linker/Linker.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"

#include <filesystem>

using namespace mlir;
using namespace pipec;
using namespace pipec::cuda;

void cuda::registerDeviceDialects(MLIRContext &context) {
  native::registerLoweringDialects(context);
  DialectRegistry registry;
  registry.insert<NVVM::NVVMDialect>();
  registerNVVMDialectTranslation(registry);
  context.appendDialectRegistry(registry);
  context.loadAllAvailableDialects();
}

/// No fast-math and no contraction, as on the CPU.
static FailureOr<std::unique_ptr<llvm::TargetMachine>>
createMachine(Location loc) {
  LLVMInitializeNVPTXTargetInfo();
  LLVMInitializeNVPTXTarget();
  LLVMInitializeNVPTXTargetMC();
  LLVMInitializeNVPTXAsmPrinter();
  llvm::Triple triple("nvptx64-nvidia-cuda");
  std::string error;
  const llvm::Target *target =
      llvm::TargetRegistry::lookupTarget(triple, error);
  if (!target)
    return emitError(loc, "cannot generate code: ") << error;
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Strict;
  std::unique_ptr<llvm::TargetMachine> machine(target->createTargetMachine(
      triple, "sm_" + std::to_string(kOldestChip), "", options,
      llvm::Reloc::PIC_, std::nullopt, llvm::CodeGenOptLevel::Aggressive));
  return machine;
}

/// Functions of libdevice that are called become part of the module; says
/// whether there are any.
static FailureOr<bool> linkLibdevice(Location loc, llvm::Module &module,
                                     const Toolkit &toolkit) {
  const llvm::Function *wanted = nullptr;
  for (const llvm::Function &function : module)
    if (function.isDeclaration() && function.getName().starts_with("__nv_"))
      wanted = &function;
  if (!wanted)
    return false;
  if (toolkit.libdevice.empty())
    throw Failure(Exit::Unavailable,
                  "GPU code needs '" + wanted->getName().str() +
                      "' of CUDA's libdevice.10.bc, which is not installed; "
                      "run tools/setup.sh --cuda, or set CUDA_HOME to a "
                      "toolkit");
  auto buffer = llvm::MemoryBuffer::getFile(toolkit.libdevice);
  if (!buffer)
    return emitError(loc, "cannot read ") << toolkit.libdevice;
  auto library = llvm::parseBitcodeFile(**buffer, module.getContext());
  if (!library)
    return emitError(loc, "cannot read ")
           << toolkit.libdevice << ": " << toString(library.takeError());
  (*library)->setTargetTriple(module.getTargetTriple());
  (*library)->setDataLayout(module.getDataLayout());
  if (llvm::Linker::linkModules(module, std::move(*library),
                                llvm::Linker::LinkOnlyNeeded))
    return emitError(loc, "cannot link ") << toolkit.libdevice;
  for (llvm::Function &function : module)
    if (!function.isDeclaration() && function.getName().starts_with("__")) {
      function.setLinkage(llvm::GlobalValue::InternalLinkage);
      function.removeFnAttr(llvm::Attribute::NoInline);
      function.addFnAttr(llvm::Attribute::AlwaysInline);
    }
  return true;
}

constexpr llvm::StringLiteral kPasses =
    "nvvm-reflect,always-inline,globaldce,"
    "function(sroa,early-cse<memssa>,instcombine<no-verify-fixpoint>,"
    "simplifycfg,loop-mssa(licm),indvars,loop-unroll<O2>,early-cse<memssa>,"
    "instcombine<no-verify-fixpoint>,gvn,simplifycfg,"
    "instcombine<no-verify-fixpoint>),globaldce";

/// Blocks of more than a warp and up to so many threads fit several times
/// without spills, if their kernel does not say otherwise.
constexpr int64_t kOrdinaryThreads = 256;

namespace {
/// Launch bounds of a kernel.
struct Bounds {
  int64_t threads, leastBlocks; ///< 0: as ptxas likes
};
} // namespace

/// Taken off the kernels' functions.
static std::map<std::string, Bounds> takeBounds(ModuleOp device) {
  std::map<std::string, Bounds> bounds;
  for (auto function : device.getOps<func::FuncOp>())
    if (auto threads = function->getAttrOfType<IntegerAttr>(kThreadsAttr)) {
      const int64_t count = threads.getInt();
      // Left alone, ptxas spills registers so that more large blocks fit, or
      // more of a warp than their shared memory lets in (attention in f32).
      int64_t least = count > kOrdinaryThreads || count <= kWarp;
      if (auto said = function->getAttrOfType<IntegerAttr>(kLeastBlocksAttr))
        least = said.getInt();
      bounds[function.getName().str()] = {count, least};
      function->removeAttr(kThreadsAttr);
      function->removeAttr(kLeastBlocksAttr);
    }
  return bounds;
}

FailureOr<std::string> cuda::compileToPtx(ModuleOp device,
                                          const Toolkit &toolkit, bool wantsPtx,
                                          std::string *llvmText) {
  Location loc = device.getLoc();
  const std::map<std::string, Bounds> bounds = takeBounds(device);
  auto machine = createMachine(loc);
  if (failed(machine) || failed(native::lowerToLlvm(device)))
    return failure();
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> code =
      translateModuleToLLVMIR(device, context, "kernels");
  if (!code)
    return failure();
  code->setTargetTriple((*machine)->getTargetTriple());
  code->setDataLayout((*machine)->createDataLayout());
  for (const auto &[name, bound] : bounds) {
    llvm::Function *kernel = code->getFunction(name);
    kernel->setCallingConv(llvm::CallingConv::PTX_Kernel);
    kernel->addFnAttr("nvvm.maxntid", std::to_string(bound.threads));
    if (bound.leastBlocks)
      kernel->addFnAttr("nvvm.minctasm", std::to_string(bound.leastBlocks));
    kernel->addFnAttr(llvm::Attribute::NoUnwind);
  }
  native::optimize(*code, **machine, kPasses);
  if (llvmText) {
    llvm::raw_string_ostream os(*llvmText);
    code->print(os, nullptr);
  }
  if (!wantsPtx)
    return std::string();
  FailureOr<bool> linked = linkLibdevice(loc, *code, toolkit);
  if (failed(linked))
    return failure();
  if (*linked)
    native::optimize(*code, **machine, kPasses);
  llvm::SmallVector<char, 0> text;
  llvm::raw_svector_ostream os(text);
  llvm::legacy::PassManager emit;
  if ((*machine)->addPassesToEmitFile(emit, os, nullptr,
                                      llvm::CodeGenFileType::AssemblyFile))
    return emitError(loc, "this LLVM writes no PTX");
  emit.run(*code);
  return std::string(text.begin(), text.end());
}

[[noreturn]] static void cannotMake(const std::string &why) {
  throw Failure(Exit::CannotWrite,
                "cannot write a temporary file: " + why +
                    "; ptxas needs one: set TMPDIR to a folder where this user "
                    "may write");
}

/// For one call of ptxas.
static std::unique_ptr<ScratchFolder> temporaryFolder() {
  try {
    return std::make_unique<ScratchFolder>(
        std::filesystem::temp_directory_path().string(), "pipec-cuda");
  } catch (const std::filesystem::filesystem_error &error) {
    cannotMake(error.code().message());
  } catch (const Failure &failure) {
    cannotMake(failure.what());
  }
}

static std::string textOf(const std::string &path) {
  auto buffer = llvm::MemoryBuffer::getFile(path);
  return buffer ? (*buffer)->getBuffer().str() : std::string();
}

FailureOr<std::string> cuda::assemble(Location loc, const std::string &ptx,
                                      int chip, const Toolkit &toolkit,
                                      std::string &report) {
  const std::unique_ptr<ScratchFolder> folder = temporaryFolder();
  const std::string input = *folder / "kernels.ptx",
                    output = *folder / "kernels.cubin", log = *folder / "log";
  {
    std::error_code error;
    llvm::raw_fd_ostream os(input, error);
    os << ptx;
    os.close();
    if (error || os.has_error()) {
      os.clear_error();
      cannotMake(input);
    }
  }
  std::string architecture = "-arch=sm_" + std::to_string(chip);
  StringRef arguments[] = {toolkit.ptxas, architecture, "-v",
                           input,         "-o",         output};
  std::optional<StringRef> redirects[] = {StringRef(""), StringRef(log),
                                          StringRef(log)};
  std::string error;
  int code = llvm::sys::ExecuteAndWait(toolkit.ptxas, arguments, std::nullopt,
                                       redirects, 0, 0, &error);
  std::string text = textOf(log);
  if (code != 0)
    return emitError(loc, "ptxas failed: ")
           << (text.empty() ? error : StringRef(text).trim().str());
  report += text;
  return textOf(output);
}
