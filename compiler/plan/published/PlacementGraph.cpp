#include "compiler/plan/published/PlacementGraph.h"

#include "compiler/plan/published/JsonInput.h"
#include "support/Failure.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

namespace pipec::published {

PlacementGraph parsePlacementGraph(const std::string &text,
                                   const std::string &origin) {
  JsonInput input(text, origin, "this placement graph");
  const auto &root = input.root();
  PlacementGraph graph;
  if (root.is_object() && !root.contains("maxSizePerFPGA") &&
      !root.contains("maxFPGAs") && !root.contains("nodes"))
    input.bad("this is no placement graph, which has \"maxSizePerFPGA\", "
              "\"maxFPGAs\" and \"nodes\", and no Piper graph, whose nodes "
              "have \"TMPCs\"");
  graph.deviceBytes = input.limit(root, "maxSizePerFPGA", input.kind());
  graph.accelerators = input.count(root, "maxFPGAs", input.kind(), 0);
  graph.cpus = input.count(root, "maxCPUs", input.kind(), 0);
  if (graph.accelerators + graph.cpus < 1)
    input.bad("maxFPGAs and maxCPUs are both 0: there is no device");
  std::map<std::string, int> number;
  for (const auto &entry : input.list(root, "nodes")) {
    std::string where = "node " + std::to_string(graph.nodes.size());
    PlacementNode node;
    node.id = input.id(entry, "id", where);
    where = "node " + node.id;
    node.name = input.textOr(entry, "name", "");
    node.onAccelerator = input.flag(entry, "supportedOnFpga", where);
    node.backward = input.flag(entry, "isBackwardNode", where);
    node.cpuLatency = input.number(entry, "cpuLatency", where);
    node.latency = input.number(entry, "fpgaLatency", where);
    node.bytes = input.number(entry, "size", where);
    node.colorClass = input.optionalInteger(entry, "colorClass", where);
    if (!number.emplace(node.id, static_cast<int>(graph.nodes.size())).second)
      input.bad(where + " appears twice", &entry);
    graph.nodes.push_back(std::move(node));
  }
  if (graph.nodes.empty())
    input.bad("there are no nodes");
  double bytes = 0;
  for (const PlacementNode &node : graph.nodes)
    bytes += node.bytes;
  if (bytes > mostBytesOfGraph)
    input.bad("the nodes' sizes add up to more than 1e18 bytes");
  std::map<int, double> costs; // of each node's output
  for (const auto &entry : input.list(root, "edges")) {
    std::string where = "edge " + std::to_string(graph.edges.size());
    int ends[2];
    const char *keys[] = {"sourceId", "destId"};
    for (int e = 0; e < 2; ++e) {
      std::string id = input.id(entry, keys[e], where);
      auto it = number.find(id);
      if (it == number.end())
        input.bad(where + " names unknown node " + id, &entry);
      ends[e] = it->second;
    }
    if (ends[0] == ends[1])
      input.bad(where + " joins node " +
                    graph.nodes[static_cast<size_t>(ends[0])].id + " to itself",
                &entry);
    const double cost = input.number(entry, "cost", where);
    const auto [known, fresh] = costs.emplace(ends[0], cost);
    constexpr double kNear = 1e-6; // the files round
    if (!fresh && std::abs(cost - known->second) > kNear * known->second)
      input.bad(where + " has another cost than the edges before it of node " +
                    graph.nodes[static_cast<size_t>(ends[0])].id +
                    ": it is what moving that node's output takes",
                &entry);
    graph.edges.push_back({ends[0], ends[1], cost});
  }
  Dag dag(static_cast<int>(graph.nodes.size()));
  for (const auto &edge : graph.edges)
    dag.edge(edge.from, edge.to);
  dag.finish();
  if (auto cycle = findCycle(dag); !cycle.empty()) {
    std::string path;
    for (int v : cycle)
      path += graph.nodes[static_cast<size_t>(v)].id + " -> ";
    input.bad("the graph has a cycle: " + path +
              graph.nodes[static_cast<size_t>(cycle[0])].id);
  }
  // Nodes of one colour belong together even without an edge.
  std::map<long long, int> first;
  for (size_t v = 0; v < graph.nodes.size(); ++v)
    if (auto color = graph.nodes[v].colorClass)
      if (auto [it, fresh] = first.emplace(*color, static_cast<int>(v)); !fresh)
        dag.edge(it->second, static_cast<int>(v));
  if (int parts = weakComponents(dag); parts > 1)
    input.bad("the graph falls into " + std::to_string(parts) +
              " parts without an edge between them");
  return graph;
}

namespace {

/// Units in the making: which class every node is in, and what that implies.
struct Contraction {
  const PlacementGraph &graph;
  bool ordered;            ///< contiguous placements
  std::vector<int> unitOf; ///< node -> unit, -1 never
  int count = 0;

  PlacementUnits build() const;
};

Dag orderOf(const PlacementGraph &graph, const std::vector<int> &unitOf,
            int count) {
  Dag order(count);
  std::vector<char> hasForward(static_cast<size_t>(count), 0);
  for (size_t v = 0; v < unitOf.size(); ++v)
    if (!graph.nodes[v].backward)
      hasForward[static_cast<size_t>(unitOf[v])] = 1;
  for (const auto &edge : graph.edges) {
    int a = unitOf[static_cast<size_t>(edge.from)];
    int b = unitOf[static_cast<size_t>(edge.to)];
    bool backFrom = graph.nodes[static_cast<size_t>(edge.from)].backward;
    bool backTo = graph.nodes[static_cast<size_t>(edge.to)].backward;
    if (a == b)
      continue;
    if (!backFrom && !backTo)
      order.edge(a, b);
    else if (backFrom && backTo && (!hasForward[a] || !hasForward[b]))
      order.edge(b, a);
  }
  order.finish();
  return order;
}

PlacementUnits Contraction::build() const {
  PlacementUnits units;
  size_t n = static_cast<size_t>(count);
  units.members.resize(n), units.latency.assign(n, 0),
      units.cpuLatency.assign(n, 0);
  units.bytes.assign(n, 0), units.onAccelerator.assign(n, 1),
      units.touching.resize(n);
  for (size_t v = 0; v < unitOf.size(); ++v) {
    size_t u = static_cast<size_t>(unitOf[v]);
    const PlacementNode &node = graph.nodes[v];
    units.members[u].push_back(static_cast<int>(v));
    units.latency[u] += node.latency;
    units.cpuLatency[u] += node.cpuLatency;
    units.bytes[u] += node.bytes;
    units.onAccelerator[u] &= node.onAccelerator;
  }
  units.order = ordered ? orderOf(graph, unitOf, count) : Dag(count);
  // One transfer per producing node; all its edges cost the same in the
  // published inputs, the dearest counts otherwise.
  std::map<int, Transfer> byProducer;
  for (const auto &edge : graph.edges) {
    int a = unitOf[static_cast<size_t>(edge.from)],
        b = unitOf[static_cast<size_t>(edge.to)];
    if (a == b)
      continue;
    Transfer &t =
        byProducer.try_emplace(edge.from, Transfer{a, {}, 0}).first->second;
    t.consumers.push_back(b);
    t.cost = std::max(t.cost, edge.cost);
  }
  // Equal producers and consumers add up to one transfer.
  std::map<std::pair<int, std::vector<int>>, double> merged;
  for (auto &[node, t] : byProducer) {
    std::sort(t.consumers.begin(), t.consumers.end());
    t.consumers.erase(std::unique(t.consumers.begin(), t.consumers.end()),
                      t.consumers.end());
    if (t.cost > 0)
      merged[{t.producer, t.consumers}] += t.cost;
  }
  for (auto &[key, cost] : merged) {
    int index = static_cast<int>(units.transfers.size());
    units.transfers.push_back({key.first, key.second, cost});
    units.touching[static_cast<size_t>(key.first)].push_back(index);
    for (int consumer : key.second)
      units.touching[static_cast<size_t>(consumer)].push_back(index);
  }
  return units;
}

/// The only unit that a unit exchanges anything with, if the order has it next
/// to no other: there it costs least, since what either sends to the other, or
/// the other sends to more units, crosses no more than before. Or -1.
int onlyPartner(const PlacementUnits &units, int v) {
  int partner = -1;
  auto isIt = [&](int u) {
    partner = partner < 0 ? u : partner;
    return u == partner;
  };
  for (int u : units.order.in[v])
    if (!isIt(u))
      return -1;
  for (int w : units.order.out[v])
    if (!isIt(w))
      return -1;
  for (int t : units.touching[v]) {
    const Transfer &transfer = units.transfers[t];
    const bool sends = transfer.producer == v;
    if (sends ? transfer.consumers.size() != 1 || !isIt(transfer.consumers[0])
              : !isIt(transfer.producer))
      return -1;
  }
  return partner;
}

/// A neighbour that a free unit may as well live with, or -1.
int companion(const PlacementUnits &units, int v, bool ordered,
              bool memoryBinds) {
  if (units.latency[v] != 0 || units.cpuLatency[v] != 0 ||
      (memoryBinds && units.bytes[v] != 0))
    return -1;
  if (const int u = onlyPartner(units, v);
      u >= 0 && units.onAccelerator[u] == units.onAccelerator[v])
    return u;
  std::vector<const Transfer *> in, out;
  for (int t : units.touching[v])
    (units.transfers[t].producer == v ? out : in)
        .push_back(&units.transfers[t]);
  const auto &before = units.order.in[v], &after = units.order.out[v];
  auto only = [&](const std::vector<int> &list, int u) {
    return !ordered || (list.size() == 1 && list[0] == u);
  };
  auto fits = [&](int u) {
    return units.onAccelerator[u] == units.onAccelerator[v];
  };
  if (in.empty() && out.empty()) {
    // Nothing moves: any neighbour in the order will do.
    if (before.size() == 1 && after.empty() && fits(before[0]))
      return before[0];
    return after.size() == 1 && before.empty() && fits(after[0]) ? after[0]
                                                                 : -1;
  }
  // A source for one consumer.
  if (in.empty() && before.empty() && out.size() == 1 &&
      out[0]->consumers.size() == 1) {
    int w = out[0]->consumers[0];
    return (after.empty() || only(after, w)) && fits(w) ? w : -1;
  }
  if (in.size() == 1) {
    int u = in[0]->producer;
    // A sink of one producer.
    if (out.empty() && after.empty() && only(before, u) && fits(u))
      return u;
    // The only consumer of one producer, with no larger an output.
    if (out.size() == 1 && only(before, u) && in[0]->consumers.size() == 1 &&
        out[0]->cost <= in[0]->cost && fits(u))
      return u;
  }
  if (out.size() == 1 && out[0]->consumers.size() == 1) {
    // One consumer, and an output no smaller than all inputs together.
    int w = out[0]->consumers[0];
    double inputs = 0;
    for (const Transfer *t : in)
      inputs += t->cost;
    if (only(after, w) && out[0]->cost >= inputs && fits(w))
      return w;
  }
  return -1;
}

} // namespace

PlacementUnits placementUnits(const PlacementGraph &graph, bool contiguous) {
  double bytes = 0;
  for (const PlacementNode &node : graph.nodes)
    bytes += node.bytes;
  bool memoryBinds = bytes > graph.deviceBytes;
  // Colour classes first.
  Contraction c{graph, contiguous, std::vector<int>(graph.nodes.size(), -1), 0};
  std::map<long long, int> byColor;
  for (size_t v = 0; v < graph.nodes.size(); ++v) {
    auto color = graph.nodes[v].colorClass;
    if (!color) {
      c.unitOf[v] = c.count++;
      continue;
    }
    auto [it, fresh] = byColor.emplace(*color, c.count);
    c.count += fresh;
    c.unitOf[v] = it->second;
  }
  auto contractCycles = [&] {
    if (!contiguous)
      return;
    int components = 0;
    std::vector<int> component =
        strongComponents(orderOf(graph, c.unitOf, c.count), components);
    for (int &u : c.unitOf)
      u = component[static_cast<size_t>(u)];
    c.count = components;
  };
  contractCycles();
  while (true) {
    PlacementUnits units = c.build();
    // Disjoint pairs at a time: a merge changes what its neighbours may do.
    std::vector<int> into(static_cast<size_t>(c.count));
    std::iota(into.begin(), into.end(), 0);
    std::vector<char> busy(static_cast<size_t>(c.count), 0);
    bool any = false;
    for (int v = 0; v < c.count; ++v) {
      int u = companion(units, v, contiguous, memoryBinds);
      if (u < 0 || busy[v] || busy[u])
        continue;
      bool near = false;
      for (int t : units.touching[v]) {
        near |= busy[units.transfers[t].producer];
        for (int w : units.transfers[t].consumers)
          near |= busy[w];
      }
      if (near)
        continue;
      into[v] = u;
      busy[v] = busy[u] = 1;
      any = true;
    }
    if (!any)
      return units;
    for (int &u : c.unitOf)
      u = into[static_cast<size_t>(u)];
    contractCycles();
    // Numbers of units that are gone would leave holes.
    std::vector<int> number(static_cast<size_t>(c.count), -1);
    for (int u : c.unitOf)
      number[u] = 0;
    int next = 0;
    for (int &slot : number)
      if (slot == 0)
        slot = next++;
    for (int &u : c.unitOf)
      u = number[static_cast<size_t>(u)];
    c.count = next;
  }
}

} // namespace pipec::published
