//===- RoutineWork.cpp - what a library routine has to do -----------------===//
#include "compiler/driver/RoutineWork.h"

#include <algorithm>

namespace pipec {
namespace {

int64_t product(const int64_t *sizes, int64_t count) {
  int64_t n = 1;
  for (int64_t i = 0; i < count; ++i)
    n *= sizes[i];
  return n;
}

int64_t elementSize(int32_t dtype) {
  switch (dtype) {
  case PIPEC_F64:
  case PIPEC_I64:
    return 8;
  case PIPEC_I8:
    return 1;
  default:
    return 4;
  }
}

} // namespace

plan::KernelWork routineWork(const PipecConv &d, int which,
                             const plan::ProductTile &tile) {
  plan::ConvolutionShape s;
  s.images = d.n, s.channels = d.c, s.outputs = d.o;
  s.groups = std::max(1, d.groups);
  for (int i = 0; i < d.spatial_rank; ++i)
    s.axes[static_cast<size_t>(3 - d.spatial_rank + i)] = {
        d.in[i],     d.out[i],      d.kernel[i],
        d.stride[i], d.dilation[i], d.pad_lo[i]};
  const char *path = "direct";
  switch (pipec_conv_path(&d, which)) {
  case PIPEC_CONV_PRODUCT:
    path = "product";
    break;
  case PIPEC_CONV_ROWS:
    path = "rows";
    break;
  case PIPEC_CONV_WINOGRAD:
    path = "winograd";
    break;
  }
  return plan::convolutionWork(s, static_cast<plan::ConvolutionPass>(which),
                               path, tile);
}

plan::KernelWork routineWork(const PipecMatmul &d,
                             const plan::ProductTile &tile) {
  plan::ProductShape shape;
  shape.batch = product(d.batch, d.batch_rank);
  shape.m = d.m, shape.n = d.n, shape.k = d.k;
  shape.transposeA = d.transpose_a, shape.transposeB = d.transpose_b;
  shape.bf16 = d.dtype == PIPEC_BF16;
  return plan::productWork(shape, tile);
}

/// Windows of a line that meet no border, as runtime/kernels/cpu/Pool.cpp finds
/// them.
static int64_t insideOf(const PipecPool &d) {
  const int last = d.spatial_rank - 1;
  const int64_t stride = d.stride[last], low = d.pad_lo[last];
  const int64_t first = low > 0 ? (low - 1) / stride + 1 : 0;
  const int64_t room =
      d.in[last] + low - (d.kernel[last] - 1) * d.dilation[last] - 1;
  const int64_t end =
      room < 0 ? 0 : std::min<int64_t>(d.out[last], room / stride + 1);
  return std::max<int64_t>(0, end - std::min<int64_t>(first, d.out[last]));
}

static plan::KernelWork maxPoolWork(const PipecPool &d, bool divides,
                                    int lanes) {
  constexpr int64_t kMostTaps = 64;
  const int last = d.spatial_rank - 1;
  const int64_t taps = product(d.kernel, d.spatial_rank);
  plan::MaxPoolShape shape;
  shape.divides = divides;
  shape.planes = static_cast<double>(d.n * d.c);
  shape.lines = shape.planes * product(d.out, last);
  const int64_t inside = taps <= kMostTaps ? insideOf(d) : 0;
  const bool together = d.stride[last] <= 2;
  const double perLine = shape.lines * static_cast<double>(taps);
  if (together)
    shape.vectors = perLine * static_cast<double>((inside + lanes - 1) / lanes);
  else
    shape.scalars = perLine * static_cast<double>(inside);
  shape.windows = shape.lines * static_cast<double>(d.out[last] - inside);
  shape.border = shape.windows * static_cast<double>(taps);
  return plan::poolWork(shape);
}

plan::KernelWork routineWork(const PipecPool &d, const std::string &name,
                             const plan::ProductTile &tile) {
  plan::PoolShape shape;
  shape.planes = static_cast<double>(d.n * d.c);
  shape.in = shape.planes * product(d.in, d.spatial_rank);
  shape.out = shape.planes * product(d.out, d.spatial_rank);
  shape.taps = shape.out * product(d.kernel, d.spatial_rank);
  shape.divides = d.n * d.c > 1 && shape.taps > 65536;
  if (name == "max-pool")
    return maxPoolWork(d, shape.divides, tile.lanes);
  return plan::poolWork(name, shape);
}

plan::KernelWork routineWork(const PipecGather &d, bool adds, int64_t cleared) {
  plan::GatherShape shape;
  shape.rows = static_cast<double>(d.outer * d.ids);
  shape.bytes =
      shape.rows * static_cast<double>(d.inner * elementSize(d.dtype));
  shape.cleared = static_cast<double>(cleared);
  shape.adds = adds;
  shape.divides = d.outer * d.ids * d.inner > 8192;
  return plan::gatherWork(shape);
}

plan::KernelWork routineWork(const PipecCopy &d) {
  constexpr int64_t kTile = 16, kLeastShared = 16384;
  const PipecCopyWalk walk = pipec_copy_walk(&d);
  const auto whole = [](int64_t n) { return (n + kTile - 1) / kTile * kTile; };
  const double elements =
      static_cast<double>(walk.rows * walk.columns * walk.lines);
  plan::CopyShape shape;
  switch (walk.way) {
  case PIPEC_COPY_NOTHING:
    return {};
  case PIPEC_COPY_CONTIGUOUS:
    shape.contiguous = elements * d.element_size;
    break;
  case PIPEC_COPY_STRIDED:
    shape.strided = elements;
    break;
  case PIPEC_COPY_TRANSPOSED: // in squares, also at the edges
    shape.transposed = static_cast<double>(walk.rows * whole(walk.columns) *
                                           whole(walk.lines) * d.element_size);
    break;
  }
  shape.rows = static_cast<double>(walk.rows);
  shape.divides = elements > kLeastShared;
  return plan::copyWork(shape);
}

} // namespace pipec
