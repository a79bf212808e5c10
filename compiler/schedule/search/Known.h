//===- Known.h - orders worked out before -----------------------*- C++ -*-===//
//
// Searches of one request that differ in limits, metric or effort start from
// many of the same orders and improve them in the same way. What one has worked
// out the others look up.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/schedule/search/Problem.h"

#include <functional>
#include <map>
#include <string>
#include <unordered_map>

namespace pipec::schedule::search {

/// For problems of one request: they differ in placement, limits and metric.
class Known {
public:
  /// What `make` gives. It may depend on the problem but for its metric; on its
  /// limits only when `limited`. `name` tells it from others.
  const Order &order(const Problem &problem, const std::string &name,
                     bool limited, const std::function<Order()> &make);

  /// As improve(). `passes` grows by those that a known answer has taken:
  /// effort does not depend on what is known.
  Order improve(const Problem &problem, const Order &order, int rounds,
                Result &result, int &passes);

private:
  struct Setting {
    std::vector<int> devices; ///< by row
    std::vector<double> limit;
    bool fused = false;
    auto operator<=>(const Setting &) const = default;
  };
  static Setting settingOf(const Problem &problem, bool limited);

  struct Improvement {
    Setting setting;
    Metric metric;
    int rounds;
    Order from, to;
    Result result;
    int passes;
  };

  std::map<std::pair<Setting, std::string>, Order> made;
  std::unordered_multimap<std::size_t, Improvement> improved; ///< by hash
};

} // namespace pipec::schedule::search
