#include "compiler/plan/Refine.h"

#include "compiler/plan/ChooseRecompute.h"

#include <algorithm>
#include <functional>

namespace pipec::plan {

bool exhaust(const StepModel &model, const std::vector<size_t> &starts,
             Split &split, double &seconds) {
  // C(starts - 1, stages - 1) splits, each as much work as one simulation.
  size_t count = split.starts.size();
  double splits = 1;
  for (size_t i = 1; i < count; ++i)
    splits *= static_cast<double>(starts.size() - i) / static_cast<double>(i);
  double each = static_cast<double>(model.effort(split.replicas)) + 500;
  if (splits * each > 4e6 * model.request().effort)
    return false;
  std::vector<size_t> place(count);
  for (size_t s = 0; s < count; ++s)
    place[s] = s;
  seconds = model.stepSeconds(split);
  Split tried = split;
  while (true) {
    for (size_t s = 0; s < count; ++s)
      tried.starts[s] = starts[place[s]];
    tried.recompute = chooseRecompute(model, tried);
    double found = model.stepSeconds(tried);
    if (found < seconds * (1 - 1e-12)) {
      seconds = found;
      split = tried;
    }
    // The next combination in lexicographic order; stage 0 stays at node 0.
    size_t s = count;
    while (s > 1 && place[s - 1] == starts.size() - (count - s) - 1)
      --s;
    if (s <= 1)
      return true;
    ++place[s - 1];
    for (; s < count; ++s)
      place[s] = place[s - 1] + 1;
  }
}

namespace {

/// A split under change: its cuts as places in `starts`, and what is to get
/// less of it, which takes so much effort to find.
class CutSearch {
public:
  using Objective = std::function<double(const Split &)>;
  CutSearch(const StepModel &model, const std::vector<size_t> &starts,
            Split &split, Objective objective, int64_t each)
      : model(model), starts(starts), split(split),
        objective(std::move(objective)), best(this->objective(split)),
        each(each) {
    for (size_t start : split.starts)
      place.push_back(static_cast<size_t>(
          std::lower_bound(starts.begin(), starts.end(), start) -
          starts.begin()));
  }

  /// Shifts cuts, by strides that halve, as long as one gets better.
  void shift(int64_t &budget) {
    const long widest = static_cast<long>(starts.size() / (4 * place.size()));
    long stride = 1;
    while (stride * 2 <= widest)
      stride *= 2;
    for (; stride >= 1 && budget > 0; stride /= 2)
      while (budget > 0 && sweep(stride, budget))
        ;
  }

  /// Two stages become one, and it or another becomes two: a chain of shifts
  /// does not get there when each of them costs something.
  bool jump(int64_t &budget) {
    for (size_t gone = 1; gone < place.size(); ++gone) {
      std::vector<size_t> rest = place;
      rest.erase(rest.begin() + static_cast<long>(gone));
      for (size_t stage = 0; stage < rest.size(); ++stage) {
        const size_t from = rest[stage], to = stage + 1 < rest.size()
                                                  ? rest[stage + 1]
                                                  : starts.size();
        const size_t parts = std::min(to - from, kParts);
        for (size_t part = 1; part < parts && budget > 0; ++part) {
          std::vector<size_t> moved = rest;
          moved.insert(moved.begin() + static_cast<long>(stage) + 1,
                       from + (to - from) * part / parts);
          if (moved != place && take(std::move(moved), budget))
            return true;
        }
      }
    }
    return false;
  }

  double least() const { return best; }

private:
  static constexpr size_t kParts = 12; ///< of a stage that is cut in two

  bool sweep(long stride, int64_t &budget) {
    bool improved = false;
    for (size_t s = 1; s < place.size() && budget > 0; ++s) {
      improved |= move(s, s, -stride, budget) || move(s, s, +stride, budget);
      // A whole stage moves along when neither of its ends can alone.
      if (s + 1 < place.size())
        improved |=
            move(s, s + 1, -stride, budget) || move(s, s + 1, +stride, budget);
    }
    return improved;
  }

  /// Shifts the starts of stages first..last by `by` places.
  bool move(size_t first, size_t last, long by, int64_t &budget) {
    const long low = static_cast<long>(place[first]) + by;
    const long high = static_cast<long>(place[last]) + by;
    const long floor = static_cast<long>(place[first - 1]) + 1;
    const long ceiling =
        static_cast<long>(last + 1 < place.size() ? place[last + 1]
                                                  : starts.size()) -
        1;
    if (low < floor || high > ceiling)
      return false;
    std::vector<size_t> moved = place;
    for (size_t s = first; s <= last; ++s)
      moved[s] = static_cast<size_t>(static_cast<long>(place[s]) + by);
    return take(std::move(moved), budget);
  }

  bool take(std::vector<size_t> moved, int64_t &budget) {
    Split tried = split;
    for (size_t s = 0; s < moved.size(); ++s)
      tried.starts[s] = starts[moved[s]];
    tried.recompute = chooseRecompute(model, tried);
    budget -= each;
    const double found = objective(tried);
    // Less than this is noise, and not worth a lopsided plan.
    if (found >= best * (1 - 1e-5))
      return false;
    best = found;
    split = std::move(tried);
    place = std::move(moved);
    return true;
  }

  const StepModel &model;
  const std::vector<size_t> &starts;
  Split &split;
  const Objective objective;
  double best;
  const int64_t each;
  std::vector<size_t> place;
};

} // namespace

double refine(const StepModel &model, const std::vector<size_t> &starts,
              Split &split) {
  auto budget = static_cast<int64_t>(1e7 * model.request().effort);
  const auto seconds = [&](const Split &s) { return model.stepSeconds(s); };
  CutSearch search(model, starts, split, seconds,
                   model.effort(split.replicas) + 1000);
  search.shift(budget);
  // What is left of it, up to a quarter of all.
  budget =
      std::min(budget, static_cast<int64_t>(25e5 * model.request().effort));
  while (budget > 0 && search.jump(budget))
    search.shift(budget);
  return search.least();
}

int64_t refinePeak(const StepModel &model, const std::vector<size_t> &starts,
                   Split &split, int64_t enough) {
  const auto bytes = [&](const Split &s) {
    return static_cast<double>(std::max(enough, model.peakOf(s)));
  };
  constexpr int64_t kFewest = 20, kMost = 1000;
  auto layouts =
      std::max(kFewest, static_cast<int64_t>(kMost * model.request().effort));
  CutSearch search(model, starts, split, bytes, 1);
  search.shift(layouts);
  while (search.least() > static_cast<double>(enough) && layouts > 0 &&
         search.jump(layouts))
    search.shift(layouts);
  return static_cast<int64_t>(search.least());
}

} // namespace pipec::plan
