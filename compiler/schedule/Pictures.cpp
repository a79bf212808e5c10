//===- Pictures.cpp - a schedule as a page and as a trace -----------------===//
#include "compiler/schedule/Pictures.h"

#include "compiler/schedule/Page.h"

#include <cstdio>

namespace pipec::schedule {

/// Enough digits to look exact, never "inf" or "1e+06.000".
static std::string number(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.9g", value);
  return text;
}

static std::string quoted(const std::string &text) {
  std::string result = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\')
      result += '\\';
    // Also keeps "</script>" out of the page.
    if (static_cast<unsigned char>(c) < 0x20 || c == '<')
      c = '?';
    result += c;
  }
  return result + '"';
}

/// [[start, end, kind, stage, microbatch, memory after], …] per device.
static std::string taskTable(const Schedule &schedule,
                             const Timeline &timeline) {
  std::string text = "[";
  for (int d = 0; d < schedule.devices(); ++d) {
    text += d ? ",\n[" : "[";
    for (std::size_t i = 0; i < schedule.order[d].size(); ++i) {
      const Action &a = schedule.order[d][i];
      text += (i ? ",[" : "[") + number(timeline.start[d][i]) + "," +
              number(timeline.end[d][i]) + "," +
              std::to_string(static_cast<int>(a.kind)) + "," +
              std::to_string(a.stage) + "," + std::to_string(a.microbatch) +
              "," + number(timeline.memory[d][i]) + "]";
    }
    text += "]";
  }
  return text + "]";
}

static std::string numbers(const std::vector<double> &values) {
  std::string text = "[";
  for (std::size_t i = 0; i < values.size(); ++i)
    text += (i ? "," : "") + number(values[i]);
  return text + "]";
}

std::string renderHtml(const Schedule &schedule, const Costs &costs,
                       const Timeline &timeline) {
  std::string data =
      "{\"name\":" + quoted(schedule.name) +
      ",\"devices\":" + std::to_string(schedule.devices()) +
      ",\"stages\":" + std::to_string(schedule.stages) +
      ",\"microbatches\":" + std::to_string(schedule.microbatches) +
      ",\"makespan\":" + number(timeline.makespan) +
      ",\"span\":" + number(timeline.span) +
      ",\"work\":" + number(timeline.work) +
      ",\"bubble_ideal\":" + number(timeline.bubbleOverIdeal()) +
      ",\"bubble_makespan\":" + number(timeline.bubbleMakespan()) +
      ",\"bubble_span\":" + number(timeline.bubbleSpan()) +
      ",\"peak\":" + numbers(timeline.peak) +
      ",\"busy\":" + numbers(timeline.busy) +
      ",\"limit\":" + numbers(costs.limit) +
      ",\n\"tasks\":" + taskTable(schedule, timeline) + "}";
  std::string page = kPage;
  static const std::string kMark = "@DATA@";
  return page.replace(page.find(kMark), kMark.size(), data);
}

std::string renderPerfetto(const Schedule &schedule, const Timeline &timeline,
                           double scale) {
  std::string text = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
  text += "{\"ph\":\"M\",\"pid\":0,\"name\":\"process_name\",\"args\":{"
          "\"name\":" +
          quoted(schedule.name) + "}}";
  for (int d = 0; d < schedule.devices(); ++d) {
    std::string thread = ",\"pid\":0,\"tid\":" + std::to_string(d);
    text += ",\n{\"ph\":\"M\"" + thread +
            ",\"name\":\"thread_name\",\"args\":{\"name\":\"device " +
            std::to_string(d) + "\"}}";
    for (std::size_t i = 0; i < schedule.order[d].size(); ++i) {
      const Action &a = schedule.order[d][i];
      double start = timeline.start[d][i], end = timeline.end[d][i];
      text += ",\n{\"ph\":\"X\"" + thread + ",\"name\":\"" + toString(a) +
              "\",\"cat\":\"" + letter(a.kind) +
              "\",\"ts\":" + number(start * scale) +
              ",\"dur\":" + number((end - start) * scale) +
              ",\"args\":{\"stage\":" + std::to_string(a.stage) +
              ",\"microbatch\":" + std::to_string(a.microbatch) + "}}";
      text += ",\n{\"ph\":\"C\",\"pid\":0,\"name\":\"memory of device " +
              std::to_string(d) + "\",\"ts\":" + number(end * scale) +
              ",\"args\":{\"held\":" + number(timeline.memory[d][i]) + "}}";
    }
  }
  return text + "\n]}\n";
}

} // namespace pipec::schedule
