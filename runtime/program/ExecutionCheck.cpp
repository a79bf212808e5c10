//===- ExecutionCheck.cpp - do the programs of all ranks end? -------------===//
//
// Executes the programs symbolically under the executor's rules (runtime/exec):
// a receive is posted, in program order, as soon as its slot is free; a send
// ends when its receive is posted; a task starts when its receives have data
// and the sends from every slot it writes have ended. This is the strictest
// timing any transport can show (nothing is buffered), so a program that ends
// here ends everywhere.
//
// A rank goes on as far as it can; whoever may have waited for what it has done
// goes on after it. So every task is looked at a few times, whatever the number
// of ranks.
//
//===----------------------------------------------------------------------===//
#include "runtime/program/Memory.h"
#include "runtime/program/PlanCheck.h"
#include "runtime/program/Sequence.h"

#include <algorithm>
#include <deque>
#include <set>

namespace pipec::plan {
namespace {

class Execution {
public:
  explicit Execution(const Plan &plan)
      : plan(plan), edges(stageEdges(plan)), ranks(plan.ranks.size()),
        posted(plan.edges.size()), sent(plan.edges.size()),
        order(plan.edges.size()), isQueued(plan.ranks.size()) {
    for (size_t r = 0; r < ranks.size(); ++r)
      ranks[r].sequence = sequenceOf(static_cast<int>(r));
    for (const Stage &stage : plan.stages) {
      auto &has = hasRegion.emplace_back();
      has.fill(true);
      for (const SlottedRegion &known : kSlotted)
        has[known.region] = regionOf(stage, known.name).bytes > 0;
    }
    for (const Edge &edge : plan.edges)
      fromRegion.push_back(regionNamed(edge.from_region));
    if (plan.ranks[0].program.kind == "stream")
      findPartners();
  }

  void run() {
    for (size_t r = 0; r < ranks.size(); ++r)
      wake(static_cast<int>(r));
    while (!queue.empty()) {
      const int rank = queue.front();
      queue.pop_front();
      isQueued[rank] = false;
      while (advance(rank))
        ;
    }
    for (size_t r = 0; r < ranks.size(); ++r)
      if (ranks[r].next < ranks[r].sequence.size())
        stuck(static_cast<int>(r));
    checkOrder();
  }

private:
  /// Who has the slots of a region, and the sends from each of them.
  struct Slots {
    static constexpr int64_t kNobody = -1;
    std::vector<int64_t> owner; ///< microbatches
    std::vector<std::vector<Transfer>> out;
  };
  struct RankState {
    Sequence sequence;
    int64_t next = 0;       ///< the task to run
    int64_t posting = 0;    ///< the task whose receives are to be posted
    int64_t rounds = 0;     ///< of a stream: backwards done
    int64_t total = 0;      ///< of a stream: backwards in all
    std::set<int> partners; ///< ranks it sums gradients with
    /// Of each of its stages.
    std::vector<std::pair<int, std::array<Slots, PIPEC_REGION_COUNT>>> slots;
  };

  const Plan &plan;
  std::vector<StageEdges> edges;
  std::vector<RankState> ranks;
  std::vector<std::array<bool, PIPEC_REGION_COUNT>> hasRegion; ///< by stage
  std::vector<PipecRegion> fromRegion;                         ///< by edge
  /// By edge: of which microbatches.
  using Transfers = std::vector<std::vector<bool>>;
  Transfers posted, sent;
  /// Per edge and pair of ranks: microbatches in the order of sending and of
  /// receiving.
  struct Order {
    std::vector<int64_t> sends, receives;
  };
  std::vector<std::map<std::pair<int, int>, Order>> order;
  std::deque<int> queue; ///< ranks that may be able to go on
  std::vector<char> isQueued;

  static void note(Transfers &all, int edge, int64_t microbatch) {
    std::vector<bool> &of = all[edge];
    if (static_cast<int64_t>(of.size()) <= microbatch)
      of.resize(std::max<size_t>(microbatch + 1, 2 * of.size()));
    of[microbatch] = true;
  }
  static bool isNoted(const Transfers &all, int edge, int64_t microbatch) {
    const std::vector<bool> &of = all[edge];
    return microbatch < static_cast<int64_t>(of.size()) && of[microbatch];
  }

  void wake(int rank) {
    if (isQueued[rank])
      return;
    isQueued[rank] = true;
    queue.push_back(rank);
  }

  Sequence sequenceOf(int rank) {
    if (plan.ranks[rank].program.kind == "step")
      return Sequence::step(plan, rank);
    // Long enough for every stage to fill, run steadily and drain.
    int64_t rounds = 3;
    for (const Stage &stage : plan.stages)
      rounds = std::max<int64_t>(rounds, 2 * stage.warmup + 3);
    int64_t replicas = 1;
    for (const Stage &stage : plan.stages)
      replicas = std::max<int64_t>(replicas, stage.ranks.size());
    return Sequence::stream(plan, rank, 0, rounds * replicas);
  }

  void findPartners() {
    for (const Stage &stage : plan.stages)
      for (int a : stage.ranks)
        ranks[a].partners.insert(stage.ranks.begin(), stage.ranks.end());
    for (const Tie &tie : ties(plan))
      for (auto &[one, offset] : tie.copies)
        for (auto &[other, place] : tie.copies)
          for (int a : plan.stages[one].ranks)
            ranks[a].partners.insert(plan.stages[other].ranks.begin(),
                                     plan.stages[other].ranks.end());
    for (RankState &state : ranks)
      state.total = state.sequence.size() / 2;
  }

  /// True when all partners have finished this rank's last round, or have no
  /// microbatch in it.
  bool roundsMeet(const RankState &state) const {
    for (int partner : state.partners) {
      const RankState &other = ranks[partner];
      if (other.rounds < std::min(state.rounds, other.total))
        return false;
    }
    return true;
  }

  std::string name(const Task &task) const {
    return std::string(1, task.kind) + " of microbatch " +
           std::to_string(task.microbatch) + " on stage " +
           std::to_string(task.stage);
  }
  static std::string path(int rank) {
    return "ranks[" + std::to_string(rank) + "].program";
  }

  [[noreturn]] void stuck(int rank) {
    const RankState &state = ranks[rank];
    badPlan(path(rank), "waits for ever before " +
                            name(state.sequence.at(state.next)) +
                            " (with the other ranks it makes a deadlock)");
  }

  static Slots &slotsOf(RankState &state, int stage, PipecRegion region) {
    for (auto &[known, regions] : state.slots)
      if (known == stage)
        return regions[region];
    state.slots.emplace_back().first = stage;
    return state.slots.back().second[region];
  }

  /// Takes the slot for the microbatch; false while another one has it.
  /// A region that the stage does not have is never in use.
  bool claim(RankState &state, const Task &task, PipecRegion region) {
    if (!hasRegion[task.stage][region])
      return true;
    auto &owner = slotsOf(state, task.stage, region).owner;
    const auto slot = static_cast<size_t>(task.slot[region]);
    if (owner.size() <= slot)
      owner.resize(slot + 1, Slots::kNobody);
    if (owner[slot] != Slots::kNobody)
      return owner[slot] == task.microbatch;
    owner[slot] = task.microbatch;
    return true;
  }

  bool post(int rank) {
    RankState &state = ranks[rank];
    if (state.posting >= state.sequence.size())
      return false;
    const Task task = state.sequence.at(state.posting);
    const auto &incoming = edges[task.stage].into(task.kind);
    const PipecRegion region = task.kind == 'F' ? PIPEC_IN : PIPEC_GRAD_IN;
    if (task.kind != 'W' && !claim(state, task, region))
      return false;
    for (int edge : incoming) {
      note(posted, edge, task.microbatch);
      const int from =
          rankOf(plan.stages[plan.edges[edge].from_stage], task.microbatch);
      wake(from);
      order[edge][{from, rank}].receives.push_back(task.microbatch);
    }
    ++state.posting;
    return true;
  }

  /// The sends from the task's slot.
  static std::vector<Transfer> &sendsFrom(RankState &state, const Task &task,
                                          PipecRegion region) {
    auto &out = slotsOf(state, task.stage, region).out;
    const auto slot = static_cast<size_t>(task.slot[region]);
    if (out.size() <= slot)
      out.resize(slot + 1);
    return out[slot];
  }

  /// True when the task may overwrite the slot: all sends from it have ended.
  bool writable(RankState &state, const Task &task, PipecRegion region) {
    auto &sends = sendsFrom(state, task, region);
    std::erase_if(sends, [&](const Transfer &send) {
      return isNoted(posted, send.first, send.second);
    });
    return sends.empty();
  }

  /// Takes the slots the task keeps data in; they must be free, because nobody
  /// waits for a stash.
  void occupy(int rank, const Task &task) {
    RankState &state = ranks[rank];
    auto keep = [&](PipecRegion region) {
      if (!claim(state, task, region))
        badPlan(path(rank), "overwrites a slot in use by " + name(task));
    };
    keep(PIPEC_IN), keep(PIPEC_STASH);
    if (task.kind == 'I' || task.kind == 'W')
      keep(PIPEC_WSTASH);
  }

  void release(RankState &state, const Task &task) {
    if (!task.last)
      return;
    for (PipecRegion region :
         {PIPEC_IN, PIPEC_STASH, PIPEC_GRAD_IN, PIPEC_WSTASH})
      if (touches(task.kind, region)) {
        auto &owner = slotsOf(state, task.stage, region).owner;
        if (const auto slot = static_cast<size_t>(task.slot[region]);
            slot < owner.size())
          owner[slot] = Slots::kNobody;
      }
  }

  bool advance(int rank) {
    RankState &state = ranks[rank];
    bool moved = false;
    while (post(rank))
      moved = true;
    if (state.next >= state.posting || !roundsMeet(state))
      return moved;
    const Task task = state.sequence.at(state.next);
    for (int edge : edges[task.stage].into(task.kind))
      if (!isNoted(sent, edge, task.microbatch))
        return moved;
    for (PipecRegion region : {PIPEC_OUT, PIPEC_STASH, PIPEC_GRAD_OUT})
      if (touches(task.kind, region) &&
          !(region == PIPEC_STASH && task.kind != 'F') &&
          !writable(state, task, region))
        return moved;
    occupy(rank, task);
    for (int edge : edges[task.stage].outOf(task.kind)) {
      const Edge &what = plan.edges[edge];
      note(sent, edge, task.microbatch);
      sendsFrom(state, task, fromRegion[edge])
          .emplace_back(edge, task.microbatch);
      const int to = rankOf(plan.stages[what.to_stage], task.microbatch);
      wake(to);
      order[edge][{rank, to}].sends.push_back(task.microbatch);
    }
    release(state, task);
    if (task.kind == 'B') {
      ++state.rounds;
      for (int partner : state.partners)
        wake(partner);
    }
    ++state.next;
    return true;
  }

  void checkOrder() {
    for (size_t edge = 0; edge < order.size(); ++edge)
      for (auto &[pair, both] : order[edge])
        if (both.sends != both.receives)
          badPlan("edges[" + std::to_string(edge) + "]",
                  "is sent by rank " + std::to_string(pair.first) +
                      " in another order than rank " +
                      std::to_string(pair.second) + " receives");
  }
};

} // namespace

void checkExecution(const Plan &plan) { Execution(plan).run(); }

} // namespace pipec::plan
