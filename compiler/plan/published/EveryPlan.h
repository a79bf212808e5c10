//===- EveryPlan.h - every plan under a limit -------------------*- C++ -*-===//
//
// A stage keeps a copy for every so many devices behind it that compute. So
// machines of any level may be idle that a plan without a limit would use, in
// one component and not in another, and the search is from the end of the model
// on over the devices that are used, not over the machines.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/plan/published/RowWithin.h"

#include <compare>
#include <map>

namespace pipec::published {

/// Of two levels and more.
class EveryPlan {
public:
  explicit EveryPlan(EverySearch &search);

  /// The fastest plan of at most `cap` seconds; none where there is none, or
  /// where it was not found before the effort was spent, which is below zero
  /// then.
  PipeDreamPlan solve();

private:
  static constexpr double none = std::numeric_limits<double>::infinity();
  /// The components of a level that end at a state.
  struct Place {
    size_t level, end;
    int copies, after; ///< devices behind
    auto operator<=>(const Place &) const = default;
  };
  /// The stage that an entry begins with: its end and machines, the devices
  /// that are used of each, and the component's machines behind it.
  struct From {
    uint32_t end = 0;
    int machines = 0, devices = 0, behind = 0;
  };
  /// From every state on, the best seconds on at most so many machines and
  /// devices: of stages behind others of their component, of whole components.
  struct Table {
    int machines, devices;
    std::vector<double> rest, first;
    std::vector<From> restFrom, firstFrom;
    size_t at(size_t state, int m, int d) const {
      return (state * (static_cast<size_t>(machines) + 1) +
              static_cast<size_t>(m)) *
                 (static_cast<size_t>(devices) + 1) +
             static_cast<size_t>(d);
    }
    size_t at(size_t state, int d) const {
      return state * (static_cast<size_t>(devices) + 1) +
             static_cast<size_t>(d);
    }
  };
  /// Whole components of a place, from every state on with at most so many
  /// devices.
  struct Components {
    const std::vector<double> *known;
    const RowWithin *row;
    size_t width, lowest;
    double best(size_t start, int devices) const {
      return known ? (*known)[start * width + static_cast<size_t>(devices)]
                   : row->best(start, devices);
    }
  };

  bool isTop(const Place &place) const {
    return place.level + 1 == search.levels.size();
  }
  Table emptyTable(const Place &place) const;
  Table tabulate(const Place &place);
  void expand(const Place &place, Table &table, size_t i);
  void beginStages(const Place &place, Table &table, size_t i, int d, int used);
  void close(const Place &place, Table &table, size_t k) const;
  bool leavesEnough(size_t k, int machines, int devices) const;
  Place inside(const Place &place, size_t end, int machines, int behind) const {
    return {place.level - 1, end, place.copies * machines,
            place.after + place.copies * behind};
  }
  Components components(const Place &place, double reach);
  std::vector<PipeDreamGroup> stages(const Place &place, size_t start,
                                     int devices);
  std::vector<PipeDreamGroup> stages(const Place &place, const Table &table,
                                     size_t start, int devices);

  EverySearch &search;
  const int each; ///< devices of a machine of the outermost level
  RowWithin row;
  std::vector<double> share; ///< sums of 1/n
  /// The last of the level below the outermost, of which each is asked for
  /// once; those of the levels below it.
  std::vector<double> once;
  std::map<Place, std::vector<double>> known;
  size_t entries = 0; ///< of these
};

/// The fastest plan of the published space under a limit, with any machines
/// idle, of at most `cap` seconds.
PipeDreamPlan searchEvery(const CutStates &states,
                          const std::vector<PipeDreamLevel> &levels,
                          double limit, double cap, SearchEffort &effort);

} // namespace pipec::published
