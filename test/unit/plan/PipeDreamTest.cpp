#include "BruteForce.h"
#include "RandomGraphs.h"
#include "compiler/plan/published/EveryPlan.h"
#include "compiler/plan/published/PipeDreamMemory.h"
#include "compiler/plan/published/PipeDreamRow.h"
#include "compiler/plan/published/PublishedVerifier.h"
#include "compiler/plan/published/StraddleSearch.h"
#include "support/Failure.h"

#include <gtest/gtest.h>

#include <cmath>
#include <ctime>
#include <functional>
#include <limits>
#include <map>
#include <sstream>

using namespace pipec;
using namespace pipec::published;
using pipec::plan::test::Random;
using pipec::plan::test::rounds;

namespace {

constexpr double inf = std::numeric_limits<double>::infinity();

std::string line(const std::string &id, const std::string &what, double ms,
                 double act, double par) {
  std::ostringstream out;
  out.precision(17);
  out << id << " -- " << what << " -- forward_compute_time=" << ms / 3
      << ", backward_compute_time=" << ms - ms / 3
      << ", activation_size=" << act << ", parameter_size=" << par << "\n";
  return out.str();
}

/// A connected random profile with free nodes, forks and an input.
PipeDreamProfile randomProfile(Random &random, int nodes) {
  std::string text = line("in", "Input0", 5, 100, 0);
  std::string edges;
  for (int v = 0; v < nodes; ++v) {
    bool free = random.between(0, 3) == 0;
    text += line("n" + std::to_string(v), free ? "View" : "Linear",
                 free ? 0 : random.between(1, 40), random.between(0, 30) * 1e5,
                 free ? 0 : random.between(0, 20) * 1e5);
    std::string from =
        v == 0 ? "in" : "n" + std::to_string(random.between(0, v - 1));
    edges += "\t" + from + " -- n" + std::to_string(v) + "\n";
    if (v > 1 && random.between(0, 2) == 0) {
      std::string other = "n" + std::to_string(random.between(0, v - 1));
      if (other != from)
        edges += "\t" + other + " -- n" + std::to_string(v) + "\n";
    }
  }
  return parsePipeDreamProfile(text + edges, "random");
}

/// Everything a plan of the published model can be, straight from its formulas.
struct Brute {
  const PipeDreamProfile &profile;
  std::vector<unsigned> closed; ///< all closed sets, as bits

  explicit Brute(const PipeDreamProfile &p) : profile(p) {
    unsigned n = static_cast<unsigned>(p.nodes.size());
    for (unsigned set = 0; set < 1u << n; ++set) {
      bool ok = true;
      for (unsigned v = 0; v < n && ok; ++v)
        if (set >> v & 1)
          for (int u : p.dag.in[v])
            ok &= set >> u & 1;
      if (ok)
        closed.push_back(set);
    }
  }
  unsigned all() const { return (1u << profile.nodes.size()) - 1; }
  double seconds(unsigned nodes) const {
    double sum = 0;
    for (size_t v = 0; v < profile.nodes.size(); ++v)
      sum += nodes >> v & 1 ? profile.nodes[v].milliseconds() / 1000 : 0;
    return sum;
  }
  double weights(unsigned nodes) const {
    double sum = 0;
    for (size_t v = 0; v < profile.nodes.size(); ++v)
      sum += nodes >> v & 1 ? profile.nodes[v].parameterBytes : 0;
    return sum;
  }
  double cut(unsigned before) const {
    double sum = 0;
    for (size_t v = 0; v < profile.nodes.size(); ++v) {
      bool leaves = false;
      for (int w : profile.dag.out[v])
        leaves |= !(before >> w & 1);
      sum += (before >> v & 1) && leaves ? profile.nodes[v].activationBytes : 0;
    }
    return sum;
  }
  double kept(unsigned nodes) const {
    double sum = weights(nodes);
    for (size_t v = 0; v < profile.nodes.size(); ++v)
      sum += nodes >> v & 1 ? profile.nodes[v].activationBytes : 0;
    return sum;
  }
  /// What a stage takes that computes so long; the first pays for no cut.
  double stage(const std::vector<PipeDreamLevel> &levels, size_t level,
               unsigned k, unsigned j, int used, double compute,
               bool isFirst) const {
    const double bandwidth = levels[level].bandwidth;
    const double within = level == 0 ? 1 : levels[level - 1].machines;
    const double exchange =
        4 * (used - 1) * weights(j & ~k) / (bandwidth * used);
    if (isFirst)
      return (compute + exchange / within) / used;
    const double edges = std::max(cut(k), j == all() ? 0 : cut(j));
    return std::max((compute + exchange) / used, 2 * edges / bandwidth / used);
  }
  /// A[i][j][m] of a level by plain recursion, the levels' one in the other.
  double best(const std::vector<PipeDreamLevel> &levels, size_t level,
              unsigned i, unsigned j, int m) const {
    auto compute = [&](unsigned k) {
      return level > 0
                 ? best(levels, level - 1, k, j, levels[level - 1].machines)
                 : seconds(j & ~k);
    };
    double value = inf;
    for (int used = 1; used <= m; ++used) // the others stay idle
      value =
          std::min(value, stage(levels, level, i, j, used, compute(i), true));
    for (unsigned k : closed) {
      if (k == i || k == j || (i & ~k) || (k & ~j))
        continue;
      for (int used = 1; used < m; ++used)
        if (double t = stage(levels, level, k, j, used, compute(k), false);
            t < value)
          value =
              std::min(value, std::max(t, best(levels, level, i, k, m - used)));
    }
    return value;
  }
  double nested(const std::vector<PipeDreamLevel> &levels) const {
    return best(levels, levels.size() - 1, 0, all(), levels.back().machines);
  }
};

/// Every plan whose stages keep at most `limit` bytes, with any machines idle:
/// from the end of the model on, with the devices that are used behind a stage.
class BruteWithin {
public:
  BruteWithin(const PipeDreamProfile &profile,
              const std::vector<PipeDreamLevel> &levels, double limit)
      : brute(profile), levels(levels), limit(limit) {}

  double seconds() {
    double least = inf;
    for (auto [used, t] : component({levels.size() - 1, 0, brute.all(), 1, 0}))
      least = std::min(least, t);
    return least;
  }

private:
  /// One of `copies` on a level, from i to j before `after` devices.
  struct Place {
    size_t level;
    unsigned i, j;
    int copies, after;
    auto operator<=>(const Place &) const = default;
  };
  /// Devices from a start on that are used, and the best seconds with them.
  using Used = std::map<int, double>;

  Used component(const Place &place) {
    if (auto at = known.find(place); at != known.end())
      return at->second;
    Used all;
    stagesBefore(place, place.j, levels[place.level].machines, place.after, 0,
                 all);
    return known[place] = all;
  }
  Used computes(const Place &place, unsigned k, unsigned e, int used,
                int after) {
    if (place.level > 0)
      return component({place.level - 1, k, e, place.copies * used, after});
    const int replicas = place.copies * used;
    const double flight = std::ceil(double(after + replicas) / replicas);
    if (brute.kept(e & ~k) * flight > limit)
      return {};
    return {{after + replicas, brute.seconds(e & ~k)}};
  }
  /// Stages that end at e on what is left.
  void stagesBefore(const Place &place, unsigned e, int left, int after,
                    double slowest, Used &all) {
    if (e == place.i) {
      auto [at, isNew] = all.try_emplace(after, slowest);
      at->second = std::min(at->second, slowest);
      return;
    }
    for (unsigned k : brute.closed)
      if (k != e && !(place.i & ~k) && !(k & ~e))
        for (int used = 1; used <= left; ++used)
          for (auto [behind, compute] : computes(place, k, e, used, after))
            stagesBefore(
                place, k, left - used, behind,
                std::max(slowest, brute.stage(levels, place.level, k, e, used,
                                              compute, k == place.i)),
                all);
  }

  const Brute brute;
  const std::vector<PipeDreamLevel> &levels;
  const double limit;
  std::map<Place, Used> known;
};

double bruteWithin(const PipeDreamProfile &profile,
                   const std::vector<PipeDreamLevel> &levels, double limit) {
  return BruteWithin(profile, levels, limit).seconds();
}

/// Best over all sequences of stages on consecutive devices, over the cuts that
/// the search may use.
double straddlingBrute(const CutStates &states,
                       const std::vector<PipeDreamLevel> &levels, int total = 0,
                       double limit = 0) {
  double value = inf;
  const int all = devicesBelow(levels, levels.size());
  if (limit > 0 && total == 0) {
    for (int t = 1; t <= all; ++t)
      value = std::min(value, straddlingBrute(states, levels, t, limit));
    return value;
  }
  total = total ? total : all;
  std::function<void(size_t, int, int, double)> go = [&](size_t from, int used,
                                                         int last,
                                                         double worst) {
    if (worst >= value)
      return;
    if (from + 1 == states.size()) {
      value = worst;
      return;
    }
    for (size_t to = from + 1; to < states.size(); ++to) {
      if (!states.sets.subset(from, to))
        continue;
      for (int r = 1; used + r <= total; ++r) {
        if (limit > 0 && stageBytes(states, from, to, total - used, r) > limit)
          continue;
        double t = std::max(
            worst, straddlingStage(levels, used, r,
                                   states.seconds[to] - states.seconds[from],
                                   states.weights[to] - states.weights[from]));
        if (last > 0)
          t = std::max(
              t, straddlingBoundary(levels, used, last, r, states.cut[from]));
        go(to, used + r, r, t);
      }
    }
  };
  go(0, 0, 0, 0);
  return value;
}

/// A chain of layers that differ up to forty times in what they take.
PipeDreamProfile randomChain(Random &random, int nodes) {
  std::string text, edges;
  for (int v = 0; v < nodes; ++v) {
    text += line("n" + std::to_string(v), "Linear", random.real(0.5, 8),
                 random.real(1e5, 4e6), random.real(1e4, 4e6));
    if (v)
      edges +=
          "\tn" + std::to_string(v - 1) + " -- n" + std::to_string(v) + "\n";
  }
  return parsePipeDreamProfile(text + edges, "chain");
}

/// One to four levels of few machines, innermost first.
std::vector<PipeDreamLevel> randomLevels(Random &random, int depth) {
  std::vector<PipeDreamLevel> levels;
  for (int l = 0; l < depth; ++l)
    levels.push_back(
        {depth < 3 ? random.between(2, 3) : random.between(l == 1 ? 1 : 2, 2),
         random.real(1e7, 1e9)});
  return levels;
}

} // namespace

TEST(PipeDreamProfile, ReadsTheFormat) {
  PipeDreamProfile p =
      parsePipeDreamProfile("node1 -- Input0 -- forward_compute_time=635.9, "
                            "backward_compute_time=0.0, "
                            "activation_size=0.0, parameter_size=0.000\n"
                            "node2 -- LSTM(2, 3) -- forward_compute_time=1.5, "
                            "backward_compute_time=2.5, "
                            "activation_size=[100.0; 20.0; 3.0], "
                            "parameter_size=7.000 -- stage_id=1\r\n"
                            "\n"
                            "node3 -- __getitem__(0) -- "
                            "forward_compute_time=0, backward_compute_time=0, "
                            "activation_size=100.0, parameter_size=0\n"
                            "\tnode1 -- node2\n\tnode2 -- node3\n",
                            "p.txt");
  ASSERT_EQ(p.nodes.size(), 2u);
  EXPECT_EQ(p.inputs, std::vector<std::string>{"node1"});
  EXPECT_EQ(p.nodes[0].description, "LSTM(2, 3)");
  EXPECT_DOUBLE_EQ(p.nodes[0].milliseconds(), 4.0);
  EXPECT_DOUBLE_EQ(p.nodes[0].activationBytes, 123.0);
  EXPECT_EQ(p.dag.out[0], std::vector<int>{1});
}

TEST(PipeDreamProfile, ErrorsNameTheLine) {
  std::string a = line("a", "Linear", 1, 2, 3),
              b = line("b", "Linear", 1, 2, 3);
  auto message = [](const std::string &text) -> std::string {
    try {
      parsePipeDreamProfile(text, "p.txt");
    } catch (const Failure &f) {
      EXPECT_EQ(f.code, Exit::BadModel);
      return f.what();
    }
    ADD_FAILURE() << "accepted: " << text;
    return {};
  };
  auto expectIn = [&](const std::string &text, const std::string &part) {
    std::string m = message(text);
    EXPECT_NE(m.find(part), std::string::npos) << m;
  };
  expectIn("", "no nodes");
  expectIn("hello\n", "p.txt:1");
  expectIn(
      a + "b -- Linear -- forward_compute_time=1, backward_compute_time=x, "
          "activation_size=1, parameter_size=1\n",
      "p.txt:2");
  expectIn(a + "b -- Linear -- forward_compute_time=1, activation_size=1, "
               "parameter_size=1\n",
           "no backward_compute_time");
  expectIn(line("a", "L", -1, 2, 3), "between 0 and 1e15");
  expectIn("a -- L -- forward_compute_time=nan, backward_compute_time=1, "
           "activation_size=1, "
           "parameter_size=1\n",
           "forward_compute_time");
  expectIn("a -- L -- forward_compute_time=1, backward_compute_time=1, "
           "activation_size=[1; 2, "
           "parameter_size=1\n",
           "activation_size");
  expectIn(a + a, "p.txt:2: node a appears twice");
  expectIn(a + b + "\ta -- c\n", "p.txt:3: edge names unknown node 'c'");
  expectIn(a + b + "\ta -- a\n", "itself");
  expectIn(a + b + "\ta -- b\n\tb -- a\n", "cycle: ");
  expectIn(a + b, "2 parts");
  expectIn(line("a", "Input0", 1, 1, 1), "only inputs");
}

/// All closed sets, and no optimum lost by merging free nodes: the search
/// equals plain recursion over the formulas on random graphs, of one level to
/// four.
TEST(PipeDreamSearch, EqualsBruteForce) {
  Random random(21);
  int replicated = 0, merged = 0, deep = 0;
  for (int round = 0; round < rounds(800); ++round) {
    const int depth = 1 + round % 4;
    PipeDreamProfile profile =
        randomProfile(random, random.between(1, depth < 3 ? 7 : 5));
    std::vector<PipeDreamLevel> levels{
        {random.between(1, 4), random.real(1e7, 1e9)}};
    if (depth == 2)
      levels = {{random.between(2, 3), random.real(1e8, 1e9)},
                {random.between(2, 3), random.real(1e7, 3e8)}};
    else if (depth > 2)
      levels = randomLevels(random, depth);
    CutStates states = cutStates(profile, 1000);
    ASSERT_TRUE(states.complete);
    merged += states.groups.size() < profile.nodes.size();
    PipeDreamPlan plan = searchPipeDream(states, levels);
    double want = Brute(profile).nested(levels);
    ASSERT_NEAR(plan.seconds, want, 1e-9 * want) << round;
    double own = verifyPipeDream(profile, states, levels, plan, false);
    EXPECT_NEAR(own, want, 1e-9 * want) << round;
    for (const auto &s : plan.stages)
      replicated += s.replicas > 1;
    for (const auto &group : plan.groups)
      deep += depth > 2 && plan.groups.size() > 1 && group.within.size() > 1;
    EXPECT_NEAR(planSeconds(states, levels, plan), want, 1e-9 * want) << round;
  }
  EXPECT_GT(deep, 10);
  EXPECT_GT(replicated, 100);
  EXPECT_GT(merged, 100);
}

/// Under a memory limit the best plan that fits, or none where none does.
TEST(PipeDreamSearch, EqualsBruteForceUnderALimit) {
  Random random(23);
  int slower = 0, none = 0;
  for (int round = 0; round < rounds(400); ++round) {
    const int depth = 1 + round % 4;
    PipeDreamProfile profile =
        randomProfile(random, random.between(2, depth < 3 ? 6 : 5));
    std::vector<PipeDreamLevel> levels{
        {random.between(1, 4), random.real(1e7, 1e9)}};
    if (depth == 2)
      levels = {{random.between(2, 4), random.real(1e8, 1e9)},
                {random.between(2, 3), random.real(1e7, 3e8)}};
    else if (depth > 2)
      levels = randomLevels(random, depth);
    CutStates states = cutStates(profile, 1000, true);
    ASSERT_TRUE(states.complete);
    const double limit =
        std::floor(states.kept.back() * random.real(0.2, 1.1)) + 1;
    SearchEffort effort;
    PipeDreamPlan plan = searchPipeDream(states, levels, limit, inf, &effort);
    EXPECT_TRUE(effort.isEvery);
    double want = bruteWithin(profile, levels, limit);
    if (!std::isfinite(want)) {
      EXPECT_FALSE(std::isfinite(plan.seconds)) << round;
      ++none;
      continue;
    }
    ASSERT_NEAR(plan.seconds, want, 1e-9 * want) << round;
    verifyPipeDream(profile, states, levels, plan, false, limit);
    EXPECT_LE(mostBytes(states, plan), limit) << round;
    slower +=
        plan.seconds > searchPipeDream(states, levels).seconds * (1 + 1e-9);
  }
  EXPECT_GT(slower, 30);
  EXPECT_GT(none, 30);
}

/// A plan may leave the devices that are more idle, of each level.
TEST(PipeDreamSearch, MoreDevicesAreNeverSlower) {
  Random random(29);
  int faster = 0, count = 0;
  for (int round = 0; round < rounds(100); ++round) {
    PipeDreamProfile profile = randomProfile(random, random.between(2, 6));
    CutStates states = cutStates(profile, 1000, true);
    const double limit =
        std::floor(states.kept.back() * random.real(0.5, 1.1)) + 1;
    std::vector<PipeDreamLevel> levels{{1, random.real(1e7, 1e9)}};
    double last = inf;
    for (int step = 0; step < 6; ++step) {
      const double seconds = searchPipeDream(states, levels, limit).seconds;
      if (last < inf)
        ASSERT_LE(seconds, last * (1 + 1e-9)) << round << " " << step;
      faster += seconds < last * (1 - 1e-9), ++count;
      last = seconds;
      if (levels.size() < 3 && random.between(0, 1) == 0)
        levels.push_back({random.between(1, 2), random.real(1e7, 1e9)});
      else
        ++levels[static_cast<size_t>(
                     random.between(0, static_cast<int>(levels.size()) - 1))]
              .machines;
    }
  }
  EXPECT_GT(faster, count / 5);
}

/// Of many servers not every number is tried behind every stage: what fits is
/// no slower than on fewer of them, and found soon.
TEST(PipeDreamSearch, ManyServersUnderALimit) {
  Random random(27);
  for (int round = 0; round < rounds(3); ++round) {
    PipeDreamProfile profile = randomChain(random, 60);
    CutStates states = cutStates(profile, 4000, true);
    const double limit = std::floor(0.55 * states.kept.back());
    auto on = [&](int servers) {
      const std::vector<PipeDreamLevel> levels{{4, 1e10}, {servers, 1e9}};
      PipeDreamPlan plan = searchPipeDream(states, levels, limit);
      EXPECT_TRUE(std::isfinite(plan.seconds));
      verifyPipeDream(profile, states, levels, plan, false, limit);
      return plan.seconds;
    };
    const double few = on(12);
    const std::clock_t began = std::clock();
    EXPECT_LE(on(60), few * (1 + 1e-9)) << round;
    EXPECT_LT(double(std::clock() - began) / CLOCKS_PER_SEC, 5) << round;
  }
}

/// Plans that are as good as equal are one, so that a search of long chains on
/// many devices under a limit comes to its end soon.
TEST(PipeDreamSearch, LongChainsUnderALimitAreSearchedWhole) {
  Random random(30);
  const std::vector<std::vector<PipeDreamLevel>> clusters{
      {{8, 1e10}, {16, 1.25e9}},
      {{4, 1e10}, {32, 1.25e9}},
      {{4, 3e10}, {4, 1e10}, {2, 1.25e9}},
      {{128, 1e10}}};
  for (const std::vector<PipeDreamLevel> &levels : clusters) {
    PipeDreamProfile profile = randomChain(random, 160);
    CutStates states = cutStates(profile, 4000, true);
    const double limit =
        std::floor(0.6 * mostBytes(states, searchPipeDream(states, levels)));
    SearchEffort effort;
    PipeDreamPlan plan = searchPipeDream(states, levels, limit, inf, &effort);
    ASSERT_TRUE(std::isfinite(plan.seconds)) << levels.size();
    EXPECT_TRUE(effort.isEvery) << levels.size();
    EXPECT_GT(effort.left, 5e7) << levels.size();
    verifyPipeDream(profile, states, levels, plan, false, limit);
  }
}

/// With room for fewer tables a plan is the same or is not found, and one that
/// is found is never lost where its stages ask for more.
TEST(PipeDreamSearch, LittleRoomForTablesUnderALimit) {
  Random random(32);
  const std::vector<PipeDreamLevel> levels{{2, 3e10}, {3, 1e10}, {3, 1.25e9}};
  int same = 0, none = 0;
  for (int round = 0; round < rounds(10); ++round) {
    PipeDreamProfile profile = randomChain(random, 30);
    CutStates states = cutStates(profile, 4000, true);
    const double limit =
        std::floor(0.6 * mostBytes(states, searchPipeDream(states, levels)));
    const double best = searchPipeDream(states, levels, limit).seconds;
    for (double room = 1e4; room < 1e8; room *= 1.25) {
      EverySearch search(states, levels, limit, 1e9);
      search.cap = search.floor = best * (1 + 1e-9);
      search.mostHeld = static_cast<size_t>(room);
      PipeDreamPlan plan = EveryPlan(search).solve();
      if (plan.seconds == inf) {
        EXPECT_LT(search.effort, 0) << room;
        ++none;
        continue;
      }
      ASSERT_NEAR(plan.seconds, best, 1e-8 * best) << room;
      verifyPipeDream(profile, states, levels, plan, false, limit);
      ++same;
    }
  }
  EXPECT_GT(same, 10);
  EXPECT_GT(none, 10);
}

/// What is searched over more and more states is as fast as over all of them,
/// and where the effort does not last for all nearly so.
TEST(PipeDreamSearch, GrowingSearchesLoseLittle) {
  Random random(31);
  for (int round = 0; round < rounds(3); ++round) {
    PipeDreamProfile profile = randomChain(random, 200);
    const std::vector<PipeDreamLevel> levels{{4, 1e10}, {8, 1.25e9}};
    CutStates states = cutStates(profile, 4000, true);
    const double limit =
        std::floor(0.6 * mostBytes(states, searchPipeDream(states, levels)));
    const double best = searchPipeDream(states, levels, limit).seconds;
    auto grown = [&](SearchEffort &effort) {
      PipeDreamPlan plan = searchGrowing(
          states, {}, effort,
          [&](const CutStates &some, double incumbent, SearchEffort &part) {
            return searchPipeDream(some, levels, limit, incumbent, &part);
          });
      EXPECT_TRUE(std::isfinite(plan.seconds)) << round;
      verifyPipeDream(profile, states, levels, plan, false, limit);
      return plan.seconds;
    };
    SearchEffort enough, little;
    little.left = 5e5;
    EXPECT_NEAR(grown(enough), best, 1e-9 * best) << round;
    EXPECT_TRUE(enough.isEvery) << round;
    EXPECT_LE(grown(little), 1.1 * best) << round;
    EXPECT_FALSE(little.isEvery) << round;
  }
}

/// Long chains on many servers are searched a few cuts at a time: with a third
/// of them at most 7 % are lost, 2.5 % on average.
TEST(PipeDreamSearch, FewCutsAtATimeLoseLittle) {
  Random random(25);
  double lost = 0;
  const int count = rounds(12);
  for (int round = 0; round < count; ++round) {
    PipeDreamProfile profile = randomChain(random, 120);
    std::vector<PipeDreamLevel> levels{{8, 1e10}, {4, 1.25e9}};
    CutStates states = cutStates(profile, 4000);
    PipeDreamPlan all = searchPipeDream(states, levels);
    auto thinned = [&](double limit) {
      return searchThinned(
          states, 40, {}, [&](const CutStates &some, double incumbent) {
            return searchPipeDream(some, levels, limit, incumbent);
          });
    };
    PipeDreamPlan plan = thinned(0);
    verifyPipeDream(profile, states, levels, plan, false);
    EXPECT_LE(plan.seconds, 1.07 * all.seconds) << round;
    lost += plan.seconds / all.seconds - 1;
    const double limit = 0.9 * mostBytes(states, plan);
    PipeDreamPlan fitting = thinned(limit);
    if (std::isfinite(fitting.seconds))
      EXPECT_LE(mostBytes(states, fitting), limit) << round;
  }
  EXPECT_LE(lost / count, 0.025);
}

/// Cells of branches have more cuts than are enumerated, and data parallelism
/// is far from the best: 36 s and more without caps that grow from below.
TEST(PipeDreamSearch, ManyCutsTakeSeconds) {
  Random random(5);
  std::string text, edges;
  auto node = [&](const std::string &id, double bytes) {
    text += line(id, "Conv2d", random.real(0.15, 0.75),
                 bytes * random.real(0.5, 1), random.real(1e5, 6e5));
  };
  auto edge = [&](const std::string &a, const std::string &b) {
    edges += "\t" + a + " -- " + b + "\n";
  };
  for (int c = 0; c < 24; ++c) {
    const std::string cell = std::to_string(c);
    node("c" + cell, 2e7);
    for (int before = std::max(0, c - 2); before < c; ++before)
      edge("j" + std::to_string(before), "c" + cell);
    for (int b = 0; b < 8; ++b)
      for (int k = 0; k < 6; ++k) {
        const std::string branch = "b" + cell + "_" + std::to_string(b) + "_";
        node(branch + std::to_string(k), 1e7);
        edge(k ? branch + std::to_string(k - 1) : "c" + cell,
             branch + std::to_string(k));
      }
    node("j" + cell, 2e7);
    for (int b = 0; b < 8; ++b)
      edge("b" + cell + "_" + std::to_string(b) + "_5", "j" + cell);
  }
  PipeDreamProfile profile = parsePipeDreamProfile(text + edges, "cells");
  CutStates states = cutStates(profile, 3000);
  EXPECT_FALSE(states.complete);
  std::vector<PipeDreamLevel> levels{{4, 1e10}, {4, 1.25e9}};
  const std::clock_t began = std::clock();
  PipeDreamPlan plan = searchPipeDream(states, levels);
  EXPECT_LT(std::clock() - began, 20 * CLOCKS_PER_SEC);
  verifyPipeDream(profile, states, levels, plan, false);
  EXPECT_LT(plan.seconds, 0.5 * dataParallelSeconds(states, levels));
}

/// Of one level what some plan keeps at least is what a plan fits in, and one
/// byte less is not.
TEST(PipeDreamSearch, LeastBytesAreTheLeastThatFits) {
  Random random(24);
  for (int round = 0; round < rounds(200); ++round) {
    PipeDreamProfile profile = randomProfile(random, random.between(1, 8));
    std::vector<PipeDreamLevel> levels{{random.between(1, 5), 1e8}};
    CutStates states = cutStates(profile, 1000, true);
    double least = leastBytes(states, levels[0].machines);
    if (least < 2)
      continue;
    PipeDreamPlan plan = searchPipeDream(states, levels, least);
    ASSERT_TRUE(std::isfinite(plan.seconds)) << round;
    EXPECT_DOUBLE_EQ(mostBytes(states, plan), least) << round;
    EXPECT_FALSE(
        std::isfinite(searchPipeDream(states, levels, least - 1).seconds))
        << round;
  }
}

/// Of several levels what a plan keeps at least fits, and a thousandth less
/// does not.
TEST(PipeDreamSearch, LeastPlansOfServersFit) {
  Random random(27);
  int servers = 0;
  for (int round = 0; round < rounds(200); ++round) {
    const int depth = 2 + round % 3;
    PipeDreamProfile profile =
        randomProfile(random, random.between(2, depth < 3 ? 7 : 5));
    std::vector<PipeDreamLevel> levels{
        {random.between(2, 3), random.real(1e8, 1e9)},
        {random.between(2, 3), random.real(1e7, 3e8)}};
    if (depth > 2)
      levels = randomLevels(random, depth);
    CutStates states = cutStates(profile, 1000, true);
    PipeDreamPlan plan = leastPlan(states, levels);
    const double least = mostBytes(states, plan);
    if (least < 2000)
      continue;
    EXPECT_TRUE(std::isfinite(bruteWithin(profile, levels, least)));
    EXPECT_FALSE(std::isfinite(bruteWithin(profile, levels, 0.998 * least)))
        << round;
    plan.seconds = planSeconds(states, levels, plan);
    EXPECT_NEAR(verifyPipeDream(profile, states, levels, plan, false, least),
                plan.seconds, 1e-9 * plan.seconds);
    servers += plan.groups.size() > 1;

    plan = leastPlan(states, devicesBelow(levels, levels.size()));
    const double any = mostBytes(states, plan);
    EXPECT_LE(any, least);
    plan.seconds = straddlingSeconds(states, levels, plan);
    verifyPipeDream(profile, states, levels, plan, true, any);
    const double cap = plan.seconds + 1e-9;
    EXPECT_LE(searchStraddling(states, levels, cap, any).seconds, cap);
  }
  EXPECT_GT(servers, 10);
}

TEST(StraddleSearch, EqualsBruteForce) {
  Random random(22);
  int below = 0;
  for (int round = 0; round < rounds(500); ++round) {
    const bool isDeep = round % 3 == 2;
    PipeDreamProfile profile =
        randomProfile(random, random.between(2, isDeep ? 5 : 6));
    std::vector<PipeDreamLevel> levels{
        {random.between(2, 3), random.real(1e8, 1e9)},
        {2, random.real(1e7, 1e8)}};
    if (isDeep)
      levels = randomLevels(random, 3);
    CutStates states = cutStates(profile, 1000);
    PipeDreamPlan plan = searchStraddling(states, levels, inf);
    double want = straddlingBrute(states, levels);
    ASSERT_NEAR(plan.seconds, want, 1e-9 * want) << round;
    double own = verifyPipeDream(profile, states, levels, plan, true);
    EXPECT_NEAR(own, want, 1e-9 * want) << round;
    double limit = states.kept.back() * random.real(0.3, 1);
    PipeDreamPlan fitting = searchStraddling(states, levels, inf, limit);
    double least = straddlingBrute(states, levels, 0, limit);
    if (std::isfinite(least))
      EXPECT_NEAR(fitting.seconds, least, 1e-9 * least) << round;
    else
      EXPECT_FALSE(std::isfinite(fitting.seconds)) << round;
    PipeDreamPlan published = searchPipeDream(states, levels);
    double bounded =
        searchStraddling(states, levels, published.seconds).seconds;
    if (want < published.seconds * (1 - 1e-9)) {
      EXPECT_NEAR(bounded, want, 1e-9 * want) << round;
      ++below;
    } else {
      EXPECT_GE(bounded, want * (1 - 1e-9)) << round;
    }
  }
  EXPECT_GT(below, 20);
}

/// What the busiest server's card carries, by walking over the minibatches.
TEST(StraddleSearch, BordersCarryWhatMinibatchesMove) {
  Random random(23);
  for (int round = 0; round < rounds(2000); ++round) {
    const int each = random.between(1, 6), a = random.between(1, 14);
    const int b = random.between(1, 14), border = a + random.between(0, 9);
    std::map<int, int> card;
    for (int k = 0; k < a * b; ++k) {
      const int from = (border - a + k % a) / each,
                to = (border + k % b) / each;
      if (from != to)
        ++card[from], ++card[to];
    }
    int busiest = 0;
    for (auto [server, minibatches] : card)
      busiest = std::max(busiest, minibatches);
    // Links inside servers take no time here.
    const PipeDreamLevel inner{each, 1e30}, outer{10, 1e3};
    ASSERT_NEAR(straddlingBoundary({inner, outer}, border, a, b, 500),
                1.0 * busiest / (a * b), 1e-12)
        << round;
  }
}

/// On whole servers the straddling price is PipeDream's two-level replication.
TEST(StraddleSearch, PricesWholeServersAsPublished) {
  PipeDreamProfile profile =
      parsePipeDreamProfile(line("a", "Linear", 90, 1e6, 5e6), "one");
  PipeDreamLevel inner{4, 1e9}, outer{3, 2e8};
  CutStates states = cutStates(profile, 10);
  EXPECT_NEAR(straddlingStage({inner, outer}, 0, 12, 0.09, 5e6),
              dataParallelSeconds(states, {inner, outer}), 1e-15);
}

/// More cuts than the limit: prefixes of linear orders, still valid plans.
TEST(CutStates, ManyCutsFallBackToLinearOrders) {
  std::string text = line("s", "Linear", 1, 1e6, 0), edges;
  for (int b = 0; b < 12; ++b)
    for (int l = 0; l < 4; ++l) {
      std::string id = "b" + std::to_string(b) + "_" + std::to_string(l);
      text +=
          line(id, "Conv", 1 + b * 0.3 + l, 1e5 * (1 + (b * 7 + l) % 5), 1e4);
      edges +=
          "\t" +
          (l ? "b" + std::to_string(b) + "_" + std::to_string(l - 1) : "s") +
          " -- " + id + "\n";
    }
  PipeDreamProfile profile = parsePipeDreamProfile(text + edges, "wide");
  CutStates states = cutStates(profile, 500);
  EXPECT_FALSE(states.complete);
  EXPECT_LE(states.size(), 500u);
  std::vector<PipeDreamLevel> levels{{4, 1e10}, {2, 1e9}};
  PipeDreamPlan plan = searchPipeDream(states, levels);
  verifyPipeDream(profile, states, levels, plan, false);
  EXPECT_LE(plan.seconds, dataParallelSeconds(states, levels));
  CutStates few = cutStates(profile, 30);
  EXPECT_LE(few.size(), 30u);
  PipeDreamPlan coarse = searchPipeDream(few, levels);
  verifyPipeDream(profile, few, levels, coarse, false);
  EXPECT_GE(coarse.seconds, plan.seconds * (1 - 1e-12));
}
