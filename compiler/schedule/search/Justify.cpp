//===- Justify.cpp - fill holes forwards and backwards in time ------------===//
//
// Forward-backward improvement, known from project scheduling: pushing all
// tasks as late as they can go and then as early as they can go closes gaps
// that either pass alone leaves. Moving a task that is ready now ahead of tasks
// that still wait keeps the order free of deadlock, and what it adds to memory
// is checked against every task it passes, so each pass stays valid.
//
// The span of an order is the makespan after each device's clock is shifted by
// its first start, which no order can change: the backward pass starts devices
// that far apart.
//
//===----------------------------------------------------------------------===//
#include "compiler/schedule/search/Justify.h"

#include "compiler/schedule/search/Agenda.h"

#include <algorithm>

namespace pipec::schedule::search {

namespace {

/// The next task of a row; the heads of a device lie side by side.
struct Head {
  double ready = kNever; ///< when it can start, as far as is known
  double time = 0, memory = 0;
  int position = 0; ///< in the device's list
  int row = 0, taken = 0;
  int after = -1, before = -1; ///< heads of the same stage
  int feeds = -1;              ///< head that takes its results
  int device = 0;
  bool waits = false;
  double hop = 0; ///< to the head it feeds
};

/// A place in a device's list of tasks not yet taken, which is linked.
struct Link {
  int next = 0, previous = 0;
  Task task = 0;
  int head = 0; ///< of the task's row
};

/// What is looked up of a task together.
struct Place {
  double arrival = kNever; ///< of what it waits for
  int position = 0;        ///< in its device's list
};

/// What is left of neighbouring places of a list: so many at once are passed by
/// who looks far ahead.
struct Stretch {
  static constexpr int kPlaces = 64;
  double sum = 0, peak = 0; ///< of memory, of all and of some first ones
  bool isKnown = false;     ///< until one of them is taken
};

struct Device {
  int links = 0, size = 0; ///< of its list; the last link is the list's head
  int stretches = 0;       ///< the first one of its list
  double freeAt = 0, held = 0, first = 0;
};

/// What passes allocate, kept from one to the next.
struct Buffers {
  std::vector<Place> places;  ///< by task
  std::vector<double> offset; ///< device -> its clock behind the others
  std::vector<int> headOf;    ///< by row
  std::vector<int> firstHead; ///< by device
  std::vector<Device> devices;
  std::vector<Head> heads;
  std::vector<Link> links;
  std::vector<double> adds; ///< by link: memory of what is not yet taken
  std::vector<Stretch> stretches;
};

class Pass {
public:
  Pass(const Problem &problem, const Order &order, bool backwards, Shake *shake,
       Times *times, Buffers &buffers)
      : p(problem), rows(backwards ? p.mirror : p.rows), backwards(backwards),
        shake(shake), times(times), order(order), result(p.devices),
        offset(buffers.offset), devices(buffers.devices), heads(buffers.heads),
        links(buffers.links), adds(buffers.adds), stretches(buffers.stretches),
        headOf(buffers.headOf), firstHead(buffers.firstHead),
        places(buffers.places), agenda(p.devices) {}
  Order run(Result *result);

private:
  void prepare();
  void prepareHeads();
  void prepareLinks();
  void entries();
  Task taskOf(const Head &h) const {
    return p.task(h.row, backwards ? p.microbatches - 1 - h.taken : h.taken);
  }
  void refresh(Head &h) {
    if (h.taken == p.microbatches ||
        (h.after >= 0 && heads[h.after].taken <= h.taken)) {
      h.ready = kNever;
      return;
    }
    const Place &place = places[taskOf(h)];
    h.position = place.position;
    h.ready = h.waits ? place.arrival : 0;
  }
  void decide(int d, double now);
  const Stretch &stretch(const Device &dev, int number);
  bool roomToPull(int d, int position, double change);
  double latest(const Head &h, Task t) const {
    return times->end - times->starts[t] - h.time;
  }
  void take(int d, int position, double now);
  void feed(const Head &from, Task t, double end);
  bool chance(double rate);
  int anyReady(int d, double now);

  const Problem &p;
  const std::vector<Row> &rows;
  const bool backwards;
  Shake *shake;
  Times *times;
  const Order &order;
  Order result;
  std::vector<double> &offset;
  std::vector<Device> &devices;
  std::vector<Head> &heads;
  std::vector<Link> &links;
  std::vector<double> &adds;
  std::vector<Stretch> &stretches;
  std::vector<int> &headOf;
  std::vector<int> &firstHead;
  std::vector<Place> &places;
  Agenda agenda;
};

void Pass::prepare() {
  places.assign(p.taskIds(), {});
  offset.assign(p.devices, 0);
  if (times)
    times->starts.resize(p.taskIds());
  devices.assign(p.devices, {});
  for (int d = 0; d < p.devices; ++d) {
    if (backwards)
      devices[d].held = p.residue[d];
    result[d].reserve(order[d].size());
    agenda.set(d, 0);
  }
  prepareHeads();
  prepareLinks();
  for (Head &h : heads)
    refresh(h);
  if (p.metric == Metric::Span)
    entries();
}

void Pass::prepareHeads() {
  heads.clear();
  firstHead.clear();
  headOf.resize(rows.size());
  for (int d = 0; d < p.devices; ++d) {
    firstHead.push_back(static_cast<int>(heads.size()));
    for (int row : p.rowsOf[d]) {
      headOf[row] = static_cast<int>(heads.size());
      Head &h = heads.emplace_back();
      h.row = row;
      h.device = d;
      h.time = rows[row].time;
      h.memory = rows[row].memory;
      h.waits = rows[row].waits;
      h.hop = rows[row].hop;
    }
  }
  firstHead.push_back(static_cast<int>(heads.size()));
  for (Head &h : heads) {
    if (int feeds = rows[h.row].feeds; feeds >= 0)
      h.feeds = headOf[feeds];
    if (int after = rows[h.row].after; after >= 0) {
      h.after = headOf[after];
      heads[h.after].before = headOf[h.row];
    }
  }
}

void Pass::prepareLinks() {
  std::size_t all = 0;
  for (const auto &list : order)
    all += list.size() + 1;
  links.resize(all);
  adds.resize(all);
  stretches.clear();
  Link *link = links.data();
  for (int d = 0; d < p.devices; ++d) {
    const int n = static_cast<int>(order[d].size());
    devices[d].links = static_cast<int>(link - links.data());
    devices[d].size = n;
    devices[d].stretches = static_cast<int>(stretches.size());
    stretches.resize(stretches.size() + n / Stretch::kPlaces + 1);
    for (int i = 0; i <= n; ++i, ++link) {
      const int after = i == n ? 0 : i + 1, before = i == 0 ? n : i - 1;
      link->next = backwards ? before : after;
      link->previous = backwards ? after : before;
      if (i == n)
        continue;
      link->task = order[d][i];
      link->head = headOf[p.rowOf(link->task)];
      adds[link - links.data()] = heads[link->head].memory;
      places[link->task].position = i;
    }
  }
}

/// For the span each device has its own clock, which starts with its first
/// task. With time reversed a device may start as much later as it ends
/// earlier.
void Pass::entries() {
  std::vector<double> entry(p.devices, kNever);
  double at = 0, latest = 0;
  for (int s = 0; s < p.stages; ++s) {
    const Row &row = p.rows[3 * s];
    if (entry[row.device] == kNever)
      entry[row.device] = latest = at;
    at += row.time + row.hop;
  }
  for (int d = 0; d < p.devices; ++d) {
    offset[d] = backwards ? entry[d] : latest - entry[d];
    if (!backwards)
      continue;
    devices[d].freeAt = latest - entry[d];
    agenda.set(d, devices[d].freeAt);
  }
}

Order Pass::run(Result *cost) {
  prepare();
  for (auto at = agenda.next(); at.time < kNever; at = agenda.next())
    decide(at.device, at.time);
  double from = kNever, to = 0, span = 0, end = 0;
  for (int d = 0; d < p.devices; ++d) {
    Device &dev = devices[d];
    if (result[d].size() < order[d].size())
      return {};
    end = std::max(end, dev.freeAt + offset[d]);
    if (backwards)
      std::reverse(result[d].begin(), result[d].end());
    from = std::min(from, dev.first);
    to = std::max(to, dev.freeAt);
    span = std::max(span, dev.freeAt - dev.first);
  }
  if (cost)
    *cost = {to - from, span, true};
  if (times)
    times->end = end, times->known = true;
  return std::move(result);
}

void Pass::decide(int d, double now) {
  const Device &dev = devices[d];
  const Link *list = &links[dev.links];
  const int first = list[dev.size].next;
  if (first == dev.size)
    return agenda.set(d, kNever);
  if (shake && now >= shake->from && now < shake->to && chance(shake->rate))
    if (int position = anyReady(d, now); position >= 0)
      return take(d, position, now);
  const Head &head = heads[list[first].head];
  double turn = head.ready;
  if (turn <= now)
    return take(d, first, now);
  // Tasks may fill the gap, and with known latest starts reach beyond it.
  if (times && times->known)
    turn = std::max(turn, latest(head, list[first].task));
  double wake = kNever;
  int best = -1;
  for (int i = firstHead[d]; i < firstHead[d + 1]; ++i) {
    const Head &h = heads[i];
    if (h.ready > now) {
      wake = std::min(wake, h.ready);
      continue;
    }
    if (now + h.time > turn * (1 + 1e-13))
      continue;
    if (best >= 0 && (backwards ? h.position < best : h.position > best))
      continue;
    if (h.memory <= 0 || roomToPull(d, h.position, h.memory))
      best = h.position;
  }
  if (best >= 0)
    return take(d, best, now);
  agenda.set(d, wake);
}

bool Pass::chance(double rate) {
  shake->state = shake->state * 6364136223846793005ull + 1442695040888963407ull;
  return static_cast<double>(shake->state >> 33) < rate * 2147483648.0;
}

/// The position of some task that could run now, each with equal chance.
int Pass::anyReady(int d, double now) {
  int picked = -1, seen = 0;
  for (int i = firstHead[d]; i < firstHead[d + 1]; ++i) {
    const Head &h = heads[i];
    if (h.ready > now)
      continue;
    if (h.memory > 0 && !roomToPull(d, h.position, h.memory))
      continue;
    if (chance(1.0 / ++seen))
      picked = h.position;
  }
  return picked;
}

const Stretch &Pass::stretch(const Device &dev, int number) {
  Stretch &stretch = stretches[dev.stretches + number];
  if (stretch.isKnown)
    return stretch;
  const int from = number * Stretch::kPlaces,
            to = std::min(from + Stretch::kPlaces, dev.size);
  const double *memory = &adds[dev.links];
  stretch = {0, 0, true};
  for (int i = 0; i < to - from; ++i)
    stretch.peak = std::max(
        stretch.peak, stretch.sum += memory[backwards ? to - 1 - i : from + i]);
  return stretch;
}

/// Whether the device has room for `change` more until `position` comes up.
bool Pass::roomToPull(int d, int position, double change) {
  const Device &dev = devices[d];
  if (p.limit[d] == kNever)
    return true;
  const double *memory = &adds[dev.links];
  const double most = p.limit[d] + p.slack;
  const int last = position / Stretch::kPlaces, by = backwards ? -1 : 1;
  double held = dev.held + change;
  int at = links[dev.links + dev.size].next;
  for (int number = at / Stretch::kPlaces; number != last && held <= most;
       number += by) {
    const Stretch &passed = stretch(dev, number);
    if (held + passed.peak > most)
      return false;
    held += passed.sum;
    at = (number + by) * Stretch::kPlaces;
    if (backwards)
      at = std::min(at + Stretch::kPlaces, dev.size) - 1;
  }
  for (; at != position && held <= most; at += by)
    held += memory[at];
  return held <= most;
}

void Pass::take(int d, int position, double now) {
  Device &dev = devices[d];
  Link *list = &links[dev.links];
  const Link &link = list[position];
  const Task t = link.task;
  list[link.previous].next = link.next;
  list[link.next].previous = link.previous;
  adds[dev.links + position] = 0;
  stretches[dev.stretches + position / Stretch::kPlaces].isKnown = false;
  Head &own = heads[link.head];
  if (result[d].empty())
    dev.first = now;
  if (times)
    times->starts[t] = now;
  dev.held += own.memory;
  const double end = dev.freeAt = now + own.time;
  ++own.taken;
  refresh(own);
  if (own.before >= 0)
    refresh(heads[own.before]);
  result[d].push_back(t);
  agenda.set(d, end);
  if (own.feeds >= 0)
    feed(own, t, end);
}

/// What the task has made arrives where it is waited for.
void Pass::feed(const Head &from, Task t, double end) {
  Head &to = heads[from.feeds];
  const double at = end + from.hop;
  const Task fed = p.task(to.row, p.microbatchOf(t));
  places[fed].arrival = at;
  if (to.taken < p.microbatches && taskOf(to) == fed)
    refresh(to);
  agenda.sooner(to.device, std::max(at, devices[to.device].freeAt));
}

} // namespace

Order justify(const Problem &problem, const Order &order, bool backwards,
              Result *result, Shake *shake, Times *times) {
  thread_local Buffers buffers; // the same for every caller, none keeps any
  return Pass(problem, order, backwards, shake, times, buffers).run(result);
}

Order improve(const Problem &problem, const Order &order, int rounds,
              Result &result, int *passes) {
  Order best = order, current = order;
  result = evaluate(problem, best);
  int made = 0;
  Times times;
  if (!passes)
    passes = &made;
  ++*passes;
  int idle = 0;
  for (int round = 0; round < rounds && idle < 2; ++round) {
    Result r;
    ++idle;
    *passes += 2;
    current = justify(problem, current, true, nullptr, nullptr, &times);
    if (current.empty())
      break;
    // Every other round only true gaps are filled: slack used up in one round
    // is given back in the next.
    if (round % 2)
      times.known = false;
    current = justify(problem, current, false, &r, nullptr, &times);
    if (current.empty())
      break;
    if (r.cost(problem.metric) < result.cost(problem.metric) * (1 - 1e-9)) {
      result = r;
      best = current;
      idle = 0;
    }
  }
  return best;
}

} // namespace pipec::schedule::search
