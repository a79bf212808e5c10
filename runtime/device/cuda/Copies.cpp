//===- Copies.cpp - GPUs of ranks that are threads of one process ---------===//
//
// The receiver's stream copies, once the sender's stream has come to the event
// that came with the message; the sender's stream goes on after the receiver's
// has come to the event behind the copy. The ranks may share a GPU. A part of a
// step is recorded as one graph for all of them: rank 0's compute stream begins
// and ends it, the others' are joined to it by events. The driver does not
// promise that several threads may add to one graph: they take turns, and hand
// the turn on while they wait for each other.
//
//===----------------------------------------------------------------------===//
#include "runtime/device/cuda/Links.h"
#include "runtime/device/cuda/Recorded.h"

#include <atomic>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <tuple>

namespace pipec {
namespace {

using namespace cuda;

/// Of a context, without timing.
using SharedEvent = std::shared_ptr<EventHandle>;

SharedEvent makeEvent() {
  const Driver &cuda = Driver::get();
  Event event = nullptr;
  cuda.check(cuda.createEvent(&event, kNoTiming), "cuEventCreate");
  return {event, [](Event old) { Driver::get().destroyEvent(old); }};
}

/// A message that is ready for its receiver, and what that answers.
struct Post {
  const char *data;
  Context context;
  SharedEvent ready;
  SharedEvent taken; ///< set by the receiver
  std::atomic<bool> answered{false};
};

class Hub {
public:
  explicit Hub(int ranks) : ranks(ranks) {}

  void put(int from, int to, int tag, std::shared_ptr<Post> post) {
    std::lock_guard lock(mutex);
    queues[{from, to, tag}].push_back(std::move(post));
  }
  /// Null when there is none yet.
  std::shared_ptr<Post> take(int from, int to, int tag) {
    std::lock_guard lock(mutex);
    auto &queue = queues[{from, to, tag}];
    if (queue.empty())
      return nullptr;
    auto post = queue.front();
    queue.pop_front();
    return post;
  }

  /// Returns when all ranks have come here.
  void meet(Watch &watch, const char *what) {
    const int64_t round = arrivals++ / ranks;
    Operation operation;
    operation.what = what;
    watch.until([&] { return arrivals >= (round + 1) * ranks; }, operation);
  }

  std::atomic<bool> taken{false}; ///< the turn to add to the graph
  const int ranks;
  SharedEvent fork;               ///< where rank 0 has begun
  std::vector<SharedEvent> joins; ///< by rank, where it has ended
  std::vector<GraphExec> graphs;  ///< in the order they were recorded

  ~Hub() {
    for (GraphExec graph : graphs)
      Driver::get().destroyGraphExec(graph);
  }

private:
  std::atomic<int64_t> arrivals{0};
  std::mutex mutex;
  std::map<std::tuple<int, int, int>, std::deque<std::shared_ptr<Post>>> queues;
};

class Copies : public Links {
public:
  Copies(std::shared_ptr<Hub> hub, int rank)
      : hub(std::move(hub)), rank(rank), cuda(Driver::get()) {}

  int deviceOf(const plan::Rank &rank) const override { return rank.rank; }

  void attach(Context ownContext, int, Stream ownCompute,
              Stream ownCommunication, Watch &ownWatch) override {
    context = ownContext, compute = ownCompute;
    communication = ownCommunication, watch = &ownWatch;
  }

  void exchange(const std::vector<Message> &messages,
                const Operation &operation) override {
    std::vector<std::shared_ptr<Post>> sent;
    for (const Message &message : messages)
      if (message.sending) {
        auto post = std::make_shared<Post>();
        post->data = message.data, post->context = context;
        post->ready = recorded(communication);
        sent.push_back(post);
        hub->put(rank, message.peer, message.tag, post);
      }
    for (const Message &message : messages)
      if (!message.sending)
        receive(message, operation);
    for (auto &post : sent) {
      watch->until([&] { return post->answered.load(); }, operation);
      after(communication, post->taken);
    }
  }

  void beginCapture() override {
    recording = true;
    if (rank == 0) {
      cuda.check(cuda.beginCapture(compute, kRelaxed), "cuStreamBeginCapture");
      hub->fork = recorded(compute);
      hub->joins.assign(static_cast<size_t>(hub->ranks), nullptr);
    }
    hub->meet(*watch, "waiting to record a step");
    takeTurn();
    if (rank != 0)
      after(compute, hub->fork);
  }

  void endCapture() override {
    hub->joins[static_cast<size_t>(rank)] = recorded(compute);
    leaveTurn();
    hub->meet(*watch, "waiting for a step to be recorded");
    if (rank == 0) {
      for (int other = 1; other < hub->ranks; ++other)
        after(compute, hub->joins[static_cast<size_t>(other)]);
      hub->graphs.push_back(cuda::endCapture(cuda, compute));
    }
    hub->meet(*watch, "waiting for a step to be recorded");
    recording = false;
    kept.clear();
  }

  void replay(int part) override {
    hub->meet(*watch, "waiting to replay a step"); // all have written numbers
    if (rank == 0) {
      cuda.check(
          cuda.launchGraph(hub->graphs[static_cast<size_t>(part)], compute),
          "cuGraphLaunch");
      hub->fork = recorded(compute);
    }
    hub->meet(*watch, "waiting to replay a step");
    if (rank != 0)
      after(compute, hub->fork);
  }

private:
  /// This thread alone adds to the graph, but for when it waits.
  void takeTurn() {
    awaitTurn();
    watch->whileWaiting([this] {
      hub->taken = false;
      std::this_thread::sleep_for(std::chrono::microseconds(20));
      awaitTurn();
    });
  }
  void awaitTurn() {
    while (hub->taken.exchange(true)) {
      watch->check();
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }
  void leaveTurn() {
    watch->whileWaiting(nullptr);
    hub->taken = false;
  }

  SharedEvent recorded(Stream stream) {
    SharedEvent event = makeEvent();
    cuda.check(cuda.recordEvent(event.get(), stream, 0), "cuEventRecord");
    if (recording)
      kept.push_back(event);
    return event;
  }
  void after(Stream stream, const SharedEvent &event) {
    cuda.check(cuda.waitEvent(stream, event.get(), 0), "cuStreamWaitEvent");
  }

  void receive(const Message &message, const Operation &operation) {
    std::shared_ptr<Post> post;
    watch->until(
        [&] {
          post = hub->take(message.peer, rank, message.tag);
          return post != nullptr;
        },
        operation);
    after(communication, post->ready);
    reach(post->context);
    const auto bytes = static_cast<size_t>(message.bytes);
    if (post->context == context)
      cuda.check(cuda.copyOnDevice(addressOf(message.data),
                                   addressOf(post->data), bytes, communication),
                 "cuMemcpyDtoDAsync");
    else
      cuda.check(cuda.copyPeer(addressOf(message.data), context,
                               addressOf(post->data), post->context, bytes,
                               communication),
                 "cuMemcpyPeerAsync");
    post->taken = recorded(communication);
    post->answered = true;
  }

  /// Without this copies between two GPUs go through the host. Not every pair
  /// can; where both are the same, or it is done already, nothing is to do.
  void reach(Context peer) {
    if (peer != context && reached.insert(peer).second)
      static_cast<void>(cuda.enablePeer(peer, 0));
  }

  const std::shared_ptr<Hub> hub;
  const int rank;
  const Driver &cuda;
  Context context = nullptr;
  Stream compute = nullptr, communication = nullptr;
  Watch *watch = nullptr;
  bool recording = false;
  std::set<Context> reached;     ///< of whose memory this one can read
  std::vector<SharedEvent> kept; ///< of the recording, until it ends
};

} // namespace

std::vector<std::unique_ptr<Links>> openCopies(const LinksRequest &request) {
  auto hub = std::make_shared<Hub>(request.ranks);
  std::vector<std::unique_ptr<Links>> ends;
  for (int rank = 0; rank < request.ranks; ++rank)
    ends.push_back(std::make_unique<Copies>(hub, rank));
  return ends;
}

} // namespace pipec
