//===- Overlaps.cpp - which loads and stores share memory -----------------===//
#include "compiler/target/fusion/Overlaps.h"

#include "dialects/pipe/Pipe.h"
#include "llvm/ADT/STLExtras.h"

#include <algorithm>

using namespace mlir;
using namespace pipec;
using namespace pipec::fusion;

static std::pair<int64_t, int64_t> boundsOf(Operation *op) {
  if (auto load = dyn_cast<pipe::LoadOp>(op)) {
    const auto begin = static_cast<int64_t>(load.getOffset());
    return {begin, begin + load.bytes()};
  }
  auto store = cast<pipe::StoreOp>(op);
  const auto begin = static_cast<int64_t>(store.getOffset());
  return {begin, begin + store.bytes()};
}

static StringRef regionOf(Operation *op) {
  auto load = dyn_cast<pipe::LoadOp>(op);
  return load ? load.getRegion() : cast<pipe::StoreOp>(op).getRegion();
}

Overlaps::Overlaps(ArrayRef<Operation *> ops) : all(ops.begin(), ops.end()) {
  for (auto [index, op] : llvm::enumerate(ops)) {
    const auto [begin, end] = boundsOf(op);
    places[regionOf(op)].push_back({begin, end, end, index});
  }
  for (auto &entry : places) {
    std::vector<Place> &region = entry.second;
    llvm::sort(region, [](const Place &a, const Place &b) {
      return std::pair(a.begin, a.index) < std::pair(b.begin, b.index);
    });
    for (size_t i = 1; i < region.size(); ++i)
      region[i].furthest = std::max(region[i].end, region[i - 1].furthest);
  }
}

void Overlaps::collect(StringRef region, const Place &place,
                       SmallVectorImpl<size_t> &found) const {
  const auto known = places.find(region);
  if (known == places.end())
    return;
  const std::vector<Place> &in = known->second;
  auto next = std::partition_point(in.begin(), in.end(), [&](const Place &at) {
    return at.begin < place.end;
  });
  while (next != in.begin() && (--next)->furthest > place.begin)
    if (next->end > place.begin)
      found.push_back(next->index);
}

SmallVector<Operation *> Overlaps::with(Operation *op) const {
  SmallVector<size_t> found;
  const auto [begin, end] = boundsOf(op);
  const StringRef region = regionOf(op);
  const Place place{begin, end, end, 0};
  collect(region, place, found);
  // Weights are read where the new ones are written.
  const bool isLoad = isa<pipe::LoadOp>(op);
  if (!all.empty() && isLoad != isa<pipe::LoadOp>(all.front())) {
    if (isLoad && region == "weights")
      collect("new_weights", place, found);
    if (!isLoad && region == "new_weights")
      collect("weights", place, found);
  }
  llvm::sort(found);
  return llvm::map_to_vector(found, [&](size_t index) { return all[index]; });
}
