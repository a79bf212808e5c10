//===- Nccl.cpp - GPUs of ranks that are processes ------------------------===//
//
// One communicator of all ranks, made once; its id travels over the transport
// that connects the processes. A group of messages is one group of NCCL's on
// the communication stream.
//
//===----------------------------------------------------------------------===//
#include "runtime/device/cuda/Nccl.h"
#include "runtime/device/cuda/Library.h"
#include "runtime/device/cuda/Links.h"
#include "runtime/device/cuda/Recorded.h"

#include "support/Clock.h"
#include "support/Environment.h"

#include <atomic>
#include <cstring>
#include <fstream>
#include <mutex>
#include <unistd.h>

namespace pipec {
namespace {

using namespace cuda;
using namespace nccl;

/// A peer's end is also told by those who watch it, in better words.
constexpr double kOthersTell = 3;

#define ENTRIES "runtime/device/cuda/Nccl.def"
#include "runtime/device/cuda/Entries.inc"

const Entries &entries() {
  static const Entries loaded(
      "NCCL", "NCCL_DEBUG=WARN", {"libnccl.so.2"},
      "install NCCL (pip install nvidia-nccl-cu13) and name its folder in "
      "LD_LIBRARY_PATH, or run all ranks in one process: --transport inproc");
  return loaded;
}

std::string meaningOf(int result) {
  auto *text = entries().findIfThere<StatusText>("ncclGetErrorString");
  auto *more = entries().findIfThere<LastErrorOf>("ncclGetLastError");
  const char *last = more ? more(nullptr) : nullptr;
  std::string meaning = text ? text(result) : "";
  if (last && last[0])
    meaning += (meaning.empty() ? "" : ": ") + std::string(last);
  return meaning;
}

void check(int result, const char *what) {
  if (result && result != kInProgress)
    entries().fail(result, what, meaningOf(result));
}

/// Two machines may have the same name, and the same bus ids; what the kernel
/// has drawn when it began is each one's own. Empty where it says nothing.
std::string bootId() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

/// Tests alone ask for that: NCCL itself refuses it unless it is told that the
/// ranks are on different machines (NCCL_HOSTID).
bool mayShareGpus() { return isWished("PIPEC_NCCL_ONE_GPU", "1"); }

/// Which GPU of which machine a rank has, and why it cannot be connected.
struct Place {
  char machine[192];
  char boot[64];
  char bus[32];
  int code;
  char wrong[800];
};

class Nccl : public Links {
public:
  explicit Nccl(const LinksRequest &request)
      : transport(*request.transport), cuda(Driver::get()) {}

  ~Nccl() override {
    for (GraphExec graph : graphs)
      cuda.destroyGraphExec(graph);
    // Who has failed leaves without an end of this object, or has abandoned.
    void *mine = communicator.exchange(nullptr);
    if (!mine)
      return;
    Operation now = meeting(-1); // NCCL waits for the others
    now.what = "waiting to disconnect the GPUs";
    now.waiting = true;
    watching->enter(now);
    entries().destroy(mine);
  }

  int deviceOf(const plan::Rank &rank) const override { return rank.device; }

  void attach(Context, int device, Stream ownCompute, Stream ownCommunication,
              Watch &watch) override {
    compute = ownCompute, communication = ownCommunication;
    watching = &watch;
    // What a rank lacks all have to know, or they would wait for it.
    UniqueId id{};
    Place mine{};
    try {
      const Entries &nccl = entries();
      if (transport.rank() == 0)
        check(nccl.uniqueId(&id), "ncclGetUniqueId");
      gethostname(mine.machine, sizeof mine.machine - 1);
      bootId().copy(mine.boot, sizeof mine.boot - 1);
      cuda.check(cuda.busId(mine.bus, sizeof mine.bus, device),
                 "cuDeviceGetPCIBusId");
    } catch (const Failure &failure) {
      setWrong(mine, failure);
    }
    checkPlaces(mine, watch);
    tell(&id, sizeof id, watch);
    void *made = nullptr;
    // Who comes first waits for the others: when nobody goes on that is a
    // standstill as any other.
    const Operation before = watch.snapshot().operation;
    Operation now = meeting(-1);
    now.waiting = true;
    watch.enter(now);
    try { // returns when all ranks have come, and they hear of nothing else
      check(entries().init(&made, transport.size(), id, transport.rank()),
            "ncclCommInitRank");
    } catch (const Failure &failure) {
      throw Unattended(failure.code, failure.what());
    }
    communicator = made;
    watch.enter(before);
  }

  void decline(const Failure &failure, Watch &watch) override {
    Place mine{};
    setWrong(mine, failure);
    checkPlaces(mine, watch);
  }

  void exchange(const std::vector<Message> &messages,
                const Operation &) override {
    const Entries &nccl = entries();
    void *mine = communicator;
    check(nccl.groupStart(), "ncclGroupStart");
    for (const Message &message : messages) {
      const auto bytes = static_cast<size_t>(message.bytes);
      check(message.sending ? nccl.send(message.data, bytes, kBytes,
                                        message.peer, mine, communication)
                            : nccl.receive(message.data, bytes, kBytes,
                                           message.peer, mine, communication),
            message.sending ? "ncclSend" : "ncclRecv");
    }
    check(nccl.groupEnd(), "ncclGroupEnd");
  }

  void beginCapture() override {
    cuda.check(cuda.beginCapture(compute, kRelaxed), "cuStreamBeginCapture");
  }
  void endCapture() override {
    graphs.push_back(cuda::endCapture(cuda, compute));
  }
  void replay(int part) override {
    cuda.check(cuda.launchGraph(graphs[static_cast<size_t>(part)], compute),
               "cuGraphLaunch");
  }

  void checkPeers() override {
    // Not of a communicator that another thread is about to abort.
    const std::unique_lock lock(abandoning, std::try_to_lock);
    void *mine = communicator;
    if (!lock || !mine)
      return;
    int result = 0;
    check(entries().asyncError(mine, &result), "ncclCommGetAsyncError");
    if (result == 0 || result == kInProgress)
      return;
    if (result != kRemoteError)
      check(result, "a message");
    if (failedAt == 0)
      failedAt = now();
    if (now() > failedAt + kOthersTell)
      throw Failure(Exit::PeerLost,
                    "NCCL has lost a peer: " + meaningOf(result) +
                        "; NCCL_DEBUG=WARN says more");
  }

  void abandon() override {
    const std::lock_guard lock(abandoning);
    if (void *mine = communicator.exchange(nullptr))
      entries().abort(mine);
  }

private:
  static Operation meeting(int peer) {
    Operation operation;
    operation.what = "waiting to connect the GPUs";
    operation.peer = peer;
    return operation;
  }

  /// Rank 0's bytes reach all ranks.
  void tell(void *data, int64_t bytes, Watch &watch) {
    if (transport.rank() != 0) {
      Request request = transport.receive(0, kTagLinks, data, bytes);
      return watch.wait(transport, request, meeting(0));
    }
    for (int rank = 1; rank < transport.size(); ++rank) {
      Request request = transport.send(rank, kTagLinks, data, bytes);
      watch.wait(transport, request, meeting(rank));
    }
  }

  static void setWrong(Place &mine, const Failure &failure) {
    mine.code = static_cast<int>(failure.code);
    std::string(failure.what()).copy(mine.wrong, sizeof mine.wrong - 1);
  }

  /// NCCL takes a GPU for each rank. The same failure on all ranks.
  void checkPlaces(const Place &mine, Watch &watch) {
    std::vector<Place> places(static_cast<size_t>(transport.size()));
    places[0] = mine;
    if (transport.rank() != 0) {
      Request request = transport.send(0, kTagLinks, &mine, sizeof mine);
      watch.wait(transport, request, meeting(0));
    } else {
      for (int rank = 1; rank < transport.size(); ++rank) {
        Request request =
            transport.receive(rank, kTagLinks, &places[rank], sizeof mine);
        watch.wait(transport, request, meeting(rank));
      }
    }
    tell(places.data(), static_cast<int64_t>(places.size() * sizeof mine),
         watch);
    for (const Place &place : places)
      if (place.wrong[0])
        throw Failure(static_cast<Exit>(place.code), place.wrong);
    for (size_t a = 0; a < places.size() && !mayShareGpus(); ++a)
      for (size_t b = 0; b < a; ++b)
        if (std::memcmp(&places[a], &places[b], sizeof mine) == 0)
          throw Failure(Exit::Unavailable,
                        "ranks " + std::to_string(b) + " and " +
                            std::to_string(a) + " have the same GPU of " +
                            places[a].machine +
                            ": there are too few of them, and processes "
                            "cannot share one; run all ranks in one process "
                            "(--transport inproc), or on more GPUs");
  }

  Transport &transport;
  const Driver &cuda;
  Stream compute = nullptr, communication = nullptr;
  std::atomic<void *> communicator{nullptr};
  std::mutex abandoning;
  Watch *watching = nullptr; ///< since attach()
  double failedAt = 0;       ///< on the clock, when a peer was found lost
  std::vector<GraphExec> graphs;
};

} // namespace

std::vector<std::unique_ptr<Links>> openNccl(const LinksRequest &request) {
  std::vector<std::unique_ptr<Links>> ends;
  ends.push_back(std::make_unique<Nccl>(request));
  return ends;
}

} // namespace pipec
