//===- Ranks.h - the ranks that live in this process ------------*- C++ -*-===//
#pragma once

#include "runtime/program/Plan.h"
#include "runtime/run/Options.h"
#include "runtime/transport/Transport.h"
#include "support/CommandLine.h"
#include "support/ErrorText.h"
#include "support/Failure.h"

namespace pipec {

/// All ranks as threads of this process. Prints one line for each failure.
Exit runThreads(const plan::Plan &plan, const RunOptions &options,
                const TransportRow &row);

/// This process is one rank of a job that a launcher has started. Does not
/// return when the job fails: the process then exits without the transport's
/// farewell, which would wait for lost peers.
Exit runJoined(const plan::Plan &plan, const RunOptions &options,
               const TransportRow &row);

/// Starts the ranks as processes on this machine and watches over them. `argv`
/// is the command line to give them.
Exit runLocalJob(const plan::Plan &plan, const RunOptions &options,
                 const TransportRow &row, char **argv);

/// The variable that tells a started process where its launcher listens.
constexpr const char *kControlVariable = "PIPEC_CONTROL";

/// Sets how many threads share this thread's loops: --threads, OMP_NUM_THREADS,
/// or the rank's share of the machine's cores.
void chooseThreads(const plan::Plan &plan, const RunOptions &options, int rank);

/// Keeps this thread, which runs a rank of a single thread, to one core where
/// its machine has twice as many ranks as cores, or three times as many …: the
/// same ranks take turns in every step then, as the planner has it
/// (plan/RankCores.h), and steps take equally long. Left to the system they do
/// not (PIPEC_RANK_CORES=free). For ranks that may all run on the same cores.
void takeOwnCore(const plan::Plan &plan, int rank);

int threadsOfThisRank();

/// "pipec-run: error: …" on stderr, or JSON where it was asked for.
void complain(const Failure &failure);
/// "pipec-run: note: MESSAGE" on stderr. Where JSON was asked for it waits: for
/// complain(), whose object has it, or for sayRemarks().
void remark(const std::string &message);
/// Remarks that no error of this process has followed. Not where JSON was asked
/// for and `code` is that of an error, which another one has said.
void sayRemarks(Exit code);
/// What all ranks have agreed on, which may be to stop as they were asked.
void tellEnd(const Failure &agreed);
/// What a process finds wrong before it has met the others, all of its server
/// find wrong: the first of them says it.
void complainOnce(const Failure &failure);

} // namespace pipec
