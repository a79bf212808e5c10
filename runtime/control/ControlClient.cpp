//===- ControlClient.cpp - a rank's line to who watches it ----------------===//
#include "runtime/control/ControlClient.h"
#include "runtime/control/Stop.h"
#include "support/CommandLine.h"
#include "support/ErrorText.h"
#include "support/TerminalProgress.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <poll.h>
#include <sstream>
#include <unistd.h>

namespace pipec {
namespace {

LineSocket dial(const std::string &address, const std::string &server,
                AwakeTime &time, double timeout, std::string &token) {
  std::istringstream words(address);
  std::string hostName, host;
  int port = 0;
  words >> hostName >> host >> port >> token;
  char here[256] = "";
  gethostname(here, sizeof here - 1);
  if (hostName == here)
    host = "127.0.0.1";
  try {
    return connectTo(host, port, time, timeout / 2);
  } catch (const Failure &failure) {
    throw Failure(Exit::Unavailable,
                  "cannot reach " + server + " at " + failure.what());
  }
}

} // namespace

ControlClient::ControlClient(const std::string &address,
                             const std::string &server, double timeout,
                             Watch &watch, Alarm &alarm)
    : server(server), timeout(timeout), watch(watch), alarm(alarm), socket(-1),
      time(timeout) {
  std::string token;
  socket = dial(address, server, time, timeout, token);
  time.look();
  heard = time.seconds();
  say("hello " + token + " " + std::to_string(watch.rank) + " " +
      std::to_string(getpid()));
  thread = std::thread([this] { talk(); });
}

ControlClient::~ControlClient() {
  ending = true;
  thread.join();
}

void ControlClient::say(const std::string &line) {
  std::lock_guard lock(mutex);
  socket.send(line);
}

void ControlClient::fail(Exit code, const std::string &message) {
  say("fail " + std::to_string(static_cast<int>(code)) + " " + message);
}

void ControlClient::done(Exit code) {
  finished = true;
  say("done " + std::to_string(static_cast<int>(code)));
}

void ControlClient::talk() {
  const double period = std::clamp(timeout / 10, 0.02, 1.0);
  double lastBeat = 0, alarmed = 0;
  while (!ending) {
    pollfd waiting{socket.descriptor(), POLLIN, 0};
    ::poll(&waiting, 1, static_cast<int>(std::min(period, 0.05) * 1000));
    bool alive = true;
    time.look();
    {
      std::lock_guard lock(mutex);
      alive = socket.receive([&](const std::string &line) { handle(line); });
    }
    const double now = time.seconds();
    if (finished) // the others may leave first
      ;
    else if (!alive)
      alarm.raise(Exit::PeerLost, server + " has died", kNoticed);
    else if (now - heard > timeout / 2)
      alarm.raise(Exit::PeerLost, server + " does not answer any more",
                  kNoticed);
    if (now - lastBeat >= period || asked) {
      lastBeat = now;
      const auto [operation, progress] = watch.snapshot();
      say((asked ? "here " : "beat ") + std::to_string(progress) + " " +
          std::to_string(operation.waiting) + " " +
          std::to_string(operation.peer) + " " +
          std::to_string(operation.step) + " " + describe(operation));
      asked = false;
      if (stopRequested() && !stopSaid)
        stopSaid = true, say("stop");
    }
    if (alarm.raised() && !finished && alarmed == 0)
      alarmed = now;
    if (alarmed != 0 && now - alarmed > std::min(2.0, timeout / 4))
      leave();
    if (!alive) // until the rank has ended: nothing to listen to
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  std::lock_guard lock(mutex);
  socket.flush();
}

void ControlClient::handle(const std::string &line) {
  std::istringstream words(line);
  std::string kind, text;
  words >> kind;
  heard = time.seconds();
  if (kind == "lost" || kind == "stuck") {
    std::getline(words >> std::ws, text);
    alarm.raise(Exit::PeerLost, text, kind == "lost" ? kNoticed : kAllWait);
  } else if (kind == "fail") {
    int code = 0, rank = 0;
    words >> code >> rank;
    std::getline(words >> std::ws, text);
    alarm.raise(static_cast<Exit>(code), text, rank);
  } else if (kind == "stop") {
    requestStop();
  } else if (kind == "where") {
    asked = true;
  }
}

/// The rank's own thread does not come back from what it does.
void ControlClient::leave() {
  if (alarm.code() == Exit::PeerLost && watch.speaks())
    std::cerr << errorText("pipec-run", {Exit::PeerLost, watch.explain()},
                           invocation().input, invocation().json);
  abandonProgress();
  std::fflush(nullptr);
  done(alarm.code());
  _exit(static_cast<int>(alarm.code()));
}

} // namespace pipec
