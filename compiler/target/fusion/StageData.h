//===- StageData.h - what a stage has once ---------------------*- C++ -*-===//
#pragma once

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinAttributes.h"

#include <map>
#include <string>

namespace pipec::fusion {

/// The kernels of a stage. Of equal ones only the first stays.
class KernelTable {
public:
  /// An equal function that came earlier, then `function` is erased; or else
  /// `function`.
  mlir::func::FuncOp unique(mlir::func::FuncOp function);
  int count() const { return known.size(); }

private:
  std::multimap<size_t, mlir::func::FuncOp> known; // by structure
};

/// Little-endian elements in row-major order; i1 takes a byte an element.
std::string constantBytes(mlir::ElementsAttr value);

} // namespace pipec::fusion
