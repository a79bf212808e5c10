//===- SomeClosedSets.h - cuts of a graph that has too many -----*- C++ -*-===//
//
// Prefixes of a linear order are cuts, and so are the closed sets of any
// window of it behind all that comes before the window: windows one after the
// other have sums of their numbers of sets, where the graph has products.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/plan/published/MergedProfile.h"

namespace pipec::published {

/// At most `limit` closed sets, smaller ones first: the prefixes of linear
/// orders (with too many, the cheapest cut in each share of the work), all sets
/// of windows that cover each order, and those that keep whole chains together
/// where they are few.
BitRows someSets(const MergedProfile &merged, size_t limit);

/// At most `limit` closed sets, smaller ones first, among them `cuts`, which
/// lie one above the other from the empty set to all: the prefixes of a linear
/// order through them, and all sets of a window around each, or of windows that
/// hold several. `round` says which, and of which order.
BitRows nearSets(const MergedProfile &merged,
                 const std::vector<const uint64_t *> &cuts, size_t limit,
                 int round);

} // namespace pipec::published
