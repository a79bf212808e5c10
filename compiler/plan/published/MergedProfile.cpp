#include "compiler/plan/published/MergedProfile.h"

#include <algorithm>
#include <numeric>
#include <set>

namespace pipec::published {

namespace {

class Merger {
public:
  Merger(const PipeDreamProfile &profile, bool memoryLimited);
  MergedProfile run();

private:
  bool mergeOne(int v);
  void join(int node, int into, double output);

  const bool memoryLimited;
  std::vector<double> seconds, weights, kept, output;
  std::vector<std::vector<int>> members;
  std::vector<std::set<int>> out, in;
  std::vector<char> alive;
};

Merger::Merger(const PipeDreamProfile &profile, bool memoryLimited)
    : memoryLimited(memoryLimited) {
  size_t n = profile.nodes.size();
  out.resize(n), in.resize(n), alive.assign(n, 1);
  for (size_t v = 0; v < n; ++v) {
    const ProfileNode &node = profile.nodes[v];
    seconds.push_back(node.milliseconds() / 1000);
    weights.push_back(node.parameterBytes);
    kept.push_back(node.parameterBytes + node.activationBytes);
    output.push_back(node.activationBytes);
    members.push_back({static_cast<int>(v)});
    out[v].insert(profile.dag.out[v].begin(), profile.dag.out[v].end());
    in[v].insert(profile.dag.in[v].begin(), profile.dag.in[v].end());
  }
}

void Merger::join(int node, int into, double newOutput) {
  for (int u : in[node]) {
    out[u].erase(node);
    if (u != into)
      out[u].insert(into), in[into].insert(u);
  }
  for (int w : out[node]) {
    in[w].erase(node);
    if (w != into)
      in[w].insert(into), out[into].insert(w);
  }
  output[into] = newOutput;
  kept[into] += kept[node];
  members[into].insert(members[into].end(), members[node].begin(),
                       members[node].end());
  alive[node] = 0;
}

bool Merger::mergeOne(int v) {
  if (seconds[v] != 0 || weights[v] != 0 || (memoryLimited && kept[v] != 0))
    return false;
  if (in[v].size() == 1) {
    int u = *in[v].begin();
    if (out[v].empty()) {
      join(v, u, output[u]);
      return true;
    }
    if (out[u].size() == 1 && output[v] <= output[u]) {
      join(v, u, output[v]);
      return true;
    }
  }
  if (out[v].size() == 1) {
    double inputs = 0;
    for (int u : in[v])
      inputs += output[u];
    if (output[v] >= inputs) {
      int w = *out[v].begin();
      join(v, w, output[w]);
      return true;
    }
  }
  return false;
}

MergedProfile Merger::run() {
  bool changed = true;
  while (changed) {
    changed = false;
    for (size_t v = 0; v < alive.size(); ++v)
      if (alive[v] && std::accumulate(alive.begin(), alive.end(), 0) > 1)
        changed |= mergeOne(static_cast<int>(v));
  }
  MergedProfile merged;
  std::vector<int> number(alive.size(), -1);
  for (size_t v = 0; v < alive.size(); ++v) {
    if (!alive[v])
      continue;
    number[v] = static_cast<int>(merged.seconds.size());
    merged.seconds.push_back(seconds[v]);
    merged.weights.push_back(weights[v]);
    merged.kept.push_back(kept[v]);
    merged.output.push_back(output[v]);
    std::sort(members[v].begin(), members[v].end());
    merged.members.push_back(members[v]);
  }
  merged.dag = Dag(static_cast<int>(merged.seconds.size()));
  for (size_t v = 0; v < alive.size(); ++v)
    if (alive[v])
      for (int w : out[v])
        merged.dag.edge(number[v], number[static_cast<size_t>(w)]);
  merged.dag.finish();
  return merged;
}

} // namespace

MergedProfile mergeFreeNodes(const PipeDreamProfile &profile,
                             bool memoryLimited) {
  return Merger(profile, memoryLimited).run();
}

} // namespace pipec::published
