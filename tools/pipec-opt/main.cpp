//===- main.cpp - pipec-opt: the passes alone -----------------------------===//
#include "compiler/target/cpu/Passes.h"
#include "compiler/target/cuda/Passes.h"
#include "compiler/target/fusion/Passes.h"
#include "dialects/nn/NN.h"
#include "dialects/pipe/Pipe.h"
#include "passes/Passes.h"
#include "support/Version.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "mlir/Transforms/Passes.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/raw_ostream.h"

int main(int argc, char **argv) {
  llvm::cl::SetVersionPrinter([](llvm::raw_ostream &out) {
    out << "pipec-opt " << pipec::kVersion << "\n";
  });
  mlir::DialectRegistry registry;
  registry.insert<mlir::func::FuncDialect, pipec::nn::NNDialect,
                  pipec::pipe::PipeDialect>();
  pipec::registerPipecPasses();
  pipec::cpu::registerCpuTargetPasses();
  pipec::cuda::registerCudaTargetPasses();
  pipec::fusion::registerFusionPasses();
  mlir::registerCanonicalizerPass();
  mlir::registerCSEPass();
  return mlir::asMainReturnCode(
      mlir::MlirOptMain(argc, argv, "pipec's passes\n", registry));
}
