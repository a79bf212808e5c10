//===- Failure.h - one error a user can act on ------------------*- C++ -*-===//
//
// Plain libraries (schedule, plan, runtime) report a user's mistake or a broken
// environment by throwing Failure; the mains catch it, print one line to stderr
// and exit with its code. MLIR code reports through diagnostics instead and the
// driver turns them into the same codes.
//
//===----------------------------------------------------------------------===//
#pragma once

#include <stdexcept>
#include <string>

namespace pipec {

/// Process exit codes (the documented surface; README "Exit codes").
enum class Exit : int {
  Ok = 0,
  Usage = 64,       ///< unknown flag, impossible value
  BadModel = 65,    ///< model or data malformed, unsupported or inconsistent
  NoInput = 66,     ///< an input file is missing or unreadable
  Unavailable = 69, ///< no such device or transport, peer unreachable
  Internal = 70,    ///< a bug in pipec
  CannotWrite = 73, ///< an output could not be written
  Stopped = 75,     ///< stopped on request after a checkpoint
  PeerLost = 76,    ///< a peer died or stopped answering
  BadNumbers = 77,  ///< NaN/Inf loss, or --verify failed
  BadPlan = 78,     ///< bad plan, cluster, stage or checkpoint file
  NoFit = 79,       ///< nothing fits in memory
};

/// An error with its exit code. The message names the place and the remedy.
class Failure : public std::runtime_error {
public:
  Failure(Exit code, const std::string &message)
      : std::runtime_error(message), code(code) {}
  const Exit code;
};

} // namespace pipec
