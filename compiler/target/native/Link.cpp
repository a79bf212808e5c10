//===- Link.cpp - an object to a shared object ----------------------------===//
#include "compiler/target/native/Codegen.h"

#include "mlir/IR/Diagnostics.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;

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
  llvm::SmallString<128> input, log;
  int fd;
  if (auto error =
          llvm::sys::fs::createTemporaryFile("pipec-stage", "o", fd, input))
    return emitError(loc, "cannot write a temporary file: ") << error.message();
  llvm::FileRemover removeInput(input);
  {
    llvm::raw_fd_ostream os(fd, /*shouldClose=*/true);
    os << object;
    os.flush();
    if (os.has_error()) {
      std::string why = os.error().message();
      os.clear_error();
      return emitError(loc, "cannot write ") << input << ": " << why;
    }
  }
  if (auto error = llvm::sys::fs::createTemporaryFile("pipec-link", "log", log))
    return emitError(loc, "cannot write a temporary file: ") << error.message();
  llvm::FileRemover removeLog(log);
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
  auto text = llvm::MemoryBuffer::getFile(log);
  return emitError(loc, "linking ")
         << output << " failed: "
         << (text ? (*text)->getBuffer().trim() : StringRef(error));
}
