//===- InProcess.cpp - ranks as threads of one process --------------------===//
#include "runtime/transport/Transport.h"
#include "support/Doorbell.h"

#include <atomic>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <tuple>

namespace pipec {
namespace {

/// One side of a message, waiting for the other.
struct Side {
  std::atomic<bool> *done;
  char *data;
  int64_t bytes;
};

/// Where sends and receives meet: per (from, to, tag) the sides that came
/// first.
class Hub {
public:
  explicit Hub(int ranks) : bells(static_cast<size_t>(ranks)) {}

  std::vector<Bell *> allBells() {
    std::vector<Bell *> all;
    for (Bell &bell : bells)
      all.push_back(&bell);
    return all;
  }

  /// Matches the side with the oldest one of the other kind and copies, or
  /// leaves it waiting.
  void meet(int from, int to, int tag, bool sending, const Side &mine) {
    // Buffers may be on the stack of a rank that is about to unwind.
    std::shared_lock open(closing);
    if (closed)
      return;
    Side other{};
    {
      std::lock_guard lock(mutex);
      Queue &queue = queues[{from, to, tag}];
      std::deque<Side> &others = sending ? queue.receives : queue.sends;
      if (others.empty()) {
        (sending ? queue.sends : queue.receives).push_back(mine);
        return;
      }
      other = others.front();
      others.pop_front();
    }
    const Side &source = sending ? mine : other;
    const Side &target = sending ? other : mine;
    if (source.bytes)
      std::memcpy(target.data, source.data, static_cast<size_t>(source.bytes));
    other.done->store(true, std::memory_order_release);
    mine.done->store(true, std::memory_order_release);
  }

  /// False when the receive is already matched.
  bool withdraw(int from, int to, int tag, const std::atomic<bool> *done) {
    std::lock_guard lock(mutex);
    auto &receives = queues[{from, to, tag}].receives;
    for (auto side = receives.begin(); side != receives.end(); ++side)
      if (side->done == done) {
        receives.erase(side);
        return true;
      }
    return false;
  }

  void close() {
    std::unique_lock lock(closing);
    closed = true;
  }

private:
  struct Queue {
    std::deque<Side> sends, receives;
  };
  std::vector<Bell> bells; ///< by rank
  std::shared_mutex closing;
  bool closed = false;
  std::mutex mutex;
  std::map<std::tuple<int, int, int>, Queue> queues;
};

class InProcess : public Transport {
public:
  InProcess(std::shared_ptr<Hub> hub, int rank, int ranks)
      : hub(std::move(hub)), self(rank), ranks(ranks),
        door(rank, this->hub->allBells(), true) {}

  int rank() const override { return self; }
  int size() const override { return ranks; }

  Request send(int to, int tag, const void *data, int64_t bytes) override {
    const Request request = start(self, to, tag);
    char *source = const_cast<char *>(static_cast<const char *>(data));
    hub->meet(self, to, tag, true, {&transfers[request].done, source, bytes});
    door.ring(to);
    return request;
  }

  Request receive(int from, int tag, void *data, int64_t bytes) override {
    const Request request = start(from, self, tag);
    hub->meet(from, self, tag, false,
              {&transfers[request].done, static_cast<char *>(data), bytes});
    door.ring(from); // whose send may be done
    return request;
  }

  bool done(Request &request) override {
    if (request == kNoRequest)
      return true;
    if (!transfers[request].done.load(std::memory_order_acquire))
      return false;
    finish(request);
    return true;
  }

  void cancel(Request &request) override {
    if (request == kNoRequest)
      return;
    const Transfer &transfer = transfers[request];
    if (!hub->withdraw(transfer.from, transfer.to, transfer.tag,
                       &transfer.done))
      while (!transfer.done.load(std::memory_order_acquire)) {
      } // matched just now: the copy is being made
    finish(request);
  }

  const Doorbell *bell() const override { return &door; }

  void close() override {}
  void abandon() override { hub->close(); }

private:
  struct Transfer {
    std::atomic<bool> done{false};
    int from = 0, to = 0, tag = 0;
  };

  Request start(int from, int to, int tag) {
    if (free.empty()) {
      transfers.emplace_back(); // a deque: addresses stay
      free.push_back(static_cast<Request>(transfers.size()) - 1);
    }
    const Request request = free.back();
    free.pop_back();
    Transfer &transfer = transfers[request];
    transfer.done.store(false, std::memory_order_relaxed);
    transfer.from = from, transfer.to = to, transfer.tag = tag;
    return request;
  }
  void finish(Request &request) {
    free.push_back(request);
    request = kNoRequest;
  }

  std::shared_ptr<Hub> hub;
  int self, ranks;
  Doorbell door;
  std::deque<Transfer> transfers;
  std::vector<Request> free;
};

} // namespace

std::vector<std::unique_ptr<Transport>> openInProcess(const Meeting &meeting) {
  const int ranks = meeting.ranks;
  auto hub = std::make_shared<Hub>(ranks);
  std::vector<std::unique_ptr<Transport>> ends;
  for (int rank = 0; rank < ranks; ++rank)
    ends.push_back(std::make_unique<InProcess>(hub, rank, ranks));
  return ends;
}

std::optional<int> joinedInProcess(bool) { return std::nullopt; }

std::vector<std::string> launchInProcess(int, const LaunchFolders &) {
  return {};
}

} // namespace pipec
