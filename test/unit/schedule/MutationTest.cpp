// Valid schedules, mutated at random: the verifier objects exactly when tasks
// are not what they must be or the lists cannot run.
#include "compiler/schedule/Generator.h"
#include "compiler/schedule/Verifier.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <tuple>

using namespace pipec::schedule;

namespace {

using Key = std::tuple<Kind, int, int>;

/// Every task exactly once, on its device; B, or I and W.
bool hasItsTasks(const Schedule &s) {
  std::map<Key, int> count;
  for (int d = 0; d < s.devices(); ++d)
    for (const Action &a : s.order[d]) {
      if (a.stage < 0 || a.stage >= s.stages || a.microbatch < 0 ||
          a.microbatch >= s.microbatches ||
          s.deviceOf(a.stage, a.microbatch) != d)
        return false;
      if (++count[{a.kind, a.stage, a.microbatch}] > 1)
        return false;
    }
  for (int stage = 0; stage < s.stages; ++stage)
    for (int k = 0; k < s.microbatches; ++k) {
      auto has = [&](Kind kind) { return count.count({kind, stage, k}) > 0; };
      bool whole = has(Kind::B) && !has(Kind::I) && !has(Kind::W);
      bool split = !has(Kind::B) && has(Kind::I) && has(Kind::W);
      if (!has(Kind::F) || (!whole && !split))
        return false;
    }
  return true;
}

/// Runs what can run until nothing can.
bool ends(const Schedule &s) {
  std::set<Key> done;
  auto passed = [&](int stage, int k) {
    return done.count({Kind::B, stage, k}) || done.count({Kind::I, stage, k});
  };
  auto ready = [&](const Action &a) {
    if (a.kind == Kind::F)
      return a.stage == 0 ||
             done.count({Kind::F, a.stage - 1, a.microbatch}) > 0;
    if (a.kind == Kind::W)
      return done.count({Kind::I, a.stage, a.microbatch}) > 0;
    return done.count({Kind::F, a.stage, a.microbatch}) > 0 &&
           (a.stage + 1 == s.stages || passed(a.stage + 1, a.microbatch));
  };
  std::vector<std::size_t> next(s.order.size(), 0);
  std::size_t left = 0;
  for (const auto &order : s.order)
    left += order.size();
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t d = 0; d < s.order.size(); ++d)
      for (; next[d] < s.order[d].size() && ready(s.order[d][next[d]]);
           ++next[d], --left, moved = true) {
        const Action &a = s.order[d][next[d]];
        done.insert({a.kind, a.stage, a.microbatch});
      }
  }
  return left == 0;
}

class Mutator {
public:
  explicit Mutator(unsigned seed) : engine(seed) {}
  int below(std::size_t count) { return static_cast<int>(engine() % count); }

  void mutate(Schedule &s) {
    auto &order = s.order[below(s.order.size())];
    if (order.empty())
      return;
    int at = below(order.size());
    switch (below(12)) {
    case 0:
      order.erase(order.begin() + at);
      break;
    case 1:
      order.insert(order.begin() + below(order.size()), order[at]);
      break;
    case 2:
      order[at].kind = static_cast<Kind>(below(4));
      break;
    case 3:
      order[at].microbatch += below(3) - 1;
      break;
    case 4:
      order[at].stage += below(3) - 1;
      break;
    case 5: {
      Action moved = order[at];
      order.erase(order.begin() + at);
      s.order[below(s.order.size())].push_back(moved);
      break;
    }
    default: // most often only the order changes
      std::swap(order[at], order[(at + 1 + below(3)) % order.size()]);
    }
  }

private:
  std::mt19937 engine;
};

TEST(Mutations, AreRefusedExactlyWhenTheyBreakSomething) {
  int good = 0, bad = 0;
  Mutator mutator(1);
  for (const ScheduleRow &row : schedules()) {
    if (row.name == std::string("seq1f1b"))
      continue; // slices have rules of their own, tested by themselves
    ScheduleRequest request;
    request.devices = 4;
    request.microbatches = 8;
    const Schedule valid = generate(row.name, request);
    ASSERT_TRUE(hasItsTasks(valid) && ends(valid)) << row.name;
    for (int round = 0; round < 60; ++round) {
      Schedule schedule = valid;
      for (int i = 0; i <= round % 3; ++i)
        mutator.mutate(schedule);
      bool holds = hasItsTasks(schedule) && ends(schedule);
      auto found = verify(schedule);
      EXPECT_EQ(found.empty(), holds)
          << row.name << " round " << round << ": "
          << (found.empty() ? "accepted" : found[0].message);
      ++(holds ? good : bad);
    }
  }
  EXPECT_GT(good, 200);
  EXPECT_GT(bad, 200);
}

} // namespace
