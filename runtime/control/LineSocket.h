//===- LineSocket.h - lines of text over TCP --------------------*- C++ -*-===//
#pragma once

#include "runtime/control/AwakeTime.h"

#include <functional>
#include <string>

namespace pipec {

/// A connected, non-blocking socket. Lines never contain a newline themselves.
class LineSocket {
public:
  explicit LineSocket(int descriptor);
  ~LineSocket();
  LineSocket(LineSocket &&other) noexcept;
  LineSocket &operator=(LineSocket &&other) noexcept;

  int descriptor() const { return fd; }
  bool open() const { return fd >= 0; }
  void close();

  /// Queues the line and sends what the peer takes now.
  void send(const std::string &line);
  /// Sends queued bytes. True when nothing is left, or the peer is gone.
  bool flush();
  /// Calls use(line) for every whole line that has arrived. False when the peer
  /// has closed.
  bool receive(const std::function<void(const std::string &)> &use);

private:
  int fd;
  std::string in, out;
};

/// A socket that listens on a port of its own choice, on all addresses or on
/// the loopback alone. Failure(Unavailable).
int listenOn(bool everywhere, int &port);

/// Failure(Unavailable) when nobody answers within `seconds` of `time`.
LineSocket connectTo(const std::string &host, int port, AwakeTime &time,
                     double seconds);

} // namespace pipec
