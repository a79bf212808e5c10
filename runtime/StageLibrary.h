//===- StageLibrary.h - a compiled stage, loaded ----------------*- C++ -*-===//
#pragma once

#include "runtime/StageAbi.h"
#include "runtime/program/Plan.h"

#include <string>

namespace pipec {

/// The functions of stages/stageK.so. Libraries stay loaded until the process
/// ends; pipec_load runs once per process.
struct StageLibrary {
  PipecTask forward = nullptr, backward = nullptr, backwardInput = nullptr,
            backwardWeight = nullptr, update = nullptr, track = nullptr;
  void *handle = nullptr; ///< of dlopen
  std::string path;

  /// The function of a task kind (F, B, I, W).
  PipecTask task(char kind) const {
    return kind == 'F'   ? forward
           : kind == 'B' ? backward
           : kind == 'I' ? backwardInput
                         : backwardWeight;
  }

  /// Failure(BadPlan) when the file is missing, has another digest than the
  /// plan says, does not load, has another ABI version or lacks a function that
  /// the plan says it has.
  static StageLibrary open(const std::string &planFolder,
                           const plan::Stage &stage, bool trains);
};

} // namespace pipec
