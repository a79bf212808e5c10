//===- emulate-stages.cpp - kernels for the stand-in GPU ------------------===//
//
//   emulate-stages PIPE.mlir DIR
//
// PIPE.mlir is what `pipec --emit pipe` writes. Compiles each stage as pipec
// does, and the LLVM IR of its kernels for this machine: DIR/KEY.so for every
// image of the stage (PTX, cubins), with the key that the stand-in of libcuda
// looks for.
//
//===----------------------------------------------------------------------===//
#include "compiler/target/Target.h"
#include "dialects/nn/NN.h"
#include "dialects/pipe/Pipe.h"
#include "test/unit/target/DeviceCode.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Parser/Parser.h"

#include <cstdio>
#include <exception>
#include <filesystem>

using namespace mlir;
using namespace pipec;

static std::string keyOf(const std::string &image) {
  uint64_t hash = 14695981039346656037u; // FNV-1a
  for (char c : image)
    hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  char text[20];
  std::snprintf(text, sizeof text, "%016llx",
                static_cast<unsigned long long>(hash));
  return text;
}

static bool emulate(ModuleOp stage, const std::string &folder) {
  target::TargetOptions options;
  options.keepLlvm = true;
  target::StageCode code;
  if (failed(target::compileStage("cuda", stage, options, "", code)))
    return false;
  const std::string library = folder + "/" + keyOf(code.ptx) + ".so";
  if (!std::filesystem::exists(library)) // equal stages of other plans
    test::buildDeviceCode(code.llvm, library);
  for (auto &[chip, cubin] : code.cubins) {
    const std::string link = folder + "/" + keyOf(cubin) + ".so";
    std::error_code exists;
    std::filesystem::create_symlink(keyOf(code.ptx) + ".so", link, exists);
  }
  return true;
}

int main(int argc, char **argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: emulate-stages PIPE.mlir DIR\n");
    return 64;
  }
  MLIRContext context;
  context.loadDialect<nn::NNDialect, pipe::PipeDialect, func::FuncDialect>();
  auto module = parseSourceFile<ModuleOp>(argv[1], &context);
  if (!module)
    return 65;
  std::filesystem::create_directories(argv[2]);
  try {
    for (auto stage : module->getOps<ModuleOp>())
      if (!emulate(stage, argv[2]))
        return 65;
  } catch (const std::exception &error) {
    std::fprintf(stderr, "emulate-stages: %s\n", error.what());
    return 70;
  }
  return 0;
}
