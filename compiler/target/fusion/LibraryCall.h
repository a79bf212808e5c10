//===- LibraryCall.h - ops that a library computes -------------*- C++ -*-===//
//
// By descriptors of runtime/kernels/cpu/Kernels.h, on GPUs as well.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/target/fusion/View.h"
#include "mlir/Support/LLVM.h"
#include <string>

namespace pipec::fusion {

/// One call of the kernel library.
struct LibraryCall {
  std::string function;
  /// The bytes of the descriptor struct. Variable when loading fills a field.
  std::string descriptor;
  bool prepared = false;
  int32_t prepareKind = 0;
  /// Positions in (operands, results); -1 is the scratch buffer. Null when the
  /// place has no buffer.
  llvm::SmallVector<int> arguments;
  /// The first result is cleared before the call.
  bool clears = false;
};

/// `places`: operands, then results.
mlir::FailureOr<LibraryCall> libraryCall(mlir::Operation *op,
                                         llvm::ArrayRef<Placement> places,
                                         bool accumulate);

/// Bytes of scratch the op's call needs.
mlir::FailureOr<int64_t> libraryScratch(mlir::Operation *op);

/// The descriptor of a strided copy.
std::string copyDescriptor(llvm::ArrayRef<int64_t> shape, const Placement &from,
                           const Placement &to, int64_t elementBytes);

} // namespace pipec::fusion
