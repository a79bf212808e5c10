#include "compiler/plan/Refine.h"

#include <algorithm>

namespace pipec::plan {

std::vector<bool> chooseRecompute(const StepModel &model, const Split &split) {
  size_t count = split.starts.size();
  Recompute wanted = model.request().recompute;
  std::vector<bool> recompute(count, wanted == Recompute::Full);
  if (wanted != Recompute::Auto)
    return recompute;
  int fromHere = 0;
  for (size_t s = count; s-- > 0;) {
    size_t last =
        s + 1 < count ? split.starts[s + 1] - 1 : model.intervals().nodes() - 1;
    fromHere += split.replicas[s];
    StagePosition position{static_cast<int>(s), static_cast<int>(count),
                           split.replicas[s], fromHere,
                           model.request().microbatches};
    StageCost cost = model.intervals().cost(split.starts[s], last);
    int64_t limit =
        model.limit() / std::max(1, model.request().strategy.chunks);
    recompute[s] =
        model.memory(cost, keepsAt(model.request(), position), false).total() >
        limit;
  }
  return recompute;
}

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

double refine(const StepModel &model, const std::vector<size_t> &starts,
              Split &split) {
  double best = model.stepSeconds(split);
  int64_t budget = static_cast<int64_t>(1e7 * model.request().effort);
  int64_t each = model.effort(split.replicas) + 1000;
  size_t count = split.starts.size();
  std::vector<size_t> place(count);
  for (size_t s = 0; s < count; ++s)
    place[s] = static_cast<size_t>(
        std::lower_bound(starts.begin(), starts.end(), split.starts[s]) -
        starts.begin());

  // Shifts the starts of stages first..last by `by` places.
  auto attempt = [&](size_t first, size_t last, long by) {
    long low = static_cast<long>(place[first]) + by;
    long high = static_cast<long>(place[last]) + by;
    long floor = static_cast<long>(place[first - 1]) + 1;
    long ceiling =
        static_cast<long>(last + 1 < count ? place[last + 1] : starts.size()) -
        1;
    if (low < floor || high > ceiling)
      return false;
    Split moved = split;
    for (size_t s = first; s <= last; ++s)
      moved.starts[s] =
          starts[static_cast<size_t>(static_cast<long>(place[s]) + by)];
    moved.recompute = chooseRecompute(model, moved);
    budget -= each;
    double seconds = model.stepSeconds(moved);
    // Less than this is noise, and not worth a lopsided plan.
    if (seconds >= best * (1 - 1e-5))
      return false;
    best = seconds;
    split = std::move(moved);
    for (size_t s = first; s <= last; ++s)
      place[s] = static_cast<size_t>(static_cast<long>(place[s]) + by);
    return true;
  };

  long widest = static_cast<long>(starts.size() / (4 * count));
  long stride = 1;
  while (stride * 2 <= widest)
    stride *= 2;
  for (; stride >= 1 && budget > 0; stride /= 2) {
    bool improved = true;
    while (improved && budget > 0) {
      improved = false;
      for (size_t s = 1; s < count && budget > 0; ++s) {
        improved |= attempt(s, s, -stride) || attempt(s, s, +stride);
        // A whole stage moves along when neither of its ends can alone.
        if (s + 1 < count)
          improved |= attempt(s, s + 1, -stride) || attempt(s, s + 1, +stride);
      }
    }
    if (stride == 1)
      break;
  }
  return best;
}

} // namespace pipec::plan
