//===- Verifier.h - independent proof of a schedule -------------*- C++ -*-===//
//
// Trusts nothing a generator says. Shares no code with the generators or the
// simulator.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/schedule/Costs.h"
#include "compiler/schedule/Schedule.h"

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace pipec::schedule {

enum class Rule {
  Shape,      ///< stage, microbatch or device out of range, malformed placement
  Missing,    ///< a task that must exist does not
  Duplicate,  ///< a task exists twice
  Device,     ///< a task on a device that does not hold it
  Dependency, ///< on one device a task stands before one it depends on
  Deadlock,   ///< devices wait for each other in a cycle
  Buffers,    ///< bounded receive buffers make the programs wait for ever
  Fifo,       ///< a pair's messages are taken in another order than sent
  Memory,     ///< a device exceeds its limit
  Version,    ///< a weight version is read before it exists or after it is gone
};
const char *toString(Rule rule);

/// A broken rule, the action that breaks it and where it stands.
struct Violation {
  Rule rule;
  int device = -1;   ///< -1: none in particular
  int position = -1; ///< index in order[device], -1: none in particular
  std::string message;
};

/// Which weight version each pass reads and when versions appear; see
/// compiler/strategy for the named ones.
struct VersionRule {
  /// Version read by the forward / backward of `microbatch` at `stage`.
  std::function<int(int stage, int microbatch)> phi, beta;
  /// An update of `stage` follows each `updateEvery[stage]` backwards in it
  /// (over all its copies).
  std::vector<int> updateEvery;
  /// How many versions of `stage` are kept at once.
  std::function<int(int stage)> versions;
};

enum class MessageOrder {
  Any,     ///< the transport matches each message
  PerEdge, ///< those of a directed pair over one stage boundary
  PerPair, ///< all of a directed pair
};

struct VerifyOptions {
  /// Checks memory against costs.limit when given.
  const Costs *costs = nullptr;
  std::optional<VersionRule> versions;
  /// Messages a directed pair of devices can hold before the consumer takes
  /// them; sends block when it is full. -1: not checked. 0: rendezvous.
  int buffers = -1;
  /// Which messages must be taken in the order they were sent.
  MessageOrder messages = MessageOrder::Any;
  std::size_t most = 20; ///< stop after that many violations
};

/// Empty when the schedule is right.
std::vector<Violation> verify(const Schedule &schedule,
                              const VerifyOptions &options = {});

/// The smallest `buffers` with which the send/recv programs finish; -1 when
/// they deadlock whatever the bound.
int buffersNeeded(const Schedule &schedule);

/// Throws Failure(BadPlan) with the first violation, if any.
void verifyOrThrow(const Schedule &schedule, const VerifyOptions &options = {});

} // namespace pipec::schedule
