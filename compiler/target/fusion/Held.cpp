//===- Held.cpp - what a task holds at a time -----------------------------===//
#include "compiler/target/fusion/Held.h"

#include <optional>
#include <tuple>

using namespace mlir;
using namespace pipec;
using namespace pipec::fusion;

namespace {

/// Numbers of the ops that become one unit.
struct Span {
  int64_t first, last;
  void include(const Span &other) {
    first = std::min(first, other.first);
    last = std::max(last, other.last);
  }
  auto operator<=>(const Span &) const = default;
};

/// A buffer of the workspace from the unit that makes it on, by positions in
/// the order. What lies between a maker and all readers of a value cuts it out
/// of the workspace: it is sent, from a slot.
struct Life {
  Span maker;
  int64_t bytes, from, to;
  std::optional<Span> reader; ///< the nearest

  Span needs() const {
    Span both = maker;
    if (reader)
      both.include(*reader);
    return both;
  }
  void isReadBy(const Span &op) {
    const auto distance = [&](const Span &other) {
      return std::max<int64_t>(
          {0, maker.first - other.last, other.first - maker.last});
    };
    if (!reader || distance(op) < distance(*reader))
      reader = op;
  }
};

class Lives {
public:
  Lives(const TaskPlan &plan, ArrayRef<StringRef> numbers)
      : plan(plan), numbers(numbers) {
    std::vector<Span> runs; // copies belong to what comes before them
    llvm::DenseMap<int, size_t> lifeOf;
    for (auto [time, index] : llvm::enumerate(plan.order)) {
      const auto now = static_cast<int64_t>(time);
      const Unit &unit = plan.units[index];
      if (std::vector<Span> own = spansOf(unit); !own.empty())
        runs = std::move(own);
      spans.push_back(runs);
      if (runs.empty())
        continue;
      for (int buffer : unit.touches) {
        if (plan.buffers[buffer].kind != Buffer::Arena)
          continue;
        auto [life, isNew] = lifeOf.insert({buffer, all.size()});
        const int64_t bytes = std::max<int64_t>(plan.buffers[buffer].bytes, 1);
        if (isNew)
          all.push_back({makerOf(unit, buffer).value_or(hull(runs)),
                         static_cast<int64_t>(llvm::alignTo(bytes, 64)), now,
                         now, std::nullopt});
        all[life->second].to = now;
        touched[life->second].push_back(now);
        if (!isNew)
          for (const Span &reader : readersOf(unit, buffer, runs))
            all[life->second].isReadBy(reader);
      }
    }
  }

  const Unit &unitAt(int64_t time) const {
    return plan.units[plan.order[time]];
  }

  static SmallVector<Operation *> opsOf(const Unit &unit) {
    SmallVector<Operation *> ops;
    if (unit.kind == Unit::Kernel && unit.kernel.group)
      llvm::append_range(ops, unit.kernel.group->ops);
    if (unit.op)
      ops.push_back(unit.op);
    return ops;
  }

  static Span hull(const std::vector<Span> &spans) {
    Span all = spans.front();
    for (const Span &one : spans)
      all.include(one);
    return all;
  }

  /// Of the ops of the unit at each position: a cut between them leaves a unit
  /// on either side.
  std::vector<std::vector<Span>> spans;
  std::vector<Life> all;                                ///< by where they begin
  llvm::DenseMap<size_t, SmallVector<int64_t>> touched; ///< when, of each

private:
  std::optional<Span> spanOf(Operation *op) const {
    std::optional<Span> span;
    for (StringRef number : numbers)
      if (auto attr = op->getAttrOfType<IntegerAttr>(number)) {
        const Span one{attr.getInt(), attr.getInt()};
        span ? span->include(one) : void(span = one);
      }
    return span;
  }

  std::vector<Span> spansOf(const Unit &unit) const {
    std::vector<Span> spans;
    for (Operation *op : opsOf(unit))
      if (auto span = spanOf(op))
        spans.push_back(*span);
    llvm::sort(spans);
    spans.erase(llvm::unique(spans), spans.end());
    return spans;
  }

  /// Whose value a kernel writes there: that of one of its ops, while others
  /// may be on the far side of a cut.
  std::optional<Span> makerOf(const Unit &unit, int buffer) const {
    std::optional<Span> maker;
    for (const auto *list : {&unit.kernel.targets, &unit.kernel.spills})
      for (const Target &target : *list)
        if (Operation *def = target.value.getDefiningOp();
            def && target.place.buffer == buffer)
          if (auto span = spanOf(def))
            maker ? maker->include(*span) : void(maker = span);
    return maker;
  }

  /// The ops of a unit that read a buffer; of what is not known to read it,
  /// all.
  std::vector<Span> readersOf(const Unit &unit, int buffer,
                              const std::vector<Span> &runs) const {
    std::vector<Span> readers;
    for (auto &[value, leaf] : unit.kernel.leaves)
      if (leaf.kind == Leaf::Memory && leaf.place.buffer == buffer)
        for (Operation *op : unit.kernel.group->ops)
          if (llvm::any_of(op->getOperands(), [&, read = value](Value x) {
                return x == read || viewBase(x) == viewBase(read);
              }))
            if (auto span = spanOf(op))
              readers.push_back(*span);
    return readers.empty() ? runs : readers;
  }

  const TaskPlan &plan;
  ArrayRef<StringRef> numbers;
};

/// With what is nearest first, more and more of what is held.
void addHeld(const Span &runs, std::vector<Life> live,
             std::vector<Held> &held) {
  const auto distance = [&](const Life &one) {
    return std::max<int64_t>(
        {0, runs.first - one.needs().first, one.needs().last - runs.last});
  };
  llvm::sort(live, [&](const Life &a, const Life &b) {
    return std::tuple(distance(a), a.needs().first, a.bytes) <
           std::tuple(distance(b), b.needs().first, b.bytes);
  });
  Span span = runs;
  int64_t bytes = 0;
  for (const Life &one : live) {
    span.include(one.needs());
    bytes += one.bytes;
    held.push_back({span.first, span.last, bytes});
  }
}

/// Of the same last op, the later the first one the less.
void dropLesser(std::vector<Held> &held) {
  llvm::sort(held, [](const Held &a, const Held &b) {
    return std::tuple(a.last, -a.first, -a.bytes) <
           std::tuple(b.last, -b.first, -b.bytes);
  });
  std::vector<Held> kept;
  for (const Held &one : held)
    if (kept.empty() || kept.back().last != one.last ||
        kept.back().bytes < one.bytes)
      kept.push_back(one);
  held = std::move(kept);
}

/// When most is in use.
int64_t fullestTime(const Lives &lives) {
  std::vector<int64_t> change(lives.spans.size() + 1, 0);
  for (const Life &life : lives.all)
    change[life.from] += life.bytes, change[life.to + 1] -= life.bytes;
  int64_t sum = 0, most = 0, when = 0;
  for (size_t time = 0; time < change.size(); ++time)
    if (sum += change[time]; sum > most)
      most = sum, when = static_cast<int64_t>(time);
  return when;
}

} // namespace

std::vector<Held> fusion::heldBy(const TaskPlan &plan,
                                 ArrayRef<StringRef> numbers) {
  const Lives lives(plan, numbers);
  std::vector<Held> held;
  std::vector<Life> live;
  auto next = lives.all.begin();
  for (auto [time, runs] : llvm::enumerate(lives.spans)) {
    const auto now = static_cast<int64_t>(time);
    for (; next != lives.all.end() && next->from == now; ++next)
      live.push_back(*next);
    for (const Span &own : runs)
      addHeld(own, live, held);
    llvm::erase_if(live, [&](const Life &one) { return one.to <= now; });
  }
  dropLesser(held);
  return held;
}

std::vector<Carried> fusion::carriedBy(const TaskPlan &plan,
                                       ArrayRef<StringRef> numbers,
                                       StringRef mark) {
  const Lives lives(plan, numbers);
  const int64_t when = fullestTime(lives);
  std::vector<Carried> carried;
  for (auto [index, life] : llvm::enumerate(lives.all)) {
    if (life.from >= when || life.to <= when ||
        llvm::none_of(Lives::opsOf(lives.unitAt(life.from)),
                      [&](Operation *op) { return op->hasAttr(mark); }))
      continue;
    Carried value{life.maker.first, life.bytes, {}};
    for (int64_t time : lives.touched.lookup(index))
      if (time > when)
        value.readers.push_back(Lives::hull(lives.spans[time]).last);
    carried.push_back(std::move(value));
  }
  return carried;
}
