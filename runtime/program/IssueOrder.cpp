//===- IssueOrder.cpp - what a rank gives its GPU, in order ---------------===//
#include "runtime/program/IssueOrder.h"
#include "runtime/program/Memory.h"
#include "support/Failure.h"

#include <algorithm>
#include <map>
#include <set>

namespace pipec::plan {
namespace {

class Execution {
public:
  explicit Execution(const Plan &plan)
      : plan(plan), edges(stageEdges(plan)), ranks(plan.ranks.size()),
        order(ranks.size()) {
    for (size_t r = 0; r < ranks.size(); ++r)
      ranks[r].sequence = Sequence::step(plan, static_cast<int>(r));
  }

  std::vector<std::vector<Issue>> run() {
    while (true) {
      // Messages first, then a task of every rank at once.
      bool moved = false;
      for (size_t r = 0; r < ranks.size(); ++r)
        moved |= post(static_cast<int>(r));
      moved |= deliver();
      std::vector<int> ready;
      for (size_t r = 0; r < ranks.size(); ++r)
        if (isReady(static_cast<int>(r)))
          ready.push_back(static_cast<int>(r));
      for (int rank : ready)
        compute(rank);
      if (!moved && ready.empty())
        break;
    }
    for (const Rank &rank : ranks)
      if (rank.next < rank.sequence.size() || !pending.empty())
        throw Failure(Exit::Internal, "the plan's programs do not end");
    return std::move(order);
  }

private:
  struct Rank {
    Sequence sequence;
    int64_t next = 0;              ///< the task to run
    int64_t posting = 0;           ///< the task whose slot is to be taken
    std::map<Slot, int64_t> owner; ///< of IN and GRAD_IN: the microbatch
    std::map<Slot, int> unsent;    ///< messages that have not left a slot
  };
  /// A message that has been made.
  struct Made {
    Transfer message;
    int from, slot;
  };

  const Plan &plan;
  std::vector<StageEdges> edges;
  std::vector<Rank> ranks;
  std::vector<std::vector<Issue>> order;
  std::vector<Made> pending;      ///< by the time they were made
  std::map<Transfer, int> posted; ///< target slots of receives
  std::set<Transfer> arrived;

  /// Receives may begin, in the order of the tasks, when their slot is free.
  bool post(int number) {
    Rank &rank = ranks[static_cast<size_t>(number)];
    bool moved = false;
    for (; rank.posting < rank.sequence.size(); ++rank.posting) {
      const Task task = rank.sequence.at(rank.posting);
      if (task.kind == 'W')
        continue;
      const bool forward = task.kind == 'F';
      const PipecRegion region = forward ? PIPEC_IN : PIPEC_GRAD_IN;
      const int slot = task.slot[region];
      const Stage &stage = plan.stages[task.stage];
      if (regionOf(stage, forward ? "in" : "grad_in").bytes > 0 &&
          !rank.owner.emplace(Slot{task.stage, region, slot}, task.microbatch)
               .second)
        return moved;
      for (int edge : edges[task.stage].into(task.kind))
        posted[{edge, task.microbatch}] = slot;
      moved = true;
    }
    return moved;
  }

  bool deliver() {
    bool moved = false;
    for (size_t i = 0; i < pending.size();) {
      const Made made = pending[i];
      const auto target = posted.find(made.message);
      if (target == posted.end()) {
        ++i;
        continue;
      }
      const auto [id, microbatch] = made.message;
      const Edge &edge = plan.edges[id];
      const int to = rankOf(plan.stages[edge.to_stage], microbatch);
      Issue issue{Issue::Send,   0, id, to, microbatch, made.slot,
                  target->second};
      if (to == made.from)
        issue.kind = Issue::Copy;
      order[made.from].push_back(issue);
      if (to != made.from) {
        issue.kind = Issue::Receive, issue.peer = made.from;
        order[to].push_back(issue);
      }
      --ranks[made.from].unsent[{edge.from_stage, regionNamed(edge.from_region),
                                 made.slot}];
      arrived.insert(made.message);
      pending.erase(pending.begin() + static_cast<std::ptrdiff_t>(i));
      moved = true;
    }
    return moved;
  }

  bool isReady(int number) {
    Rank &rank = ranks[static_cast<size_t>(number)];
    if (rank.next >= rank.posting)
      return false;
    const Task task = rank.sequence.at(rank.next);
    for (int edge : edges[task.stage].into(task.kind))
      if (!arrived.count({edge, task.microbatch}))
        return false;
    for (int id : edges[task.stage].outOf(task.kind)) {
      const PipecRegion region = regionNamed(plan.edges[id].from_region);
      if (rank.unsent[{task.stage, region, task.slot[region]}] > 0)
        return false;
    }
    return true;
  }

  void compute(int number) {
    Rank &rank = ranks[static_cast<size_t>(number)];
    const Task task = rank.sequence.at(rank.next);
    Issue issue;
    issue.task = rank.next++;
    order[number].push_back(issue);
    for (int id : edges[task.stage].outOf(task.kind)) {
      const PipecRegion region = regionNamed(plan.edges[id].from_region);
      const int slot = task.slot[region];
      pending.push_back({{id, task.microbatch}, number, slot});
      ++rank.unsent[{task.stage, region, slot}];
    }
    if (!task.last)
      return;
    rank.owner.erase({task.stage, PIPEC_IN, task.slot[PIPEC_IN]});
    if (task.kind != 'F')
      rank.owner.erase({task.stage, PIPEC_GRAD_IN, task.slot[PIPEC_GRAD_IN]});
  }
};

} // namespace

std::vector<std::vector<Issue>> issueOrder(const Plan &plan) {
  return Execution(plan).run();
}

} // namespace pipec::plan
