//===- Transport.h - messages between ranks ---------------------*- C++ -*-===//
//
// A transport moves bytes between ranks without blocking. Everything else
// (when to post, what to wait for, watchdogs) is common code above it.
//
// Adding one: a file here and a row in transports.def; the conformance suite
// (test/unit/runtime/transport) runs over every row.
//
//===----------------------------------------------------------------------===//
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace pipec {

class Doorbell;

/// A transfer under way; kNoRequest when there is none.
using Request = int32_t;
constexpr Request kNoRequest = -1;

/// One rank's end. Used by one thread at a time.
///
/// Messages from one rank to another with the same tag are received in the
/// order they are sent; receive and send of a message have the same size, any
/// size. Buffers stay untouched until the transfer is done. A send may not be
/// done before its receive is posted.
class Transport {
public:
  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  virtual Request send(int to, int tag, const void *data, int64_t bytes) = 0;
  virtual Request receive(int from, int tag, void *data, int64_t bytes) = 0;

  /// True once the transfer is done; the request is then kNoRequest. True for
  /// kNoRequest. Makes progress on all transfers.
  virtual bool done(Request &request) = 0;

  /// Takes back a receive that nobody will send to. The request is then
  /// kNoRequest.
  virtual void cancel(Request &request) = 0;

  /// Wakes this rank up when a transfer may be done; null: it has to look.
  virtual const Doorbell *bell() const { return nullptr; }

  /// Ends the connection in good order; all ranks call it.
  virtual void close() = 0;

  /// The job fails: from now on no transfer touches this process's memory.
  /// Called by any thread.
  virtual void abandon() {}
};

class Fuse;

/// Where what a transport starts may leave files: they go away with the job.
struct LaunchFolders {
  std::string disk, memory; ///< empty: wherever it likes
};

/// What the ranks of a job agree on before they connect.
struct Meeting {
  int ranks = 1;       ///< of the plan
  double seconds = 60; ///< to wait for the others
  uint64_t job = 0;    ///< the same in all processes of a job, if in any
  bool quiet = false;  ///< no note about others that are late
  /// Lit where nobody else ends this process when others do not come; burns on
  /// when they have.
  std::optional<Fuse> *fuse = nullptr;
};

/// A row of transports.def.
struct TransportRow {
  std::string name, summary;
  /// The ends of all ranks that live in this process: all of them, or this
  /// process's own. Failure(Unavailable) when it cannot connect.
  std::vector<std::unique_ptr<Transport>> (*open)(const Meeting &meeting);
  /// This process's rank, when a launcher has started it as one of a job that
  /// this transport can join; none for a transport whose ranks are threads.
  /// Failure(Usage) when what the launcher says makes no sense, or is half of
  /// it. `named`: the command line asks for this very transport.
  std::optional<int> (*joined)(bool named);
  /// The command that starts `ranks` processes on this machine, to be followed
  /// by the program and its arguments; empty when the ranks are threads.
  std::vector<std::string> (*launch)(int ranks, const LaunchFolders &folders);
};

const std::vector<TransportRow> &transports();

/// Failure(Usage) lists the names there are.
const TransportRow &transportNamed(const std::string &name);

/// What a launcher says in an environment variable; none when it is not set.
/// Failure(Usage) for anything but a whole number of 0 or more.
std::optional<int> integerVariable(const char *name);

/// Tags: an edge's id for what travels on it; from here on the runtime's own.
enum Tag : int {
  kTagReduce = 1 << 20, ///< + stage
  kTagTie = kTagReduce + (1 << 15),
  kTagStats, ///< batch statistics between replicas
  kTagLoss,
  kTagVerdict, ///< whether an update stands, to the rank before
  kTagNorm,
  kTagPrefix, ///< norms of this rank and those before, to the next
  kTagGather, ///< tensors to rank 0, for files
  kTagReport, ///< figures to rank 0
  kTagHalt,   ///< rank 0 to all in a stream: the last microbatch
  kTagHaltAck,
  kTagLinks,  ///< how GPUs find each other
  kTagOutput, ///< + output; the last tags
};

} // namespace pipec
