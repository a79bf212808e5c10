//===- Remedies.cpp - what would fit where nothing does -------------------===//
#include "compiler/driver/Remedies.h"

#include "compiler/driver/Planning.h"
#include "report/Format.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

namespace pipec {
namespace {

/// Other options, and the flags that say so.
struct Change {
  std::string flags;
  CompileOptions options;
};

/// Fewer pieces of sequences have fewer messages under way.
std::vector<Change> fewerPieces(const CompileOptions &options) {
  std::vector<Change> changes;
  const int slices = options.slices ? options.slices : slicesAsked(options);
  for (int part = 2; part <= 8; part *= 2)
    if (slices / part >= 2) {
      changes.push_back({"--slices " + std::to_string(slices / part), options});
      changes.back().options.slices = slices / part;
    }
  return changes;
}

/// Half as many samples, a quarter, an eighth: the largest comes first. Where
/// memory is more than eight `times` too small, no larger part than could fit
/// if all of it were for samples, or a single one.
std::vector<Change> smallerMicrobatches(const CompileOptions &options,
                                        const std::string &dimension,
                                        uint64_t times) {
  std::vector<Change> changes;
  const auto size = options.dims.find(dimension);
  if (size == options.dims.end())
    return changes;
  const auto samples = static_cast<uint64_t>(size->second);
  const auto first = static_cast<int64_t>(
      times > 8 ? std::min(std::bit_ceil(times), std::bit_floor(samples)) : 2);
  for (int64_t part = first; part <= 4 * first; part *= 2)
    if (size->second >= part && part > 1) {
      Change change{"", options};
      const int64_t fewer = change.options.dims[dimension] /= part;
      change.flags = "--dim " + dimension + "=" + std::to_string(fewer);
      changes.push_back(change);
    }
  return changes;
}

/// Of a strategy that keeps more of more microbatches.
std::vector<Change> fewerMicrobatches(const CompileOptions &options) {
  std::vector<Change> changes;
  for (int part = 2; part <= 8; part *= 2)
    if (options.strategy != "auto" && options.microbatches >= part) {
      Change change{"", options};
      change.options.microbatches /= part;
      change.flags =
          "--microbatches " + std::to_string(change.options.microbatches);
      changes.push_back(change);
    }
  return changes;
}

std::vector<Change> withRecompute(const CompileOptions &options,
                                  const std::string &how) {
  if (options.recompute == how)
    return {};
  Change change{"--recompute " + how, options};
  change.options.recompute = how;
  return {change};
}

/// What is told what to keep is asked to choose.
std::vector<Change> recomputation(const CompileOptions &options) {
  return withRecompute(options, "auto");
}

/// Of one microbatch what computes activations again works in may be more than
/// they are. No step towards less where that is not enough.
std::vector<Change> keepingAll(const CompileOptions &options) {
  return withRecompute(options, "none");
}

/// Products of bf16 round their weights in every task.
std::vector<Change> roundedAgain(const CompileOptions &options) {
  if (options.precision != "bf16" || options.roundedWeights == "again")
    return {};
  Change change{"--rounded-weights again", options};
  change.options.roundedWeights = "again";
  return {change};
}

/// Most planners know no memory.
std::vector<Change> withoutPlanner(const CompileOptions &options) {
  if (options.planner == "auto")
    return {};
  Change change{"--planner auto", options};
  change.options.planner = "auto";
  return {change};
}

std::vector<Change> otherStrategies(const CompileOptions &options) {
  std::vector<Change> changes;
  for (const char *strategy : kFrugalStrategies)
    if (options.strategy != "auto" && options.strategy != strategy) {
      changes.push_back({std::string("--strategy ") + strategy, options});
      changes.back().options.strategy = strategy;
    }
  return changes;
}

/// "NxM", or "M" on one server.
struct Grid {
  explicit Grid(const std::string &text)
      : by(text.find('x')),
        servers(by == std::string::npos
                    ? 1
                    : std::strtoll(text.c_str(), nullptr, 10)),
        each(std::strtoll(text.c_str() + (by == std::string::npos ? 0 : by + 1),
                          nullptr, 10)) {}

  /// So many devices, or a few more, in servers of the same size; of a single
  /// server in a larger one.
  std::string withDevices(int64_t devices) const {
    if (servers <= 1 || each < 1)
      return (by == std::string::npos ? "" : "1x") + std::to_string(devices);
    return std::to_string((devices + each - 1) / each) + "x" +
           std::to_string(each);
  }
  int64_t devices() const { return servers * each; }

private:
  size_t by;
  int64_t servers, each;
};

/// As many as the planner believes to be enough, else twice and four times as
/// many, in servers of the same size.
std::vector<Change> moreDevices(const CompileOptions &options,
                                const plan::NoFit &failure) {
  const bool isGpus = !options.gpus.empty();
  const std::string &asked = isGpus ? options.gpus : options.cpus;
  const Grid grid(asked);
  std::vector<std::string> grids;
  for (const plan::Remedy &remedy : failure.remedies)
    if (remedy.kind == plan::Remedy::Devices)
      grids.push_back(grid.withDevices(remedy.amount));
  for (int64_t times : {2, 4})
    grids.push_back(grid.withDevices(times * grid.devices()));
  std::vector<Change> changes;
  for (const std::string &larger : grids)
    if (!asked.empty() && options.replicas.empty() &&
        options.stageFile.empty() && options.stages == "auto") {
      changes.push_back({(isGpus ? "--gpus " : "--cpus ") + larger, options});
      (isGpus ? changes.back().options.gpus : changes.back().options.cpus) =
          larger;
    }
  return changes;
}

using Kind = std::function<std::vector<Change>(const CompileOptions &)>;

/// The strongest of several kinds, one upon the other, where no kind alone is
/// enough; without those that the rest does not need. Nothing where all of them
/// are not enough.
std::optional<std::string>
together(const CompileOptions &options, const std::vector<Kind> &kinds,
         const std::function<bool(const Change &)> &isEnough) {
  const auto chained = [&](const std::vector<bool> &taken) {
    Change sum{"", options};
    for (size_t k = 0; k < kinds.size(); ++k) {
      const std::vector<Change> changes = kinds[k](sum.options);
      if (!taken[k] || changes.empty())
        continue;
      sum.options = changes.back().options;
      sum.flags += (sum.flags.empty() ? "" : " ") + changes.back().flags;
    }
    return sum;
  };
  std::vector<bool> taken(kinds.size(), true);
  if (!isEnough(chained(taken)))
    return std::nullopt;
  for (size_t k = 0; k < kinds.size(); ++k) {
    const std::string all = chained(taken).flags;
    taken[k] = false;
    if (const Change fewer = chained(taken);
        fewer.flags != all && !isEnough(fewer))
      taken[k] = true;
  }
  return chained(taken).flags;
}

/// Of a model too large to be tried: what the planner believes to be enough,
/// and a little more, since a built plan has whole slots; and the fastest of
/// what keeps little.
plan::NoFit believed(const CompileOptions &options, const plan::NoFit &failure,
                     const Smallest &smallest,
                     const std::function<bool(const Change &)> &isEnough) {
  constexpr int64_t kShare = 1024;
  const int64_t bytes = smallest.enough() + smallest.enough() / kShare;
  std::vector<plan::Remedy> remedies = {{plan::Remedy::Limit, bytes}};
  bool hasStrategy = false;
  for (const plan::Remedy &remedy : failure.remedies) {
    hasStrategy = hasStrategy || remedy.kind == plan::Remedy::Strategy;
    if (remedy.kind != plan::Remedy::Limit)
      remedies.push_back(remedy);
  }
  const std::vector<Change> strategies = otherStrategies(options);
  if (!hasStrategy && !strategies.empty() && isEnough(strategies.front()))
    remedies.push_back({plan::Remedy::Flags, 0, strategies.front().flags});
  const std::string shortage =
      failure.limit > 0
          ? shortageOf("keeps to", bytes, "a device", failure.limit)
          : failure.shortage;
  return plan::NoFit(shortage, remedies, failure.hint, failure.limit);
}

} // namespace

std::string shortageOf(const std::string &needs, int64_t bytes,
                       const std::string &where, int64_t limit) {
  return "nothing fits in memory: the smallest plan found " + needs + " " +
         report::bytes(bytes) + " on " + where + ", " +
         report::bytes(bytes - limit) + " more than the " +
         report::bytes(limit) + " there are";
}

plan::NoFit advised(const CompileOptions &options, const plan::NoFit &failure,
                    const std::optional<Smallest> &smallest,
                    const std::function<bool(const CompileOptions &)> &fits,
                    const std::string &batch) {
  const auto isEnough = [&](const Change &change) {
    // All computed again is the least, but where a few stages alone are.
    Change all = change;
    if (all.options.recompute == "auto")
      all.options.recompute = "full";
    return fits(all.options) ||
           (all.options.recompute != change.options.recompute &&
            fits(change.options));
  };
  if (smallest && smallest->bytes < 0)
    return believed(options, failure, *smallest, isEnough);
  std::vector<plan::Remedy> remedies;
  std::string shortage = failure.shortage, hint = failure.hint;
  if (smallest) {
    const int64_t bytes = smallest->bytes;
    remedies.push_back({plan::Remedy::Limit, bytes});
    if (failure.limit > 0)
      shortage = shortageOf("needs", bytes, "a device", failure.limit);
  }
  const auto times = static_cast<uint64_t>(
      smallest && failure.limit > 0
          ? std::min<int64_t>(smallest->bytes / failure.limit, 1LL << 40)
          : 1);
  const std::vector<Kind> kinds = {
      recomputation,
      roundedAgain,
      withoutPlanner,
      otherStrategies,
      fewerMicrobatches,
      [&](const CompileOptions &o) {
        return smallerMicrobatches(o, batch, times);
      },
      fewerPieces,
      [&](const CompileOptions &o) { return moreDevices(o, failure); }};
  const size_t limits = remedies.size();
  const auto add = [&](const std::string &flags) {
    remedies.push_back({plan::Remedy::Flags, 0, flags});
    hint.clear(); // which only believes
  };
  std::vector<Kind> alone = kinds;
  alone.insert(alone.begin() + 1, keepingAll);
  for (const Kind &kind : alone)
    for (const Change &change : kind(options))
      if (isEnough(change)) {
        add(change.flags);
        break;
      }
  if (remedies.size() == limits)
    if (const auto flags = together(options, kinds, isEnough))
      add(*flags);
  return plan::NoFit(shortage, remedies, hint, failure.limit);
}

} // namespace pipec
