//===- Page.cpp - the report as one offline page -------------------------===//
#include "report/Facts.h"
#include "report/Format.h"
#include "report/Report.h"
#include "report/Style.h"
#include "report/charts/Charts.h"
#include "report/charts/Svg.h"
#include "support/OutputFile.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace pipec::report {

namespace {

constexpr size_t kCurvesShown = 16;
constexpr size_t kWeightsShown = 2000;

/// An HTML table; a name that starts with '>' is a column of numbers, one with
/// '~' may break lines.
class HtmlTable {
public:
  explicit HtmlTable(const std::vector<std::string> &names) {
    html = "<div class=\"scroll\"><table><tr>";
    for (const std::string &name : names) {
      bool number = name.starts_with(">"), wraps = name.starts_with("~");
      style.push_back(number ? " class=\"r\"" : wraps ? " class=\"wrap\"" : "");
      html += "<th" + style.back() + ">" +
              escape(number || wraps ? name.substr(1) : name) + "</th>";
    }
    html += "</tr>\n";
  }
  void row(const std::vector<std::string> &cells, bool best = false) {
    html += best ? "<tr class=\"best\">" : "<tr>";
    for (size_t i = 0; i < cells.size(); ++i)
      html += "<td" + style[i] + ">" + escape(cells[i]) + "</td>";
    html += "</tr>\n";
  }
  std::string finish() const { return html + "</table></div>\n"; }

private:
  std::string html;
  std::vector<std::string> style;
};

class Page {
public:
  Page(const plan::Plan &plan, const MeasuredRun *run)
      : plan(plan), run(run), prediction(predict(plan)) {}

  std::string html() const {
    return "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n"
           "<meta charset=\"utf-8\">\n"
           "<meta name=\"viewport\" content=\"width=device-width, "
           "initial-scale=1\">\n<title>" +
           escape(modelLine(plan)) + "</title>\n<style>" + kStyle +
           "</style>\n</head>\n<body>\n<main>\n" + head() + tiles() +
           measured() + schedule() + stages() + memory() + curves() +
           baselines() + lists() + "<footer>pipec " +
           escape(plan.pipec_version) +
           " · everything on this page follows from plan.json" +
           (run ? " and one run of it" : "") +
           "</footer>\n</main>\n</body>\n"
           "</html>\n";
  }

private:
  std::string head() const {
    return "<header><h1>" + escape(modelLine(plan)) + "</h1>\n<p>" +
           escape(planLine(plan)) + "<br>" + escape(trainingLine(plan)) +
           "<br>" + escape(trainedLine(plan)) + "</p></header>\n";
  }

  static std::string tile(const std::string &value, const std::string &name) {
    return "<div class=\"tile\"><b>" + escape(value) + "</b><span>" +
           escape(name) + "</span></div>\n";
  }

  std::string tiles() const {
    const plan::Predicted &p = plan.predicted;
    std::string html = "<section class=\"tiles\">\n";
    html += tile(seconds(p.step_s), "a step, predicted");
    if (run)
      html += tile(seconds(run->step_s), "a step, measured");
    html += tile(number(run ? run->samples_per_s : p.samples_per_s),
                 run ? "samples/s, measured" : "samples/s, predicted");
    html += tile(percent(p.bubble), "bubble: idle share of all ranks' time");
    return html +
           tile(bytes(highestPeak(plan)), "peak memory of the largest rank") +
           "</section>\n";
  }

  //===--------------------------------------------------------------------===//
  // After a run
  //===--------------------------------------------------------------------===//

  std::string measured() const {
    if (!run)
      return "";
    std::string html = "<section><h2>The run</h2>\n<p class=\"note\">" +
                       plural(run->steps, "step") + ", from step " +
                       std::to_string(run->first_step) + ".</p>\n";
    if (std::string curve = lossCurve(*run); !curve.empty())
      html += "<h3>Loss</h3>\n<div class=\"scroll\">" + curve + "</div>\n";
    return html + comparison() + "</section>\n";
  }

  std::string comparison() const {
    HtmlTable step({"", ">predicted", ">measured", ">measured/predicted"});
    step.row({"step", seconds(plan.predicted.step_s),
              seconds(run->step_s, plan.predicted.step_s),
              ratio(run->step_s, plan.predicted.step_s)});
    step.row({"samples/s", number(plan.predicted.samples_per_s),
              number(run->samples_per_s),
              ratio(run->samples_per_s, plan.predicted.samples_per_s)});
    HtmlTable ranks({"rank", ">peak memory, predicted", ">measured",
                     ">busy in a step, predicted", ">measured",
                     ">whole process"});
    const int64_t highest = highestPeak(plan);
    const double step_s = plan.predicted.step_s;
    for (const MeasuredRank &rank : run->ranks) {
      int64_t peak = plan.ranks[rank.rank].peak_bytes;
      ranks.row(
          {std::to_string(rank.rank), bytes(peak, highest),
           rank.peak_bytes == peak ? "equal to the byte"
                                   : bytes(rank.peak_bytes, highest),
           prediction ? seconds(busy(rank.rank), step_s) : "",
           seconds(rank.busy_s, step_s),
           rank.process_bytes > 0 ? bytes(rank.process_bytes, highest) : ""});
    }
    return "<h3>Predicted and measured</h3>\n" + step.finish() + ranks.finish();
  }

  /// Computing in a step: of a stream, its share of the window.
  double busy(int rank) const {
    double total = prediction->timeline.busy[rank];
    return plan.ranks[rank].program.kind == "stream"
               ? total / double(streamWindow(plan))
               : total;
  }

  //===--------------------------------------------------------------------===//
  // Schedule
  //===--------------------------------------------------------------------===//

  std::string schedule() const {
    std::string html = "<section><h2>Schedule</h2>\n<p class=\"note\">" +
                       escape(scheduleLine(plan)) + "</p>\n" + taskLegend();
    const double measured = run ? measuredSpan(*run) : 0;
    const double predicted = prediction ? prediction->timeline.makespan : 0;
    const double span = std::max(measured, predicted);
    if (prediction)
      html += "<h3>Predicted</h3>\n<p class=\"note\">Computation, each task as "
              "soon as its inputs are there. Transfers, gradient exchange and "
              "the update count in the predicted step but are not drawn.</p>\n"
              "<div class=\"scroll\">" +
              predictedTimeline(*prediction, span) + "</div>\n";
    else
      html +=
          "<p>This plan states no costs, so that no timeline follows.</p>\n";
    if (measured > 0)
      html +=
          "<h3>Measured</h3>\n<p class=\"note\">One step of the run, on the "
          "same scale.</p>\n<div class=\"scroll\">" +
          measuredTimeline(*run, span) + "</div>\n";
    return html + "</section>\n";
  }

  std::string taskLegend() const {
    const bool split = splitsBackward();
    std::string html = "<p class=\"legend\"><span><i class=\"k-F\"></i>forward"
                       "</span><span><i class=\"k-B\"></i>";
    html += split ? "input gradient</span><span><i class=\"k-W\"></i>weight "
                    "gradient</span>"
                  : "backward</span>";
    if (run)
      html += "<span><i class=\"k-U\"></i>update</span><span><i class=\"k-R\">"
              "</i>gradient sums, statistics</span>";
    return html + "<span>number: microbatch</span></p>\n";
  }

  //===--------------------------------------------------------------------===//
  // Stages and memory
  //===--------------------------------------------------------------------===//

  bool splitsBackward() const {
    return std::any_of(plan.stages.begin(), plan.stages.end(),
                       [](const plan::Stage &s) { return s.split_backward; });
  }

  std::string stages() const {
    const bool split = splitsBackward();
    std::vector<std::string> names = {
        "stage",       "~layers",          ">nodes",  "ranks",
        ">parameters", ">weight versions", ">forward"};
    if (split)
      names.insert(names.end(), {">input gradient", ">weight gradient"});
    else
      names.push_back(">backward");
    HtmlTable table(names);
    const double longest = longestTask(plan);
    for (const plan::Stage &s : plan.stages) {
      const plan::Cost &cost = s.cost;
      std::vector<std::string> row = {std::to_string(s.id),
                                      layers(plan, static_cast<size_t>(s.id)),
                                      count(s.last_node - s.first_node + 1),
                                      ranges(s.ranks),
                                      count(s.parameters),
                                      std::to_string(s.versions),
                                      seconds(cost.forward_s, longest)};
      if (split)
        row.insert(row.end(), {seconds(cost.backward_input_s, longest),
                               seconds(cost.backward_weight_s, longest)});
      else
        row.push_back(
            seconds(cost.backward_input_s + cost.backward_weight_s, longest));
      table.row(row);
    }
    return "<section><h2>Stages</h2>\n<p class=\"note\">Times are of one "
           "microbatch on one rank.</p>\n" +
           table.finish() + "</section>\n";
  }

  std::string memory() const {
    HtmlTable table({"ranks", ">peak", ">weights", ">gradients", ">optimizer",
                     ">stash", ">workspace", ">other"});
    const auto shown = [peak = highestPeak(plan)](int64_t n) {
      return bytes(n, peak);
    };
    for (const RankGroup &group : equalRanks(plan)) {
      const plan::Rank &r = plan.ranks[group.ranks[0]];
      table.row({ranges(group.ranks), shown(r.peak_bytes),
                 shown(r.weights_bytes), shown(r.gradients_bytes),
                 shown(r.optimizer_bytes), shown(r.stash_bytes),
                 shown(r.workspace_bytes), shown(r.other_bytes)});
    }
    std::string html =
        "<section><h2>Memory</h2>\n<p class=\"note\">Allocated once, at the "
        "start; nothing is allocated later. Stash: what a forward keeps for "
        "its backward. Other: messages, model inputs, constants, running "
        "statistics.</p>\n" +
        memoryLegend();
    if (run)
      html += "<p class=\"legend\"><span><i class=\"k-mark\"></i>measured peak"
              "</span></p>\n";
    return html + "<div class=\"scroll\">" + memoryBars(plan, run) +
           "</div>\n" + table.finish() + "</section>\n";
  }

  std::string curves() const {
    if (!prediction)
      return "";
    std::vector<RankGroup> groups = equalRanks(plan);
    std::string html =
        "<section><h2>Memory over time</h2>\n<p class=\"note\">How much of the "
        "stash holds a microbatch while the schedule above runs.</p>\n"
        "<p class=\"legend\"><span><i class=\"m-fixed\"></i>in use throughout"
        "</span><span><i class=\"m-stash\"></i>stash in use</span></p>\n"
        "<div class=\"grids\">\n";
    for (size_t g = 0; g < std::min(groups.size(), kCurvesShown); ++g)
      html += memoryCurve(plan, groups[g].ranks[0], *prediction);
    html += "</div>\n";
    if (groups.size() > kCurvesShown)
      html += "<p class=\"note\">The first " + std::to_string(kCurvesShown) +
              " of " + std::to_string(groups.size()) + " kinds of ranks.</p>\n";
    return html + "</section>\n";
  }

  //===--------------------------------------------------------------------===//
  // Lists
  //===--------------------------------------------------------------------===//

  std::string baselines() const {
    if (plan.baselines.empty())
      return "";
    HtmlTable table(
        {"", ">a step", ">samples/s", ">time against this plan", "~note"});
    table.row({"this plan", seconds(plan.predicted.step_s),
               number(plan.predicted.samples_per_s), "1.00x", ""},
              true);
    for (const plan::BaselineRow &row : plan.baselines) {
      bool known = row.fits && row.step_s > 0;
      table.row({row.name,
                 !row.fits ? "does not fit"
                 : known   ? seconds(row.step_s, plan.predicted.step_s)
                           : "does not apply",
                 known ? number(row.samples_per_s) : "",
                 known ? ratio(row.step_s, plan.predicted.step_s) : "",
                 row.note});
    }
    return "<section><h2>Instead of this plan</h2>\n<p class=\"note\">What "
           "other ways of training on these devices would take, predicted the "
           "same way.</p>\n" +
           table.finish() + "</section>\n";
  }

  std::string lists() const {
    return "<section><h2>Details</h2>\n" + inputs() + transfers() + weights() +
           "</section>\n";
  }

  std::string inputs() const {
    HtmlTable table(
        {"input", "type", "one microbatch", "~array for --data", "stages"});
    for (size_t i = 0; i < plan.inputs.size(); ++i) {
      const plan::Input &input = plan.inputs[i];
      table.row({input.name, input.dtype, shapeText(input.shape),
                 arrayText(input), ranges(stagesOfInput(plan, int(i)))});
    }
    return "<details><summary>" + plural(int64_t(plan.inputs.size()), "input") +
           "</summary>\n" + table.finish() + "</details>\n";
  }

  std::string transfers() const {
    if (plan.edges.empty())
      return "";
    HtmlTable table({"~value", "kind", ">from stage", ">to stage", ">bytes"});
    for (const plan::Edge &e : plan.edges)
      table.row({e.value, e.backward ? "gradient" : "activation",
                 std::to_string(e.from_stage), std::to_string(e.to_stage),
                 bytes(e.bytes)});
    return "<details><summary>" +
           plural(int64_t(plan.edges.size()), "transfer") +
           " a microbatch</summary>\n" + table.finish() + "</details>\n";
  }

  std::string weights() const {
    HtmlTable table({"~tensor", "role", "type", "shape", ">bytes", "stages"});
    auto stages = stagesOfWeights(plan);
    size_t shown = std::min(plan.weights.size(), kWeightsShown);
    for (size_t w = 0; w < shown; ++w) {
      const plan::Weight &weight = plan.weights[w];
      table.row({weight.name, weight.role, weight.dtype,
                 shapeText(weight.shape), bytes(weight.bytes),
                 ranges(stages[w])});
    }
    std::string more = shown < plan.weights.size()
                           ? "<p class=\"note\">" +
                                 std::to_string(plan.weights.size() - shown) +
                                 " more; pipec inspect lists them.</p>\n"
                           : "";
    return "<details><summary>" +
           plural(int64_t(plan.weights.size()), "tensor") + "</summary>\n" +
           table.finish() + more + "</details>\n";
  }

  const plan::Plan &plan;
  const MeasuredRun *run;
  std::optional<Prediction> prediction;
};

} // namespace

std::string htmlPage(const plan::Plan &plan, const MeasuredRun *run) {
  return Page(plan, run).html();
}

void writeReport(const plan::Plan &plan, const std::string &path,
                 const MeasuredRun *run) {
  writeFile(path, htmlPage(plan, run));
}

} // namespace pipec::report
