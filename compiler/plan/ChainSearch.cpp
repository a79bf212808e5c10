#include "compiler/plan/ChainSearch.h"

#include "compiler/plan/Collective.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace pipec::plan {

namespace {
constexpr double inf = std::numeric_limits<double>::infinity();
constexpr uint32_t none = std::numeric_limits<uint32_t>::max();
/// Suffixes that one search looks at: a few seconds. Many times what 64
/// stages need.
constexpr int64_t kMostLooked = 10'000'000;
} // namespace

/// What each stage's place in the pipeline fixes before any cut is known.
struct ChainSearch::Slots {
  std::vector<int> replicas;
  bool inside = false;
  std::vector<Keeps> keeps;
  std::vector<Link> incoming;        ///< from the stage before
  std::vector<AllReduceCost> reduce; ///< gradients of the replicas
  /// All microbatches take so many rounds of those that run side by side; and
  /// the microbatches behind the first round.
  double rounds = 1, further = 0;

  void setRounds(int microbatches) {
    const double sideBySide =
        *std::max_element(replicas.begin(), replicas.end());
    rounds = std::ceil(microbatches / sideBySide);
    further = std::max(0.0, rounds - 1) * sideBySide;
  }
};

/// What a stage adds to the suffixes behind it, whichever they are.
struct ChainSearch::Front {
  double load = 0, messages = 0; ///< seconds of a microbatch
  Pace least; ///< what a plan with the stage has at least, but for its fill
  double window = 1;  ///< microbatches in flight, in all of its replicas
  bool waits = false; ///< for what is in flight, as that is not all of them
};

/// The best-known suffixes from one start in so many stages.
struct ChainSearch::Label {
  Pace pace;
  uint32_t nextStart = none; ///< index into starts of the following stage
  uint32_t nextLabel = none;
  bool recompute = false;
};

/// The costs of the intervals from starts[i] on, one end after the other. The
/// row keeps them while there is room for more (some 80 MB).
class ChainSearch::Ends {
public:
  Ends(const ChainSearch &search, size_t i)
      : search(search), row(search.rows[i]), i(i) {}
  /// Of the nodes from starts[i] up to starts[end]; `end` is one more than in
  /// the call before, and i + 1 first.
  const StageCost &upTo(size_t end) {
    if (const size_t at = end - i - 1; at < row.costs.size())
      return row.costs[at];
    const auto &starts = search.starts;
    const size_t last = end < starts.size()
                            ? starts[end] - 1
                            : search.model.intervals().nodes() - 1;
    constexpr size_t kMost = 600'000;
    if (further || search.kept >= kMost) {
      if (!further)
        further.emplace(row.sweep);
      return further->growTo(last);
    }
    ++search.kept;
    row.costs.push_back(row.sweep.growTo(last));
    return row.costs.back();
  }

private:
  const ChainSearch &search;
  Row &row;
  const size_t i;
  std::optional<IntervalCosts::Sweep> further; ///< where the row is not to grow
};

ChainSearch::ChainSearch(const StepModel &model, std::vector<size_t> starts)
    : model(model), starts(std::move(starts)) {
  setShare(1);
  const auto &nodes = model.request().graph.nodes;
  double sum = 0;
  size_t s = 0;
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (s < this->starts.size() && this->starts[s] == i) {
      work.push_back(sum);
      ++s;
    }
    sum += nodes[i].forwardSeconds + nodes[i].backwardInputSeconds +
           nodes[i].backwardWeightSeconds;
  }
  work.push_back(sum);
  rows.reserve(this->starts.size());
  for (size_t start : this->starts)
    rows.push_back({IntervalCosts::Sweep(model.intervals(), start), {}});
}

ChainSearch::Slots ChainSearch::slots(const std::vector<int> &replicas,
                                      bool inside) const {
  const PlanRequest &request = model.request();
  Slots slots;
  slots.replicas = replicas;
  slots.inside = inside;
  auto devices = assignDevices(request.strategy, replicas, inside);
  int count = static_cast<int>(replicas.size());
  int fromHere = 0;
  for (int r : replicas)
    fromHere += r;
  for (int s = 0; s < count; ++s) {
    slots.keeps.push_back(keepsAt(
        request, {s, count, replicas[s], fromHere, request.microbatches}));
    fromHere -= replicas[s];
    slots.incoming.push_back(
        s == 0 ? Link{}
               : boundaryLink(request.topology, devices[s - 1], devices[s]));
    slots.reduce.push_back(allReduceCost(request.topology, devices[s]));
  }
  slots.setRounds(request.microbatches);
  return slots;
}

/// Whether a stage that does not fit may with more nodes, which send less.
bool ChainSearch::mayFitLonger(const ByteRates &bytes, const Keeps &keeps,
                               int64_t limit) const {
  const Recompute wanted = model.request().recompute;
  const bool again = wanted != Recompute::None;
  return bytes.least(keeps, again) <= limit ||
         (wanted == Recompute::Auto && bytes.least(keeps, false) <= limit);
}

ChainSearch::Front ChainSearch::front(const StageCost &cost, const Slots &slots,
                                      size_t stage, bool recompute) const {
  const PlanRequest &request = model.request();
  const StrategyFacts &facts = request.strategy;
  const double forward = cost.forwardSeconds;
  const double backward = cost.backwardInputSeconds +
                          cost.backwardWeightSeconds +
                          (recompute ? forward : 0);
  const double after = model.updateSeconds(cost.parameterBytes) +
                       slots.reduce[stage].seconds(cost.parameterBytes);
  const double replicas = slots.replicas[stage];
  double hop = 0, back = 0, lanes = replicas;
  if (stage > 0) {
    const Link &link = slots.incoming[stage];
    hop = transferSeconds(link, cost.receiveBytes);
    back = transferSeconds(link, cost.receiveGradientBytes);
    lanes = std::min(lanes, static_cast<double>(slots.replicas[stage - 1]));
  }
  Front front;
  front.load = forward + backward + (facts.synchronous ? 0 : after);
  front.messages = hop + back;
  front.least.tail = facts.synchronous ? after : 0;
  front.window = slots.keeps[stage].inFlight * replicas;
  if (facts.shape == Shape::GPipe) {
    front.least.pace = std::max(forward / replicas, hop / lanes);
    front.least.paceBack = std::max(backward / replicas, back / lanes);
    return front;
  }
  // A device runs one such stage for each of its chunks.
  const double turns = facts.chunks;
  front.least.pace =
      std::max({turns * front.load / replicas, hop / lanes, back / lanes});
  front.waits = !facts.synchronous || (facts.shape == Shape::OneFOneB &&
                                       front.window < request.microbatches);
  return front;
}

Pace ChainSearch::extend(const Pace &suffix, const Front &front) {
  Pace p = suffix;
  p.fill += front.load;
  p.tail = std::max(p.tail, front.least.tail);
  p.pace = std::max(p.pace, front.least.pace);
  p.paceBack = std::max(p.paceBack, front.least.paceBack);
  if (front.waits)
    p.pace = std::max(p.pace, p.fill / front.window);
  p.fill += front.messages;
  return p;
}

double ChainSearch::objective(const Pace &p, const Slots &slots) const {
  const PlanRequest &request = model.request();
  if (!request.strategy.synchronous)
    return p.pace * request.microbatches;
  if (request.strategy.shape == Shape::Naive)
    return p.fill * slots.rounds + p.tail + 1e-6 * p.pace;
  return p.fill + slots.further * (p.pace + p.paceBack) + p.tail;
}

/// Greedy packing front to back: each stage takes as many nodes as `seconds`
/// per replica and `limit` bytes allow while one start is left for every later
/// stage. Finds a packing whenever there is one, as far as a stage's cost grows
/// with its interval (received bytes may not).
std::optional<std::vector<size_t>>
ChainSearch::pack(const Slots &slots, double seconds, int64_t limit) const {
  size_t count = slots.replicas.size(), n = starts.size();
  if (count > n)
    return std::nullopt;
  std::vector<size_t> cuts;
  size_t first = 0;
  for (size_t s = 0; s < count; ++s) {
    cuts.push_back(starts[first]);
    size_t lastEnd = n - (count - s - 1); // exclusive, as an index into starts
    Ends ends(*this, first);
    size_t end = first, next = first;
    while (next < lastEnd) {
      const StageCost &cost = ends.upTo(next + 1);
      if (cost.seconds() > seconds * slots.replicas[s])
        break;
      const ByteRates bytes = model.byteRates(cost);
      const auto again = model.recomputes(bytes, slots.keeps[s], limit);
      const bool fits = again.has_value();
      if (!fits && !mayFitLonger(bytes, slots.keeps[s], limit))
        break;
      double load =
          cost.seconds() + (again.value_or(false) ? cost.forwardSeconds : 0);
      if (load > seconds * slots.replicas[s])
        break;
      ++next;
      if (fits)
        end = next;
    }
    if (end == first)
      return std::nullopt;
    first = end;
  }
  if (first != n)
    return std::nullopt;
  return cuts;
}

std::optional<Split> ChainSearch::greedy(const Slots &slots) const {
  double low = 0, high = work.back() * 2 + 1e-9;
  auto cuts = pack(slots, high, stageLimit);
  if (!cuts)
    return std::nullopt;
  for (int i = 0; i < 50 && high - low > 1e-9 * high; ++i) {
    double middle = 0.5 * (low + high);
    if (auto better = pack(slots, middle, stageLimit)) {
      cuts = std::move(better);
      high = middle;
    } else {
      low = middle;
    }
  }
  return splitAt(std::move(*cuts), slots, stageLimit);
}

Split ChainSearch::splitAt(std::vector<size_t> cuts, const Slots &slots,
                           int64_t limit) const {
  Split split;
  split.starts = std::move(cuts);
  split.replicas = slots.replicas;
  split.pipelinesInside = slots.inside;
  for (size_t s = 0; s < split.starts.size(); ++s) {
    size_t last = s + 1 < split.starts.size() ? split.starts[s + 1] - 1
                                              : model.intervals().nodes() - 1;
    const auto again = model.recomputes(
        model.byteRates(model.intervals().cost(split.starts[s], last)),
        slots.keeps[s], limit);
    split.recompute.push_back(
        again.value_or(model.request().recompute != Recompute::None));
  }
  return split;
}

double ChainSearch::surrogate(const Split &split) const {
  Slots place = slots(split.replicas, split.pipelinesInside);
  Pace p;
  for (size_t s = split.starts.size(); s-- > 0;) {
    size_t last = s + 1 < split.starts.size() ? split.starts[s + 1] - 1
                                              : model.intervals().nodes() - 1;
    StageCost cost = model.intervals().cost(split.starts[s], last);
    const auto again =
        model.recomputes(model.byteRates(cost), place.keeps[s], stageLimit);
    if (!again)
      return inf;
    p = extend(p, front(cost, place, s, *again));
  }
  return objective(p, place);
}

size_t ChainSearch::labelsFor(size_t stages) const {
  constexpr size_t exactUpTo = 2048, kept = 6;
  return starts.size() * stages <= exactUpTo
             ? std::numeric_limits<size_t>::max()
             : kept;
}

double ChainSearch::leastSurrogate(const std::vector<int> &replicas) const {
  double devices = 0;
  for (int r : replicas)
    devices += r;
  Slots place;
  place.replicas = replicas;
  place.setRounds(model.request().microbatches);
  // All the work once, and no device faster than its share of it.
  Pace least;
  least.fill = work.back();
  least.pace = model.request().strategy.chunks * work.back() / devices;
  return objective(least, place);
}

int64_t ChainSearch::smallestLimit(const std::vector<int> &replicas,
                                   int64_t known) const {
  Slots place = slots(replicas, false);
  int64_t low = 0, high = known;
  if (!pack(place, inf, known < kMostBytes ? known - 1 : known))
    return known;
  while (low + 1 < high) {
    int64_t middle = low + (high - low) / 2;
    if (pack(place, inf, middle))
      high = middle;
    else
      low = middle;
  }
  return high;
}

std::optional<Split> ChainSearch::packed(const std::vector<int> &replicas,
                                         int64_t limit) const {
  const Slots place = slots(replicas, false);
  std::optional<std::vector<size_t>> cuts = pack(place, inf, limit);
  if (!cuts)
    return std::nullopt;
  return splitAt(std::move(*cuts), place, limit);
}

/// Stages that share a device share its memory; the judge adds them up exactly.
void ChainSearch::setShare(double share) {
  const StrategyFacts &facts = model.request().strategy;
  const int64_t even = model.limit() / (facts.chunks * facts.copies);
  stageLimit =
      share == 1
          ? even
          : std::min(model.limit(),
                     static_cast<int64_t>(share * static_cast<double>(even)));
}

/// The largest pace any plan of at most that objective can have.
double ChainSearch::largestPace(double objectiveLimit,
                                const Slots &slots) const {
  if (!std::isfinite(objectiveLimit))
    return inf;
  const PlanRequest &request = model.request();
  if (!request.strategy.synchronous)
    return objectiveLimit / request.microbatches;
  if (request.strategy.shape == Shape::Naive || slots.further == 0)
    return inf;
  return (objectiveLimit - work.back()) / slots.further;
}

/// State of one run of the dynamic program.
struct ChainSearch::Table {
  const Slots &slots;
  double objectiveLimit; ///< no plan above this is wanted
  double pace;           ///< nor one with a slower stage
  size_t labelsKept;
  std::vector<double> replicasBefore; ///< of stage s
  /// Suffixes that may still be looked at: of a thousand stages all that differ
  /// would take minutes.
  int64_t budget;
  /// suffixes[k][i]: undominated suffixes of k stages that start at starts[i].
  std::vector<std::vector<std::vector<Label>>> suffixes;

  void insert(std::vector<Label> &labels, const Label &label) const;
};

void ChainSearch::Table::insert(std::vector<Label> &labels,
                                const Label &label) const {
  auto dominates = [](const Pace &a, const Pace &b) {
    return a.fill <= b.fill && a.pace <= b.pace && a.paceBack <= b.paceBack &&
           a.tail <= b.tail;
  };
  for (const Label &other : labels)
    if (dominates(other.pace, label.pace))
      return;
  std::erase_if(labels, [&](const Label &other) {
    return dominates(label.pace, other.pace);
  });
  labels.push_back(label);
}

/// The stages that an interval from a start can still be. One is closed for
/// good once an interval takes too long there, or does not fit whatever follows
/// it: longer ones take as long, and fit no better.
class ChainSearch::OpenStages {
public:
  explicit OpenStages(size_t stages) : closed(stages), end(stages) {}
  void close(size_t stage) {
    closed[stage] = true;
    while (begin < end && closed[begin])
      ++begin;
    while (begin < end && closed[end - 1])
      --end;
  }
  bool has(size_t stage) const { return !closed[stage]; }
  bool empty() const { return begin == end; }
  /// All are from the first on, and before `past`.
  size_t first() const { return begin; }
  size_t past() const { return end; }

private:
  std::vector<char> closed;
  size_t begin = 0, end;
};

/// What the pace of a plan with a stage is at least, of one device: as much as
/// front() gives it without links and recomputation.
static double leastPace(const StrategyFacts &facts, const StageCost &cost) {
  return facts.shape == Shape::GPipe ? cost.seconds() // with the pace back
                                     : facts.chunks * cost.seconds();
}

/// Puts the interval from starts[i] on that ends where suffixes of k - 1 stages
/// begin, at `end`, before each of them.
void ChainSearch::extendLabels(size_t i, size_t end, size_t k, const Front &own,
                               bool recompute, Table &table) const {
  const Slots &place = table.slots;
  const size_t stage = place.replicas.size() - k;
  const bool gpipe = model.request().strategy.shape == Shape::GPipe;
  const auto &rest = table.suffixes[k - 1][end];
  auto &here = table.suffixes[k][i];
  table.budget -= 1 + std::ssize(rest);
  for (size_t l = 0; l < rest.size(); ++l) {
    Label label{extend(rest[l].pace, own), static_cast<uint32_t>(end),
                static_cast<uint32_t>(l), recompute};
    Pace least = label.pace;
    least.fill += work[i];
    if (stage > 0 && !gpipe)
      least.pace = std::max(least.pace, work[i] / table.replicasBefore[stage]);
    if (objective(least, place) > table.objectiveLimit)
      continue;
    table.insert(here, label);
    if (here.size() > table.labelsKept)
      here.erase(std::max_element(
          here.begin(), here.end(), [&](const Label &a, const Label &b) {
            return objective(a.pace, place) < objective(b.pace, place);
          }));
  }
}

/// All suffixes that start at starts[i], from those that start later.
void ChainSearch::extendSuffixes(size_t i, Table &table) const {
  const Slots &place = table.slots;
  size_t count = place.replicas.size(), n = starts.size();
  const StrategyFacts &facts = model.request().strategy;
  double total = work.back();
  int64_t limit = stageLimit;
  double allReplicas = table.replicasBefore[count];
  // The devices before a stage must be able to do what lies before it, those
  // behind it what lies behind: as the first stages cannot be too late and the
  // last not too early, both are bounds of the stage.
  size_t early = 0, late = 0;
  while (early < count &&
         work[i] > table.pace * table.replicasBefore[early] * (1 + 1e-12))
    ++early;
  auto leavesTooMuch = [&](size_t stage, size_t end) {
    double after = allReplicas - table.replicasBefore[stage + 1];
    return total - work[end] > table.pace * after * (1 + 1e-12) + 1e-12 * total;
  };
  const size_t fewest = i == 0 ? count : count > i ? count - i : 1;
  OpenStages stages(count);
  Ends ends(*this, i);
  for (size_t end = i + 1; end <= n && !stages.empty(); ++end) {
    const StageCost &cost = ends.upTo(end);
    // Less what sums differ by in their last digits.
    const double load = leastPace(facts, cost) * (1 - 1e-9);
    ByteRates bytes = model.byteRates(cost);
    const size_t most =
        std::min({count - (i == 0 ? 0 : 1), n - end + 1, count - early});
    while (late < count && !leavesTooMuch(late, end))
      ++late;
    // Some stage count may still take a longer interval, which leaves less.
    bool open = fewest <= most && fewest <= count - late;
    const size_t first = std::max(count - most, stages.first());
    for (size_t stage = std::min({count + 1 - fewest, late, stages.past()});
         stage-- > first;) {
      if (!stages.has(stage))
        continue;
      if (load > table.pace * place.replicas[stage]) {
        stages.close(stage);
        continue;
      }
      const auto again = model.recomputes(bytes, place.keeps[stage], limit);
      if (!again) {
        if (mayFitLonger(bytes, place.keeps[stage], limit))
          open = true;
        else
          stages.close(stage);
        continue;
      }
      // The least any plan with this stage costs, whatever the others do.
      const Front own = front(cost, place, stage, *again);
      Pace alone = extend({}, own);
      alone.fill = std::max(alone.fill, total);
      if (objective(alone, place) > table.objectiveLimit)
        continue;
      open = true;
      extendLabels(i, end, count - stage, own, *again, table);
    }
    if (!open)
      break;
  }
}

std::optional<Split> ChainSearch::best(const std::vector<int> &replicas,
                                       bool inside, double atMost,
                                       size_t labels) const {
  size_t count = replicas.size(), n = starts.size();
  if (count == 0 || count > n)
    return std::nullopt;
  Slots place = slots(replicas, inside);
  std::optional<Split> first = greedy(place);
  double incumbent = first ? surrogate(*first) : inf;
  if (incumbent > atMost) {
    first.reset();
    incumbent = atMost;
  }

  Table table{place, incumbent * (1 + 1e-12), 0, labels, {0}, kMostLooked, {}};
  table.pace = largestPace(table.objectiveLimit, place);
  for (int r : replicas)
    table.replicasBefore.push_back(table.replicasBefore.back() + r);
  table.suffixes.assign(count + 1, std::vector<std::vector<Label>>(n + 1));
  table.suffixes[0][n].push_back({});
  for (size_t i = n; i-- > 0 && table.budget > 0;)
    extendSuffixes(i, table);
  if (table.budget <= 0) // the judge moves its cuts
    return first;

  const auto &complete = table.suffixes[count][0];
  if (complete.empty())
    return first;
  const Label *label = &*std::min_element(
      complete.begin(), complete.end(), [&](const Label &a, const Label &b) {
        return objective(a.pace, place) < objective(b.pace, place);
      });
  Split split;
  split.replicas = replicas;
  split.pipelinesInside = inside;
  size_t at = 0;
  for (size_t k = count; k > 0; --k) {
    split.starts.push_back(starts[at]);
    split.recompute.push_back(label->recompute);
    at = label->nextStart;
    if (k > 1)
      label = &table.suffixes[k - 1][at][label->nextLabel];
  }
  return split;
}

} // namespace pipec::plan
