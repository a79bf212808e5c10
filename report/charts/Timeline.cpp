//===- Timeline.cpp - a schedule as a picture ----------------------------===//
#include "report/Format.h"
#include "report/charts/Charts.h"
#include "report/charts/Svg.h"

#include <algorithm>
#include <map>

namespace pipec::report {

namespace {

constexpr double kLeft = 64, kRow = 28, kBox = 22, kTop = 8, kAxis = 26;
constexpr size_t kRanksShown = 64;
/// More boxes than this lose numbers and tips and share one path a kind.
constexpr size_t kBoxesWithTips = 4000;

struct Box {
  char kind;
  bool odd; ///< the rank's second, fourth … chunk: the lighter shade
  double from, to;
  std::string number, tip;
};

class Picture {
public:
  Picture(size_t ranks, double span, const std::string &label)
      : shown(std::min(ranks, kRanksShown)), ranks(ranks),
        scale((kChartWidth - kLeft - 12) / span), span(span),
        svg(kChartWidth, kTop + shown * kRow + kAxis + (shown < ranks) * 18,
            label) {
    axis();
  }

  void row(size_t rank, int name, const std::vector<Box> &boxes, bool dense) {
    if (rank >= shown)
      return;
    double y = kTop + rank * kRow;
    svg.text(kLeft - 10, y + 15, "rank " + std::to_string(name), "label",
             Anchor::End);
    for (const Box &box : boxes)
      dense ? addDense(box, y) : add(box, y);
  }

  std::string finish() {
    for (const auto &[style, data] : paths)
      svg.path(data, style);
    if (shown < ranks)
      svg.text(kLeft, kTop + shown * kRow + kAxis + 12,
               "… and " + plural(ranks - shown, "more rank"), "label");
    return svg.finish();
  }

private:
  static std::string style(const Box &box) {
    return std::string("task ") + box.kind + (box.odd ? " odd" : "");
  }

  void axis() {
    double bottom = kTop + shown * kRow;
    for (double t : ticks(span, 8)) {
      double x = kLeft + t * scale;
      svg.line(x, kTop, x, bottom, "grid");
      svg.text(x, bottom + 17, t == 0 ? "0" : seconds(t), "tick",
               Anchor::Middle);
    }
  }

  void add(const Box &box, double y) {
    double x = kLeft + box.from * scale, w = (box.to - box.from) * scale;
    // A hair of air between tasks that touch.
    svg.rect(x, y, std::max(0.4, w - (w > 4 ? 1 : 0)), kBox, style(box),
             box.tip);
    if (w >= 7.0 * box.number.size() + 5)
      svg.text(x + w / 2, y + 15, box.number, "inbox", Anchor::Middle);
  }

  void addDense(const Box &box, double y) {
    double x = kLeft + box.from * scale, w = (box.to - box.from) * scale;
    std::string wide = coordinate(std::max(0.1, w));
    paths[style(box)] += "M" + coordinate(x) + " " + coordinate(y) + "h" +
                         wide + "v" + coordinate(kBox) + "h-" + wide + "z";
  }

  size_t shown, ranks;
  double scale, span;
  Svg svg;
  std::map<std::string, std::string> paths;
};

std::string kindName(char kind) {
  switch (kind) {
  case 'F':
    return "forward";
  case 'B':
    return "backward";
  case 'I':
    return "input gradient";
  case 'W':
    return "weight gradient";
  case 'R':
    return "gradient sums";
  case 'T':
    return "running statistics";
  default:
    return "update";
  }
}

/// U, R and T belong to a step, not to a microbatch.
bool ofMicrobatch(char kind) {
  return kind != 'U' && kind != 'R' && kind != 'T';
}

std::string tip(char kind, int stage, int64_t microbatch, double from,
                double to) {
  std::string what = kindName(kind) + ", stage " + std::to_string(stage);
  if (ofMicrobatch(kind))
    what += ", microbatch " + std::to_string(microbatch);
  return what + "\n" + seconds(from) + " to " + seconds(to) + " (" +
         seconds(to - from) + ")";
}

} // namespace

std::string predictedTimeline(const Prediction &prediction, double span_s) {
  const schedule::Schedule &schedule = prediction.schedule;
  const schedule::Timeline &timeline = prediction.timeline;
  size_t tasks = 0;
  for (const auto &order : schedule.order)
    tasks += order.size();
  Picture picture(schedule.order.size(), span_s, "predicted timeline");
  for (size_t r = 0; r < schedule.order.size(); ++r) {
    std::vector<int> held = schedule.stagesOf(static_cast<int>(r));
    std::vector<Box> boxes;
    for (size_t i = 0; i < schedule.order[r].size(); ++i) {
      const schedule::Action &a = schedule.order[r][i];
      char kind = schedule::letter(a.kind);
      double from = timeline.start[r][i], to = timeline.end[r][i];
      size_t chunk =
          std::find(held.begin(), held.end(), a.stage) - held.begin();
      boxes.push_back({kind, chunk % 2 == 1, from, to,
                       std::to_string(a.microbatch),
                       tip(kind, a.stage, a.microbatch, from, to)});
    }
    picture.row(r, static_cast<int>(r), boxes, tasks > kBoxesWithTips);
  }
  return picture.finish();
}

double measuredSpan(const MeasuredRun &run) {
  double end = 0;
  for (const MeasuredRank &rank : run.ranks)
    for (const MeasuredTask &task : rank.tasks)
      end = std::max(end, task.end_s);
  return end;
}

std::string measuredTimeline(const MeasuredRun &run, double span_s) {
  size_t tasks = 0;
  for (const MeasuredRank &rank : run.ranks)
    tasks += rank.tasks.size();
  Picture picture(run.ranks.size(), span_s, "measured timeline");
  for (size_t r = 0; r < run.ranks.size(); ++r) {
    std::vector<int> held;
    for (const MeasuredTask &task : run.ranks[r].tasks)
      held.push_back(task.stage);
    std::sort(held.begin(), held.end());
    held.erase(std::unique(held.begin(), held.end()), held.end());
    std::vector<Box> boxes;
    for (const MeasuredTask &task : run.ranks[r].tasks) {
      size_t chunk =
          std::find(held.begin(), held.end(), task.stage) - held.begin();
      boxes.push_back(
          {task.kind, chunk % 2 == 1, task.start_s, task.end_s,
           ofMicrobatch(task.kind) ? std::to_string(task.microbatch) : "",
           tip(task.kind, task.stage, task.microbatch, task.start_s,
               task.end_s)});
    }
    picture.row(r, run.ranks[r].rank, boxes, tasks > kBoxesWithTips);
  }
  return picture.finish();
}

} // namespace pipec::report
