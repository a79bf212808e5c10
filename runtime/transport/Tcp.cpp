//===- Tcp.cpp - ranks as processes connected by sockets ------------------===//
//
// For launchers that only number the processes (torchrun, srun without MPI,
// Kubernetes), and machines without MPI. A thread of its own moves the data, so
// that transfers go on while the rank computes.
//
// A small message is sent at once. A large one is announced; the receiver asks
// for it when the receive is posted, so that it never needs a buffer.
//
//===----------------------------------------------------------------------===//
#include "runtime/control/LineSocket.h"
#include "runtime/transport/TcpMesh.h"
#include "runtime/transport/Transport.h"
#include "support/Doorbell.h"
#include "support/Failure.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <iostream>
#include <map>
#include <mutex>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

namespace pipec {
namespace {

constexpr int64_t kEager = 32 * 1024;

/// What precedes every message on the wire.
struct Header {
  enum Kind : int32_t { Eager, Announce, Ask, Data };
  int32_t kind = Eager, tag = 0;
  int64_t bytes = 0;
  uint64_t id = 0; ///< of an announced message, the sender's number
};

class Tcp : public Transport {
public:
  Tcp(const Rendezvous &where, double seconds)
      : self(where.rank), peers(static_cast<size_t>(where.size)),
        door(where.rank, bells(), true) {
    const std::vector<int> sockets = connectAll(where, seconds);
    for (size_t i = 0; i < peers.size(); ++i)
      peers[i].fd = sockets[i];
    wake = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    thread = std::thread([this] { work(); });
  }

  ~Tcp() override {
    stop();
    for (Peer &peer : peers)
      if (peer.fd >= 0)
        ::close(peer.fd);
    ::close(wake);
  }

  int rank() const override { return self; }
  int size() const override { return static_cast<int>(peers.size()); }

  Request send(int to, int tag, const void *data, int64_t bytes) override {
    std::lock_guard lock(mutex);
    const Request request = start();
    auto *bytesOut = static_cast<const char *>(data);
    if (bytes <= kEager) {
      put(to, {{Header::Eager, tag, bytes, 0}, bytesOut, request});
    } else {
      const uint64_t id = nextId++;
      announced[{to, id}] = {bytesOut, bytes, request};
      put(to, {{Header::Announce, tag, bytes, id}, nullptr, kNoRequest});
    }
    return request;
  }

  Request receive(int from, int tag, void *data, int64_t bytes) override {
    std::lock_guard lock(mutex);
    const Request request = start();
    const Posted posted{static_cast<char *>(data), bytes, request};
    auto &queue = arrived[{from, tag}];
    if (queue.empty()) {
      this->posted[{from, tag}].push_back(posted);
      return request;
    }
    Arrived first = std::move(queue.front());
    queue.pop_front();
    if (first.bytes != bytes) {
      mismatch(peers[from]);
    } else if (first.announced) {
      ask(from, first.id, posted);
    } else {
      std::memcpy(posted.data, first.payload.data(), first.payload.size());
      finished(request);
    }
    return request;
  }

  bool done(Request &request) override {
    if (request == kNoRequest)
      return true;
    if (!states[request].load(std::memory_order_acquire))
      return false;
    std::lock_guard lock(mutex);
    free.push_back(request);
    request = kNoRequest;
    return true;
  }

  void cancel(Request &request) override {
    if (request == kNoRequest)
      return;
    {
      std::lock_guard lock(mutex);
      for (auto &[key, queue] : posted)
        for (auto one = queue.begin(); one != queue.end(); ++one)
          if (one->request == request) {
            queue.erase(one);
            free.push_back(request);
            request = kNoRequest;
            return;
          }
    }
    while (!done(request)) // matched: its data is on the way
      std::this_thread::yield();
  }

  const Doorbell *bell() const override { return &door; }

  void close() override { stop(); }

  void abandon() override {
    std::lock_guard lock(mutex);
    for (Peer &peer : peers)
      if (peer.fd >= 0)
        drop(peer);
  }

private:
  struct Outgoing {
    Header header;
    const char *payload;
    Request request; ///< done when it is written
  };
  struct Posted {
    char *data;
    int64_t bytes;
    Request request;
  };
  struct Arrived {
    bool announced;
    int64_t bytes;
    uint64_t id;
    std::vector<char> payload;
  };
  struct Announced {
    const char *data;
    int64_t bytes;
    Request request;
  };
  struct Peer {
    int fd = -1;
    std::deque<Outgoing> out;
    size_t written = 0; ///< of the first one, header included
    Header header;      ///< being read
    size_t read = 0;    ///< of header and payload
    char *target = nullptr;
    Request targetRequest = kNoRequest;
    std::vector<char> buffer; ///< an unexpected small message
  };

  /// The others' news come through this process's own thread.
  std::vector<Bell *> bells() {
    std::vector<Bell *> result(peers.size());
    result[static_cast<size_t>(self)] = &own;
    return result;
  }

  const int self;
  std::vector<Peer> peers;
  Bell own;
  Doorbell door;
  std::mutex mutex;
  std::deque<std::atomic<bool>> states;
  std::vector<Request> free;
  std::map<std::pair<int, int>, std::deque<Posted>> posted;   // peer, tag
  std::map<std::pair<int, int>, std::deque<Arrived>> arrived; // peer, tag
  std::map<std::pair<int, uint64_t>, Announced> announced;    // peer, id
  std::map<std::pair<int, uint64_t>, Posted> asked;           // peer, id
  uint64_t nextId = 0;
  int wake = -1;
  std::atomic<bool> ending{false};
  std::thread thread;

  Request start() {
    if (free.empty()) {
      states.emplace_back(false); // a deque: `done` reads without the lock
      free.push_back(static_cast<Request>(states.size()) - 1);
    }
    const Request request = free.back();
    free.pop_back();
    states[request].store(false, std::memory_order_relaxed);
    return request;
  }
  void finished(Request request) {
    if (request == kNoRequest)
      return;
    states[request].store(true, std::memory_order_release);
    door.ring(self);
  }

  void put(int to, const Outgoing &message) {
    peers[to].out.push_back(message);
    const uint64_t one = 1;
    if (::write(wake, &one, sizeof one) < 0) {
    } // full: it will wake up anyway
  }

  void ask(int from, uint64_t id, const Posted &place) {
    asked[{from, id}] = place;
    put(from, {{Header::Ask, 0, 0, id}, nullptr, kNoRequest});
  }

  void stop() {
    if (!thread.joinable())
      return;
    ending = true;
    const uint64_t one = 1;
    if (::write(wake, &one, sizeof one) < 0) {
    }
    thread.join();
  }

  //===--------------------------------------------------------------------===//
  // The thread
  //===--------------------------------------------------------------------===//

  void work() {
    std::vector<pollfd> polled;
    while (true) {
      polled.assign(1, {wake, POLLIN, 0});
      bool idle = true;
      {
        std::lock_guard lock(mutex);
        for (Peer &peer : peers) {
          const bool out = peer.fd >= 0 && !peer.out.empty();
          idle &= !out;
          polled.push_back({peer.fd,
                            static_cast<short>(out ? POLLIN | POLLOUT : POLLIN),
                            0});
        }
      }
      if (ending && idle)
        return;
      ::poll(polled.data(), polled.size(), 1000);
      uint64_t count = 0;
      if (::read(wake, &count, sizeof count) < 0) {
      } // nothing had been said
      std::lock_guard lock(mutex);
      for (size_t i = 0; i < peers.size(); ++i) {
        if (polled[i + 1].revents & (POLLIN | POLLHUP | POLLERR))
          readFrom(static_cast<int>(i));
        if (polled[i + 1].revents & POLLOUT)
          writeTo(peers[i]);
      }
    }
  }

  void drop(Peer &peer) {
    // Whoever watches over the ranks says that it is gone.
    ::close(peer.fd);
    peer.fd = -1;
  }

  /// What a peer sends is not what this rank expects: nothing of it is used.
  void mismatch(Peer &peer) {
    std::cerr << "pipec-run: error: rank " +
                     std::to_string(&peer - peers.data()) +
                     " has sent a message of another size than rank " +
                     std::to_string(self) +
                     " expects; are both of the same pipec?\n";
    if (peer.fd >= 0)
      drop(peer);
  }

  void writeTo(Peer &peer) {
    while (!peer.out.empty() && peer.fd >= 0) {
      const Outgoing &message = peer.out.front();
      const size_t head = sizeof(Header);
      const size_t body =
          message.payload ? static_cast<size_t>(message.header.bytes) : 0;
      const bool inHead = peer.written < head;
      const char *from =
          inHead
              ? reinterpret_cast<const char *>(&message.header) + peer.written
              : message.payload + (peer.written - head);
      const size_t left =
          inHead ? head - peer.written : head + body - peer.written;
      if (left > 0) {
        const ssize_t sent =
            ::send(peer.fd, from, left,
                   MSG_NOSIGNAL | (inHead && body ? MSG_MORE : 0));
        if (sent < 0) {
          if (errno != EAGAIN && errno != EINTR)
            drop(peer);
          return;
        }
        peer.written += static_cast<size_t>(sent);
      }
      if (peer.written == head + body) {
        finished(message.request);
        peer.out.pop_front();
        peer.written = 0;
      }
    }
  }

  void readFrom(int from) {
    Peer &peer = peers[from];
    // A share, so that one busy peer does not hold up the others.
    for (int turns = 0; turns < 64 && peer.fd >= 0; ++turns) {
      const size_t head = sizeof(Header);
      const bool inHead = peer.read < head;
      const size_t body = inHead ? 0 : bodyOf(peer.header);
      char *to = inHead ? reinterpret_cast<char *>(&peer.header) + peer.read
                        : peer.target + (peer.read - head);
      const size_t left = inHead ? head - peer.read : head + body - peer.read;
      if (left > 0) {
        const ssize_t got = ::recv(peer.fd, to, left, 0);
        if (got < 0 && (errno == EAGAIN || errno == EINTR))
          return;
        if (got <= 0)
          return drop(peer);
        peer.read += static_cast<size_t>(got);
      }
      if (peer.read == head)
        begin(from, peer);
      if (peer.fd < 0)
        return;
      if (peer.read >= head && peer.read == head + bodyOf(peer.header))
        complete(from, peer);
    }
  }

  static size_t bodyOf(const Header &header) {
    const bool has =
        header.kind == Header::Eager || header.kind == Header::Data;
    return has ? static_cast<size_t>(header.bytes) : 0;
  }

  /// A header has been read: where does its payload go?
  void begin(int from, Peer &peer) {
    peer.target = nullptr;
    peer.targetRequest = kNoRequest;
    if (peer.header.kind == Header::Data) {
      auto place = asked.find({from, peer.header.id});
      if (place == asked.end() || place->second.bytes != peer.header.bytes)
        return mismatch(peer);
      peer.target = place->second.data;
      peer.targetRequest = place->second.request;
      asked.erase(place);
    } else if (peer.header.kind == Header::Eager) {
      auto &queue = posted[{from, peer.header.tag}];
      if (peer.header.bytes < 0 || peer.header.bytes > kEager ||
          (!queue.empty() && queue.front().bytes != peer.header.bytes))
        return mismatch(peer);
      if (queue.empty()) {
        peer.buffer.resize(bodyOf(peer.header));
        peer.target = peer.buffer.data();
      } else {
        peer.target = queue.front().data;
        peer.targetRequest = queue.front().request;
        queue.pop_front();
      }
    }
  }

  void complete(int from, Peer &peer) {
    const Header header = peer.header;
    peer.read = 0;
    if (header.kind == Header::Ask) {
      auto what = announced.find({from, header.id});
      if (what == announced.end())
        return drop(peer);
      const Announced message = what->second;
      announced.erase(what);
      put(from, {{Header::Data, 0, message.bytes, header.id},
                 message.data,
                 message.request});
    } else if (header.kind == Header::Announce) {
      auto &queue = posted[{from, header.tag}];
      if (queue.empty()) {
        arrived[{from, header.tag}].push_back(
            {true, header.bytes, header.id, {}});
      } else if (queue.front().bytes != header.bytes) {
        mismatch(peer);
      } else {
        ask(from, header.id, queue.front());
        queue.pop_front();
      }
    } else if (peer.targetRequest != kNoRequest) {
      finished(peer.targetRequest);
    } else {
      keepOrDeliver(peer, {from, header.tag}, peer.buffer);
    }
  }

  /// An unexpected small message is here. Its receive may have been posted
  /// while it was being read.
  void keepOrDeliver(Peer &peer, std::pair<int, int> key,
                     std::vector<char> &payload) {
    auto &queue = posted[key];
    const auto bytes = static_cast<int64_t>(payload.size());
    if (queue.empty()) {
      arrived[key].push_back({false, bytes, 0, std::move(payload)});
    } else if (queue.front().bytes != bytes) {
      mismatch(peer);
    } else {
      std::memcpy(queue.front().data, payload.data(), payload.size());
      finished(queue.front().request);
      queue.pop_front();
    }
    payload.clear();
  }
};

Rendezvous fromEnvironment() {
  Rendezvous where;
  where.rank = integerVariable("RANK").value_or(-1);
  where.size = integerVariable("WORLD_SIZE").value_or(0);
  where.host = std::getenv("MASTER_ADDR");
  where.port = integerVariable("MASTER_PORT").value_or(0);
  // torchrun's own store may already listen there.
  const char *store = std::getenv("TORCHELASTIC_USE_AGENT_STORE");
  if (store && std::string(store) == "True")
    ++where.port;
  if (where.rank < 0 || where.rank >= where.size)
    throw Failure(
        Exit::Usage,
        "the environment variables RANK=" + std::to_string(where.rank) +
            " and WORLD_SIZE=" + std::to_string(where.size) +
            " make no sense together: a rank is from 0 to one less "
            "than the number of ranks");
  if (where.port < 1 || where.port > 65535)
    throw Failure(Exit::Usage, "the environment variable MASTER_PORT asks for "
                               "port " +
                                   std::to_string(where.port) +
                                   ", ports are from 1 to 65535");
  return where;
}

} // namespace

std::vector<std::unique_ptr<Transport>> openTcp(const Meeting &meeting) {
  Rendezvous where = fromEnvironment();
  if (where.size != meeting.ranks) // before waiting for ranks that never come
    throw Failure(Exit::Usage,
                  "WORLD_SIZE is " + std::to_string(where.size) +
                      ", the plan has " + std::to_string(meeting.ranks) +
                      " ranks: start " + std::to_string(meeting.ranks) +
                      " processes");
  where.job = meeting.job;
  where.quiet = meeting.quiet;
  std::vector<std::unique_ptr<Transport>> ends;
  ends.push_back(std::make_unique<Tcp>(where, meeting.seconds));
  return ends;
}

std::optional<int> joinedTcp(bool named) {
  const char *rank = std::getenv("RANK"), *size = std::getenv("WORLD_SIZE");
  std::string present, missing;
  int presentCount = 0, missingCount = 0;
  for (const char *name :
       {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) {
    const bool there = std::getenv(name);
    std::string &names = there ? present : missing;
    names += (names.empty() ? "" : " and ") + std::string(name);
    ++(there ? presentCount : missingCount);
  }
  if (!missingCount)
    return fromEnvironment().rank;
  // One or two of them are no job unless they number it, nor are those of a job
  // of one process: other programs set them too.
  const bool isJob = (rank && size) || presentCount > 2;
  const bool numbered =
      named ? rank || size : isJob && (!size || std::string(size) != "1");
  // Each such process would run all ranks, into the same files.
  if (numbered)
    throw Failure(Exit::Usage,
                  "of a job's environment variables " + present +
                      (presentCount > 1 ? " are" : " is") + " set, " + missing +
                      (missingCount > 1 ? " are" : " is") +
                      " not: set all four, as torchrun does, or none");
  return std::nullopt;
}

std::vector<std::string> launchTcp(int ranks, const LaunchFolders &) {
  // A port that is free now; rank 0 takes it in a moment.
  int port = 0;
  ::close(listenOn(false, port));
  return {"/bin/sh", "-c",
          "all=; export RANK=0 WORLD_SIZE=" + std::to_string(ranks) +
              " MASTER_ADDR=127.0.0.1 MASTER_PORT=" + std::to_string(port) +
              R"(
while [ $RANK -lt $WORLD_SIZE ]; do "$@" & all="$all $!"; RANK=$((RANK + 1)); done
status=0
for one in $all; do wait $one || status=$?; done
exit $status)",
          "sh"};
}

} // namespace pipec
