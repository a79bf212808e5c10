//===- Trace.cpp - a timeline for Perfetto --------------------------------===//
#include "report/Prediction.h"
#include "runtime/exec/RankState.h"
#include "runtime/run/Results.h"
#include "support/OutputFile.h"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>

namespace pipec {

using Json = nlohmann::ordered_json;

namespace {

enum Row { kMeasured = 0, kPredicted = 1 };

const char *nameOf(char kind) {
  switch (kind) {
  case 'F':
    return "forward";
  case 'B':
    return "backward";
  case 'I':
    return "input gradient";
  case 'W':
    return "weight gradient";
  case 'U':
    return "update";
  case 'R':
    return "gradient sums";
  default:
    return "running statistics";
  }
}

class TraceWriter {
public:
  TraceWriter(const plan::Plan &plan, const Results &results,
              const std::string &path)
      : plan(plan), results(results), out(path),
        stream(plan.strategy.update == "round") {}

  void write() {
    for (const RankResult &rank : results.ranks)
      for (const Event &event : rank.events)
        origin = std::min(origin, event.start);
    out.file().write("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n");
    for (size_t r = 0; r < results.ranks.size(); ++r) {
      name("process_name", r, 0, RankState::nameOf(plan, static_cast<int>(r)));
      name("thread_name", r, kMeasured, "measured");
      name("thread_name", r, kPredicted, "predicted");
      for (const Event &event : results.ranks[r].events)
        slice(r, kMeasured, event.kind, event.stage, event.step,
              event.microbatch, event.start, event.end);
      if (results.ranks[r].droppedEvents)
        name("process_labels", r, 0,
             std::to_string(results.ranks[r].droppedEvents) +
                 " later events not kept");
    }
    predicted();
    out.file().write("\n]}\n");
    out.commit();
  }

private:
  /// The predicted tasks of every recorded step, from when its first task began
  /// anywhere.
  void predicted() {
    const auto prediction = report::predict(plan);
    if (!prediction)
      return;
    std::map<int64_t, double> starts;
    for (const RankResult &rank : results.ranks)
      for (const Event &event : rank.events) {
        const int64_t step = stream ? results.firstStep : event.step;
        auto [entry, fresh] = starts.emplace(step, event.start);
        entry->second = std::min(entry->second, event.start);
      }
    const schedule::Timeline &timeline = prediction->timeline;
    for (auto &[step, start] : starts)
      for (size_t r = 0; r < prediction->schedule.order.size(); ++r) {
        const auto &order = prediction->schedule.order[r];
        for (size_t i = 0; i < order.size(); ++i) {
          const int microbatch = order[i].microbatch;
          slice(r, kPredicted, schedule::letter(order[i].kind), order[i].stage,
                stream ? step + microbatch : step, stream ? 0 : microbatch,
                start + timeline.start[r][i], start + timeline.end[r][i]);
        }
      }
  }

  void slice(size_t rank, Row row, char kind, int stage, int64_t step,
             int64_t microbatch, double start, double end) {
    Json arguments = {{"step", step + 1}};
    if (stage >= 0)
      arguments["stage"] = stage;
    std::string label = nameOf(kind);
    if (microbatch >= 0 && kind != 'U' && kind != 'R') {
      arguments["microbatch"] = microbatch;
      label += " " + std::to_string(stream ? step : microbatch);
    }
    event({{"ph", "X"},
           {"name", label},
           {"cat", nameOf(kind)},
           {"pid", rank},
           {"tid", static_cast<int>(row)},
           {"ts", (start - origin) * 1e6},
           {"dur", (end - start) * 1e6},
           {"args", arguments}});
  }

  void name(const char *what, size_t rank, int row, const std::string &text) {
    const char *key = std::string(what) == "process_labels" ? "labels" : "name";
    event({{"ph", "M"},
           {"name", what},
           {"pid", rank},
           {"tid", row},
           {"args", {{key, text}}}});
  }

  void event(const Json &json) {
    out.file().write((first ? "" : ",\n") + json.dump());
    first = false;
  }

  const plan::Plan &plan;
  const Results &results;
  AtomicFile out;
  const bool stream;
  double origin = std::numeric_limits<double>::infinity();
  bool first = true;
};

} // namespace

void writeTrace(const plan::Plan &plan, const Results &results,
                const std::string &path) {
  TraceWriter(plan, results, path).write();
}

} // namespace pipec
