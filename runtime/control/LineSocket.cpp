//===- LineSocket.cpp - lines of text over TCP ----------------------------===//
#include "runtime/control/LineSocket.h"
#include "support/Failure.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

namespace pipec {

LineSocket::LineSocket(int descriptor) : fd(descriptor) {
  if (fd < 0)
    return;
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

LineSocket::~LineSocket() { close(); }

LineSocket::LineSocket(LineSocket &&other) noexcept
    : fd(std::exchange(other.fd, -1)), in(std::move(other.in)),
      out(std::move(other.out)) {}

LineSocket &LineSocket::operator=(LineSocket &&other) noexcept {
  std::swap(fd, other.fd), std::swap(in, other.in), std::swap(out, other.out);
  return *this;
}

void LineSocket::close() {
  if (fd >= 0)
    ::close(fd);
  fd = -1;
}

void LineSocket::send(const std::string &line) {
  std::string text = line;
  std::replace(text.begin(), text.end(), '\n', ' ');
  out += text + "\n";
  flush();
}

bool LineSocket::flush() {
  while (fd >= 0 && !out.empty()) {
    const ssize_t sent = ::send(fd, out.data(), out.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR)
      continue;
    if (sent < 0)
      return errno != EAGAIN && errno != EWOULDBLOCK;
    out.erase(0, static_cast<size_t>(sent));
  }
  return true;
}

bool LineSocket::receive(const std::function<void(const std::string &)> &use) {
  char buffer[4096];
  bool alive = fd >= 0;
  while (alive) {
    const ssize_t got = ::recv(fd, buffer, sizeof buffer, 0);
    if (got < 0 && errno == EINTR)
      continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
      break;
    alive = got > 0;
    if (alive)
      in.append(buffer, static_cast<size_t>(got));
  }
  for (size_t end; (end = in.find('\n')) != std::string::npos;) {
    const std::string line = in.substr(0, end);
    in.erase(0, end + 1);
    use(line);
  }
  return alive;
}

int listenOn(bool everywhere, int &port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(everywhere ? INADDR_ANY : INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto *generic = reinterpret_cast<sockaddr *>(&address);
  if (fd < 0 || ::bind(fd, generic, length) != 0 || ::listen(fd, 1024) != 0 ||
      ::getsockname(fd, generic, &length) != 0)
    throw Failure(Exit::Unavailable,
                  std::string("cannot listen on a socket: ") +
                      std::strerror(errno));
  port = ntohs(address.sin_port);
  return fd;
}

/// Waits until the socket is connected: 0, or why it is not.
static int whenConnected(int fd, AwakeTime &time, double seconds) {
  pollfd waiting{fd, POLLOUT, 0};
  const double until = time.look() + seconds;
  while (::poll(&waiting, 1, 50) != 1)
    if (time.look() >= until)
      return ETIMEDOUT;
  int error = 0;
  socklen_t size = sizeof error;
  getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
  return error;
}

LineSocket connectTo(const std::string &host, int port, AwakeTime &time,
                     double seconds) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  const std::string where = host + ":" + std::to_string(port);
  if (getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found))
    throw Failure(Exit::Unavailable, where + ": no such host");
  int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  int error = 0;
  if (::connect(fd, found->ai_addr, found->ai_addrlen) != 0)
    error = errno == EINPROGRESS ? whenConnected(fd, time, seconds) : errno;
  freeaddrinfo(found);
  if (error != 0) {
    ::close(fd);
    throw Failure(Exit::Unavailable, where + ": " + std::strerror(error));
  }
  return LineSocket(fd);
}

} // namespace pipec
