//===- ScheduleCommand.cpp - `pipec schedule` -----------------------------===//
#include "compiler/driver/ScheduleCommand.h"

#include "compiler/driver/OrderFile.h"
#include "compiler/driver/ScheduleOptions.h"
#include "compiler/schedule/Csv.h"
#include "compiler/schedule/Pictures.h"
#include "compiler/schedule/Render.h"
#include "compiler/schedule/Replay.h"
#include "compiler/schedule/Simulator.h"
#include "compiler/schedule/Verifier.h"
#include "support/Clock.h"
#include "support/Failure.h"
#include "support/OutputFile.h"
#include "support/Phase.h"
#include "support/ReadFile.h"
#include "support/TerminalProgress.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iostream>

#include <sys/ioctl.h>
#include <unistd.h>

namespace pipec {
namespace {

using namespace schedule;

/// A schedule with everything that is said about it.
struct Answer {
  Schedule schedule;
  Costs costs;
  Timeline timeline;
  std::optional<double> bound; ///< of the metric, over all orders
  Metric metric = Metric::Makespan;
  bool everyPlacement = false; ///< the bound holds beyond this placement
  double seconds = 0;
};

std::string number(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.7g", value);
  return text;
}

std::string percent(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.2f %%", 100 * value + 0.0);
  return text;
}

/// Throws NoFit when the schedule needs more than the limits.
void checkLimits(const Answer &answer) {
  const auto &limit = answer.costs.limit;
  for (std::size_t d = 0; d < limit.size(); ++d) {
    double peak = answer.timeline.peak[d];
    if (peak <= limit[d] + 1e-9 * std::max(1.0, std::abs(limit[d])))
      continue;
    throw Failure(Exit::NoFit,
                  answer.schedule.name + " needs " + number(peak) +
                      " on device " + std::to_string(d) + " and its limit is " +
                      number(limit[d]) + "; " +
                      number(answer.timeline.maxPeak()) +
                      " for every device would do, and pipec schedule auto "
                      "looks for one that needs less");
  }
}

/// Throws where with so little room for messages the order does not end.
void checkBuffers(const Schedule &schedule, int room) {
  ReplayOptions bounded;
  bounded.buffers = room;
  if (room >= 0 && replay(schedule, bounded))
    throw Failure(Exit::BadPlan,
                  schedule.name + ": with --buffers " + std::to_string(room) +
                      " devices wait for each other for ever; --buffers " +
                      std::to_string(buffersNeeded(schedule)) + " does");
}

Timeline timelineOf(const Answer &answer, const ScheduleOptions &options) {
  const auto &pairs = answer.schedule.pairs;
  if (options.simulate.fusePairs &&
      std::all_of(pairs.begin(), pairs.end(),
                  [](auto &list) { return list.empty(); }))
    throw Failure(Exit::Usage,
                  "--fuse-pairs: no actions of " + answer.schedule.name +
                      " stand together; those of dualpipe and dualpipe-v do");
  checkBuffers(answer.schedule, options.simulate.buffers);
  return simulate(answer.schedule, answer.costs, options.simulate);
}

Answer generated(const ScheduleOptions &options) {
  const Phase phase("schedule " + options.name);
  const double begin = now();
  Answer answer;
  answer.schedule = generate(options.name, options.request);
  answer.seconds = now() - begin;
  answer.costs = costsFor(answer.schedule, options.request);
  check(answer.costs, answer.schedule.stages, answer.schedule.devices());
  answer.timeline = timelineOf(answer, options);
  checkLimits(answer);
  answer.metric = options.request.metric;
  answer.everyPlacement = options.name == "auto";
  answer.bound = lowerBound(options.name, answer.schedule, options.request);
  return answer;
}

/// Of a right order that `--strategy file:` refuses.
void noteUnlessRunnable(const Schedule &order, const std::string &text) try {
  if (order.slices > 1)
    throw Failure(Exit::BadPlan,
                  "its tasks are of slices, and a file's of microbatches");
  expectRunnable(order, text);
} catch (const Failure &failure) {
  std::cerr << "pipec: note: --strategy file: will refuse this order: "
            << failure.what() << "\n";
}

/// A schedule from a file, held against the command line and the verifier.
Answer checked(const ScheduleOptions &options) {
  const Phase phase("checking the schedule");
  const double begin = now();
  const ScheduleRequest &request = options.request;
  Answer answer;
  const std::string text = readFile(options.check, "the schedule");
  answer.schedule = readCsv(text, options.check);
  Schedule &schedule = answer.schedule;
  if (schedule.devices() != request.devices)
    throw Failure(
        Exit::BadPlan,
        options.check + ": has " + std::to_string(schedule.devices()) +
            (schedule.devices() == 1 ? " line" : " lines") +
            ", one for each device, not " + std::to_string(request.devices) +
            ": give --stages " + std::to_string(schedule.devices()));
  schedule.slices = std::max(1, request.slices);
  const int wanted = request.microbatches * schedule.slices;
  if (request.microbatches > 0 && wanted != schedule.microbatches)
    throw Failure(Exit::BadPlan,
                  options.check + ": " + std::to_string(schedule.microbatches) +
                      (schedule.slices > 1 ? " slices, wanted "
                                           : " microbatches, wanted ") +
                      std::to_string(wanted));
  verifyCsv(schedule, text);
  answer.costs = costsFor(schedule, request);
  check(answer.costs, schedule.stages, schedule.devices());
  VerifyOptions limits;
  limits.costs = &answer.costs;
  verifyCsv(schedule, text, limits);
  answer.timeline = timelineOf(answer, options);
  answer.seconds = now() - begin;
  noteUnlessRunnable(schedule, text);
  return answer;
}

/// Stages per device; with copies of stages, 1.
int chunksOf(const Schedule &schedule) {
  return std::max(1, schedule.stages / schedule.devices());
}

std::string asJson(const Answer &answer) {
  const Timeline &line = answer.timeline;
  nlohmann::ordered_json json;
  json["name"] = answer.schedule.name;
  json["chunks"] = chunksOf(answer.schedule);
  json["makespan"] = line.makespan;
  json["span"] = line.span;
  json["bubble_makespan"] = line.bubbleMakespan();
  json["bubble_span"] = line.bubbleSpan();
  json["bubble_ideal"] = line.bubbleOverIdeal();
  if (answer.bound)
    json["bound"] = *answer.bound;
  json["peak"] = line.peak;
  auto &actions = json["actions"] = nlohmann::ordered_json::array();
  for (const auto &order : answer.schedule.order) {
    auto list = nlohmann::ordered_json::array();
    for (const Action &action : order)
      list.push_back(toString(action));
    actions.push_back(std::move(list));
  }
  json["seconds"] = answer.seconds;
  // The name may be a file's, which need not be valid UTF-8.
  return json.dump(-1, ' ', false,
                   nlohmann::ordered_json::error_handler_t::replace) +
         "\n";
}

std::string asText(const Answer &answer) {
  const Schedule &s = answer.schedule;
  const Timeline &line = answer.timeline;
  std::string text = s.name + ": " + std::to_string(s.devices()) +
                     " devices, " + std::to_string(s.stages) + " stages, " +
                     std::to_string(s.microbatches / s.slices) +
                     " microbatches";
  if (s.slices > 1)
    text += " of " + std::to_string(s.slices) + " slices";
  text += "\n  makespan " + number(line.makespan) + ", bubble " +
          percent(line.bubbleMakespan()) + " of it (" +
          percent(line.bubbleOverIdeal()) + " of the work " +
          number(line.work) + ")\n  span     " + number(line.span) +
          ", bubble " + percent(line.bubbleSpan()) + " of it\n  memory  ";
  constexpr std::size_t kShown = 16;
  for (std::size_t d = 0; d < std::min(line.peak.size(), kShown); ++d)
    text += " " + number(line.peak[d]);
  if (line.peak.size() > kShown)
    text += " … " + number(line.maxPeak()) + " at most";
  text += "\n";
  if (answer.bound) {
    double cost = answer.metric == Metric::Makespan ? line.makespan : line.span;
    text += "  no order on " +
            std::string(answer.everyPlacement ? "any placement searched"
                                              : "this placement") +
            " has a " +
            (answer.metric == Metric::Makespan ? "makespan" : "span") +
            " below " + number(*answer.bound) +
            " (this one: " + percent(std::max(0.0, cost / *answer.bound - 1)) +
            " above)\n";
  }
  return text;
}

RenderOptions terminal() {
  RenderOptions options;
  struct winsize size{};
  if (isatty(STDOUT_FILENO)) {
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 20)
      options.width = size.ws_col;
    options.color = std::getenv("NO_COLOR") == nullptr;
  }
  return options;
}

} // namespace

int scheduleCommand(int argc, char **argv) {
  auto options = parseScheduleOptions(argc, argv);
  if (!options)
    return 0;
  expectApart({{"-o", options->csv},
               {"--html", options->html},
               {"--perfetto", options->perfetto}},
              {options->check, options->costs});
  const TerminalProgress progress(options->quiet);
  Answer answer =
      options->check.empty() ? generated(*options) : checked(*options);
  if (!options->csv.empty())
    writeFile(options->csv, writeCsv(answer.schedule));
  if (!options->html.empty())
    writeFile(options->html,
              renderHtml(answer.schedule, answer.costs, answer.timeline));
  if (!options->perfetto.empty())
    writeFile(options->perfetto,
              renderPerfetto(answer.schedule, answer.timeline));
  if (!options->quiet || options->json)
    std::cout << (options->json ? asJson(answer) : asText(answer));
  if (options->timeline && !options->json)
    std::cout << renderTimeline(answer.schedule, answer.timeline, terminal())
              << timelineLegend(answer.schedule);
  std::cout.flush();
  return 0;
}

} // namespace pipec
