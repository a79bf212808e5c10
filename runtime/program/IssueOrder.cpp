//===- IssueOrder.cpp - what a rank gives its GPU, in order ---------------===//
#include "runtime/program/IssueOrder.h"
#include "runtime/program/Buckets.h"
#include "runtime/program/Memory.h"
#include "support/Failure.h"

#include <algorithm>
#include <map>
#include <numeric>
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
    if (!forwardOnly(plan))
      for (const Stage &stage : plan.stages)
        if (weightsStage(plan, stage.id) == stage.id)
          expectSums(stage);
  }

  /// Of a stream.
  Execution(const Plan &plan, int64_t first, int64_t last)
      : plan(plan), edges(stageEdges(plan)), ranks(plan.ranks.size()),
        order(ranks.size()) {
    for (size_t r = 0; r < ranks.size(); ++r)
      ranks[r].sequence =
          Sequence::stream(plan, static_cast<int>(r), first, last);
    expectRounds();
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
      moved |= sum();
      moved |= endRounds(/*evenIfBusy=*/false);
      if (!moved && ready.empty() && !endRounds(/*evenIfBusy=*/true))
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
    int64_t rounds = 0;            ///< of a stream: backwards done
  };
  /// A message that has been made.
  struct Made {
    Transfer message;
    int from, slot;
  };

  /// The gradients of a stage's replicas.
  struct Sums {
    const Stage *stage;
    int64_t backwards = 0; ///< still to come, on all replicas
    int64_t next = 0, count = 0;
  };

  /// Ranks that end the rounds of a stream together.
  struct Company {
    std::vector<int> ranks;
    int64_t ended = 0, rounds = 0; ///< of them; of all
  };

  const Plan &plan;
  std::vector<StageEdges> edges;
  std::vector<Rank> ranks;
  std::vector<Sums> sums;
  std::vector<Company> companies;
  std::vector<int> companyOf; ///< by rank; of a stream
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
      Issue issue;
      issue.kind = Issue::Send, issue.edge = id, issue.peer = to;
      issue.microbatch = microbatch;
      issue.fromSlot = made.slot, issue.toSlot = target->second;
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
    if (!companies.empty() && rank.rounds > companyOfRank(number).ended)
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
    rank.rounds += task.kind == 'B';
    if (task.kind != 'F')
      for (Sums &sum : sums)
        sum.backwards -= sum.stage->id == weightsStage(plan, task.stage);
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

  void expectSums(const Stage &stage) {
    Sums expected{&stage, 0, 0, bucketsOf(stage).count};
    for (const Rank &rank : ranks)
      for (int64_t i = 0; i < rank.sequence.size(); ++i) {
        const Task task = rank.sequence.at(i);
        expected.backwards +=
            task.kind != 'F' && weightsStage(plan, task.stage) == stage.id;
      }
    if (expected.count > 0)
      sums.push_back(expected);
  }

  Company &companyOfRank(int rank) {
    return companies[static_cast<size_t>(companyOf[static_cast<size_t>(rank)])];
  }

  /// Replicas, and stages that share a weight, belong together.
  void expectRounds() {
    companyOf.resize(ranks.size());
    std::iota(companyOf.begin(), companyOf.end(), 0);
    auto unite = [&](int a, int b) {
      const int from = companyOf[static_cast<size_t>(b)],
                to = companyOf[static_cast<size_t>(a)];
      std::replace(companyOf.begin(), companyOf.end(), from, to);
    };
    for (const Stage &stage : plan.stages)
      for (int rank : stage.ranks)
        unite(stage.ranks[0], rank);
    for (const Tie &tie : ties(plan))
      for (auto &[stage, offset] : tie.copies)
        unite(plan.stages[tie.copies[0].first].ranks[0],
              plan.stages[stage].ranks[0]);
    companies.resize(ranks.size());
    for (size_t r = 0; r < ranks.size(); ++r) {
      Company &company = companyOfRank(static_cast<int>(r));
      company.ranks.push_back(static_cast<int>(r));
      company.rounds = std::max(company.rounds, ranks[r].sequence.size() / 2);
    }
  }

  /// Rounds that all have done, or have no microbatch of; `evenIfBusy`: while
  /// messages that were made before have not left.
  bool endRounds(bool evenIfBusy) {
    std::vector<bool> busy(ranks.size());
    for (const Made &made : pending)
      busy[static_cast<size_t>(made.from)] = !evenIfBusy;
    bool moved = false;
    for (Company &company : companies) {
      auto done = [&](int number) {
        const Rank &rank = ranks[static_cast<size_t>(number)];
        return !busy[static_cast<size_t>(number)] &&
               (rank.rounds > company.ended ||
                rank.next == rank.sequence.size());
      };
      if (company.ended == company.rounds ||
          !std::all_of(company.ranks.begin(), company.ranks.end(), done))
        continue;
      ++company.ended;
      moved = true;
      Issue issue;
      issue.kind = Issue::Round;
      if (company.ranks.size() > 1)
        for (int rank : company.ranks)
          order[static_cast<size_t>(rank)].push_back(issue);
    }
    return moved;
  }

  /// One bucket, where nothing else is on its way.
  bool sum() {
    std::vector<bool> busy(ranks.size());
    for (const Made &made : pending)
      busy[static_cast<size_t>(made.from)] = true;
    bool moved = false;
    for (Sums &sum : sums) {
      const std::vector<int> &replicas = sum.stage->ranks;
      if (sum.backwards > 0 || sum.next == sum.count ||
          std::any_of(replicas.begin(), replicas.end(),
                      [&](int rank) { return busy[rank]; }))
        continue;
      Issue issue;
      issue.kind = Issue::Sum, issue.stage = sum.stage->id;
      issue.bucket = sum.next++;
      for (int rank : replicas)
        order[rank].push_back(issue), busy[rank] = true;
      moved = true;
    }
    return moved;
  }
};

} // namespace

std::vector<std::vector<Issue>> issueOrder(const Plan &plan) {
  return Execution(plan).run();
}

std::vector<std::vector<Issue>> issueOrder(const Plan &plan, int64_t first,
                                           int64_t last) {
  return Execution(plan, first, last).run();
}

} // namespace pipec::plan
