//===- ParseJson.cpp - JSON files that users name -------------------------===//
#include "support/ParseJson.h"

#include "support/UnknownName.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <vector>

namespace pipec {

using Json = nlohmann::ordered_json;

namespace {

/// No file of ours is: millions of brackets are a mistake, or meant to be slow.
constexpr int kDeepest = 500;

size_t linesBefore(const std::string &text, size_t offset) {
  offset = std::min(offset, text.size());
  return 1 + static_cast<size_t>(std::count(
                 text.begin(), text.begin() + static_cast<long>(offset), '\n'));
}

/// The end of the string that begins with the quote at `at`.
size_t closingQuote(const std::string &text, size_t at) {
  for (++at; at < text.size() && text[at] != '"'; ++at)
    at += text[at] == '\\';
  return at;
}

/// Line of the value with that number, counted in the order of their first
/// characters. The text up to there is JSON.
size_t lineOfValue(const std::string &text, size_t number) {
  size_t seen = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const size_t begin = i;
    const std::string_view between = " \t\r\n,:]}";
    if (between.find(text[i]) != std::string_view::npos)
      continue;
    if (text[i] == '"') {
      i = closingQuote(text, i);
      size_t next = text.find_first_not_of(" \t\r\n", i + 1);
      if (next != std::string::npos && text[next] == ':')
        continue; // a member's name
    } else if (text[i] != '{' && text[i] != '[') {
      i = std::min(text.find_first_of(" \t\r\n,]}", i), text.size()) - 1;
    }
    if (seen++ == number)
      return linesBefore(text, begin);
  }
  return linesBefore(text, text.size());
}

/// What the parser says, without its own error numbers and positions.
std::string reasonOf(const std::exception &e) {
  std::string what = e.what();
  size_t column = what.find("column ");
  size_t from = what.find(": ", column == std::string::npos ? 0 : column);
  if (column == std::string::npos || from == std::string::npos) {
    from = what.find("] ");
    return from == std::string::npos ? what : what.substr(from + 2);
  }
  return what.substr(from + 2);
}

} // namespace

size_t ParsedJson::lineOf(const Json &value) const {
  size_t number = 0;
  std::vector<const Json *> open{&root};
  while (!open.empty()) {
    const Json *next = open.back();
    open.pop_back();
    if (next == &value)
      return lineOfValue(*text, number);
    ++number;
    if (next->is_structured())
      for (auto it = next->rbegin(); it != next->rend(); ++it)
        open.push_back(&*it);
  }
  return 1;
}

void ParsedJson::refuseUnknown(const Json &object,
                               const std::vector<std::string> &names,
                               const std::string &what, Exit code) const {
  if (!object.is_object())
    return;
  for (const auto &[name, value] : object.items()) {
    if (std::find(names.begin(), names.end(), name) != names.end())
      continue;
    throw Failure(code, origin + ":" + std::to_string(lineOf(value)) + ": " +
                            what + " has no member \"" + name + "\"" +
                            didYouMean(name, names) +
                            "; there are: " + listed(names));
  }
}

ParsedJson parseJson(const std::string &text, const std::string &origin,
                     Exit code) {
  size_t values = 0;
  std::vector<std::set<std::string>> names;
  auto fail = [&](size_t line, const std::string &reason) {
    return Failure(code, origin + ":" + std::to_string(line) + ": " + reason);
  };
  auto watch = [&](int depth, Json::parse_event_t event, Json &value) {
    using Event = Json::parse_event_t;
    if (depth > kDeepest)
      throw fail(lineOfValue(text, values), "values are nested more than " +
                                                std::to_string(kDeepest) +
                                                " deep");
    switch (event) {
    case Event::object_start:
      names.emplace_back();
      [[fallthrough]];
    case Event::array_start:
    case Event::value:
      ++values;
      break;
    case Event::object_end:
      names.pop_back();
      break;
    case Event::key:
      if (!names.back().insert(value.get<std::string>()).second)
        throw fail(lineOfValue(text, values),
                   "\"" + value.get<std::string>() + "\" appears twice");
      break;
    case Event::array_end:
      break;
    }
    return true;
  };
  try {
    return {Json::parse(text, watch), origin, &text};
  } catch (const Json::parse_error &e) {
    const std::string reason =
        e.byte > text.size() ? "it ends where more is to come" : reasonOf(e);
    throw fail(linesBefore(text, e.byte ? e.byte - 1 : 0),
               "not JSON: " + reason);
  } catch (const Json::out_of_range &e) {
    throw fail(lineOfValue(text, values), reasonOf(e));
  }
}

} // namespace pipec
