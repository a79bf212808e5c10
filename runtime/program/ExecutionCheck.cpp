//===- ExecutionCheck.cpp - do the programs of all ranks end? -------------===//
//
// Executes the programs symbolically under the executor's rules (runtime/exec):
// a receive is posted, in program order, as soon as its slot is free; a send
// ends when its receive is posted; a task starts when its receives have data
// and the sends from every slot it writes have ended. This is the strictest
// timing any transport can show (nothing is buffered), so a program that ends
// here ends everywhere.
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
        order(plan.edges.size()) {
    for (size_t r = 0; r < ranks.size(); ++r)
      ranks[r].sequence = sequenceOf(static_cast<int>(r));
    if (plan.ranks[0].program.kind == "stream")
      findPartners();
  }

  void run() {
    bool moved = true;
    while (moved) {
      moved = false;
      for (size_t r = 0; r < ranks.size(); ++r)
        while (advance(static_cast<int>(r)))
          moved = true;
    }
    for (size_t r = 0; r < ranks.size(); ++r)
      if (ranks[r].next < ranks[r].sequence.size())
        stuck(static_cast<int>(r));
    checkOrder();
  }

private:
  struct RankState {
    Sequence sequence;
    int64_t next = 0;              ///< the task to run
    int64_t posting = 0;           ///< the task whose receives are to be posted
    int64_t rounds = 0;            ///< of a stream: backwards done
    int64_t total = 0;             ///< of a stream: backwards in all
    std::set<int> partners;        ///< ranks it sums gradients with
    std::map<Slot, int64_t> owner; ///< slot -> microbatch
    std::map<Slot, std::set<Transfer>> out; ///< sends from a slot
  };

  const Plan &plan;
  std::vector<StageEdges> edges;
  std::vector<RankState> ranks;
  std::set<Transfer> posted, sent;
  /// Per edge and pair of ranks: microbatches in the order of sending and of
  /// receiving.
  struct Order {
    std::vector<int64_t> sends, receives;
  };
  std::vector<std::map<std::pair<int, int>, Order>> order;

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

  /// Takes the slot for the microbatch; false while another one has it.
  /// A region that the stage does not have is never in use.
  bool claim(RankState &state, const Slot &slot, int64_t microbatch) {
    for (const SlottedRegion &known : kSlotted)
      if (known.region == std::get<1>(slot) &&
          regionOf(plan.stages[std::get<0>(slot)], known.name).bytes == 0)
        return true;
    auto [entry, free] = state.owner.emplace(slot, microbatch);
    return free || entry->second == microbatch;
  }

  bool post(int rank) {
    RankState &state = ranks[rank];
    if (state.posting >= state.sequence.size())
      return false;
    const Task task = state.sequence.at(state.posting);
    const auto &incoming = edges[task.stage].into(task.kind);
    const PipecRegion region = task.kind == 'F' ? PIPEC_IN : PIPEC_GRAD_IN;
    if (task.kind != 'W' &&
        !claim(state, {task.stage, region, task.slot[region]}, task.microbatch))
      return false;
    for (int edge : incoming) {
      posted.insert({edge, task.microbatch});
      const int from =
          rankOf(plan.stages[plan.edges[edge].from_stage], task.microbatch);
      order[edge][{from, rank}].receives.push_back(task.microbatch);
    }
    ++state.posting;
    return true;
  }

  /// True when the task may overwrite the slot: all sends from it have ended.
  bool writable(RankState &state, const Slot &slot) {
    auto found = state.out.find(slot);
    if (found == state.out.end())
      return true;
    auto &sends = found->second;
    for (auto send = sends.begin(); send != sends.end();)
      send = posted.count(*send) ? sends.erase(send) : std::next(send);
    return sends.empty();
  }

  /// Takes the slots the task keeps data in; they must be free, because nobody
  /// waits for a stash.
  void occupy(int rank, const Task &task) {
    RankState &state = ranks[rank];
    auto keep = [&](PipecRegion region) {
      if (!claim(state, {task.stage, region, task.slot[region]},
                 task.microbatch))
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
      if (touches(task.kind, region))
        state.owner.erase({task.stage, region, task.slot[region]});
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
      if (!sent.count({edge, task.microbatch}))
        return moved;
    for (PipecRegion region : {PIPEC_OUT, PIPEC_STASH, PIPEC_GRAD_OUT})
      if (touches(task.kind, region) &&
          !(region == PIPEC_STASH && task.kind != 'F') &&
          !writable(state, {task.stage, region, task.slot[region]}))
        return moved;
    occupy(rank, task);
    for (int edge : edges[task.stage].outOf(task.kind)) {
      const Edge &what = plan.edges[edge];
      sent.insert({edge, task.microbatch});
      const PipecRegion region = regionNamed(what.from_region);
      state.out[{task.stage, region, task.slot[region]}].insert(
          {edge, task.microbatch});
      const int to = rankOf(plan.stages[what.to_stage], task.microbatch);
      order[edge][{rank, to}].sends.push_back(task.microbatch);
    }
    release(state, task);
    state.rounds += task.kind == 'B';
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
