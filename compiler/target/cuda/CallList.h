//===- CallList.h - the calls of a stage as a table ------------*- C++ -*-===//
//
// A line of columns between tabs for each call, in the order of the tasks: what
// a step does on a device, to be added up without one. Calls are named as
// PIPEC_CALL_TIMES names them.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/target/fusion/Plan.h"

#include <string>

namespace pipec::cuda {

class CallList {
public:
  /// Kernels have a shape; of a library's calls nobody knows it. `isHeld`: rows
  /// are read from memory once.
  void add(const fusion::TaskPlan &plan,
           llvm::ArrayRef<const fusion::Unit *> units, const std::string &call,
           int64_t blocks = 0, int64_t threads = 0, bool isHeld = false);
  /// Of a task, a call that sets so many bytes to zero.
  void addClear(const std::string &task, const std::string &call,
                int64_t blocks, int64_t threads, int64_t bytes);
  const std::string &text() const { return lines; }

private:
  std::string lines = "task\tcall\tblocks\tthreads\tread\twritten\twalks\t"
                      "flops\tops\tnodes\n";
};

} // namespace pipec::cuda
