#include "compiler/plan/WhatIf.h"

#include "compiler/plan/Infeasible.h"
#include "compiler/plan/PeakBytes.h"
#include "compiler/plan/StableOrder.h"
#include "report/Format.h"
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
  row.peakBytes = peakBytes(plan.result.stages);
  row.isClose = plan.isClose;
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

/// What has been planned, and how it is.
struct Table {
  const PlanAgain &plan;
  std::vector<WhatIfRow> rows = {};
};

/// `atLeast`: a plan that these conditions allow as well.
const WhatIfRow &add(Table &table, const std::string &axis,
                     const std::string &value, PlanRequest request,
                     const WhatIfRow *atLeast = nullptr) {
  request.baselines = false;
  WhatIfRow row = planned(axis, value, [&] { return table.plan(request); });
  if (atLeast && atLeast->fits &&
      (!row.fits || atLeast->samplesPerSecond > row.samplesPerSecond))
    row = *atLeast, row.axis = axis, row.value = value;
  table.rows.push_back(std::move(row));
  return table.rows.back();
}

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
void devices(const PlanRequest &request, const Replanned &own, Table &table) {
  int before = request.topology.devices();
  // One stage for each device stays one for each.
  bool straight =
      request.stages && *request.stages == before * request.strategy.chunks;
  WhatIfRow fewer = asAsked(own);
  for (double factor : {0.5, 2.0, 4.0}) {
    PlanRequest asked = request;
    if (!scaleDevices(asked.topology, factor))
      continue;
    asked.cuts.clear();
    asked.replicas.clear();
    if (straight || (!request.cuts.empty() && !request.replication))
      asked.stages = asked.topology.devices() * request.strategy.chunks;
    const std::string count = std::to_string(asked.topology.devices());
    if (factor < 1)
      add(table, "devices", count, asked,
          keepsToFirst(own, asked.topology.devices()) ? &fewer : nullptr);
    else
      fewer = add(table, "devices", count, asked, &fewer);
  }
}

void bandwidth(const PlanRequest &request, const Replanned &own, Table &table) {
  // A plan is no slower over faster links, nor is the one that was asked for.
  WhatIfRow slower;
  for (double factor : {0.1, 0.5, 2.0, 10.0}) {
    PlanRequest asked = request;
    for (Level &level : asked.topology.levels)
      level.bandwidth *= factor;
    if (factor > 1 && own.result.samplesPerSecond >= slower.samplesPerSecond)
      slower = asAsked(own);
    slower = add(table, "bandwidth", times(factor), asked, &slower);
  }
}

void microbatches(const PlanRequest &request, const Replanned &own,
                  Table &table) {
  if (!request.strategy.synchronous)
    return; // a step is one microbatch
  for (double factor : {0.5, 2.0, 4.0}) {
    double count = request.microbatches * factor;
    if (count < 1 || count != std::floor(count))
      continue;
    PlanRequest asked = request;
    asked.microbatches = static_cast<int>(count);
    add(table, "microbatches", std::to_string(asked.microbatches), asked);
  }
}

void memory(const PlanRequest &request, const Replanned &own, Table &table) {
  if (memoryLimitOf(request) == INT64_MAX)
    return;
  const WhatIfRow same = asAsked(own);
  for (double factor : {0.5, 2.0}) {
    PlanRequest asked = request;
    constexpr double kMost = 1e18;
    asked.memoryLimit = static_cast<int64_t>(std::clamp(
        factor * static_cast<double>(memoryLimitOf(request)), 1.0, kMost));
    add(table, "memory", formatBytes(asked.memoryLimit), asked,
        factor > 1 ? &same : nullptr);
  }
}

struct Axis {
  const char *name;
  void (*vary)(const PlanRequest &, const Replanned &, Table &);
};

constexpr Axis kAxes[] = {{"devices", devices},
                          {"bandwidth", bandwidth},
                          {"microbatches", microbatches},
                          {"memory", memory},
                          {kStrategies, nullptr}};

/// The fastest first, what is refused last.
void compare(const std::vector<Alternative> &strategies,
             std::vector<WhatIfRow> &rows) {
  std::vector<WhatIfRow> found;
  for (const Alternative &strategy : strategies)
    found.push_back(planned(kStrategies, strategy.name, strategy.plan));
  sortBy(found, [](const WhatIfRow &row) { return -row.samplesPerSecond; });
  rows.insert(rows.end(), found.begin(), found.end());
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
  Table table{plan};
  for (const std::string &name : whatIfAxes(axes))
    if (const Axis *axis = axisNamed(name); axis->vary)
      axis->vary(request, own, table);
    else
      compare(strategies, table.rows);
  return std::move(table.rows);
}

std::string whatIfTable(const Replanned &own,
                        const std::vector<WhatIfRow> &rows, int64_t builtPeak) {
  WhatIfRow asked;
  asked.axis = "as asked";
  take(asked, own);
  if (builtPeak > 0)
    asked.peakBytes = builtPeak;
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
