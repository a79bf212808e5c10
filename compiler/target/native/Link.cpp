//===- Link.cpp - an object to a shared object ----------------------------===//
#include "compiler/target/native/Codegen.h"

#include "support/OutputFile.h"

#include "mlir/IR/Diagnostics.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/raw_ostream.h"

#include <cerrno>
#include <filesystem>

using namespace mlir;

/// Was there no room for what the linker was to write? It says so in words of
/// its own, or ends by a signal.
static void checkRoom(const std::string &output, size_t bytes) {
  std::error_code error;
  const auto folder = std::filesystem::path(output).parent_path();
  const auto space = std::filesystem::space(folder, error);
  if (!error && space.available < 2 * bytes + (1 << 16))
    pipec::cannotWrite(output, ENOSPC);
}

/// ld.lld beside LLVM's tools, else on PATH.
static std::string findLinker() {
  for (StringRef name : {"ld.lld-22", "ld.lld"}) {
    if (auto path = llvm::sys::findProgramByName(name, {PIPEC_LLVM_TOOLS}))
      return *path;
    if (auto path = llvm::sys::findProgramByName(name))
      return *path;
  }
  return "";
}

LogicalResult pipec::native::linkShared(Location loc, StringRef object,
                                        StringRef path) {
  std::string linker = findLinker();
  if (linker.empty())
    return emitError(loc, "ld.lld was not found; install the package lld-22");
  // Beside the output: what a killed compile leaves goes with its folder.
  const std::string input = path.str() + ".o", log = path.str() + ".log";
  llvm::FileRemover removeInput(input), removeLog(log);
  {
    pipec::OutputFile file(input, path.str());
    file.write(object.data(), static_cast<int64_t>(object.size()));
  }
  std::string output = path.str();
  StringRef arguments[] = {linker,
                           "-shared",
                           "--build-id=none",
                           "--hash-style=gnu",
                           "-z",
                           "noexecstack",
                           "-o",
                           output,
                           input};
  std::optional<StringRef> redirects[] = {StringRef(""), StringRef(log),
                                          StringRef(log)};
  std::string error;
  int code = llvm::sys::ExecuteAndWait(linker, arguments, std::nullopt,
                                       redirects, 0, 0, &error);
  if (code == 0)
    return success();
  checkRoom(output, object.size());
  auto text = llvm::MemoryBuffer::getFile(log);
  return emitError(loc, "linking ")
         << output << " failed: "
         << (text ? (*text)->getBuffer().trim() : StringRef(error));
}
