//===- EveryComponents.h - components under a limit -------------*- C++ -*-===//
//
// Components of the level below the outermost one, from every state on to the
// one where they end, with any machines idle: of two levels a row, of more
// levels a table, made from those of the levels below.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/plan/published/RowWithin.h"

#include <compare>
#include <map>

namespace pipec::published {

class EveryComponents {
public:
  explicit EveryComponents(EverySearch &search) : search(search), row(search) {}

  void solve(const AskedComponents &asked);

  /// The last solution's: from a state on the best seconds with at most so many
  /// devices; below its lowest start there is none.
  double best(size_t start, int devices) const {
    return isRow() ? row.best(start, devices) : last.best(start, devices);
  }
  size_t lowestStart() const {
    return isRow() ? row.lowestStart() : last.lowest;
  }
  /// Of components as they are asked for; of no use where the effort is below
  /// zero then, because more would have to be kept than there is room for.
  std::vector<PipeDreamGroup> stages(const AskedComponents &asked, size_t start,
                                     int devices);
  /// Forgets what it knows, and has room for all from now on.
  void uncap() {
    known.clear();
    entries = held = 0;
    isCapped = false;
  }

private:
  static constexpr double none = std::numeric_limits<double>::infinity();
  /// The components of a level, in stages on so many machines of the one above.
  struct Place {
    size_t level, end;
    int copies, after, used;
    auto operator<=>(const Place &) const = default;
  };
  /// Whole components, from the lowest start on.
  struct Best {
    size_t lowest = 0, width = 1;
    std::vector<double> seconds;
    double best(size_t start, int devices) const {
      return start < lowest ? none
                            : seconds[(start - lowest) * width +
                                      static_cast<size_t>(devices)];
    }
  };
  /// The stage that an entry begins with: its end and machines, the devices
  /// that are used of each, and the component's machines behind it.
  struct From {
    uint32_t end = 0;
    int machines = 0, devices = 0, behind = 0;
  };
  /// From the lowest start on, the best seconds on at most so many machines and
  /// devices: of stages behind others of their component, of whole components.
  struct Table {
    size_t level, lowest;
    int machines, devices;
    std::vector<double> rest, first;
    std::vector<From> restFrom, firstFrom;
    size_t at(size_t state, int m, int d) const {
      return ((state - lowest) * (static_cast<size_t>(machines) + 1) +
              static_cast<size_t>(m)) *
                 (static_cast<size_t>(devices) + 1) +
             static_cast<size_t>(d);
    }
    size_t at(size_t state, int d) const {
      return (state - lowest) * (static_cast<size_t>(devices) + 1) +
             static_cast<size_t>(d);
    }
    size_t bytes(size_t end, bool isUnwound) const {
      return (at(end + 1, 0, 0) + at(end + 1, 0)) *
             (sizeof(double) + (isUnwound ? sizeof(From) : 0));
    }
  };

  size_t top() const { return search.levels.size() - 2; }
  bool isRow() const { return top() == 0; }
  Table tableFor(size_t level, size_t lowest) const;
  static void allocate(Table &table, size_t end, bool isUnwound);
  bool holds(const Table &table, const AskedComponents &asked, bool isUnwound);
  /// With what its entries come from, if it is to be unwound.
  Table tabulate(size_t level, const AskedComponents &asked, bool isUnwound);
  void close(Table &table, const AskedComponents &asked, size_t k,
             double most) const;
  void expand(const AskedComponents &asked, const ComponentBounds &bounds,
              Table &table, size_t i);
  void beginStages(const AskedComponents &asked, const ComponentBounds &bounds,
                   Table &table, size_t i, int d, int used);
  AskedComponents inside(size_t level, const AskedComponents &asked, size_t end,
                         int used, int behind) const;
  const Best &components(size_t level, const AskedComponents &asked, int used);
  std::vector<PipeDreamGroup> stages(size_t level, AskedComponents asked,
                                     size_t start, int devices);
  std::vector<PipeDreamGroup> stages(const AskedComponents &asked,
                                     const Table &table, size_t start,
                                     int devices);

  EverySearch &search;
  RowWithin row;
  Best last;
  /// Of the levels below.
  std::map<Place, Best> known;
  size_t entries = 0; ///< of these
  bool isCapped = true;
  size_t held = 0; ///< bytes of these and of tables that are being made
};

} // namespace pipec::published
