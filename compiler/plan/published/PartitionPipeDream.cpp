#include "compiler/plan/Infeasible.h"
#include "compiler/plan/Topology.h"
#include "compiler/plan/published/Partition.h"
#include "compiler/plan/published/PipeDreamMemory.h"
#include "compiler/plan/published/PipeDreamRow.h"
#include "compiler/plan/published/PipeDreamWithin.h"
#include "compiler/plan/published/PlanBound.h"
#include "compiler/plan/published/PublishedVerifier.h"
#include "compiler/plan/published/StraddleSearch.h"
#include "support/Failure.h"
#include "support/Phase.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <map>
#include <numeric>

namespace pipec::published {

namespace {

/// Cuts that are listed, and those that are searched at a time; of several
/// levels, and of many devices, fewer.
constexpr size_t kMostStates = 16'000, kMostAtATime = 4000;
/// What the proof may try that no plan is better, in entries; what is asked of
/// two levels of many devices before, and of two levels for the proof.
constexpr double kProof = 4e8, kAsked = 5e7, kAskedProof = 1e8;
/// The same where not all cuts are known, and what tables may try then.
constexpr double kAskedSome = 1e8, kTables = 2e8;
/// Devices of one level, and of two, that times are tabulated for alone.
constexpr int kTabulated[] = {64, 32};
/// What plans that straddle may take under a limit, in entries.
constexpr double kStraddled = 5e8;
/// More bytes than there are.
constexpr double kNoLimit = 1e40;
/// What the search next to a plan may try.
constexpr double kNear = 1e8;
/// States at a time for what only asks whether there are plans that fit.
constexpr size_t kFewWithin = 400;

/// Innermost first.
std::vector<PipeDreamLevel> levelsFor(const PartitionOptions &options) {
  std::string missing;
  if (options.devices.empty())
    missing = "--devices NxM or M";
  if (options.bandwidths.empty())
    missing += std::string(missing.empty() ? "" : " and ") +
               "--bandwidth INTER,INTRA in bytes/s, or with units, as "
               "1.25GB/s,12GB/s";
  if (!missing.empty())
    throw Failure(Exit::Usage, "a PipeDream profile needs " + missing);
  const std::vector<double> bandwidths =
      bandwidthsOf(options, options.devices.size());
  std::vector<PipeDreamLevel> given;
  for (size_t l = 0; l < bandwidths.size(); ++l)
    given.push_back({options.devices[l], bandwidths[l]});
  return levelsOf(given);
}

/// The fastest plan, of all or of those within a limit.
struct Search {
  const CutStates &states;
  const std::vector<PipeDreamLevel> &levels;
  bool straddles;        ///< else replicas keep to servers or take whole ones
  bool isListed;         ///< all cuts can be searched together
  bool crosses = false;  ///< the plan that was found
  SearchEffort effort;   ///< under a limit
  SearchEffort straddled{kStraddled}; ///< the same, of plans that straddle
  bool askedAll = false; ///< without one, where it asks
  /// Plans that fit: of the published space, of the one with straddling.
  PipeDreamPlan someNested, someStraddling;

  Search(const CutStates &states, const std::vector<PipeDreamLevel> &levels,
         bool straddles, bool isListed)
      : states(states), levels(levels),
        straddles(straddles && levels.size() > 1), isListed(isListed) {
    constexpr double kAll = 1e18;
    if (levels.size() == 1)
      effort.left = kAll;
  }

  int devices() const { return devicesBelow(levels, levels.size()); }
  /// Of many devices it is quicker to ask how few reach a time, as under a
  /// limit, than to tabulate times for all numbers of machines.
  bool asks() const {
    return isListed && levels.size() <= 2 &&
           devices() > kTabulated[levels.size() - 1];
  }
  /// States at a time without a limit. Two levels are solved once for every cut
  /// and number of servers; straddling plans are tabulated for every pair of
  /// device counts.
  size_t few() const {
    size_t most = states.complete ? kMostAtATime : kMostAtATime / 2;
    if (levels.size() == 1)
      most = std::clamp<size_t>(512'000 / static_cast<size_t>(devices()), 96,
                                most);
    if (levels.size() == 2 && devices() > 32)
      most = std::min(
          most, std::max<size_t>(38'400 / static_cast<size_t>(devices()), 96));
    if (levels.size() > 2)
      most = std::min(most, fewDeep());
    return most;
  }
  /// Components of every level but the outermost are solved from every cut to
  /// every other: all cuts together where they are few, else some at a time.
  size_t fewDeep() const {
    double entries = 0;
    for (size_t l = 0; l + 1 < levels.size(); ++l)
      entries += levels[l].machines * levels[l].machines + 8;
    auto most = [&](double effort) {
      return static_cast<size_t>(std::cbrt(effort / entries));
    };
    constexpr double kWhole = 1.2e9, kRound = 1e8;
    constexpr size_t kLeast = 32;
    const size_t whole = most(kWhole);
    return std::max(states.size() <= whole ? whole : most(kRound), kLeast);
  }
  size_t fewStraddling() const {
    return std::clamp<size_t>(
        static_cast<size_t>(4e6 / ((devices() + 1) * (devices() + 1))), 64,
        kMostAtATime);
  }
  bool completeNested(double limit) const {
    return states.complete && (limit > 0 ? effort.isEvery
                               : asks()  ? askedAll
                                         : states.size() <= few());
  }
  /// Whether plans that straddle were looked at over all cuts; what was proved
  /// of the published space may be over more than the states.
  bool completeStraddling() const {
    return !straddles || (states.complete && straddled.isEvery &&
                          states.size() <= fewStraddling());
  }
  bool complete(double limit) const {
    return completeNested(limit) && completeStraddling();
  }
  /// What is found over the cuts that are looked at first, of the published
  /// space.
  PipeDreamPlan
  first(size_t most,
        const std::function<PipeDreamPlan(const CutStates &)> &find) const;
  /// Whether there are plans that fit, to stay below.
  bool findSome(double limit);
  /// What the plan of the space that is searched keeps that keeps least.
  double leastBytes() const;
  /// The fastest plan of the published space, and with straddling, of which
  /// that is never slower.
  PipeDreamPlan nested(double limit);
  PipeDreamPlan ask(double limit, SearchEffort &most) const;
  PipeDreamPlan atMostDataParallel(PipeDreamPlan plan) const;
  /// `known`: seconds of a plan that is known, over whatever cuts.
  PipeDreamPlan
  straddling(PipeDreamPlan plan, double limit,
             double known = std::numeric_limits<double>::infinity());
};

PipeDreamPlan Search::first(
    size_t most,
    const std::function<PipeDreamPlan(const CutStates &)> &find) const {
  std::vector<size_t> chosen(states.size());
  std::iota(chosen.begin(), chosen.end(), size_t{0});
  if (levels.size() > 1 && states.size() > most) {
    // Where a plan that keeps to no servers is cut, and all over the model.
    chosen = spread(states, most);
    for (const PipeDreamStage &stage : leastPlan(states, devices()).stages)
      chosen.push_back(stage.after);
    std::sort(chosen.begin(), chosen.end());
    chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
  }
  PipeDreamPlan plan = find(states.only(chosen));
  if (plan.stages.empty())
    return plan;
  renumber(plan, chosen);
  plan.seconds = planSeconds(states, levels, plan);
  return plan;
}

/// Few states often do.
bool Search::findSome(double limit) {
  for (size_t most : {kFewWithin / 8, kFewWithin})
    if (someNested.stages.empty())
      someNested = first(most, [&](const CutStates &chosen) {
        return planWithin(chosen, levels, limit);
      });
  if (straddles)
    someStraddling = planWithin(states, limit, devices());
  if (!someStraddling.stages.empty())
    someStraddling.seconds = straddlingSeconds(states, levels, someStraddling);
  return !someNested.stages.empty() || !someStraddling.stages.empty();
}

double Search::leastBytes() const {
  PipeDreamPlan plan = straddles
                           ? leastPlan(states, devices())
                           : first(kFewWithin, [&](const CutStates &chosen) {
                               return leastPlan(chosen, levels);
                             });
  return mostBytes(states, plan);
}

PipeDreamPlan Search::ask(double limit, SearchEffort &most) const {
  return searchGrowing(
      states, someNested, most,
      [&](const CutStates &some, double incumbent, SearchEffort &part) {
        return searchPipeDream(some, levels, limit, incumbent, &part);
      });
}

/// Where the effort was spent before there was a better plan.
PipeDreamPlan Search::atMostDataParallel(PipeDreamPlan plan) const {
  PipeDreamPlan whole = dataParallelPlan(states, levels);
  return plan.seconds <= whole.seconds ? plan : whole;
}

/// Under a limit what was found that fits is to stay below.
PipeDreamPlan Search::nested(double limit) {
  if (limit > 0)
    return ask(limit, effort);
  if (asks()) {
    SearchEffort asking{kAsked};
    PipeDreamPlan plan = ask(kNoLimit, asking);
    askedAll = asking.isEvery;
    return atMostDataParallel(std::move(plan));
  }
  if (levels.size() != 2 || devices() <= kTabulated[1])
    return searchThinned(states, few(), someNested,
                         [&](const CutStates &some, double incumbent) {
                           return searchPipeDream(some, levels, 0, incumbent);
                         });
  // Tables are quick below a plan that is near their best.
  SearchEffort asking{kAskedSome}, tables{kTables};
  return searchThinned(states, few(), atMostDataParallel(ask(kNoLimit, asking)),
                       [&](const CutStates &some, double incumbent) {
                         return searchPipeDream(some, levels, 0, incumbent,
                                                &tables);
                       });
}

PipeDreamPlan Search::straddling(PipeDreamPlan plan, double limit,
                                 double known) {
  crosses = false;
  if (!straddles)
    return plan;
  const double nested = plan.seconds;
  if (someStraddling.seconds < nested)
    plan = someStraddling;
  plan = searchThinned(states, fewStraddling(), plan,
                       [&](const CutStates &some, double incumbent) {
                         // So that the later rounds have a share.
                         SearchEffort part{straddled.left / 2};
                         const double given = part.left;
                         PipeDreamPlan found = searchStraddling(
                             some, levels, std::min(incumbent, known), limit,
                             &part);
                         straddled.left -= given - part.left;
                         straddled.isEvery &= part.isEvery;
                         return found;
                       });
  crosses = plan.seconds < nested;
  return plan;
}

/// All cuts of the profile, where they are no more than what is searched
/// together; else fewer, or none.
CutStates allStates(const PipeDreamProfile &profile, int devices) {
  constexpr size_t kMostEntries = 6'000'000; // of the table, about 100 MB
  return cutStates(
      profile,
      std::min(kMostStates, kMostEntries / static_cast<size_t>(devices)));
}

/// Whether it can be said that no plan over all cuts is better, within
/// kAskedProof entries where Search::asks, else within kProof, of two levels
/// after kAskedProof others; plan and states become those of one that is.
bool proves(const Search &search, CutStates &all, CutStates &states,
            PipeDreamPlan &plan) {
  if (search.completeNested(0))
    return true;
  if (!search.isListed)
    return false;
  const bool isOther = !states.complete;
  bool isEvery = false;
  auto look = [&](double entries, double limit) {
    SearchEffort effort{entries, true, true};
    PipeDreamPlan better = searchPipeDream(
        isOther ? all : states, search.levels, limit, plan.seconds, &effort);
    isEvery = effort.isEvery;
    if (better.seconds >= plan.seconds)
      return;
    plan = std::move(better);
    if (isOther)
      states = all;
  };
  if (search.asks() || search.levels.size() == 2)
    look(kAskedProof, kNoLimit);
  if (!isEvery && !search.asks())
    look(kProof, 0);
  return isEvery;
}

/// Where not all cuts were looked at: all of those near the plan's, in one
/// sense of near after the other, until none betters it. Returns how many cuts
/// these were; the states become those of the plan.
size_t refine(CutStates &states, const std::vector<PipeDreamLevel> &levels,
              PipeDreamPlan &plan) {
  constexpr int kSenses = 12;
  constexpr size_t kMostNearDeep = 1200;
  const Search search(states, levels, false, false);
  const bool isFlat = levels.size() == 1;
  const size_t most =
      isFlat
          ? std::clamp<size_t>(128'000 / static_cast<size_t>(search.devices()),
                               96, kMostAtATime)
          : std::min(search.few(), kMostNearDeep);
  const size_t mostLooked = most * (isFlat ? 20 : levels.size() == 2 ? 12 : 4);
  size_t looked = 0, few = most / 4;
  SearchEffort effort{kNear, true, true};
  const double limit =
      isFlat && search.devices() > kTabulated[0] ? kNoLimit : 0;
  for (int round = 0, idle = 0; looked < mostLooked && effort.isEvery;
       ++round) {
    std::vector<size_t> cuts{0};
    for (const PipeDreamStage &stage : plan.stages)
      cuts.push_back(stage.after);
    if (idle == kSenses && few == most)
      break;
    if (idle == kSenses || 2 * cuts.size() > few)
      few = most, idle = 0;
    if (2 * cuts.size() > few)
      break;
    CutStates near = nearStates(states, cuts, few, round);
    looked += near.size();
    PipeDreamPlan better =
        searchPipeDream(near, levels, limit, plan.seconds, &effort);
    ++idle;
    if (better.seconds >= plan.seconds * (1 - 1e-9))
      continue;
    plan = std::move(better);
    std::swap(states, near);
    idle = 0;
  }
  return looked;
}

/// `enough` bytes are what the plan takes that keeps least.
[[noreturn]] void doesNotFit(const Search &search, double limit,
                             double enough) {
  enough = std::ceil(enough);
  // Where not every plan was looked at, there may be one.
  const bool proven =
      (search.states.complete &&
       (search.levels.size() == 1 || search.straddles ||
        search.states.size() <= kFewWithin)) ||
      published::leastBytes(search.states, search.devices()) > limit;
  auto bytes = [](double n) {
    return plan::formatBytes(static_cast<int64_t>(n));
  };
  throw Failure(
      Exit::NoFit,
      (proven ? "nothing fits in " : "no plan was found that fits in ") +
          bytes(limit) + " a device for weights and activations in flight: " +
          bytes(enough - limit) +
          " are missing; it would fit with --memory-limit " +
          std::to_string(static_cast<int64_t>(enough)));
}

/// The slowest stage, in milliseconds, and whether it is what binds.
std::string bindingOf(size_t stage, double compute, double objective) {
  if (compute >= objective * (1 - 1e-9))
    return "compute of stage " + std::to_string(stage);
  char text[32];
  std::snprintf(text, sizeof text, "%.4g ms", compute);
  return "communication; stage " + std::to_string(stage) +
         " computes longest, " + text;
}

void expectSearched(const PartitionOptions &options) {
  const int64_t devices = devicesOf(options);
  if (devices > 1024)
    throw Failure(Exit::Usage,
                  "PipeDream's objective is searched for at most 1024 devices; "
                  "--objective step plans up to " +
                      std::to_string(plan::kMostDevices));
  if (options.straddle && devices > 256)
    throw Failure(Exit::Usage,
                  "--straddle on is searched for at most 256 devices");
}

/// The plan's stages, and which of them binds.
void addStages(Partition &result, const PipeDreamProfile &profile,
               const CutStates &states, const PipeDreamPlan &plan) {
  double slowest = -1;
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    const PipeDreamStage &from = plan.stages[s];
    PartitionStage stage;
    for (int v : states.between(from.before, from.after))
      stage.nodes.push_back(profile.nodes[static_cast<size_t>(v)].id);
    stage.replicas = from.replicas;
    stage.devices = from.devices;
    stage.load = (states.seconds[from.after] - states.seconds[from.before]) /
                 from.replicas * 1000;
    if (stage.load > slowest) {
      slowest = stage.load;
      result.binding = bindingOf(s, stage.load, result.objective);
    }
    result.stages.push_back(std::move(stage));
  }
}

/// Where they would be, those that no stage has.
void addLeftOut(Partition &result, const PipeDreamProfile &profile) {
  std::vector<std::string> left = profile.inputs;
  left.insert(left.end(), profile.unread.begin(), profile.unread.end());
  std::map<std::string, size_t> stageOf;
  for (size_t s = 0; s < result.stages.size(); ++s)
    for (const std::string &id : result.stages[s].nodes)
      stageOf[id] = s;
  for (size_t i = 0; i < left.size(); ++i) {
    const int beside = profile.besides[i];
    const size_t stage =
        beside < 0 ? 0
                   : stageOf.at(profile.nodes[static_cast<size_t>(beside)].id);
    result.stages[stage].leftOut.push_back(left[i]);
    result.nodes.push_back({left[i], left[i]});
    if (beside < 0)
      continue;
    const std::string &other = profile.nodes[static_cast<size_t>(beside)].id;
    if (i < profile.inputs.size())
      result.edges.push_back({left[i], other});
    else
      result.edges.push_back({other, left[i]});
  }
}

void addGraph(Partition &result, const PipeDreamProfile &profile) {
  for (const ProfileNode &node : profile.nodes)
    result.nodes.push_back({node.id, node.description});
  for (int v = 0; v < profile.dag.size(); ++v)
    for (int w : profile.dag.out[v])
      result.edges.push_back({profile.nodes[static_cast<size_t>(v)].id,
                              profile.nodes[static_cast<size_t>(w)].id});
}

} // namespace

Partition partitionPipeDream(const PartitionOptions &options) {
  PipeDreamProfile profile = parsePipeDreamProfile(options.text, options.path);
  std::vector<PipeDreamLevel> levels = levelsFor(options);
  expectSearched(options);
  const double limit = options.memoryLimit;
  CutStates states = cutStates(profile, kMostAtATime);
  CutStates all; // where these are not
  if (!states.complete)
    all = allStates(profile, devicesBelow(levels, levels.size()));
  Search search(states, levels, options.straddle,
                states.complete || all.complete);
  PipeDreamPlan plan = search.nested(0);
  // Straddling over the cuts that are spread over the model, and over those
  // that a faster plan that keeps to servers was found in.
  CutStates spreadOut = search.straddles ? states : CutStates();
  PipeDreamPlan crossing = search.straddling(plan, 0);
  bool crosses = search.crosses;
  const double before = plan.seconds;
  const bool isEvery = proves(search, all, states, plan);
  size_t looked = states.size();
  if (!isEvery)
    looked += refine(states, levels, plan);
  if (plan.seconds < before) {
    plan = search.straddling(std::move(plan), 0, crossing.seconds);
    crosses = search.crosses;
  }
  if (search.straddles && crossing.seconds < plan.seconds) {
    plan = std::move(crossing);
    states = std::move(spreadOut);
    crosses = true;
  }
  double searched = 0; // the limit of the search that found the plan
  if (limit > 0 && mostBytes(states, plan) > limit) {
    const Phase fitting("within the limit");
    searched = limit;
    states = cutStates(profile, kMostAtATime, true);
    if (!search.findSome(limit))
      doesNotFit(search, limit, search.leastBytes());
    plan = search.straddling(search.nested(limit), limit);
    crosses = search.crosses;
    looked = states.size();
  }
  verifyPipeDream(profile, states, levels, plan, crosses, limit);

  Partition result;
  result.objectiveName = "pipedream";
  result.unit = "ms";
  result.objective = plan.seconds * 1000;
  if (limit <= 0 || states.kept.back() <= limit)
    result.dataParallel = dataParallelSeconds(states, levels) * 1000;
  result.bound =
      states.seconds.back() / static_cast<double>(devicesOf(options)) * 1000;
  result.exact = searched > 0 ? search.complete(searched)
                              : isEvery && search.completeStraddling();
  result.states = looked;
  addStages(result, profile, states, plan);
  if (!crosses) // else stages have links of several levels
    result.binding = boundOf(states, levels, plan);
  addGraph(result, profile);
  addLeftOut(result, profile);
  return result;
}

} // namespace pipec::published
