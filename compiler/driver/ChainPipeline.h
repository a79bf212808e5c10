//===- ChainPipeline.h - little models that are run -------------*- C++ -*-===//
//
// What ranks cost each other, their runs tell: `pipec` compiles a chain of
// products for some ranks of this machine, and the pipec-run that lies beside
// it runs it as any plan is run.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "support/ScratchFolder.h"

#include <string>

namespace pipec {

class ChainPipeline {
public:
  static constexpr int kWidth = 64, kMicrobatches = 8;

  /// The contents of the files.
  struct Run {
    std::string plan, trace, profile;
  };

  /// Every run is the one of the shortest step of so many.
  explicit ChainPipeline(int repeats);

  struct Shape {
    int ranks = 0, products = 0; ///< of a rank
    int rows = 0;
  };

  /// So many steps of 1F1B, a stage a rank of one thread; between stages go
  /// rows x kWidth floats a microbatch.
  /// Failure(Exit::Unavailable) says what cannot be run here.
  Run run(const Shape &shape, int steps) const;

private:
  const ScratchFolder scratch;
  const int repeats;
};

} // namespace pipec
