//===- StashSlots.h - what tasks of a stage keep for each other -*- C++ -*-===//
#pragma once

#include "dialects/pipe/Pipe.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/SmallVector.h"

#include <map>
#include <string>

namespace pipec::fusion {

/// One place of a region that only tasks of this stage write and read.
struct StashSlot {
  llvm::SmallVector<pipe::StoreOp> stores;
  llvm::SmallVector<pipe::LoadOp> loads;

  /// Written whole at one place of the program, side by side, and read so.
  bool isPlain() const;
};

/// By region and offset; not what another stage reads as it is.
using StashSlots = std::map<std::pair<std::string, int64_t>, StashSlot>;
StashSlots stashSlots(mlir::ModuleOp stage);

/// Lets a plain slot's store keep its value behind copies of `views`, one after
/// the other; what it keeps from then on. Its loads are the caller's to change.
mlir::Value storeBehind(StashSlot &slot,
                        llvm::ArrayRef<mlir::Operation *> views);

} // namespace pipec::fusion
