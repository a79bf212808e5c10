//===- Processor.cpp - names of processors that code is made for ----------===//
#include "compiler/target/native/Processor.h"

#include "support/Failure.h"
#include "support/UnknownName.h"

#include "llvm/ADT/SmallVector.h"
#include "llvm/TargetParser/X86TargetParser.h"

#include <algorithm>

void pipec::target::checkProcessor(const std::string &name) {
  llvm::SmallVector<llvm::StringRef> known;
  llvm::X86::fillValidCPUArchList(known, /*Only64Bit=*/true);
  std::vector<std::string> names = {"native"};
  for (const llvm::StringRef processor : known)
    names.push_back(processor.str());
  if (std::find(names.begin(), names.end(), name) == names.end())
    throw Failure(Exit::Usage,
                  "--target-cpu: " + unknownName("processor", name, names));
}
