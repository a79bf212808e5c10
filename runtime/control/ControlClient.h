//===- ControlClient.h - a rank's line to who watches it --------*- C++ -*-===//
#pragma once

#include "runtime/control/AwakeTime.h"
#include "runtime/control/LineSocket.h"
#include "runtime/control/Watch.h"

#include <atomic>
#include <mutex>
#include <thread>

namespace pipec {

/// Tells the ControlServer what the rank does, from a thread of its own, and
/// raises the rank's alarm when the job has failed. A rank that does not end by
/// itself soon after (it computes, or sits in a library) is ended here.
class ControlClient {
public:
  /// `server`: who that is, for messages ("the launcher").
  /// Failure(Unavailable).
  ControlClient(const std::string &address, const std::string &server,
                double timeout, Watch &watch, Alarm &alarm);
  ~ControlClient();

  /// This rank has failed by itself.
  void fail(Exit code, const std::string &message);
  /// This rank is about to exit; its silence means nothing any more.
  void done(Exit code);

private:
  void talk();
  void handle(const std::string &line);
  void say(const std::string &line);
  [[noreturn]] void leave();

  const std::string server;
  const double timeout;
  Watch &watch;
  Alarm &alarm;
  std::mutex mutex; ///< of the socket
  LineSocket socket;
  AwakeTime time;
  double heard = 0; ///< in that time
  bool stopSaid = false, asked = false;
  std::atomic<bool> ending{false}, finished{false};
  std::thread thread;
};

} // namespace pipec
