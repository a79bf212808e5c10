//===- Codegen.cpp - LLVM dialect to an object file -----------------------===//
#include "compiler/target/native/Codegen.h"

#include "mlir/Target/LLVMIR/Export.h"
#include "llvm/Analysis/LoopAnalysisManager.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/MC/MCSubtargetInfo.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/SmallVectorMemoryBuffer.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/TargetParser/Host.h"

using namespace mlir;
using namespace pipec;

static std::string hostFeatures() {
  std::vector<std::string> features;
  for (const auto &feature : llvm::sys::getHostCPUFeatures())
    features.push_back((feature.second ? "+" : "-") + feature.first().str());
  llvm::sort(features);
  return llvm::join(features, ",");
}

/// No fast-math and no contraction: the written operations, in their order.
FailureOr<std::unique_ptr<llvm::TargetMachine>>
pipec::native::createMachine(Location loc, StringRef cpu) {
  llvm::InitializeNativeTarget();
  llvm::InitializeNativeTargetAsmPrinter();
  llvm::Triple triple(llvm::sys::getProcessTriple());
  std::string error;
  const llvm::Target *target =
      llvm::TargetRegistry::lookupTarget(triple, error);
  if (!target)
    return emitError(loc, "cannot generate code: ") << error;
  bool native = cpu == "native";
  std::string name = native ? llvm::sys::getHostCPUName().str() : cpu.str();
  std::unique_ptr<llvm::MCSubtargetInfo> known(
      target->createMCSubtargetInfo(triple, "", ""));
  if (!known || !known->isCPUStringValid(name))
    return emitError(loc, "unknown processor '") << name << "'";
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Strict;
  std::unique_ptr<llvm::TargetMachine> machine(target->createTargetMachine(
      triple, name, native ? hostFeatures() : "", options, llvm::Reloc::PIC_,
      std::nullopt, llvm::CodeGenOptLevel::Default));
  return machine;
}

/// Kernels are reached through tasks only; wide registers where there are any.
static void settleFunctions(llvm::Module &module) {
  for (llvm::Function &function : module) {
    if (function.isDeclaration())
      continue;
    function.addFnAttr("prefer-vector-width", "512");
    function.addFnAttr(llvm::Attribute::NoUnwind);
    if (!function.getName().starts_with("pipec_"))
      function.setLinkage(llvm::GlobalValue::InternalLinkage);
  }
}

void pipec::native::optimize(llvm::Module &module, llvm::TargetMachine &machine,
                             StringRef passes) {
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager graph;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder builder(&machine);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(graph);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, graph, modules);
  llvm::ModulePassManager pipeline;
  llvm::cantFail(builder.parsePassPipeline(pipeline, passes));
  pipeline.run(module, modules);
}

/// Translates, optimizes and compiles.
static FailureOr<std::string> compileToObject(ModuleOp module,
                                              llvm::TargetMachine &machine,
                                              std::string *llvmText) {
  Location loc = module.getLoc();
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> code =
      translateModuleToLLVMIR(module, context, "stage");
  if (!code)
    return failure();
  code->setTargetTriple(machine.getTargetTriple());
  code->setDataLayout(machine.createDataLayout());
  settleFunctions(*code);
  native::optimize(
      *code, machine,
      "function(sroa,early-cse<memssa>,instcombine<no-verify-fixpoint>,"
      "loop-mssa(licm),loop-reduce,gvn,simplifycfg)");
  if (llvmText) {
    llvm::raw_string_ostream os(*llvmText);
    code->print(os, nullptr);
  }
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream os(bytes);
  llvm::legacy::PassManager emit;
  if (machine.addPassesToEmitFile(emit, os, nullptr,
                                  llvm::CodeGenFileType::ObjectFile))
    return emitError(loc, "this processor has no object file writer");
  emit.run(*code);
  return std::string(bytes.begin(), bytes.end());
}

LogicalResult pipec::native::compileShared(ModuleOp module,
                                           llvm::TargetMachine &machine,
                                           const target::TargetOptions &options,
                                           std::string *llvmText,
                                           StringRef sharedObject,
                                           target::StageCode &result) {
  if (failed(lowerToLlvm(module)))
    return failure();
  FailureOr<std::string> object = compileToObject(module, machine, llvmText);
  if (failed(object))
    return failure();
  if (!sharedObject.empty() &&
      failed(linkShared(module.getLoc(), *object, sharedObject)))
    return failure();
  if (options.keepObject)
    result.object = std::move(*object);
  return success();
}
