//===- SameRun.h - all ranks run the same ----------------------*- C++ -*-===//
//
// Under mpirun, Slurm or Kubernetes every rank has a command line of its own,
// and files of its machine. Where these differ stages of one run would train on
// samples of another, without a word.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "runtime/exec/Council.h"
#include "runtime/run/Options.h"

#include <map>
#include <string>

namespace pipec {

/// All ranks call it together, before the first step. `data`: marks of the
/// arrays, by input; `resumed`: a mark of the checkpoint, or empty. What each
/// machine decides for itself (threads, transport) and what rank 0 alone writes
/// may differ. Agreed(Usage) names the first option, array or checkpoint in
/// which a rank differs from rank 0, and both.
void expectSameRun(Council &council, const plan::Plan &plan,
                   const RunOptions &options,
                   const std::map<std::string, std::string> &data,
                   const std::string &resumed);

} // namespace pipec
