#include "compiler/plan/ConvolutionRows.h"

#include "compiler/plan/ProductTiles.h"

#include <algorithm>

namespace pipec::plan {

namespace {

/// Elements that a band should have, columns that are done at a time, elements
/// that follow a row, outputs whose sums are kept together.
constexpr int64_t kBandAim = 6144, kSegment = 256, kSlack = 16, kSums = 256,
                  kManyGroups = 8;
/// Vectors of a row that are summed up together.
constexpr int64_t kTogether = 4;

int64_t roundUp(int64_t n, int64_t to) { return divideUp(n, to) * to; }

/// floor(a / b) for b > 0.
int64_t floorDivide(int64_t a, int64_t b) {
  return a >= 0 ? a / b : -((-a - 1) / b + 1);
}

/// Bands of rows of some planes, of which the first result of a band reads
/// `reach` rows and each further one `step` more.
struct Bands {
  Bands(int64_t planes, int64_t parts, int64_t columns, int64_t reach,
        int64_t step, int64_t results)
      : part(roundUp(columns + kSlack, kSlack)), planes(planes), parts(parts) {
    const int64_t room = kBandAim / (planes * parts * part);
    const int64_t rows =
        std::min(reach + (results - 1) * step, std::max(reach, room));
    count = divideUp(results, (rows - reach) / step + 1);
    filled = (results - count) * step + count * reach;
  }

  /// Vectors that are written to fill them.
  double vectors(int lanes) const {
    return static_cast<double>(planes * parts * filled * part) / lanes;
  }

  int64_t part, planes, parts;
  int64_t count = 1, filled = 0;
};

/// What rows are added up, for all pictures and groups.
struct RowSums {
  double aligned = 0, shifted = 0; ///< vectors read and added
  double terms = 0;                ///< rows read, a few vectors at a time
  double lines = 0;                ///< vectors of results
  double filled = 0;               ///< vectors of bands
  double built = 0;                ///< terms found, once a band
  double puts = 0;                 ///< lines put between others
};

/// Forward and the gradient of the weights. Of the rows of a band those of the
/// first tap begin where vectors do.
RowSums forwardSums(const ConvolutionShape &s, ConvolutionPass pass,
                    const ProductTile &tile) {
  const auto &[z, y, x] = s.axes;
  const int64_t gi = s.channels / s.groups, go = s.outputs / s.groups;
  const bool weight = pass == ConvolutionPass::BackwardWeight;
  const int64_t reach = (x.taps - 1) * x.dilation;
  const Bands bands(gi * z.taps, x.stride,
                    std::min(kSegment, x.out) + reach / x.stride,
                    (y.taps - 1) * y.dilation + 1, y.stride, y.out);
  const int64_t terms = gi * z.taps * y.taps * x.taps;
  // Every output goes through the picture anew, or some of a group together.
  const int64_t together =
      go * terms <= kSums && s.groups >= kManyGroups ? go : 1;
  const double times = static_cast<double>(s.images * s.groups * z.out *
                                           divideUp(x.out, kSegment)) *
                       static_cast<double>(weight ? go / together : 1);
  int64_t first = 0;
  for (int64_t q = 0; q < x.taps; ++q)
    first += q * x.dilation / x.stride == 0;
  const int64_t vectors = divideUp(x.out, tile.lanes);
  const double lines =
      static_cast<double>(s.images * s.outputs * z.out * y.out);
  RowSums sums;
  sums.lines = lines * static_cast<double>(vectors);
  const double perTap = sums.lines * static_cast<double>(terms / x.taps);
  sums.aligned = perTap * static_cast<double>(first);
  sums.shifted = perTap * static_cast<double>(x.taps - first);
  sums.terms = lines * static_cast<double>(
                           terms * (weight ? 1 : divideUp(vectors, kTogether)));
  sums.filled = times * bands.vectors(tile.lanes);
  sums.built = times * static_cast<double>(bands.count * terms);
  return sums;
}

/// The taps of an axis that meet input positions of remainder r, and those of
/// them that come first in a band.
struct Meeting {
  int64_t all = 0, first = 0;
};
int64_t firstShift(const ConvolutionAxis &a) {
  return floorDivide(a.low - (a.taps - 1) * a.dilation, a.stride);
}
int64_t span(const ConvolutionAxis &a) {
  return floorDivide(a.stride - 1 + a.low, a.stride) - firstShift(a);
}
Meeting meeting(const ConvolutionAxis &a, int64_t r) {
  Meeting meeting;
  for (int64_t q = 0; q < a.taps; ++q) {
    const int64_t reach = r + a.low - q * a.dilation,
                  shift = floorDivide(reach, a.stride);
    if (shift * a.stride != reach)
      continue;
    ++meeting.all;
    meeting.first += shift == firstShift(a);
  }
  return meeting;
}

/// Input positions of one remainder at a time.
RowSums inputSums(const ConvolutionShape &s, const ProductTile &tile) {
  const auto &[z, y, x] = s.axes;
  const int64_t go = s.outputs / s.groups;
  const int64_t high = (y.in - 1) / y.stride + 1,
                wide = (x.in - 1) / x.stride + 1;
  const Bands bands(go * z.taps, 1, std::min(kSegment, wide) + span(x),
                    span(y) + 1, 1, high);
  const double times = static_cast<double>(s.images * s.groups * z.in *
                                           divideUp(wide, kSegment));
  const int64_t vectors = divideUp(wide, tile.lanes);
  const double lines = static_cast<double>(s.images * s.channels * z.in * high);
  RowSums sums;
  for (int64_t i = 0; i < y.stride; ++i)
    for (int64_t j = 0; j < x.stride; ++j) {
      const Meeting along = meeting(x, j);
      const int64_t planes = go * z.taps * meeting(y, i).all;
      sums.aligned +=
          lines * static_cast<double>(planes * along.first * vectors);
      sums.shifted += lines * static_cast<double>(
                                  planes * (along.all - along.first) * vectors);
      sums.terms += lines * static_cast<double>(planes * along.all *
                                                divideUp(vectors, kTogether));
    }
  const double phases = static_cast<double>(y.stride * x.stride);
  sums.lines = lines * phases * static_cast<double>(vectors);
  sums.filled = times * bands.vectors(tile.lanes);
  sums.built = times * phases *
               static_cast<double>(bands.count * go * z.taps * y.taps * x.taps);
  sums.puts = x.stride > 1 ? lines * phases : 0;
  return sums;
}

} // namespace

std::vector<double> rowAmounts(const ConvolutionShape &s, ConvolutionPass pass,
                               const ProductTile &tile) {
  const bool input = pass == ConvolutionPass::BackwardInput;
  const RowSums sums = input ? inputSums(s, tile) : forwardSums(s, pass, tile);
  std::vector<double> amounts{1,          sums.aligned, sums.shifted,
                              sums.terms, sums.lines,   sums.filled,
                              sums.built};
  if (input)
    amounts.push_back(sums.puts);
  if (pass == ConvolutionPass::BackwardWeight) {
    double taps = 1;
    for (const ConvolutionAxis &axis : s.axes)
      taps *= static_cast<double>(axis.taps);
    amounts.push_back(taps *
                      static_cast<double>(s.channels / s.groups * s.outputs));
  }
  return amounts;
}

void addRowAmounts(std::map<std::string, std::vector<std::string>> &amounts) {
  const std::vector<std::string> common = {"call", "aligned", "shifted", "term",
                                           "line", "filled",  "built"};
  for (const auto &[pass, own] :
       std::map<std::string, std::string>{{"forward", ""},
                                          {"backward-input", "put"},
                                          {"backward-weight", "weight"}}) {
    auto &names = amounts["convolution-" + pass + "-rows"];
    names = common;
    if (!own.empty())
      names.push_back(own);
  }
}

} // namespace pipec::plan
