//===- TcpMesh.cpp - a connection between every two ranks -----------------===//
#include "runtime/transport/TcpMesh.h"
#include "runtime/control/AwakeTime.h"
#include "runtime/control/LineSocket.h"
#include "runtime/control/Stop.h"
#include "support/Failure.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <functional>
#include <iostream>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

namespace pipec {
namespace {

[[noreturn]] void unavailable(const std::string &what) {
  throw Failure(Exit::Unavailable, what);
}

[[noreturn]] void stopped() {
  throw Failure(Exit::Stopped, "stopped before the ranks were connected");
}

/// Seconds in which ranks of one job usually come up.
constexpr double kPatience = 2;

/// Seconds for one attempt where nothing comes back, a firewall say.
constexpr double kAttempt = 5;

/// "60", "0.5".
std::string secondsOf(double limit) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", limit);
  return text;
}

/// Blocking exchanges with a deadline, while the mesh is being made.
class Exchange {
public:
  explicit Exchange(double limit) : limit(limit), time(limit) {}

  /// What it is waiting for, should it come to nothing.
  std::function<std::string()> pending;

  void write(int fd, const void *data, size_t size) const {
    auto *next = static_cast<const char *>(data);
    while (size > 0) {
      ready(fd, POLLOUT);
      const ssize_t done = ::send(fd, next, size, MSG_NOSIGNAL);
      if (done < 0 && (errno == EAGAIN || errno == EINTR))
        continue;
      if (done <= 0)
        closed();
      next += done, size -= static_cast<size_t>(done);
    }
  }
  void read(int fd, void *data, size_t size) const {
    auto *next = static_cast<char *>(data);
    while (size > 0) {
      ready(fd, POLLIN);
      const ssize_t done = ::recv(fd, next, size, 0);
      if (done < 0 && (errno == EAGAIN || errno == EINTR))
        continue;
      if (done <= 0)
        closed();
      next += done, size -= static_cast<size_t>(done);
    }
  }
  int accept(int listener) const {
    ready(listener, POLLIN);
    const int fd = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0)
      unavailable(std::string("accept: ") + std::strerror(errno));
    return fd;
  }
  /// The other rank may come up later: tries until the deadline, and says so
  /// once.
  int connect(int rank, const std::string &host, int port, bool quiet) const {
    const double begun = left();
    for (bool told = quiet;;) {
      if (stopRequested())
        stopped();
      std::string why;
      try {
        LineSocket socket =
            connectTo(host, port, time, std::min(left(), kAttempt));
        const int fd = ::fcntl(socket.descriptor(), F_DUPFD_CLOEXEC, 0);
        if (fd >= 0)
          return fd;
        why = std::string("too many open files: ") + std::strerror(errno);
      } catch (const Failure &failure) {
        why = failure.what(); // host and port, too
      }
      const std::string peer = "rank " + std::to_string(rank);
      if (left() <= 0.2)
        unavailable(
            peer + " did not answer within --timeout " + secondsOf(limit) +
            " s (" + why +
            "); does it run there, can this host reach that port, and "
            "are MASTER_ADDR and MASTER_PORT, where rank 0 listens, the "
            "same in all ranks?");
      if (!told && begun - left() > kPatience) {
        told = true;
        std::cerr << "pipec-run: note: " + peer + " does not answer yet (" +
                         why + "); trying for another " +
                         std::to_string(std::lround(left())) +
                         " s (--timeout)\n";
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }

private:
  double left() const { return limit - time.look(); }
  [[noreturn]] void closed() const {
    unavailable(
        "a connection ended while the ranks were connecting: " + pending() +
        "; a rank has left, or it is another program that listens "
        "there");
  }
  void ready(int fd, short event) const {
    pollfd waiting{fd, event, 0};
    while (true) { // a signal ends the waiting of poll, not ours
      if (stopRequested())
        stopped();
      if (left() <= 0)
        unavailable("within --timeout " + secondsOf(limit) + " s " + pending() +
                    "; have all ranks been started, does one of them say why "
                    "it ended, and is --timeout long enough for the last to "
                    "come?");
      if (::poll(&waiting, 1, 50) == 1)
        return;
    }
  }
  double limit;
  mutable AwakeTime time;
};

/// Where a rank listens. Names of hosts have at most 253 characters.
struct Place {
  char host[256] = "";
  int32_t port = 0;
};

/// How a process introduces itself.
struct Hello {
  uint64_t job = 0;
  int32_t rank = -1, port = 0;
};

Hello meet(const Exchange &exchange, int fd, const Rendezvous &where) {
  Hello hello;
  exchange.read(fd, &hello, sizeof hello);
  if (hello.job != where.job)
    unavailable("a process with another plan has connected; give every rank "
                "the same plan, and every job a MASTER_PORT of its own");
  return hello;
}

/// Listens on a port everybody knows.
int listenAt(int port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  address.sin_port = htons(static_cast<uint16_t>(port));
  if (fd < 0 ||
      ::bind(fd, reinterpret_cast<sockaddr *>(&address), sizeof address) != 0 ||
      ::listen(fd, 1024) != 0)
    unavailable("cannot listen on port " + std::to_string(port) + ": " +
                std::strerror(errno));
  return fd;
}

/// The other end's address, as others may reach it.
std::string hostOf(int fd, const std::string &master) {
  sockaddr_in address{};
  socklen_t length = sizeof address;
  ::getpeername(fd, reinterpret_cast<sockaddr *>(&address), &length);
  if (ntohl(address.sin_addr.s_addr) >> 24 == 127)
    return master; // it is on rank 0's host
  char text[INET_ADDRSTRLEN] = "";
  inet_ntop(AF_INET, &address.sin_addr, text, sizeof text);
  return text;
}

/// The ranks but `self` that have no socket: "1, 3".
std::string without(const std::vector<int> &sockets, int self) {
  std::string missing;
  for (int rank = 0; rank < static_cast<int>(sockets.size()); ++rank)
    if (rank != self && sockets[rank] < 0)
      missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
  return missing;
}

/// At rank 0: "2 of 4 ranks have connected, without rank 1, 3".
std::string missingRanks(const std::vector<int> &sockets) {
  const auto come = std::count_if(sockets.begin(), sockets.end(),
                                  [](int socket) { return socket >= 0; });
  return std::to_string(come + 1) + " of " + std::to_string(sockets.size()) +
         " ranks have connected, without rank " + without(sockets, 0);
}

/// The connections of a rank while they are being made.
class Mesh {
public:
  Mesh(const Rendezvous &where, double limit)
      : where(where), exchange(limit),
        sockets(static_cast<size_t>(where.size), -1), places(sockets.size()) {}

  std::vector<int> make() {
    if (where.rank == 0)
      gather();
    else
      join();
    for (int fd : sockets)
      if (fd >= 0) {
        const int on = 1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
      }
    return sockets;
  }

private:
  size_t tableBytes() const { return places.size() * sizeof(Place); }

  /// Rank 0: all others come here, and learn where the others listen.
  void gather() {
    const int listener = listenAt(where.port);
    exchange.pending = [&] { return missingRanks(sockets); };
    for (int met = 1; met < where.size; ++met) {
      const int fd = exchange.accept(listener);
      const Hello hello = meet(exchange, fd, where);
      if (hello.rank < 1 || hello.rank >= where.size)
        unavailable("a process calls itself rank " +
                    std::to_string(hello.rank) + " of " +
                    std::to_string(where.size));
      if (sockets[hello.rank] >= 0)
        unavailable("two processes call themselves rank " +
                    std::to_string(hello.rank));
      sockets[hello.rank] = fd;
      hostOf(fd, where.host)
          .copy(places[hello.rank].host, sizeof places[0].host - 1);
      places[hello.rank].port = hello.port;
    }
    ::close(listener);
    for (int rank = 1; rank < where.size; ++rank)
      exchange.write(sockets[rank], places.data(), tableBytes());
  }

  /// The others: to rank 0 first, then to those before this one; those behind
  /// it come here.
  void join() {
    int port = 0;
    const int listener = listenOn(true, port);
    const std::string self = "rank " + std::to_string(where.rank);
    exchange.pending = [&] {
      return self + " has not heard from rank 0 at " + where.host + ":" +
             std::to_string(where.port) + " that all " +
             std::to_string(where.size) + " ranks are there";
    };
    sockets[0] = exchange.connect(0, where.host, where.port, where.quiet);
    const Hello hello = {where.job, where.rank, port};
    exchange.write(sockets[0], &hello, sizeof hello);
    exchange.read(sockets[0], places.data(), tableBytes());
    exchange.pending = [&] {
      return self + " has no connection to rank " +
             without(sockets, where.rank);
    };
    for (int rank = 1; rank < where.rank; ++rank) {
      sockets[rank] = exchange.connect(rank, places[rank].host,
                                       places[rank].port, where.quiet);
      exchange.write(sockets[rank], &hello, sizeof hello);
    }
    for (int rank = where.rank + 1; rank < where.size; ++rank)
      take(listener);
    ::close(listener);
  }

  void take(int listener) {
    const int fd = exchange.accept(listener);
    const int other = meet(exchange, fd, where).rank;
    if (other <= where.rank || other >= where.size || sockets[other] >= 0)
      unavailable("a process that is not of this job has connected");
    sockets[other] = fd;
  }

  const Rendezvous &where;
  Exchange exchange;
  std::vector<int> sockets;  ///< by rank
  std::vector<Place> places; ///< the same
};

} // namespace

std::vector<int> connectAll(const Rendezvous &where, double limit) {
  return where.size == 1 ? std::vector<int>{-1} : Mesh(where, limit).make();
}

} // namespace pipec
