#include "PipeDreamBrute.h"

#include "RandomGraphs.h"
#include "compiler/plan/published/PipeDreamMemory.h"

#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <sstream>

using namespace pipec::published;

namespace pipec::plan::test {

std::string profileLine(const std::string &id, const std::string &what,
                        double ms, double act, double par) {
  std::ostringstream out;
  out.precision(17);
  out << id << " -- " << what << " -- forward_compute_time=" << ms / 3
      << ", backward_compute_time=" << ms - ms / 3
      << ", activation_size=" << act << ", parameter_size=" << par << "\n";
  return out.str();
}

PipeDreamProfile randomProfile(Random &random, int nodes) {
  std::string text = profileLine("in", "Input0", 5, 100, 0);
  std::string edges;
  for (int v = 0; v < nodes; ++v) {
    bool free = random.between(0, 3) == 0;
    text += profileLine("n" + std::to_string(v), free ? "View" : "Linear",
                        free ? 0 : random.between(1, 40),
                        random.between(0, 30) * 1e5,
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

PipeDreamProfile randomChain(Random &random, int nodes) {
  std::string text, edges;
  for (int v = 0; v < nodes; ++v) {
    text += profileLine("n" + std::to_string(v), "Linear", random.real(0.5, 8),
                        random.real(1e5, 4e6), random.real(1e4, 4e6));
    if (v)
      edges +=
          "\tn" + std::to_string(v - 1) + " -- n" + std::to_string(v) + "\n";
  }
  return parsePipeDreamProfile(text + edges, "chain");
}

std::vector<PipeDreamLevel> randomLevels(Random &random, int depth) {
  std::vector<PipeDreamLevel> levels;
  for (int l = 0; l < depth; ++l)
    levels.push_back(
        {depth < 3 ? random.between(2, 3) : random.between(l == 1 ? 1 : 2, 2),
         random.real(1e7, 1e9)});
  return levels;
}

namespace {

constexpr double inf = std::numeric_limits<double>::infinity();

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

} // namespace

double bruteNested(const PipeDreamProfile &profile,
                   const std::vector<PipeDreamLevel> &levels) {
  return Brute(profile).nested(levels);
}

double bruteWithin(const PipeDreamProfile &profile,
                   const std::vector<PipeDreamLevel> &levels, double limit) {
  return BruteWithin(profile, levels, limit).seconds();
}

double straddlingBrute(const CutStates &states,
                       const std::vector<PipeDreamLevel> &levels, int total,
                       double limit) {
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

} // namespace pipec::plan::test
