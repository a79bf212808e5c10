//===- Verifier.cpp - independent proof of a schedule ---------------------===//
//
// Three layers, each only entered when the one below holds: the lists name the
// right tasks, each list is consistent in itself, and the lists together run
// (alone, with bounded channels, with the version rule's updates).
//
//===----------------------------------------------------------------------===//
#include "compiler/schedule/Verifier.h"

#include "compiler/schedule/Replay.h"
#include "support/Failure.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <tuple>

namespace pipec::schedule {

const char *toString(Rule rule) {
  switch (rule) {
  case Rule::Shape:
    return "shape";
  case Rule::Missing:
    return "missing task";
  case Rule::Duplicate:
    return "duplicate task";
  case Rule::Device:
    return "wrong device";
  case Rule::Dependency:
    return "dependency";
  case Rule::Deadlock:
    return "deadlock";
  case Rule::Buffers:
    return "buffers";
  case Rule::Fifo:
    return "message order";
  case Rule::Memory:
    return "memory";
  case Rule::Version:
    break;
  }
  return "weight version";
}

namespace {

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

class Verifier {
public:
  Verifier(const Schedule &schedule, const VerifyOptions &options)
      : schedule(schedule), options(options) {}

  std::vector<Violation> run() {
    if (!shape() || !tasks() || !lists())
      return std::move(found);
    replay(Rule::Deadlock, "", {});
    if (!found.empty())
      return std::move(found);
    if (options.buffers >= 0) {
      ReplayOptions bounded;
      bounded.buffers = options.buffers;
      replay(Rule::Buffers,
             " with " + std::to_string(options.buffers) +
                 " buffers for a pair of devices",
             bounded);
    }
    if (options.messages != MessageOrder::Any)
      messageOrder();
    if (options.costs)
      memory();
    if (options.versions)
      versions();
    return std::move(found);
  }

private:
  void report(Rule rule, int device, int position, const std::string &what) {
    if (found.size() >= options.most)
      return;
    std::string where;
    if (device >= 0)
      where = "device " + std::to_string(device) + ": ";
    found.push_back({rule, device, position, where + what});
  }
  bool clean() const { return found.empty(); }
  std::string name(Kind kind, std::size_t task) const {
    return toString(Action{kind, static_cast<int>(task / M()),
                           static_cast<int>(task % M())});
  }
  std::size_t M() const { return schedule.microbatches; }

  bool shape();
  bool tasks();
  bool lists();
  void checkInList(int device, int position);
  void replay(Rule rule, const std::string &how, const ReplayOptions &how_);
  void messageOrder();
  void memory();
  void versions();
  void readsVersion(int device, int position, const char *pass, int version,
                    int current);

  const Schedule &schedule;
  const VerifyOptions &options;
  std::vector<Violation> found;
  /// [kind][stage*M+microbatch] -> position in its device's list, -1 none.
  std::vector<int> where[4];
};

bool Verifier::shape() {
  const Schedule &s = schedule;
  auto bad = [&](const std::string &what) {
    report(Rule::Shape, -1, -1, what);
  };
  if (s.devices() < 1 || s.stages < 1 || s.microbatches < 1)
    bad("a schedule has at least one device, stage and microbatch");
  if (static_cast<int>(s.placement.size()) != s.stages)
    bad("placement lists " + std::to_string(s.placement.size()) +
        " stages, the schedule has " + std::to_string(s.stages));
  if (s.slices < 1 || s.microbatches % std::max(1, s.slices) != 0)
    bad(std::to_string(s.microbatches) + " pieces are no multiple of " +
        std::to_string(s.slices) + " slices");
  if (!clean())
    return false;
  for (int stage = 0; stage < s.stages; ++stage) {
    std::vector<int> copies = s.placement[stage];
    std::sort(copies.begin(), copies.end());
    if (copies.empty() || copies.front() < 0 || copies.back() >= s.devices() ||
        std::adjacent_find(copies.begin(), copies.end()) != copies.end())
      bad("stage " + std::to_string(stage) +
          " needs distinct devices between 0 and " +
          std::to_string(s.devices() - 1));
    if (s.slices > 1 && copies.size() > 1)
      bad("stage " + std::to_string(stage) +
          " has several copies: slices of one microbatch would part");
  }
  std::size_t actions = 0;
  for (int d = 0; d < s.devices(); ++d)
    for (std::size_t i = 0; i < s.order[d].size(); ++i, ++actions) {
      const Action &a = s.order[d][i];
      if (a.stage < 0 || a.stage >= s.stages || a.microbatch < 0 ||
          a.microbatch >= s.microbatches)
        report(Rule::Shape, d, static_cast<int>(i),
               toString(a) + " is outside " + std::to_string(s.stages) +
                   " stages and " + std::to_string(s.microbatches) +
                   " microbatches");
    }
  // Before tables of that size are made: each task needs two actions at least.
  if (clean() && static_cast<std::size_t>(s.stages) * M() > actions)
    report(Rule::Missing, -1, -1,
           std::to_string(actions) + " actions cannot cover " +
               std::to_string(s.stages) + " stages times " +
               std::to_string(s.microbatches) + " microbatches");
  return clean();
}

bool Verifier::tasks() {
  for (auto &table : where)
    table.assign(schedule.stages * M(), -1);
  for (int d = 0; d < schedule.devices(); ++d)
    for (std::size_t i = 0; i < schedule.order[d].size(); ++i) {
      const Action &a = schedule.order[d][i];
      int at = static_cast<int>(i);
      int home = schedule.deviceOf(a.stage, a.microbatch);
      if (home != d)
        report(Rule::Device, d, at,
               toString(a) + " belongs on device " + std::to_string(home));
      int &seen = where[static_cast<int>(a.kind)][a.stage * M() + a.microbatch];
      if (seen >= 0)
        report(Rule::Duplicate, d, at, toString(a) + " is there twice");
      seen = at;
    }
  const auto &[f, b, i, w] = where;
  for (std::size_t t = 0; t < f.size(); ++t) {
    int device =
        schedule.deviceOf(static_cast<int>(t / M()), static_cast<int>(t % M()));
    if (f[t] < 0)
      report(Rule::Missing, device, -1, name(Kind::F, t) + " is missing");
    if (b[t] >= 0 && (i[t] >= 0 || w[t] >= 0))
      report(Rule::Duplicate, device, i[t] >= 0 ? i[t] : w[t],
             name(i[t] >= 0 ? Kind::I : Kind::W, t) + " is already part of " +
                 name(Kind::B, t));
    if (b[t] < 0 && i[t] < 0)
      report(Rule::Missing, device, -1,
             (w[t] >= 0 ? name(Kind::I, t) : name(Kind::B, t)) + " is missing");
    if (b[t] < 0 && i[t] >= 0 && w[t] < 0)
      report(Rule::Missing, device, -1, name(Kind::W, t) + " is missing");
    if (found.size() >= options.most)
      break;
  }
  return clean();
}

bool Verifier::lists() {
  for (int d = 0; d < schedule.devices(); ++d)
    for (std::size_t i = 0; i < schedule.order[d].size(); ++i)
      checkInList(d, static_cast<int>(i));
  return clean();
}

/// What the action needs from its own device must stand before it.
void Verifier::checkInList(int device, int position) {
  const Action &a = schedule.order[device][position];
  std::size_t task = a.stage * M() + a.microbatch;
  auto after = [&](Kind kind, std::size_t earlier) {
    int at = where[static_cast<int>(kind)][earlier];
    if (at > position)
      report(Rule::Dependency, device, position,
             toString(a) + " stands before " + name(kind, earlier));
  };
  int piece = a.microbatch % schedule.slices;
  if (a.kind == Kind::F) {
    if (piece > 0)
      after(Kind::F, task - 1);
    return;
  }
  if (a.kind == Kind::W) {
    after(Kind::I, task);
    return;
  }
  after(Kind::F, task);
  if (piece + 1 < schedule.slices) {
    after(Kind::B, task + 1);
    after(Kind::I, task + 1);
  }
}

void Verifier::replay(Rule rule, const std::string &how,
                      const ReplayOptions &bounds) {
  if (auto stuck = schedule::replay(schedule, bounds))
    report(rule, stuck->device, stuck->position, stuck->cycle + how);
}

void Verifier::messageOrder() {
  // A channel is a pair of devices, or one stage boundary and direction of it.
  using Channel = std::tuple<int, int, int, bool>;
  auto channel = [&](int from, int to, const Action &sent) {
    bool edge = options.messages == MessageOrder::PerEdge;
    return Channel(from, to, edge ? sent.stage : -1,
                   edge && sent.kind != Kind::F);
  };
  std::map<Channel, std::deque<Action>> sent;
  for (int from = 0; from < schedule.devices(); ++from)
    for (const Action &a : schedule.order[from])
      if (int to = consumerOf(schedule, a); to >= 0 && to != from)
        sent[channel(from, to, a)].push_back(a);
  for (int to = 0; to < schedule.devices(); ++to)
    for (std::size_t i = 0; i < schedule.order[to].size(); ++i) {
      const Action &a = schedule.order[to][i];
      auto producer = producerOf(schedule, a);
      if (!producer)
        continue;
      int from = schedule.deviceOf(producer->stage, producer->microbatch);
      auto waiting = sent.find(channel(from, to, *producer));
      if (from == to || waiting == sent.end())
        continue;
      const Action expected = waiting->second.front();
      waiting->second.pop_front();
      if (expected.stage == producer->stage &&
          expected.microbatch == producer->microbatch &&
          (expected.kind != Kind::F) == (a.kind != Kind::F))
        continue;
      report(Rule::Fifo, to, static_cast<int>(i),
             toString(a) + " takes the result of stage " +
                 std::to_string(producer->stage) + " microbatch " +
                 std::to_string(producer->microbatch) + " but device " +
                 std::to_string(from) + " sends that of " + toString(expected) +
                 " first");
      sent.erase(waiting); // once for a channel
    }
}

void Verifier::memory() {
  const Costs &costs = *options.costs;
  if (costs.limit.empty())
    return;
  for (int d = 0; d < schedule.devices(); ++d) {
    double held = 0, limit = costs.limit[d];
    // Sums of thousands of fractions: a relative slack, not a real allowance.
    double slack = 1e-9 * std::max(1.0, std::abs(limit));
    for (std::size_t i = 0; i < schedule.order[d].size(); ++i) {
      const Action &a = schedule.order[d][i];
      held += costs.memory(a.kind, a.stage, d);
      if (held > limit + slack) {
        report(Rule::Memory, d, static_cast<int>(i),
               toString(a) + " brings the device to " + number(held) +
                   ", its limit is " + number(limit));
        break;
      }
    }
  }
}

void Verifier::versions() {
  const VersionRule &rule = *options.versions;
  // An update once per step comes after all tasks; one that comes earlier makes
  // copies of its stage meet between tasks.
  if (std::any_of(rule.updateEvery.begin(), rule.updateEvery.end(),
                  [&](int every) { return every < schedule.microbatches; })) {
    ReplayOptions withUpdates;
    withUpdates.updateEvery = rule.updateEvery;
    replay(Rule::Deadlock, " with the updates of replicated stages",
           withUpdates);
  }
  for (int d = 0; d < schedule.devices(); ++d) {
    std::vector<long long> done(schedule.stages, 0);
    for (std::size_t i = 0; i < schedule.order[d].size(); ++i) {
      const Action &a = schedule.order[d][i];
      // Updates of a stage count the backwards of all its copies; its copies
      // finish their rounds together.
      long long current = done[a.stage] * schedule.replicas(a.stage) /
                          rule.updateEvery[a.stage];
      int at = static_cast<int>(i), now = static_cast<int>(current);
      if (a.kind == Kind::F)
        readsVersion(d, at, "forward", rule.phi(a.stage, a.microbatch), now);
      else
        readsVersion(d, at, "backward", rule.beta(a.stage, a.microbatch), now);
      if (a.kind == Kind::B || a.kind == Kind::W)
        ++done[a.stage];
    }
  }
}

void Verifier::readsVersion(int device, int position, const char *pass,
                            int version, int current) {
  const Action &a = schedule.order[device][position];
  int kept = options.versions->versions(a.stage);
  if (version >= 0 && version <= current && version > current - kept)
    return;
  std::string why = version > current || version < 0
                        ? "the newest is " + std::to_string(current)
                        : std::to_string(kept) +
                              " are kept and the newest is " +
                              std::to_string(current);
  report(Rule::Version, device, position,
         toString(a) + ": the " + pass + " reads weight version " +
             std::to_string(version) + ", but " + why);
}

} // namespace

std::vector<Violation> verify(const Schedule &schedule,
                              const VerifyOptions &options) {
  return Verifier(schedule, options).run();
}

void verifyOrThrow(const Schedule &schedule, const VerifyOptions &options) {
  auto violations = verify(schedule, options);
  if (!violations.empty())
    throw Failure(Exit::BadPlan, schedule.name + ": " +
                                     toString(violations[0].rule) + ": " +
                                     violations[0].message);
}

} // namespace pipec::schedule
