#include "compiler/plan/ProductTiles.h"

#include <algorithm>
#include <utility>

namespace pipec::plan {

int64_t depthBlocks(int64_t work, int64_t k) {
  constexpr int64_t kSmallWork = int64_t(1) << 22, kShortDepth = 16,
                    kDepth = 384;
  return divideUp(k, work <= kSmallWork ? kShortDepth : kDepth);
}

ColumnPanels::ColumnPanels(int64_t n, const ProductTile &tile)
    : n(n), lanes(tile.lanes), vectors(divideUp(n, tile.lanes)),
      count(std::max<int64_t>(1, divideUp(vectors, tile.vectors))) {}

int64_t ColumnPanels::start(int64_t panel) const {
  const int64_t each = vectors / count, more = vectors % count;
  return std::min(n, (panel * each + std::min(panel, more)) * lanes);
}

TileSums tileSums(int64_t m, int64_t n, int64_t k, int64_t blocks,
                  const ProductTile &tile) {
  const ColumnPanels panels(n, tile);
  const int64_t wide = panels.vectors % panels.count,
                each = panels.vectors / panels.count;
  const std::pair<int64_t, int64_t> heights[] = {{m / tile.rows, tile.rows},
                                                 {1, m % tile.rows}};
  const std::pair<int64_t, int64_t> widths[] = {{wide, each + 1},
                                                {panels.count - wide, each}};
  TileSums sums;
  for (auto [high, rows] : heights)
    for (auto [many, width] : widths) {
      if (rows == 0 || width == 0)
        continue;
      const double count = static_cast<double>(high * many);
      sums.steps += count * static_cast<double>(rows * width * k);
      sums.operands += count * static_cast<double>((rows + width) * k);
      sums.rounds += count * static_cast<double>(k);
      sums.tiles += count * static_cast<double>(blocks);
      sums.results += count * static_cast<double>(rows * width * blocks);
    }
  if (n % tile.lanes)
    sums.edge = static_cast<double>(
        m * ((each - 1) * tile.lanes + n % tile.lanes) * blocks);
  return sums;
}

} // namespace pipec::plan
