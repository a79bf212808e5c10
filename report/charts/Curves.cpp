//===- Curves.cpp - memory over a step, loss over steps ------------------===//
#include "report/Format.h"
#include "report/charts/Charts.h"
#include "report/charts/Svg.h"

#include <algorithm>
#include <cmath>

namespace pipec::report {

std::string memoryCurve(const plan::Plan &plan, int rank,
                        const Prediction &prediction) {
  constexpr double kWidth = 346, kHeight = 128, kLeft = 66, kTop = 22,
                   kBottom = 22, kRight = 8;
  const plan::Rank &row = plan.ranks[rank];
  const double end = prediction.timeline.makespan;
  const double x0 = kLeft, y0 = kHeight - kBottom;
  const double sx = (kWidth - kLeft - kRight) / end;
  const double sy =
      (kHeight - kTop - kBottom) / double(std::max<int64_t>(1, row.peak_bytes));
  Svg svg(kWidth, kHeight, "memory of rank " + std::to_string(rank));
  for (double t : ticks(double(row.peak_bytes), 3, true)) {
    svg.line(x0, y0 - t * sy, kWidth - kRight, y0 - t * sy, "grid");
    svg.text(x0 - 8, y0 - t * sy + 4, bytes(static_cast<int64_t>(t)), "tick",
             Anchor::End);
  }
  for (double t : ticks(end, 3))
    svg.text(x0 + t * sx, y0 + 15, t == 0 ? "0" : seconds(t), "tick",
             Anchor::Middle);
  const int64_t fixed = row.peak_bytes - row.stash_bytes;
  svg.rect(x0, y0 - double(fixed) * sy, kWidth - kLeft - kRight,
           double(fixed) * sy, "m-fixed",
           "allocated throughout: " + bytes(fixed));
  std::string area =
      "M" + coordinate(x0) + " " + coordinate(y0 - double(fixed) * sy);
  for (const MemoryPoint &point : memoryOverTime(plan, rank, prediction))
    area += "H" + coordinate(x0 + point.seconds * sx) + "V" +
            coordinate(y0 - double(point.bytes) * sy);
  area += "H" + coordinate(x0 + end * sx) + "V" +
          coordinate(y0 - double(fixed) * sy) + "z";
  svg.path(area, "m-stash",
           "kept for the backward pass: at most " + bytes(row.stash_bytes));
  svg.line(x0, y0 - double(row.peak_bytes) * sy, kWidth - kRight,
           y0 - double(row.peak_bytes) * sy, "limit");
  svg.text(x0, 13, "rank " + std::to_string(rank), "label");
  svg.text(kWidth - kRight, 13, "peak " + bytes(row.peak_bytes), "value",
           Anchor::End);
  return svg.finish();
}

std::string lossCurve(const MeasuredRun &run) {
  constexpr double kHeight = 220, kLeft = 66, kTop = 10, kBottom = 26,
                   kRight = 12;
  std::vector<double> finite;
  for (double loss : run.losses)
    if (std::isfinite(loss))
      finite.push_back(loss);
  if (finite.size() < 2)
    return "";
  auto [low, high] = std::minmax_element(finite.begin(), finite.end());
  // Room above and below; a flat curve still needs a scale.
  double margin =
      std::max((*high - *low) * 0.08, std::max(1e-9, std::abs(*high) * 1e-3));
  double bottom = *low - margin, top = *high + margin;
  const double y0 = kHeight - kBottom;
  const double sy = (kHeight - kTop - kBottom) / (top - bottom);
  const double steps = double(run.losses.size() - 1);
  const double sx = (kChartWidth - kLeft - kRight) / steps;
  Svg svg(kChartWidth, kHeight, "loss");
  std::vector<double> marks = ticks(top - bottom, 5);
  double unit = marks.size() > 1 ? marks[1] : 1;
  for (double v = std::ceil(bottom / unit) * unit; v <= top; v += unit) {
    double y = y0 - (v - bottom) * sy;
    svg.line(kLeft, y, kChartWidth - kRight, y, "grid");
    svg.text(kLeft - 8, y + 4, plain(std::abs(v) < unit / 2 ? 0 : v), "tick",
             Anchor::End);
  }
  const double stepUnit =
      std::max(1.0, ticks(steps, 10).size() > 1 ? ticks(steps, 10)[1] : 1.0);
  for (double s = 0; s <= steps; s += stepUnit)
    svg.text(kLeft + s * sx, y0 + 17,
             std::to_string(run.first_step + static_cast<int64_t>(s)), "tick",
             Anchor::Middle);
  std::string line;
  bool pen = false;
  for (size_t i = 0; i < run.losses.size(); ++i) {
    if (!std::isfinite(run.losses[i])) {
      pen = false;
      continue;
    }
    line += (pen ? "L" : "M") + coordinate(kLeft + double(i) * sx) + " " +
            coordinate(y0 - (run.losses[i] - bottom) * sy);
    pen = true;
  }
  svg.path(line, "curve",
           "from " + number(run.losses.front()) + " to " +
               number(run.losses.back()));
  return svg.finish();
}

} // namespace pipec::report
