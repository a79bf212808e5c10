//===- Known.cpp - orders worked out before -------------------------------===//
#include "compiler/schedule/search/Known.h"

#include "compiler/schedule/search/Justify.h"

namespace pipec::schedule::search {

static std::size_t hashOf(const Order &order) {
  std::uint64_t hash = 0;
  for (const auto &list : order)
    for (Task t : list) {
      hash = (hash ^ static_cast<std::uint64_t>(t)) * 0x9e3779b97f4a7c15u;
      hash ^= hash >> 29;
    }
  return hash;
}

Known::Setting Known::settingOf(const Problem &problem, bool limited) {
  Setting setting;
  for (const Row &row : problem.rows)
    setting.devices.push_back(row.device);
  if (limited)
    setting.limit = problem.limit;
  setting.fused = problem.fused;
  return setting;
}

const Order &Known::order(const Problem &problem, const std::string &name,
                          bool limited, const std::function<Order()> &make) {
  std::pair key(settingOf(problem, limited), name);
  auto at = made.find(key);
  if (at == made.end())
    at = made.emplace(std::move(key), make()).first;
  return at->second;
}

Order Known::improve(const Problem &problem, const Order &order, int rounds,
                     Result &result, int &passes) {
  const Setting setting = settingOf(problem, true);
  const std::size_t hash = hashOf(order);
  for (auto [at, end] = improved.equal_range(hash); at != end; ++at) {
    const Improvement &i = at->second;
    if (i.rounds != rounds || i.metric != problem.metric ||
        i.setting != setting || i.from != order)
      continue;
    result = i.result;
    passes += i.passes;
    return i.to;
  }
  int took = 0;
  Order to = search::improve(problem, order, rounds, result, &took);
  passes += took;
  improved.emplace(hash, Improvement{setting, problem.metric, rounds, order, to,
                                     result, took});
  return to;
}

} // namespace pipec::schedule::search
