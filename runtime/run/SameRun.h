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
#include <utility>
#include <vector>

namespace pipec {

/// What must be the same: a key, and how a message says it.
using RunFacts = std::vector<std::pair<std::string, std::string>>;

/// The plan, the options and the data, of which `data` has marks by input: the
/// shape and both ends of an array, not all of it. What each machine decides
/// for itself (threads, transport) and what rank 0 alone writes is left out.
RunFacts factsOf(const RunOptions &options,
                 const std::map<std::string, std::string> &data);

/// All ranks call it together. Agreed(Usage) names the first fact in which a
/// rank differs from rank 0, and both.
void expectSameRun(Council &council, const plan::Plan &plan,
                   const RunFacts &facts);

} // namespace pipec
