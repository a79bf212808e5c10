//===- Diagnostics.cpp - all problems of an input in one report -----------===//
#include "support/Diagnostics.h"
#include "support/Printable.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace pipec {

/// How many node names a merged entry lists.
static constexpr size_t kNamesShown = 4;
/// How much of a name is printed.
static constexpr size_t kNameLength = 600;

static bool sameProblem(const Diagnostic &a, const Diagnostic &b) {
  return a.code == b.code && a.op == b.op && a.domain == b.domain &&
         a.opset == b.opset && a.cause == b.cause && a.remedy == b.remedy;
}

void Diagnostics::add(Diagnostic diagnostic) {
  auto same =
      std::find_if(entries.begin(), entries.end(), [&](const Diagnostic &e) {
        return sameProblem(e, diagnostic);
      });
  if (same == entries.end()) {
    entries.push_back(std::move(diagnostic));
    return;
  }
  same->count += diagnostic.count;
  if (same->also.size() + 1 < kNamesShown && !diagnostic.node.empty())
    same->also.push_back(diagnostic.node);
}

void Diagnostics::add(Exit code, const std::string &cause,
                      const std::string &remedy) {
  Diagnostic d;
  d.code = code;
  d.cause = cause;
  d.remedy = remedy;
  add(std::move(d));
}

void Diagnostics::add(const Failure &failure) {
  const std::string text = failure.what();
  const size_t split = text.find("; ");
  add(failure.code, text.substr(0, split),
      split == std::string::npos ? "" : text.substr(split + 2));
}

void Diagnostics::note(const std::string &text) {
  if (std::find(notes.begin(), notes.end(), text) == notes.end())
    notes.push_back(text);
}

Exit Diagnostics::exitCode() const {
  auto has = [&](Exit code) {
    return std::any_of(entries.begin(), entries.end(),
                       [&](const Diagnostic &e) { return e.code == code; });
  };
  if (entries.empty())
    return Exit::Ok;
  for (Exit code : {Exit::Internal, Exit::NoInput, Exit::BadModel})
    if (has(code))
      return code;
  return entries.front().code;
}

static std::string cut(const std::string &name) {
  return printable(name.substr(0, kNameLength)) +
         (name.size() > kNameLength ? "..." : "");
}

/// "node 'a' and 2 more (Foo, opset 18)", or nothing.
static std::string subject(const Diagnostic &d) {
  std::string out;
  if (!d.node.empty() || !d.op.empty()) {
    out = "node '" + cut(d.node) + "'";
    for (const std::string &name : d.also)
      out += ", '" + cut(name) + "'";
    const int64_t more = d.count - 1 - static_cast<int64_t>(d.also.size());
    if (more > 0)
      out += " and " + std::to_string(more) + " more";
    if (!d.op.empty()) {
      out += " (" + (d.domain.empty() ? "" : cut(d.domain) + ".") + cut(d.op);
      if (d.opset > 0)
        out += ", opset " + std::to_string(d.opset);
      out += ")";
    }
    out += ": ";
  }
  return out;
}

std::string noteLine(const std::string &note) {
  return "pipec: note: " + printable(note) + "\n";
}

std::vector<std::string> Diagnostics::takeNotes() {
  return std::exchange(notes, {});
}

std::string Diagnostics::text(const std::string &input) const {
  std::string out;
  for (const std::string &note : notes)
    out += noteLine(note);
  if (entries.empty())
    return out;
  out += "pipec: error: " + cut(input) + ": ";
  const bool one = entries.size() == 1;
  if (!one)
    out += std::to_string(entries.size()) + " problems\n";
  const std::string indent = one ? "  " : "     ";
  size_t number = 0;
  for (const Diagnostic &d : entries) {
    out += (one ? "" : "  " + std::to_string(++number) + ". ") + subject(d) +
           cut(d.cause) + "\n";
    if (!d.location.empty())
      out += indent + "in the model's source: " + cut(d.location) + "\n";
    if (!d.remedy.empty())
      out += indent + "remedy: " + printable(d.remedy) + "\n";
  }
  return out;
}

std::string Diagnostics::json(const std::string &input) const {
  nlohmann::ordered_json problems = nlohmann::ordered_json::array();
  for (const Diagnostic &d : entries) {
    nlohmann::ordered_json p;
    p["cause"] = d.cause;
    p["remedy"] = d.remedy;
    p["exit"] = static_cast<int>(d.code);
    if (!d.node.empty() || !d.op.empty()) {
      p["node"] = d.node;
      p["op"] = d.op;
      p["domain"] = d.domain;
      p["opset"] = d.opset;
      p["count"] = d.count;
      p["also"] = d.also;
    }
    if (!d.location.empty())
      p["location"] = d.location;
    problems.push_back(std::move(p));
  }
  nlohmann::ordered_json report;
  report["input"] = input;
  report["exit"] = static_cast<int>(exitCode());
  report["problems"] = std::move(problems);
  report["notes"] = notes;
  // Names come from the file and need not be valid UTF-8.
  return report.dump(2, ' ', false,
                     nlohmann::ordered_json::error_handler_t::replace) +
         "\n";
}

} // namespace pipec
