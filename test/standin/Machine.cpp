//===- Machine.cpp - a stand-in for GPUs ----------------------------------===//
#include "test/standin/Machine.h"
#include "support/Clock.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

namespace pipec::standin {

int64_t setting(const char *name, int64_t otherwise) {
  const char *text = std::getenv(name);
  return text ? std::strtoll(text, nullptr, 10) : otherwise;
}

std::deque<Op> &Capture::of(Stream *stream) {
  for (auto &[known, ops] : streams)
    if (known == stream)
      return ops;
  return streams.emplace_back(stream, std::deque<Op>()).second;
}

Machine &Machine::get() {
  static auto *machine = new Machine; // ranks may end after main
  return *machine;
}

Machine::Machine() {
  const char *order = std::getenv("PIPEC_STANDIN_ORDER");
  if (order && std::strncmp(order, "random:", 7) == 0)
    seed = std::strtoll(order + 7, nullptr, 10) * 2 + 1;
  messagesFirst = order && std::strcmp(order, "messages-first") == 0;
}

void Machine::log(const std::string &line) {
  static const char *path = std::getenv("PIPEC_STANDIN_LOG");
  if (!path)
    return;
  static const std::string name =
      path + (path[std::strlen(path) - 1] == '/' ? std::to_string(getpid())
                                                 : std::string());
  std::lock_guard lock(mutex);
  if (FILE *file = std::fopen(name.c_str(), "a")) {
    std::fprintf(file, "%s\n", line.c_str());
    std::fclose(file);
  }
}

Stream *Machine::createStream() {
  streams.push_back(std::make_unique<Stream>());
  streams.back()->number = numbers++;
  return streams.back().get();
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

/// While one lives, device memory can be touched from the first work on: who
/// looks whether something is there opens and closes no pages.
struct Machine::Access {
  Access(Machine &machine) : machine(machine) { ++machine.accesses; }
  ~Access() {
    if (--machine.accesses == 0)
      machine.setAccess(false);
  }
  Machine &machine;
};

static int64_t wholePages(int64_t bytes) {
  const int64_t page = 4096;
  return (bytes + page - 1) / page * page;
}

void Machine::setAccess(bool open) {
  if (std::exchange(isOpen, open) == open)
    return;
  for (auto [start, bytes] : memory)
    mprotect(start, static_cast<size_t>(wholePages(bytes)),
             open ? PROT_READ | PROT_WRITE : PROT_NONE);
}

char *Machine::allocate(int64_t bytes) {
  if (used + bytes > setting("PIPEC_STANDIN_MEMORY", int64_t(1) << 30))
    return nullptr;
  void *mapped =
      mmap(nullptr, static_cast<size_t>(wholePages(bytes)),
           PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  // What nobody has written is no number.
  std::memset(mapped, 0xff, static_cast<size_t>(bytes));
  auto *start = static_cast<char *>(mapped);
  memory[start] = bytes;
  used += bytes;
  if (!isOpen)
    mprotect(mapped, static_cast<size_t>(wholePages(bytes)), PROT_NONE);
  log("allocate " + std::to_string(bytes));
  return start;
}

bool Machine::release(char *start) {
  auto found = memory.find(start);
  if (found == memory.end())
    return false;
  munmap(start, static_cast<size_t>(wholePages(found->second)));
  used -= found->second;
  memory.erase(found);
  return true;
}

bool Machine::isDevice(const void *pointer, int64_t bytes) const {
  auto *at = const_cast<char *>(static_cast<const char *>(pointer));
  auto after = memory.upper_bound(at);
  if (after == memory.begin())
    return false;
  --after;
  return at + bytes <= after->first + after->second;
}

//===----------------------------------------------------------------------===//
// Order
//===----------------------------------------------------------------------===//

bool Machine::isReady(const Op &op) const {
  if (op.kind == Op::Wait)
    return op.event->done >= op.count;
  return !op.ready || op.ready();
}

void Machine::runFront(Stream *stream) {
  Op op = std::move(stream->ops.front());
  stream->ops.pop_front();
  if (op.kind == Op::Record) {
    op.event->done = std::max(op.event->done, op.count);
    op.event->time = now();
  } else if (op.kind == Op::Work) {
    setAccess(true);
    op.work();
  }
}

bool Machine::demandEvent(EventState *event, int64_t count) {
  Stream *stream = event->stream;
  while (event->done < count) {
    if (!stream || stream->ops.empty())
      return false;
    Op &front = stream->ops.front();
    if (front.kind == Op::Wait && !isReady(front) &&
        !demandEvent(front.event, front.count))
      return false;
    if (!isReady(stream->ops.front()))
      return false;
    runFront(stream);
  }
  return true;
}

bool Machine::demand(Stream *stream) {
  Access access(*this);
  while (!stream->ops.empty()) {
    Op &front = stream->ops.front();
    if (front.kind == Op::Wait && !isReady(front))
      demandEvent(front.event, front.count);
    if (!isReady(stream->ops.front()))
      return false;
    runFront(stream);
  }
  std::erase_if(streams, [&](auto &other) {
    return other->temporary && other->ops.empty();
  });
  return true;
}

void Machine::demandAll() {
  std::vector<Stream *> all;
  for (auto &stream : streams)
    if (!stream->temporary)
      all.push_back(stream.get());
  for (Stream *stream : all)
    demand(stream);
}

void Machine::runAtRandom() {
  auto random = [&](int64_t below) {
    seed = seed * 6364136223846793005 + 1442695040888963407;
    return static_cast<int64_t>((static_cast<uint64_t>(seed) >> 33) %
                                static_cast<uint64_t>(below));
  };
  if (random(4) != 0)
    return;
  Access access(*this);
  for (int64_t tries = random(12); tries > 0; --tries) {
    Stream *stream = streams[static_cast<size_t>(
                                 random(static_cast<int64_t>(streams.size())))]
                         .get();
    if (!stream->ops.empty() && isReady(stream->ops.front()))
      runFront(stream);
  }
}

/// Of each rank's two streams the second is that of messages.
void Machine::runMessages() {
  auto isNext = [&](auto &stream) {
    return stream->number % 2 == 1 && !stream->ops.empty() &&
           isReady(stream->ops.front());
  };
  if (std::none_of(streams.begin(), streams.end(), isNext))
    return;
  Access access(*this);
  for (auto &stream : streams)
    while (isNext(stream))
      runFront(stream.get());
}

void Machine::queue(Stream *stream, Op op) {
  if (stream->capture) {
    stream->capture->of(stream).push_back(std::move(op));
    return;
  }
  stream->ops.push_back(std::move(op));
  if (seed >= 0)
    runAtRandom();
  if (messagesFirst)
    runMessages();
}

/// Each stream of the recording becomes a stream of its own, with events of its
/// own, between the launch and the next work of `stream`.
void Machine::launch(const Capture &graph, Stream *stream) {
  std::map<std::pair<EventState *, int64_t>, std::shared_ptr<EventState>> own;
  auto fresh = [&](EventState *event, int64_t count) {
    auto &entry = own[{event, count}];
    if (!entry)
      entry = std::make_shared<EventState>();
    return entry;
  };
  auto edge = [&](Stream *from, Stream *to) {
    auto event = std::make_shared<EventState>();
    event->stream = from, event->recorded = 1;
    queue(from, {Op::Record, {}, {}, event.get(), 1, event});
    return [=, this] { queue(to, {Op::Wait, {}, {}, event.get(), 1, event}); };
  };
  std::vector<Stream *> copies;
  for (auto &[known, ops] : graph.streams) {
    Stream *copy = createStream();
    copies.push_back(copy);
    edge(stream, copy)();
    for (const Op &op : ops) {
      Op again = op;
      // Recordings that others outside look at are of the event itself.
      if (op.kind != Op::Work && op.count > 0) {
        again.own = fresh(op.event, op.count);
        again.event = again.own.get();
        again.count = 1;
        if (op.kind == Op::Record)
          again.event->stream = copy, again.event->recorded = 1;
      } else if (op.kind == Op::Record) {
        again.count = ++op.event->recorded;
        op.event->stream = copy;
      }
      queue(copy, std::move(again));
    }
  }
  for (Stream *copy : copies) {
    edge(copy, stream)();
    copy->temporary = true;
  }
}

void queueWork(void *stream, std::function<void()> work,
               std::function<bool()> ready) {
  Machine &machine = Machine::get();
  std::lock_guard lock(machine.mutex);
  machine.queue(static_cast<Stream *>(stream),
                {Op::Work, std::move(work), std::move(ready), nullptr, 0, {}});
}

} // namespace pipec::standin
