//===- Bars.cpp - memory of the ranks, in parts --------------------------===//
#include "report/Facts.h"
#include "report/Format.h"
#include "report/charts/Charts.h"
#include "report/charts/Svg.h"

#include <algorithm>

namespace pipec::report {

namespace {

constexpr double kLeft = 92, kRight = 92, kRow = 30, kBar = 20, kTop = 6,
                 kAxis = 26;
constexpr size_t kGroupsShown = 32;

struct Part {
  const char *name;
  const char *style;
  int64_t plan::Rank::*bytes;
};
constexpr Part kParts[] = {
    {"weights", "m-weights", &plan::Rank::weights_bytes},
    {"gradients", "m-gradients", &plan::Rank::gradients_bytes},
    {"optimizer", "m-optimizer", &plan::Rank::optimizer_bytes},
    {"stash", "m-stash", &plan::Rank::stash_bytes},
    {"workspace", "m-workspace", &plan::Rank::workspace_bytes},
    {"other", "m-other", &plan::Rank::other_bytes},
};

int64_t measuredPeak(const MeasuredRun *run, const std::vector<int> &ranks) {
  int64_t peak = 0;
  if (run)
    for (const MeasuredRank &rank : run->ranks)
      if (std::find(ranks.begin(), ranks.end(), rank.rank) != ranks.end())
        peak = std::max(peak, rank.peak_bytes);
  return peak;
}

} // namespace

std::string memoryLegend() {
  std::string html = "<p class=\"legend\">";
  for (const Part &part : kParts)
    html += std::string("<span><i class=\"") + part.style + "\"></i>" +
            part.name + "</span>";
  return html + "</p>\n";
}

std::string memoryBars(const plan::Plan &plan, const MeasuredRun *run) {
  std::vector<RankGroup> groups = equalRanks(plan);
  const bool cut = groups.size() > kGroupsShown;
  if (cut)
    groups.resize(kGroupsShown);
  int64_t largest = 1;
  for (const RankGroup &group : groups)
    largest = std::max({largest, plan.ranks[group.ranks[0]].peak_bytes,
                        measuredPeak(run, group.ranks)});
  const double scale = (kChartWidth - kLeft - kRight) / double(largest);
  const double bottom = kTop + groups.size() * kRow;
  Svg svg(kChartWidth, bottom + kAxis, "peak memory of every rank");
  for (double t : ticks(double(largest), 8, true)) {
    double x = kLeft + t * scale;
    svg.line(x, kTop, x, bottom, "grid");
    svg.text(x, bottom + 17, bytes(static_cast<int64_t>(t)), "tick",
             Anchor::Middle);
  }
  for (size_t g = 0; g < groups.size(); ++g) {
    const plan::Rank &rank = plan.ranks[groups[g].ranks[0]];
    const std::string name = (groups[g].ranks.size() > 1 ? "ranks " : "rank ") +
                             shorten(ranges(groups[g].ranks), 9);
    double y = kTop + g * kRow, x = kLeft;
    svg.text(kLeft - 10, y + 14, name, "label", Anchor::End);
    for (const Part &part : kParts) {
      double w = double(rank.*part.bytes) * scale;
      if (rank.*part.bytes > 0)
        svg.rect(x, y, std::max(0.4, w - (w > 4 ? 1 : 0)), kBar, part.style,
                 std::string(part.name) + " of " + name + ": " +
                     bytes(rank.*part.bytes));
      x += w;
    }
    svg.text(x + 8, y + 14, bytes(rank.peak_bytes), "value");
    if (int64_t peak = measuredPeak(run, groups[g].ranks))
      svg.line(kLeft + double(peak) * scale, y - 3,
               kLeft + double(peak) * scale, y + kBar + 3, "measured");
  }
  return svg.finish() +
         (cut ? "<p class=\"note\">The first " + std::to_string(kGroupsShown) +
                    " groups of equal ranks.</p>\n"
              : "");
}

} // namespace pipec::report
