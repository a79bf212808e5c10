#include "compiler/plan/WhatIf.h"

#include "compiler/plan/Infeasible.h"
#include "compiler/plan/PeakBytes.h"
#include "compiler/plan/StableOrder.h"
#include "report/Format.h"
#include "support/Ahead.h"
#include "support/Failure.h"
#include "support/Phase.h"
#include "support/UnknownName.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <sstream>

namespace pipec::plan {

namespace {

constexpr char kStrategies[] = "strategies";

/// Replicas by stage, 2-1; of groups of devices 2x4-1x8.
std::string shapeOf(const Replanned &plan) {
  const PlanResult &result = plan.result;
  std::string text;
  for (const StagePlan &stage : result.stages) {
    text += (text.empty() ? "" : "-") + std::to_string(stage.replicas);
    if (stage.sharding.isSharded())
      text += "x" + std::to_string(stage.sharding.degree);
  }
  const auto again =
      std::count_if(result.stages.begin(), result.stages.end(),
                    [](const StagePlan &stage) { return stage.recompute; });
  if (again == std::ssize(result.stages))
    text += ", recompute";
  else if (again > 0)
    text += ", " + std::to_string(again) + " recompute";
  if (plan.chunks > 1)
    text += ", " + std::to_string(plan.chunks) + " stages a device";
  return text;
}

std::string times(double factor) {
  char text[24];
  std::snprintf(text, sizeof text, "x%g", factor);
  return text;
}

void take(WhatIfRow &row, const Replanned &plan) {
  row.fits = true;
  row.stepSeconds = plan.result.stepSeconds;
  row.samplesPerSecond = plan.result.samplesPerSecond;
  row.strategy = plan.strategy;
  row.shape = shapeOf(plan);
  row.isCounted = plan.counted > 0;
  row.peakBytes = row.isCounted ? plan.counted : peakBytes(plan.result.stages);
  row.isClose = plan.isClose && !row.isCounted;
}

/// The plan that was asked for, where conditions become no worse.
WhatIfRow asAsked(const Replanned &own) {
  WhatIfRow row;
  take(row, own);
  row.shape += ", as asked";
  return row;
}

/// Why there is no plan. Of memory no more than that it is an estimate: a
/// compile counts what the code takes, and may find a smaller plan. A planner
/// that misses what fits names another in a flag.
std::string whyNot(const Failure &failure) {
  const auto *noFit = dynamic_cast<const NoFit *>(&failure);
  if (noFit && std::none_of(noFit->remedies.begin(), noFit->remedies.end(),
                            [](const Remedy &remedy) {
                              return remedy.kind == Remedy::Flags;
                            }))
    for (const Remedy &remedy : noFit->remedies)
      if (remedy.kind == Remedy::Limit)
        return "by the estimate needs about " + report::bytes(remedy.amount) +
               " on a device; a compile, which counts, knows";
  return failure.what();
}

WhatIfRow planned(const std::string &axis, const std::string &value,
                  const std::function<Replanned()> &plan) {
  const Phase one(axis + " " + value);
  WhatIfRow row{axis, value};
  try {
    take(row, plan());
  } catch (const Failure &failure) {
    if (failure.code != Exit::NoFit && failure.code != Exit::Usage)
      throw;
    row.note = whyNot(failure);
  }
  return row;
}

/// A changed condition, and what is no slower under it.
struct Condition {
  std::string axis, value;
  PlanRequest request;
  bool allowsOwn = false;    ///< the plan that was asked for
  bool allowsBefore = false; ///< that of the condition before
};

/// The same kind of cluster with `factor` as many devices: the outermost level
/// with more than one component changes. False when that is not whole.
bool scaleDevices(Topology &topology, double factor) {
  Level *level = &topology.levels.back();
  for (Level &l : topology.levels)
    if (l.count > 1) {
      level = &l;
      break;
    }
  double count = level->count * factor;
  if (count < 1 || count != std::floor(count))
    return false;
  level->count = static_cast<int>(count);
  return true;
}

/// Whether the plan leaves all devices but the first so many idle.
bool keepsToFirst(const Replanned &own, int devices) {
  for (const StagePlan &stage : own.result.stages)
    for (int device : stage.devices)
      if (device + stage.sharding.degree > devices)
        return false;
  return true;
}

/// More devices may always be left idle.
void devices(const PlanRequest &request, const Replanned &own,
             std::vector<Condition> &conditions) {
  int before = request.topology.devices();
  // One stage for each device stays one for each.
  bool straight =
      request.stages && *request.stages == before * request.strategy.chunks;
  for (double factor : {0.5, 2.0, 4.0}) {
    PlanRequest asked = request;
    if (!scaleDevices(asked.topology, factor))
      continue;
    asked.cuts.clear();
    asked.replicas.clear();
    const int count = asked.topology.devices();
    if (straight || (!request.cuts.empty() && !request.replication))
      asked.stages = count * request.strategy.chunks;
    conditions.push_back({"devices", std::to_string(count), std::move(asked),
                          factor > 1 || keepsToFirst(own, count), factor > 2});
  }
}

/// A plan is no slower over faster links.
void bandwidth(const PlanRequest &request, const Replanned &,
               std::vector<Condition> &conditions) {
  constexpr double kLeast = 0.1;
  for (double factor : {kLeast, 0.5, 2.0, 10.0}) {
    PlanRequest asked = request;
    for (Level &level : asked.topology.levels)
      level.bandwidth *= factor;
    conditions.push_back({"bandwidth", times(factor), std::move(asked),
                          factor > 1, factor > kLeast});
  }
}

void microbatches(const PlanRequest &request, const Replanned &,
                  std::vector<Condition> &conditions) {
  if (!request.strategy.synchronous)
    return; // a step is one microbatch
  for (double factor : {0.5, 2.0, 4.0}) {
    double count = request.microbatches * factor;
    if (count < 1 || count != std::floor(count))
      continue;
    PlanRequest asked = request;
    asked.microbatches = static_cast<int>(count);
    conditions.push_back(
        {"microbatches", std::to_string(asked.microbatches), std::move(asked)});
  }
}

void memory(const PlanRequest &request, const Replanned &,
            std::vector<Condition> &conditions) {
  if (memoryLimitOf(request) == INT64_MAX)
    return;
  for (double factor : {0.5, 2.0}) {
    PlanRequest asked = request;
    constexpr double kMost = 1e18;
    asked.memoryLimit = static_cast<int64_t>(std::clamp(
        factor * static_cast<double>(memoryLimitOf(request)), 1.0, kMost));
    conditions.push_back({"memory", formatBytes(asked.memoryLimit),
                          std::move(asked), factor > 1});
  }
}

struct Axis {
  const char *name;
  void (*vary)(const PlanRequest &, const Replanned &,
               std::vector<Condition> &);
};

constexpr Axis kAxes[] = {{"devices", devices},
                          {"bandwidth", bandwidth},
                          {"microbatches", microbatches},
                          {"memory", memory},
                          {kStrategies, nullptr}};

/// Rows of all that there is to plan, in its order.
std::vector<WhatIfRow>
plannedAll(size_t count, const std::function<WhatIfRow(size_t)> &plan) {
  Ahead<WhatIfRow> plans(plan);
  for (size_t i = 0; i < count; ++i)
    plans.want(i);
  std::vector<WhatIfRow> rows;
  for (size_t i = 0; i < count; ++i)
    rows.push_back(plans.take(i));
  return rows;
}

/// What a condition allows besides stands in its row where that is faster.
void keepFaster(const std::vector<Condition> &conditions, const Replanned &own,
                std::vector<WhatIfRow> &rows) {
  const WhatIfRow asked = asAsked(own);
  for (size_t i = 0; i < rows.size(); ++i) {
    const WhatIfRow *other = nullptr;
    if (conditions[i].allowsBefore && rows[i - 1].fits)
      other = &rows[i - 1];
    if (conditions[i].allowsOwn &&
        (!other || asked.samplesPerSecond >= other->samplesPerSecond))
      other = &asked;
    WhatIfRow &row = rows[i];
    if (!other || (row.fits && row.samplesPerSecond >= other->samplesPerSecond))
      continue;
    row = *other;
    row.axis = conditions[i].axis, row.value = conditions[i].value;
  }
}

/// What changes under one condition each.
std::vector<WhatIfRow> vary(const Axis &axis, const PlanRequest &request,
                            const Replanned &own, const PlanAgain &plan) {
  std::vector<Condition> conditions;
  axis.vary(request, own, conditions);
  for (Condition &condition : conditions)
    condition.request.baselines = false;
  std::vector<WhatIfRow> rows = plannedAll(conditions.size(), [&](size_t i) {
    const Condition &one = conditions[i];
    return planned(one.axis, one.value, [&] { return plan(one.request); });
  });
  keepFaster(conditions, own, rows);
  return rows;
}

/// The fastest first, what is refused last.
std::vector<WhatIfRow> compare(const std::vector<Alternative> &strategies) {
  std::vector<WhatIfRow> rows = plannedAll(strategies.size(), [&](size_t i) {
    return planned(kStrategies, strategies[i].name, strategies[i].plan);
  });
  sortBy(rows, [](const WhatIfRow &row) { return -row.samplesPerSecond; });
  return rows;
}

const Axis *axisNamed(const std::string &name) {
  for (const Axis &axis : kAxes)
    if (axis.name == name)
      return &axis;
  return nullptr;
}

} // namespace

Replanned planAfresh(const PlanRequest &request) {
  return {makePlan(request), request.strategy.name, request.strategy.chunks};
}

std::vector<std::string> whatIfAxes(const std::string &axes) {
  std::vector<std::string> known, names;
  for (const Axis &axis : kAxes)
    known.emplace_back(axis.name);
  std::stringstream list(axes);
  for (std::string name; std::getline(list, name, ',');) {
    if (!axisNamed(name))
      throw Failure(Exit::Usage,
                    "--what-if: " + unknownName("axis", name, known));
    if (std::find(names.begin(), names.end(), name) != names.end())
      throw Failure(Exit::Usage, "--what-if names " + name + " twice");
    names.push_back(name);
  }
  if (names.empty())
    throw Failure(
        Exit::Usage,
        "--what-if needs a list such as devices,bandwidth,microbatches");
  return names;
}

bool comparesStrategies(const std::string &axes) {
  if (axes.empty())
    return false;
  const std::vector<std::string> names = whatIfAxes(axes);
  return std::find(names.begin(), names.end(), kStrategies) != names.end();
}

std::vector<WhatIfRow> whatIf(const PlanRequest &request, const Replanned &own,
                              const std::string &axes,
                              const std::vector<Alternative> &strategies,
                              const PlanAgain &plan) {
  std::vector<WhatIfRow> all;
  for (const std::string &name : whatIfAxes(axes)) {
    const Axis &axis = *axisNamed(name);
    std::ranges::move(axis.vary ? vary(axis, request, own, plan)
                                : compare(strategies),
                      std::back_inserter(all));
  }
  return all;
}

std::string whatIfTable(const Replanned &own,
                        const std::vector<WhatIfRow> &rows) {
  WhatIfRow asked;
  asked.axis = "as asked";
  take(asked, own);
  // Less than what is printed is no loss: without a sign of its own.
  auto change = [&](double samples) {
    const double percent = asked.samplesPerSecond > 0
                               ? 100 * (samples / asked.samplesPerSecond - 1)
                               : 0;
    return std::abs(percent) < 0.05 ? 0.0 : percent;
  };
  const auto widest = [&](size_t least, std::string WhatIfRow::*column) {
    size_t width = std::max(least, (asked.*column).size());
    for (const WhatIfRow &row : rows)
      width = std::max(width, (row.*column).size());
    return static_cast<int>(width);
  };
  const int value = widest(10, &WhatIfRow::value),
            strategy = widest(8, &WhatIfRow::strategy);
  char line[256];
  std::snprintf(line, sizeof line, "%-13s %-*s %12s %12s %8s %11s  %-*s  %s\n",
                "what if", value, "is", "step ms", "samples/s", "change",
                "peak, about", strategy, "strategy", "replicas");
  std::string out = line;
  auto print = [&](const WhatIfRow &row) {
    std::snprintf(
        line, sizeof line,
        "%-13s %-*s %12.5g %12.5g %+7.1f%% %11s  %-*s  %.80s%s\n",
        row.axis.c_str(), value, row.value.c_str(), row.stepSeconds * 1e3,
        row.samplesPerSecond, change(row.samplesPerSecond),
        report::bytes(row.peakBytes).c_str(), strategy, row.strategy.c_str(),
        row.shape.c_str(), row.isClose ? ", may not fit" : "");
    out += line;
  };
  print(asked);
  for (const WhatIfRow &row : rows) {
    if (row.fits) {
      print(row);
      continue;
    }
    std::snprintf(line, sizeof line, "%-13s %-*s %12s %12s %8s %11s  ",
                  row.axis.c_str(), value, row.value.c_str(), "-", "-", "",
                  "-");
    out += line + row.note + "\n";
  }
  return out;
}

} // namespace pipec::plan
