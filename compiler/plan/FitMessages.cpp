#include "compiler/plan/FitMessages.h"

#include "support/Failure.h"
#include "support/Median.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <tuple>

namespace pipec::plan {

MessageCost fitMessages(const std::vector<MessageGap> &gaps,
                        double turnSeconds) {
  // Least squares of (take + slope * bytes - rest) / rest.
  double w = 0, wx = 0, wxx = 0, wy = 0, wxy = 0;
  for (const MessageGap &gap : gaps) {
    const double x = static_cast<double>(gap.bytes),
                 y = std::max(gap.seconds - turnSeconds, 1e-7),
                 weight = 1 / (y * y);
    w += weight, wx += weight * x, wxx += weight * x * x;
    wy += weight * y, wxy += weight * x * y;
  }
  const double spread = w * wxx - wx * wx;
  if (!(spread > 1e-9 * w * wxx))
    throw Failure(Exit::BadModel, "messages of two sizes are to be timed");
  const double slope = (w * wxy - wx * wy) / spread,
               take = (wy - slope * wx) / w;
  if (take < 0) // all of it is the copy
    return {0, wxx / wxy};
  constexpr double kMost = 1e12; // bytes/s, faster than any cache
  return {slope * kMost < 1 ? wy / w : take,
          slope * kMost < 1 ? kMost : 1 / slope};
}

namespace {

struct Task {
  double begin = 0, end = 0; ///< us
  int stage = 0, microbatch = 0;
  bool forward = false;
};

using Steps = std::map<std::pair<int64_t, int64_t>, std::vector<Task>>;

/// The tasks of every step and rank, in their order.
Steps tasksOf(const nlohmann::json &trace) {
  Steps steps;
  for (const auto &event : trace.at("traceEvents")) {
    if (event.at("ph") != "X" || event.at("tid") != 0)
      continue;
    const auto args = event.find("args");
    if (args == event.end() || !args->contains("step") ||
        !args->contains("stage") || !args->contains("microbatch"))
      continue;
    const auto name = event.at("name").get<std::string>();
    const bool forward = name.rfind("forward", 0) == 0;
    if (!forward && name.rfind("backward", 0) != 0)
      continue;
    const auto begin = event.at("ts").get<double>();
    steps[{args->at("step").get<int64_t>(), event.at("pid").get<int64_t>()}]
        .push_back({begin, begin + event.at("dur").get<double>(),
                    args->at("stage").get<int>(),
                    args->at("microbatch").get<int>(), forward});
  }
  for (auto &[where, tasks] : steps)
    std::sort(tasks.begin(), tasks.end(),
              [](const Task &a, const Task &b) { return a.begin < b.begin; });
  return steps;
}

/// When the message that a task waits for was sent.
class Sent {
public:
  explicit Sent(const Steps &steps) {
    for (const auto &[where, tasks] : steps)
      for (const Task &task : tasks)
        ends[{where.first, task.stage, task.microbatch, task.forward}] =
            task.end;
  }
  std::optional<double> before(int64_t step, const Task &task) const {
    if (task.stage != (task.forward ? 1 : 0))
      return {};
    const auto found =
        ends.find({step, 1 - task.stage, task.microbatch, task.forward});
    return found == ends.end() ? std::nullopt : std::optional(found->second);
  }

private:
  std::map<std::tuple<int64_t, int, int, bool>, double> ends;
};

constexpr int64_t kWarm = 4;  // steps in which memory is touched first
constexpr size_t kFewest = 5; // gaps

/// Between a task and one whose message was sent during it, and `earlier`, us,
/// than that had ended; by direction, us. One that was sent before may have
/// been taken before.
std::array<std::vector<double>, 2> gapsBehind(const Steps &steps,
                                              double earlier) {
  const Sent sent(steps);
  std::array<std::vector<double>, 2> gaps;
  for (const auto &[where, tasks] : steps)
    for (size_t i = 1; i < tasks.size(); ++i) {
      const std::optional<double> at = sent.before(where.first, tasks[i]);
      if (where.first >= kWarm && at && *at >= tasks[i - 1].begin &&
          *at + earlier < tasks[i - 1].end)
        gaps[tasks[i].forward].push_back(tasks[i].begin - tasks[i - 1].end);
    }
  return gaps;
}

} // namespace

std::vector<MessageGap> messageGaps(const std::string &trace,
                                    int64_t forwardBytes,
                                    int64_t backwardBytes) try {
  constexpr double kLong = 10; // us
  const auto gaps = gapsBehind(tasksOf(nlohmann::json::parse(trace)), kLong);
  std::vector<MessageGap> result;
  for (bool forward : {true, false}) {
    const std::vector<double> &all = gaps[forward];
    if (all.size() >= kFewest)
      result.push_back(
          {forward ? forwardBytes : backwardBytes, median(all) * 1e-6});
  }
  return result;
} catch (const nlohmann::json::exception &error) {
  throw Failure(Exit::BadModel, std::string("no trace: ") + error.what());
}

NoteCost noteCost(const std::string &trace, double turnSeconds) try {
  constexpr double kReady = 0.5; // us
  const Steps steps = tasksOf(nlohmann::json::parse(trace));
  // What a rank does else between tasks differs by direction: a median of both
  // together would be now of one, now of the other.
  double sum = 0;
  int directions = 0;
  for (std::vector<double> gaps : gapsBehind(steps, kReady))
    if (gaps.size() >= kFewest)
      sum += median(std::move(gaps)), ++directions;
  const Sent sent(steps);
  std::vector<double> waits;
  for (const auto &[where, tasks] : steps)
    for (size_t i = 1; i < tasks.size(); ++i) {
      const std::optional<double> at = sent.before(where.first, tasks[i]);
      if (where.first >= kWarm && at && tasks[i - 1].end + kReady < *at)
        waits.push_back(tasks[i].begin - *at);
    }
  NoteCost cost;
  if (directions > 0)
    cost.takeSeconds = std::max(0.0, sum / directions * 1e-6 - turnSeconds);
  if (waits.size() >= kFewest)
    cost.seenSeconds = std::max(0.0, median(std::move(waits)) * 1e-6 -
                                         turnSeconds - cost.takeSeconds);
  return cost;
} catch (const nlohmann::json::exception &error) {
  throw Failure(Exit::BadModel, std::string("no trace: ") + error.what());
}

double stepEnd(const std::string &trace, double turnSeconds) try {
  const nlohmann::json json = nlohmann::json::parse(trace);
  std::map<int64_t, double> updates; // of rank 0's steps, us
  for (const auto &event : json.at("traceEvents"))
    if (event.at("ph") == "X" && event.at("tid") == 0 && event.at("pid") == 0 &&
        event.at("name") == "update")
      updates[event.at("args").at("step").get<int64_t>()] +=
          event.at("dur").get<double>();
  std::vector<double> gaps;
  std::optional<double> last; // when the tasks of the step before ended
  for (const auto &[where, tasks] : tasksOf(json)) {
    if (where.second != 0)
      continue;
    if (last)
      gaps.push_back(std::max(0., tasks.front().begin - *last));
    last = tasks.back().end + updates[where.first];
  }
  if (gaps.size() < 4)
    throw Failure(Exit::BadModel, "a trace of too few steps");
  return std::max(0., median(std::move(gaps)) * 1e-6 - turnSeconds);
} catch (const nlohmann::json::exception &error) {
  throw Failure(Exit::BadModel, std::string("no trace: ") + error.what());
}

} // namespace pipec::plan
