#include "compiler/plan/ConvolutionWork.h"

#include "compiler/plan/ConvolutionRows.h"
#include "compiler/plan/ProductTiles.h"

#include <algorithm>

namespace pipec::plan {

namespace {

int64_t product(const ConvolutionShape &s, int64_t ConvolutionAxis::*member) {
  int64_t n = 1;
  for (const ConvolutionAxis &axis : s.axes)
    n *= axis.*member;
  return n;
}

int64_t multiplyAdds(const ConvolutionShape &s) {
  return s.images * product(s, &ConvolutionAxis::out) * s.outputs *
         (s.channels / s.groups) * product(s, &ConvolutionAxis::taps);
}

/// Positions of an axis, those that they read, and by how much.
struct Reads {
  int64_t positions = 1, image = 1, step = 1;
  std::vector<int64_t> shifts;

  /// Which part of the reads is of the image.
  double inside() const {
    int64_t count = 0;
    for (int64_t p = 0; p < positions; ++p)
      for (int64_t shift : shifts)
        count += p * step + shift >= 0 && p * step + shift < image;
    return static_cast<double>(count) / static_cast<double>(std::max<int64_t>(
                                            1, positions * std::ssize(shifts)));
  }
};

/// Which positions of pictures the columns of a product read.
struct Window {
  std::array<Reads, 3> axes;

  int64_t taps() const {
    return std::ssize(axes[0].shifts) * std::ssize(axes[1].shifts) *
           std::ssize(axes[2].shifts);
  }
  int64_t plane() const {
    return axes[0].positions * axes[1].positions * axes[2].positions;
  }
  /// Positions that lie in the source as in the grid: each reads itself, and a
  /// picture is one row.
  int64_t row() const {
    const bool same = std::all_of(axes.begin(), axes.end(), [](const Reads &r) {
      return r.shifts == std::vector<int64_t>{0} && r.step == 1 &&
             r.positions == r.image;
    });
    return same ? plane() : axes[2].positions;
  }
};

Window forwardWindow(const ConvolutionShape &s) {
  Window w;
  for (int a = 0; a < 3; ++a) {
    const ConvolutionAxis &axis = s.axes[a];
    w.axes[a] = {axis.out, axis.in, axis.stride, {}};
    for (int64_t q = 0; q < axis.taps; ++q)
      w.axes[a].shifts.push_back(q * axis.dilation - axis.low);
  }
  return w;
}

/// Of the positions of an input that leave remainder r: the outputs they meet.
Reads phaseOf(const ConvolutionAxis &axis, int64_t r) {
  Reads reads{(axis.in - r + axis.stride - 1) / axis.stride, axis.out, 1, {}};
  for (int64_t q = 0; q < axis.taps; ++q)
    if (const int64_t reach = r + axis.low - q * axis.dilation;
        reach % axis.stride == 0)
      reads.shifts.push_back(reach / axis.stride);
  return reads;
}

/// What it takes to pack `columns` positions of a window over pictures, a
/// panel at a time, for each of `blocks` of `depth` lines (channel and tap).
struct Packing {
  double panels = 0;
  double stretches = 0; ///< runs of columns that are a row's, looked at
  double shares = 0;    ///< taps of a panel
  double packed = 0;    ///< vectors written
  double runs = 0;      ///< read of the pictures
};

/// Stretches of the rows of a picture in so many columns, cut at vectors.
double stretchesOf(int64_t columns, int64_t row, int lanes) {
  return static_cast<double>(divideUp(columns, lanes) +
                             (row % lanes ? columns / row : 0));
}

double insideRows(const Window &w) {
  return w.axes[0].inside() * w.axes[1].inside();
}
double linesOfTaps(const Window &w) {
  return 1 + static_cast<double>(std::ssize(w.axes[0].shifts) *
                                 std::ssize(w.axes[1].shifts));
}

Packing packing(const Window &w, int64_t columns, int64_t lines, int64_t blocks,
                bool tapByTap, const ProductTile &tile) {
  const ColumnPanels panels(columns, tile);
  const double stretches = stretchesOf(columns, w.row(), tile.lanes);
  const double taps = static_cast<double>(w.taps()),
               perBlock = static_cast<double>(lines) / blocks,
               all = static_cast<double>(lines),
               b = static_cast<double>(blocks);
  Packing p;
  p.panels = b * static_cast<double>(panels.count);
  p.stretches = b * stretches * linesOfTaps(w);
  p.shares = static_cast<double>(panels.count) *
             (tapByTap ? b + taps - 1 : b * std::min(taps, perBlock));
  p.packed = all * static_cast<double>(panels.vectors);
  p.runs = all * stretches * insideRows(w) * w.axes[2].inside();
  return p;
}

/// As many panels of `lines` (channel and tap), for each block of `columns`
/// positions: packed as above, 64 positions at a time, and turned.
Packing packingTurned(const Window &w, int64_t columns, int64_t lines,
                      int64_t blocks, const ProductTile &tile) {
  constexpr int64_t kAtATime = 64;
  const ColumnPanels panels(lines, tile);
  const double stretches = stretchesOf(columns, w.row(), tile.lanes);
  Packing p;
  p.panels = static_cast<double>(panels.count * blocks *
                                 divideUp(divideUp(columns, blocks), kAtATime));
  p.stretches = static_cast<double>(panels.count) * stretches * linesOfTaps(w);
  p.shares =
      p.panels * static_cast<double>(std::min(
                     {w.taps(), lines, int64_t(tile.vectors) * tile.lanes}));
  p.packed = static_cast<double>(lines * divideUp(columns, tile.lanes));
  p.runs = static_cast<double>(lines) * stretches * insideRows(w) *
           w.axes[2].inside();
  return p;
}

/// Pieces of pictures that results are put to: a panel of columns that is not
/// in one picture is computed aside.
double piecesAside(int64_t columns, int64_t plane, const ProductTile &tile) {
  const ColumnPanels panels(columns, tile);
  int64_t pieces = 0;
  for (int64_t p = 0; p < panels.count; ++p) {
    const int64_t first = panels.start(p) / plane,
                  last = (panels.start(p + 1) - 1) / plane;
    pieces += last > first ? last - first + 1 : 0;
  }
  return static_cast<double>(pieces);
}

/// One long product, of each group or phase.
struct Sums {
  TileSums tiles;
  Packing packing;
  double puts = 0, rowsBack = 0, back = 0, phases = 0, left = 0, blocks = 0;
};

Sums forwardSums(const ConvolutionShape &s, const ProductTile &tile) {
  const Window w = forwardWindow(s);
  const int64_t m = s.outputs / s.groups, n = s.images * w.plane(),
                k = s.channels / s.groups * w.taps();
  const int64_t blocks = depthBlocks(multiplyAdds(s), k);
  return {tileSums(m, n, k, blocks, tile),
          packing(w, n, k, blocks, false, tile),
          static_cast<double>(m * blocks) * piecesAside(n, w.plane(), tile)};
}

/// With strides the positions fall apart by their remainders, each a product
/// into a matrix of its own whose rows are then put between the others'.
Sums phaseSums(const ConvolutionShape &s, const Window &w,
               const ProductTile &tile) {
  const int64_t m = s.channels / s.groups, n = s.images * w.plane(),
                k = s.outputs / s.groups * w.taps();
  const int64_t blocks = depthBlocks(multiplyAdds(s), k);
  Sums sums{tileSums(m, n, k, blocks, tile),
            packing(w, n, k, blocks, true, tile)};
  sums.phases = 1;
  if (product(s, &ConvolutionAxis::stride) == 1) {
    sums.puts =
        static_cast<double>(m * blocks) * piecesAside(n, w.plane(), tile);
  } else {
    sums.back = static_cast<double>(m * n);
    sums.rowsBack = sums.back / static_cast<double>(w.axes[2].positions);
  }
  return sums;
}

void add(Sums &sums, const Sums &more) {
  sums.tiles.steps += more.tiles.steps;
  sums.tiles.rounds += more.tiles.rounds;
  sums.tiles.results += more.tiles.results;
  sums.packing.panels += more.packing.panels;
  sums.packing.stretches += more.packing.stretches;
  sums.packing.shares += more.packing.shares;
  sums.packing.packed += more.packing.packed;
  sums.packing.runs += more.packing.runs;
  sums.puts += more.puts, sums.rowsBack += more.rowsBack;
  sums.back += more.back, sums.phases += more.phases;
}

Sums inputSums(const ConvolutionShape &s, const ProductTile &tile) {
  Sums sums;
  const auto &[z, y, x] = s.axes;
  for (int64_t i = 0; i < std::min(z.stride, z.in); ++i)
    for (int64_t j = 0; j < std::min(y.stride, y.in); ++j)
      for (int64_t k = 0; k < std::min(x.stride, x.in); ++k)
        if (const Window w{{phaseOf(z, i), phaseOf(y, j), phaseOf(x, k)}};
            w.taps() > 0)
          add(sums, phaseSums(s, w, tile));
  return sums;
}

/// Over all positions of all pictures. Large pictures are read in place, a
/// block of k within one of them.
Sums weightSums(const ConvolutionShape &s, const ProductTile &tile) {
  constexpr int64_t kLarge = 128;
  const Window w = forwardWindow(s);
  const int64_t c = s.channels / s.groups, o = s.outputs / s.groups,
                k = s.images * w.plane();
  const int64_t work = multiplyAdds(s);
  const int64_t blocks = w.plane() >= kLarge
                             ? s.images * depthBlocks(work, w.plane())
                             : depthBlocks(work, k);
  const bool turns = w.taps() == 1 && w.row() == w.plane() && c > o;
  const int64_t m = turns ? c : o, n = turns ? o : c * w.taps();
  Sums sums;
  sums.tiles = tileSums(m, n, k, blocks, tile);
  sums.blocks = static_cast<double>(blocks * ColumnPanels(n, tile).count);
  sums.left = w.plane() >= kLarge ? 0 : static_cast<double>(m * k);
  if (turns)
    sums.left += static_cast<double>(n * k);
  else
    sums.packing = packingTurned(w, k, n, blocks, tile);
  return sums;
}

std::vector<double> productAmounts(const ConvolutionShape &s,
                                   ConvolutionPass pass,
                                   const ProductTile &tile) {
  const bool forward = pass == ConvolutionPass::Forward,
             weight = pass == ConvolutionPass::BackwardWeight;
  const Sums sums = forward  ? forwardSums(s, tile)
                    : weight ? weightSums(s, tile)
                             : inputSums(s, tile);
  const Packing &p = sums.packing;
  std::vector<double> amounts{
      sums.tiles.steps,   weight ? sums.tiles.tiles : sums.tiles.rounds,
      sums.tiles.results, p.panels,
      p.stretches,        p.shares,
      p.packed,           p.runs};
  if (weight)
    amounts.insert(amounts.end(), {sums.left, sums.blocks});
  else
    amounts.push_back(sums.puts);
  if (!forward && !weight)
    amounts.insert(amounts.end(), {sums.rowsBack, sums.back, sums.phases});
  for (double &amount : amounts)
    amount *= static_cast<double>(s.groups);
  amounts.insert(amounts.begin(), 1);
  amounts.push_back(static_cast<double>(s.channels / s.groups * s.outputs *
                                        product(s, &ConvolutionAxis::taps)));
  if (forward || weight)
    amounts.push_back(static_cast<double>(s.images * s.outputs *
                                          product(s, &ConvolutionAxis::out)));
  return amounts;
}

/// The product that a convolution or gradient amounts to, for each group.
struct AsProduct {
  int64_t m, n, k;
};

AsProduct asProduct(const ConvolutionShape &s, ConvolutionPass pass) {
  const int64_t c = s.channels / s.groups, o = s.outputs / s.groups;
  const int64_t in = product(s, &ConvolutionAxis::in),
                out = product(s, &ConvolutionAxis::out),
                taps = product(s, &ConvolutionAxis::taps),
                strides = product(s, &ConvolutionAxis::stride);
  switch (pass) {
  case ConvolutionPass::Forward:
    return {o, s.images * out, c * taps};
  case ConvolutionPass::BackwardInput:
    return {c, std::max<int64_t>(1, s.images * in / strides),
            std::max<int64_t>(1, o * taps / strides)};
  case ConvolutionPass::BackwardWeight:
    return {o, c * taps, s.images * out};
  }
  return {};
}

std::vector<double> otherAmounts(const ConvolutionShape &s,
                                 const AsProduct &p) {
  constexpr int64_t kRows = 4, kLanes = 8, kVectors = 3;
  const double groups = static_cast<double>(s.groups);
  const double rows = groups * static_cast<double>(divideUp(p.m, kRows));
  return {1,
          rows * static_cast<double>(divideUp(p.n, kLanes) * p.k),
          rows * static_cast<double>(divideUp(p.n, kLanes * kVectors) *
                                     depthBlocks(p.m * p.n * p.k, p.k)),
          groups * static_cast<double>(p.n * p.k),
          static_cast<double>(s.channels * s.outputs / s.groups *
                              product(s, &ConvolutionAxis::taps)),
          static_cast<double>(s.images * s.channels *
                              product(s, &ConvolutionAxis::in)),
          static_cast<double>(s.images * s.outputs *
                              product(s, &ConvolutionAxis::out))};
}

} // namespace

void addConvolutionAmounts(
    std::map<std::string, std::vector<std::string>> &amounts) {
  amounts["convolution-forward-product"] = {
      "call",  "step",   "round", "result", "panel",  "stretch",
      "share", "packed", "run",   "put",    "weight", "output"};
  amounts["convolution-backward-input-product"] = {
      "call",   "step", "round", "result",   "panel", "stretch", "share",
      "packed", "run",  "put",   "row back", "back",  "phase",   "weight"};
  amounts["convolution-backward-weight-product"] = {
      "call",   "step", "tile", "result", "panel",  "stretch", "share",
      "packed", "run",  "left", "block",  "weight", "output"};
  addRowAmounts(amounts);
  for (const char *pass : {"forward", "backward-input", "backward-weight"})
    for (const char *path : {"direct", "winograd"})
      amounts[std::string("convolution-") + pass + "-" + path] = {
          "call", "step", "tile", "window", "weight", "input", "output"};
}

KernelWork convolutionWork(const ConvolutionShape &s, ConvolutionPass pass,
                           const std::string &path, const ProductTile &tile) {
  static const std::map<ConvolutionPass, const char *> names = {
      {ConvolutionPass::Forward, "forward"},
      {ConvolutionPass::BackwardInput, "backward-input"},
      {ConvolutionPass::BackwardWeight, "backward-weight"}};
  const AsProduct p = asProduct(s, pass);
  return {std::string("convolution-") + names.at(pass) + "-" + path,
          path == "product" ? productAmounts(s, pass, tile)
          : path == "rows"  ? rowAmounts(s, pass, tile)
                            : otherAmounts(s, p),
          static_cast<double>(p.m * p.n * (p.k + 1)) >= kLeastShared};
}

} // namespace pipec::plan
