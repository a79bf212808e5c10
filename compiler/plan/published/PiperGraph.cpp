#include "compiler/plan/published/PiperGraph.h"

#include "compiler/plan/published/JsonInput.h"

#include <algorithm>

namespace pipec::published {

namespace {

using Json = JsonInput::Json;

/// Bytes for each of the neighbours `ids`, all of which must be named.
std::vector<double> syncBytes(const JsonInput &input, const Json &variant,
                              const char *key,
                              const std::vector<std::string> &ids,
                              const std::string &where) {
  const Json &table = input.object(variant, key, where);
  std::vector<double> bytes;
  for (const std::string &id : ids)
    bytes.push_back(
        input.number(table, id.c_str(), where + " \"" + key + "\""));
  if (table.size() != ids.size())
    input.bad(where + ": \"" + key + "\" names nodes that are no neighbours",
              &table);
  return bytes;
}

PiperVariant parseVariant(const JsonInput &input, const Json &entry,
                          const std::vector<std::string> &sources,
                          const std::vector<std::string> &targets,
                          const std::string &where) {
  PiperVariant v;
  v.id = input.id(entry, "id", where);
  v.seconds = input.number(entry, "timePerSample", where);
  v.weights = input.number(entry, "parameterSize", where);
  v.memoryPerMicrobatch = input.number(entry, "memoryUsageA", where);
  v.memoryFixed = input.number(entry, "memoryUsageB", where);
  v.syncIn = syncBytes(input, entry, "syncTimeFw", sources, where);
  v.syncOut = syncBytes(input, entry, "syncTimeBw", targets, where);
  return v;
}

void parseEdges(const JsonInput &input, PiperGraph &graph,
                const std::map<std::string, int> &number,
                std::map<std::pair<int, int>, double> &bytes) {
  size_t index = 0;
  for (const Json &entry : input.list(input.root(), "edges")) {
    std::string where = "edge " + std::to_string(index++);
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
      input.bad(where + " joins a node to itself", &entry);
    if (!bytes
             .emplace(std::pair{ends[0], ends[1]},
                      input.number(entry, "communicationCost", where))
             .second)
      input.bad(where + " appears twice", &entry);
    graph.dag.edge(ends[0], ends[1]);
  }
  graph.dag.finish();
  if (auto cycle = findCycle(graph.dag); !cycle.empty()) {
    std::string path;
    for (int v : cycle)
      path += graph.nodes[static_cast<size_t>(v)].id + " -> ";
    input.bad("the graph has a cycle: " + path +
              graph.nodes[static_cast<size_t>(cycle[0])].id);
  }
  if (int parts = weakComponents(graph.dag); parts > 1)
    input.bad("the graph falls into " + std::to_string(parts) +
              " parts without an edge between them");
}

} // namespace

PiperGraph parsePiperGraph(const std::string &text, const std::string &origin) {
  JsonInput input(text, origin, "this Piper graph");
  PiperGraph graph;
  graph.devices = input.count(input.root(), "maxDevices", input.kind(), 1);
  graph.microbatches = input.count(input.root(), "mbsInBatch", input.kind(), 1);
  graph.memory = input.limit(input.root(), "maxMemoryPerDevice", input.kind());
  graph.bandwidth = input.number(input.root(), "bandwidth", input.kind());
  if (graph.bandwidth < 1e-6)
    input.bad("\"bandwidth\" must be above 0", &input.root()["bandwidth"]);
  const Json &entries = input.list(input.root(), "nodes");
  std::map<std::string, int> number;
  for (const Json &entry : entries) {
    PiperNode node;
    node.id =
        input.id(entry, "id", "node " + std::to_string(graph.nodes.size()));
    node.name = input.textOr(entry, "name", "");
    if (!number.emplace(node.id, static_cast<int>(graph.nodes.size())).second)
      input.bad("node " + node.id + " appears twice", &entry);
    graph.nodes.push_back(std::move(node));
  }
  if (graph.nodes.empty())
    input.bad("there are no nodes");
  graph.dag = Dag(static_cast<int>(graph.nodes.size()));
  std::map<std::pair<int, int>, double> bytes;
  parseEdges(input, graph, number, bytes);

  graph.bytesIn.resize(graph.nodes.size()),
      graph.bytesOut.resize(graph.nodes.size());
  for (int v = 0; v < graph.dag.size(); ++v) {
    std::vector<std::string> sources, targets;
    for (int u : graph.dag.in[v]) {
      sources.push_back(graph.nodes[static_cast<size_t>(u)].id);
      graph.bytesIn[v].push_back(bytes.at({u, v}));
    }
    for (int w : graph.dag.out[v]) {
      targets.push_back(graph.nodes[static_cast<size_t>(w)].id);
      graph.bytesOut[v].push_back(bytes.at({v, w}));
    }
    PiperNode &node = graph.nodes[static_cast<size_t>(v)];
    const Json &table = input.object(entries[static_cast<size_t>(v)], "TMPCs",
                                     "node " + node.id);
    for (const auto &[degree, list] : table.items()) {
      bool digits = !degree.empty() && degree.size() <= 6 && degree[0] != '0' &&
                    std::all_of(degree.begin(), degree.end(),
                                [](char c) { return c >= '0' && c <= '9'; });
      std::string where = "node " + node.id + ", degree " + degree;
      if (!digits || !list.is_array() || list.empty())
        input.bad(where + " is not a tensor-parallel degree with a list of "
                          "variants",
                  &list);
      for (const Json &variant : list)
        node.variants[std::stoi(degree)].push_back(
            parseVariant(input, variant, sources, targets, where));
    }
    if (node.variants.empty())
      input.bad("node " + node.id + " has no variant", &table);
  }
  double sizes = 0;
  for (const PiperNode &node : graph.nodes)
    for (const auto &[degree, variants] : node.variants)
      for (const PiperVariant &v : variants)
        sizes += v.weights + v.memoryPerMicrobatch + v.memoryFixed;
  if (sizes > mostBytesOfGraph)
    input.bad("the nodes' sizes add up to more than 1e18 bytes");
  return graph;
}

} // namespace pipec::published
