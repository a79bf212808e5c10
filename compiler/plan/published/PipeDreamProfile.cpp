#include "compiler/plan/published/PipeDreamProfile.h"

#include "compiler/plan/published/JsonInput.h"
#include "support/Failure.h"
#include "support/Utf8.h"

#include <charconv>
#include <cmath>
#include <map>
#include <set>
#include <sstream>
#include <string_view>

namespace pipec::published {

namespace {

struct Reader {
  const std::string &origin;
  int line = 0;

  [[noreturn]] void bad(const std::string &reason) const {
    throw Failure(Exit::BadModel,
                  origin + ":" + std::to_string(line) + ": " + reason);
  }

  double number(std::string_view text, const std::string &what) const {
    while (!text.empty() && text.front() == ' ')
      text.remove_prefix(1);
    while (!text.empty() && (text.back() == ' ' || text.back() == '\r'))
      text.remove_suffix(1);
    double value = 0;
    auto [end, error] =
        std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size())
      bad(what + " '" + std::string(text) + "' is not a number");
    if (!(value >= 0 && value <= mostOfANumber))
      bad(what + " is " + std::string(text) +
          "; it must be a number between 0 and 1e15");
    return value;
  }

  /// A number, or a list [a; b; …] that is summed.
  double total(std::string_view text, const std::string &what) const {
    if (text.empty() || text.front() != '[')
      return number(text, what);
    if (text.back() != ']')
      bad(what + " has an unclosed list");
    text = text.substr(1, text.size() - 2);
    double sum = 0;
    while (true) {
      size_t next = text.find(';');
      sum += number(text.substr(0, next), what);
      if (!(sum <= mostOfANumber))
        bad(what + " adds up to more than 1e15");
      if (next == std::string_view::npos)
        return sum;
      text = text.substr(next + 1);
    }
  }
};

std::vector<std::string> splitOn(const std::string &text,
                                 const std::string &separator) {
  std::vector<std::string> parts;
  size_t from = 0;
  while (true) {
    size_t at = text.find(separator, from);
    parts.push_back(text.substr(from, at - from));
    if (at == std::string::npos)
      return parts;
    from = at + separator.size();
  }
}

constexpr const char *kNoNode =
    "a PipeDream profile has 'id -- description -- times and sizes' here";

ProfileNode parseNode(const Reader &reader, const std::string &line) {
  std::vector<std::string> parts = splitOn(line, " -- ");
  if (parts.size() < 3)
    reader.bad(kNoNode);
  // A description may itself contain the separator; the last part but an
  // optional stage_id holds the numbers.
  size_t numbers = parts.size() - 1;
  if (parts[numbers].rfind("stage_id=", 0) == 0) {
    reader.number(std::string_view(parts[numbers]).substr(9), "stage_id");
    --numbers;
  }
  if (numbers < 2)
    reader.bad(kNoNode);
  ProfileNode node;
  node.id = parts[0];
  if (node.id.empty())
    reader.bad("a node without an id");
  node.description = parts[1];
  for (size_t p = 2; p < numbers; ++p)
    node.description += " -- " + parts[p];
  std::map<std::string, std::string> fields;
  for (const std::string &field : splitOn(parts[numbers], ", ")) {
    size_t equals = field.find('=');
    if (equals == std::string::npos)
      reader.bad("'" + field + "' is not key=value");
    if (!fields.emplace(field.substr(0, equals), field.substr(equals + 1))
             .second)
      reader.bad("node " + node.id + " has " + field.substr(0, equals) +
                 " twice");
  }
  auto take = [&](const char *key) {
    auto it = fields.find(key);
    if (it == fields.end())
      reader.bad("node " + node.id + " has no " + key);
    return reader.total(it->second, key);
  };
  node.forwardMs = take("forward_compute_time");
  node.backwardMs = take("backward_compute_time");
  node.activationBytes = take("activation_size");
  node.parameterBytes = take("parameter_size");
  return node;
}

} // namespace

PipeDreamProfile parsePipeDreamProfile(const std::string &text,
                                       const std::string &origin) {
  Reader reader{origin, 0};
  std::vector<ProfileNode> nodes;
  std::map<std::string, int> number;
  std::vector<std::pair<int, int>> edges;
  std::set<std::pair<int, int>> known;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    ++reader.line;
    if (reader.line == 1 && line.rfind("\xef\xbb\xbf", 0) == 0)
      line.erase(0, 3); // a byte order mark
    if (line.find('\0') != std::string::npos)
      reader.bad("a NUL byte: this is no text file");
    if (!isUtf8(line))
      reader.bad("this is not UTF-8");
    line.erase(line.find_last_not_of(" \t\r") + 1);
    if (line.empty())
      continue;
    if (line[0] != '\t') {
      ProfileNode node = parseNode(reader, line);
      if (!number.emplace(node.id, static_cast<int>(nodes.size())).second)
        reader.bad("node " + node.id + " appears twice");
      nodes.push_back(std::move(node));
      continue;
    }
    std::vector<std::string> ends = splitOn(line.substr(1), " -- ");
    if (ends.size() != 2)
      reader.bad("a PipeDream profile has '<tab>source -- destination' here");
    int at[2];
    for (int e = 0; e < 2; ++e) {
      auto it = number.find(ends[static_cast<size_t>(e)]);
      if (it == number.end())
        reader.bad("edge names unknown node '" + ends[static_cast<size_t>(e)] +
                   "'");
      at[e] = it->second;
    }
    if (at[0] == at[1])
      reader.bad("node " + ends[0] + " has an edge to itself");
    if (!known.insert({at[0], at[1]}).second)
      reader.bad("the edge " + ends[0] + " -- " + ends[1] + " appears twice");
    edges.push_back({at[0], at[1]});
  }
  if (nodes.empty())
    throw Failure(Exit::BadModel,
                  origin + ": no nodes; is this a PipeDream profile?");

  double bytes = 0;
  for (const ProfileNode &node : nodes)
    bytes += node.activationBytes + node.parameterBytes;
  if (bytes > mostBytesOfGraph)
    throw Failure(Exit::BadModel,
                  origin + ": the nodes' sizes add up to more than 1e18 bytes");

  Dag whole(static_cast<int>(nodes.size()));
  for (auto [a, b] : edges)
    whole.edge(a, b);
  whole.finish();
  if (auto cycle = findCycle(whole); !cycle.empty()) {
    std::string path;
    for (int v : cycle)
      path += nodes[static_cast<size_t>(v)].id + " -> ";
    throw Failure(Exit::BadModel, origin + ": the graph has a cycle: " + path +
                                      nodes[static_cast<size_t>(cycle[0])].id);
  }
  if (int parts = weakComponents(whole); parts > 1)
    throw Failure(Exit::BadModel, origin + ": the graph falls into " +
                                      std::to_string(parts) +
                                      " parts without an edge between them");

  PipeDreamProfile profile;
  std::vector<char> isInput(nodes.size(), 0), isUnread(nodes.size(), 0);
  for (size_t v = 0; v < nodes.size(); ++v) {
    isInput[v] =
        whole.in[v].empty() && nodes[v].description.rfind("Input", 0) == 0;
    isUnread[v] = !isInput[v] && whole.out[v].empty() &&
                  nodes[v].description.rfind("__getitem__", 0) == 0;
  }
  std::vector<int> kept(nodes.size(), -1);
  for (size_t v = 0; v < nodes.size(); ++v) {
    if (isInput[v])
      profile.inputs.push_back(nodes[v].id);
    else if (isUnread[v])
      profile.unread.push_back(nodes[v].id);
    if (isInput[v] || isUnread[v])
      continue;
    kept[v] = static_cast<int>(profile.nodes.size());
    profile.nodes.push_back(nodes[v]);
  }
  for (const bool inputs : {true, false})
    for (size_t v = 0; v < nodes.size(); ++v) {
      if (!(inputs ? isInput : isUnread)[v])
        continue;
      int beside = -1;
      for (int u : inputs ? whole.out[v] : whole.in[v])
        if (const int k = kept[static_cast<size_t>(u)];
            k >= 0 && (beside < 0 || (inputs ? k < beside : k > beside)))
          beside = k;
      profile.besides.push_back(beside);
    }
  if (profile.nodes.empty())
    throw Failure(Exit::BadModel, origin + ": only inputs, nothing to place");
  profile.dag = Dag(static_cast<int>(profile.nodes.size()));
  for (auto [a, b] : edges)
    if (kept[static_cast<size_t>(a)] >= 0 && kept[static_cast<size_t>(b)] >= 0)
      profile.dag.edge(kept[static_cast<size_t>(a)],
                       kept[static_cast<size_t>(b)]);
  profile.dag.finish();
  return profile;
}

} // namespace pipec::published
