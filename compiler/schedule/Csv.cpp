//===- Csv.cpp - PyTorch's compute-only schedule CSV ----------------------===//
#include "compiler/schedule/Csv.h"

#include "support/Failure.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <sstream>

namespace pipec::schedule {

std::string writeCsv(const Schedule &schedule) {
  std::string text;
  for (const auto &order : schedule.order) {
    const char *separator = "";
    for (const Action &a : order) {
      text += separator;
      text += toString(a);
      separator = ",";
    }
    text += '\n';
  }
  return text;
}

namespace {

class Reader {
public:
  Reader(const std::string &text, const std::string &name)
      : text(text), name(name) {}

  void read(Schedule &schedule) {
    std::size_t begin = text.starts_with("\xef\xbb\xbf") ? 3 : 0;
    while (begin < text.size()) {
      std::size_t end = std::min(text.find('\n', begin), text.size());
      ++line;
      readLine(begin, end, schedule.order.emplace_back(),
               schedule.pairs.emplace_back());
      begin = end + 1;
    }
  }

private:
  void readLine(std::size_t begin, std::size_t end,
                std::vector<Action> &actions, std::vector<int> &pairs) {
    std::size_t lineBegin = begin;
    while (begin <= end) {
      std::size_t stop = std::min(text.find(',', begin), end);
      std::size_t from = begin, to = stop;
      while (from < to && isSpace(text[from]))
        ++from;
      while (to > from && isSpace(text[to - 1]))
        --to;
      std::size_t column = from - lineBegin + 1;
      if (from < to && text[from] == '(') {
        pairs.push_back(static_cast<int>(actions.size()));
        readPair(from, to, column, actions);
      } else if (from < to) {
        actions.push_back(readAction(from, to, column));
      }
      begin = stop + 1;
    }
  }

  /// "(0F4;7B3)OVERLAP_F_B": two actions meant to run together.
  void readPair(std::size_t from, std::size_t to, std::size_t column,
                std::vector<Action> &actions) {
    static const std::string ending = ")OVERLAP_F_B";
    std::size_t middle = std::min(text.find(';', from), to);
    std::size_t close = std::min(text.find(')', from), to);
    if (middle > close || text.substr(close, to - close) != ending)
      fail(from, to, column, "wanted a pair such as (0F4;7B3)OVERLAP_F_B");
    actions.push_back(readAction(from + 1, middle, column + 1));
    actions.push_back(
        readAction(middle + 1, close, column + (middle + 1 - from)));
  }

  Action readAction(std::size_t from, std::size_t to, std::size_t column) {
    const char *at = text.data() + from, *end = text.data() + to;
    Action action{};
    auto number = [&](int &value) {
      auto [stop, error] = std::from_chars(at, end, value);
      bool good = error == std::errc() && stop > at && value >= 0;
      at = stop;
      return good;
    };
    static const std::string letters = "FBIW";
    if (!number(action.stage) || at == end ||
        letters.find(*at) == std::string::npos)
      fail(from, to, column);
    action.kind = static_cast<Kind>(letters.find(*at++));
    if (!number(action.microbatch) || at != end)
      fail(from, to, column);
    if (action.stage > kMost || action.microbatch > kMost)
      fail(from, to, column, "number too large");
    return action;
  }

  [[noreturn]] void
  fail(std::size_t from, std::size_t to, std::size_t column,
       const std::string &why =
           "wanted <stage><F|B|I|W><microbatch> such as 3F11") const {
    std::string cell = text.substr(from, std::min<std::size_t>(to - from, 40));
    for (char &c : cell)
      if (static_cast<unsigned char>(c) < ' ')
        c = '?'; // of a binary file
    throw Failure(Exit::BadPlan, name + ":" + std::to_string(line) + ":" +
                                     std::to_string(column) + ": '" + cell +
                                     "': " + why);
  }

  static bool isSpace(char c) { return c == ' ' || c == '\t' || c == '\r'; }
  static constexpr int kMost = 1 << 24;

  const std::string &text;
  const std::string &name;
  int line = 0;
};

/// Copy c of a stage is the device that runs its smallest microbatch m with
/// m mod copies == c.
std::vector<std::vector<int>> inferPlacement(const Schedule &schedule) {
  std::vector<std::map<int, int>> firstMicrobatch(schedule.stages);
  for (int d = 0; d < schedule.devices(); ++d)
    for (const Action &a : schedule.order[d]) {
      auto [it, fresh] = firstMicrobatch[a.stage].try_emplace(d, a.microbatch);
      it->second = std::min(it->second, a.microbatch);
    }
  std::vector<std::vector<int>> placement;
  for (const auto &devices : firstMicrobatch) {
    std::vector<std::pair<int, int>> byMicrobatch;
    for (auto [device, microbatch] : devices)
      byMicrobatch.emplace_back(microbatch, device);
    std::sort(byMicrobatch.begin(), byMicrobatch.end());
    std::vector<int> &copies = placement.emplace_back();
    for (auto [microbatch, device] : byMicrobatch)
      copies.push_back(device);
  }
  return placement;
}

} // namespace

Schedule readCsv(const std::string &text, const std::string &name) {
  Schedule schedule;
  schedule.name = name;
  Reader(text, name).read(schedule);
  for (const auto &order : schedule.order)
    for (const Action &a : order) {
      schedule.stages = std::max(schedule.stages, a.stage + 1);
      schedule.microbatches = std::max(schedule.microbatches, a.microbatch + 1);
    }
  if (!schedule.stages)
    throw Failure(Exit::BadPlan, name + ":1:1: no action in the file");
  // A stage far beyond what the actions can fill is a typing error; refuse it
  // before allocating for it.
  std::size_t actions = 0;
  for (const auto &order : schedule.order)
    actions += order.size();
  if (static_cast<std::size_t>(schedule.stages) > actions ||
      static_cast<std::size_t>(schedule.microbatches) > actions)
    throw Failure(Exit::BadPlan, name + ": stage " +
                                     std::to_string(schedule.stages - 1) +
                                     " or microbatch " +
                                     std::to_string(schedule.microbatches - 1) +
                                     " is named, but there are only " +
                                     std::to_string(actions) + " actions");
  schedule.placement = inferPlacement(schedule);
  for (int s = 0; s < schedule.stages; ++s)
    if (schedule.placement[s].empty())
      throw Failure(Exit::BadPlan, name + ": stage " + std::to_string(s) +
                                       " is on no line, but stage " +
                                       std::to_string(schedule.stages - 1) +
                                       " is");
  return schedule;
}

/// The column, from 1, of the cell with action number `position` of a line.
static std::size_t columnOf(const std::string &line, int position) {
  for (std::size_t from = 0; from < line.size();) {
    std::size_t stop = std::min(line.find(',', from), line.size());
    std::size_t at = line.find_first_not_of(" \t\r", from);
    if (at < stop) {
      position -= 1 + static_cast<int>(std::count(line.begin() + at,
                                                  line.begin() + stop, ';'));
      if (position < 0)
        return at + 1;
    }
    from = stop + 1;
  }
  return 1;
}

void verifyCsv(const Schedule &schedule, const std::string &text,
               const VerifyOptions &options) {
  auto violations = verify(schedule, options);
  if (violations.empty())
    return;
  const Violation &first = violations[0];
  std::string place = schedule.name;
  if (first.device >= 0)
    place += ":" + std::to_string(first.device + 1);
  if (first.device >= 0 && first.position >= 0) {
    std::stringstream lines(text);
    std::string line;
    for (int d = 0; d <= first.device; ++d)
      std::getline(lines, line);
    place += ":" + std::to_string(columnOf(line, first.position));
  }
  throw Failure(Exit::BadPlan,
                place + ": " + toString(first.rule) + ": " + first.message);
}

} // namespace pipec::schedule
