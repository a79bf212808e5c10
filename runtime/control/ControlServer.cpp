//===- ControlServer.cpp - who watches the ranks --------------------------===//
#include "runtime/control/ControlServer.h"
#include "runtime/control/Watch.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cstdio>
#include <ifaddrs.h>
#include <net/if.h>
#include <poll.h>
#include <sstream>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

namespace pipec {
namespace {

/// An address of this host that other hosts may reach.
std::string outsideAddress() {
  std::string result = "127.0.0.1";
  ifaddrs *all = nullptr;
  if (getifaddrs(&all) != 0)
    return result;
  for (ifaddrs *one = all; one; one = one->ifa_next) {
    if (!one->ifa_addr || one->ifa_addr->sa_family != AF_INET ||
        !(one->ifa_flags & IFF_UP) || (one->ifa_flags & IFF_LOOPBACK))
      continue;
    char text[INET_ADDRSTRLEN];
    auto *address = reinterpret_cast<sockaddr_in *>(one->ifa_addr);
    inet_ntop(AF_INET, &address->sin_addr, text, sizeof text);
    result = text;
    break;
  }
  freeifaddrs(all);
  return result;
}

} // namespace

ControlServer::ControlServer(int ranks, double timeout, bool everywhere,
                             std::function<std::string(int)> nameOf)
    : count(ranks), timeout(timeout), nameOf(std::move(nameOf)), time(timeout),
      views(ranks) {
  unsigned char random[16];
  if (getrandom(random, sizeof random, 0) != sizeof random)
    throw Failure(Exit::Unavailable, "no random numbers from the system");
  for (unsigned char byte : random) {
    token += "0123456789abcdef"[byte >> 4];
    token += "0123456789abcdef"[byte & 15];
  }
  int port = 0;
  listener = listenOn(everywhere, port);
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  where = std::string(host) + " " +
          (everywhere ? outsideAddress() : "127.0.0.1") + " " +
          std::to_string(port) + " " + token;
  thread = std::thread([this] { serve(); });
}

ControlServer::~ControlServer() {
  ending = true;
  thread.join();
  ::close(listener);
}

std::optional<ControlServer::Trouble> ControlServer::trouble() const {
  std::lock_guard lock(mutex);
  return first;
}

std::vector<ControlServer::RankView> ControlServer::ranks() const {
  std::lock_guard lock(mutex);
  return views;
}

void ControlServer::fail(Exit code, const std::string &message, int origin) {
  std::lock_guard lock(mutex);
  if (!first)
    first = Trouble{code, message, origin};
}

void ControlServer::serve() {
  const double period = std::clamp(timeout / 10, 0.02, 1.0);
  double lastBeat = 0, endBy = 0;
  while (true) {
    std::vector<pollfd> polled{{listener, POLLIN, 0}};
    for (Client &client : clients)
      polled.push_back({client.socket.descriptor(), POLLIN, 0});
    ::poll(polled.data(), polled.size(),
           static_cast<int>(std::min(period, 0.05) * 1000));
    time.look();
    accept();
    for (auto client = clients.begin(); client != clients.end();) {
      const bool alive = client->socket.receive(
          [&](const std::string &line) { handle(*client, line); });
      if (!alive)
        closed(*client);
      client = alive ? std::next(client) : clients.erase(client);
    }
    lookForDeath();
    lookForSilence();
    lookForStall();
    if (auto trouble = this->trouble(); trouble && !announced) {
      announced = true;
      announce(*trouble);
    }
    if (stopping && !stopSent)
      stopSent = true, broadcast("stop");
    const double now = time.seconds();
    if (now - lastBeat >= period)
      lastBeat = now, broadcast("beat");
    if (ending) {
      // What has been said must arrive, but nobody waits for a stopped peer.
      endBy = endBy ? endBy : now + 1;
      if (flushAll() || now > endBy)
        return;
    }
  }
}

void ControlServer::announce(const Trouble &trouble) {
  const std::string front =
      trouble.origin == kNoticed ? "lost "
      : trouble.origin == kAllWait
          ? "stuck "
          : "fail " + std::to_string(static_cast<int>(trouble.code)) + " " +
                std::to_string(trouble.origin) + " ";
  broadcast(front + trouble.message);
}

void ControlServer::accept() {
  pollfd waiting{listener, POLLIN, 0};
  while (::poll(&waiting, 1, 0) == 1) {
    const int fd = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0)
      return;
    clients.emplace_back(LineSocket(fd));
    clients.back().heard = time.seconds();
  }
}

void ControlServer::handle(Client &client, const std::string &line) {
  std::istringstream words(line);
  std::string kind;
  words >> kind;
  client.heard = time.seconds();
  if (client.rank < 0) { // nothing is believed before the right hello
    std::string given;
    int rank = -1;
    long pid = 0;
    words >> given >> rank >> pid;
    if (kind != "hello" || given != token || rank < 0 || rank >= count) {
      client.socket.close();
      return;
    }
    client.rank = rank;
    std::lock_guard lock(mutex);
    views[rank].pid = static_cast<pid_t>(pid);
    views[rank].connected = true;
    if (first && announced)
      client.socket.send("lost " + first->message);
    if (stopSent) // asked for before this rank had come
      client.socket.send("stop");
    return;
  }
  auto rest = [&] {
    std::string text;
    std::getline(words >> std::ws, text);
    return text;
  };
  if (kind == "beat" || kind == "here") {
    client.here = kind == "here";
    words >> client.progress >> client.waiting >> client.peer >> client.step;
    client.operation = rest();
    std::lock_guard lock(mutex);
    int64_t &step = views[client.rank].step;
    step = std::max(step, client.step);
  } else if (kind == "fail") {
    int code = 0;
    words >> code;
    fail(static_cast<Exit>(code), rest(), client.rank);
  } else if (kind == "stop") {
    stopping = true;
  } else if (kind == "done") {
    int code = 0;
    words >> code;
    std::lock_guard lock(mutex);
    views[client.rank].code = code;
  }
}

void ControlServer::closed(Client &client) {
  if (client.rank < 0)
    return;
  bool finished = false;
  {
    std::lock_guard lock(mutex);
    views[client.rank].connected = false;
    finished = views[client.rank].code.has_value();
  }
  if (finished)
    return;
  dead.push_back({client.rank, lastHeard(client), time.seconds()});
  for (Client &each : clients) // a beat is from before the death
    each.here = false;
}

/// What a rank was doing, as far as it has said: more may have followed.
std::string ControlServer::lastHeard(const Client &client) const {
  const double seconds = time.seconds() - client.heard;
  char ago[64] = "just";
  if (seconds >= 0.05)
    std::snprintf(ago, sizeof ago, "%.1f s", seconds);
  return ago + (" before, it was " + client.operation);
}

/// Who waits for a rank, in the first step of all that do; or null. `answered`:
/// asked for it, not as it was at some beat.
const ControlServer::Client *ControlServer::waiterFor(int rank,
                                                      bool answered) const {
  const Client *found = nullptr;
  for (const Client &client : clients)
    if (client.rank >= 0 && client.waiting && client.peer == rank &&
        (client.here || !answered) &&
        (!found || found->step < 0 ||
         (client.step >= 0 && client.step < found->step)))
      found = &client;
  return found;
}

/// The step that has come to nothing for the want of a rank is known to who
/// waits for it: ": rank 1 waits for it in step 7". Otherwise `heard`.
std::string ControlServer::lossOf(int rank, const std::string &heard) const {
  const Client *waiter = waiterFor(rank, !dead.empty());
  if (!waiter || waiter->step < 0)
    return "; " + heard;
  return waitsForIt(waiter->rank) + " in step " +
         std::to_string(waiter->step + 1);
}

/// A dead rank is told of as soon as one is known to wait for it, or nobody has
/// come to that for a while; with all that have died by then.
void ControlServer::lookForDeath() {
  if (dead.empty() || announced)
    return;
  const double patience = std::min(1.0, timeout / 20);
  const bool alone = std::none_of(clients.begin(), clients.end(),
                                  [](auto &each) { return each.rank >= 0; });
  const auto awaited =
      std::find_if(dead.begin(), dead.end(), [this](const Death &each) {
        return waiterFor(each.rank, true);
      });
  if (awaited == dead.end() && !alone &&
      time.seconds() - dead.front().since < patience)
    return broadcast("where");
  const Death &told = awaited == dead.end() ? dead.front() : *awaited;
  lose(told.rank,
       "has died" + lossOf(told.rank, told.heard) + deathsAfter(told.rank));
}

/// ", and rank 2 (stage 2) has died, too"
std::string ControlServer::deathsAfter(int rank) const {
  std::string text;
  for (const Death &each : dead)
    if (each.rank != rank)
      text += ", and " + nameOf(each.rank) + " has died, too";
  return text;
}

void ControlServer::lose(int rank, const std::string &how) {
  fail(Exit::PeerLost, nameOf(rank) + " " + how, kNoticed);
  std::lock_guard lock(mutex);
  views[rank].lost = true;
}

void ControlServer::lookForSilence() {
  const double now = time.seconds();
  if (announced)
    return;
  const auto all = ranks();
  for (Client &client : clients)
    if (client.rank >= 0 && !all[client.rank].code &&
        now - client.heard > timeout / 2) {
      std::ostringstream text;
      text << "has not answered for " << timeout / 2 << " s"
           << lossOf(client.rank, "before, it was " + client.operation);
      lose(client.rank, text.str());
    }
  // A rank may not have come up at all.
  if (now <= timeout)
    return;
  for (int rank = 0; rank < count; ++rank)
    if (all[rank].pid == 0)
      lose(rank, "has not started");
}

void ControlServer::lookForStall() {
  const double now = time.seconds();
  uint64_t progress = 0;
  int waiting = 0, connected = 0;
  for (Client &client : clients)
    if (client.rank >= 0)
      progress += client.progress, waiting += client.waiting, ++connected;
  if (progress != lastProgress || waiting < connected || connected == 0) {
    lastProgress = progress;
    moved = now;
  }
  if (announced || now - moved <= timeout / 2)
    return;
  std::string text = "no rank makes progress:";
  for (Client &client : clients)
    if (client.rank >= 0)
      text += " " + nameOf(client.rank) + " is " + client.operation + ";";
  text.pop_back();
  fail(Exit::PeerLost, text, kAllWait);
}

void ControlServer::broadcast(const std::string &line) {
  for (Client &client : clients)
    if (client.rank >= 0)
      client.socket.send(line);
}

bool ControlServer::flushAll() {
  bool all = true;
  for (Client &client : clients)
    all &= client.socket.flush();
  return all;
}

} // namespace pipec
