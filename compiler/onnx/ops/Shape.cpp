//===- Shape.cpp - importers of operators that move elements --------------===//
#include "compiler/onnx/ops/Ops.h"

#include <limits>

using namespace mlir;

namespace pipec::onnx {

//===----------------------------------------------------------------------===//
// Sizes as values
//===----------------------------------------------------------------------===//

void importShape(NodeContext &c) {
  const Val &x = c.in(0);
  const int64_t rank = x.getRank();
  const auto clampAxis = [&](int64_t i) {
    return std::clamp<int64_t>(i < 0 ? i + rank : i, 0, rank);
  };
  const int64_t start = clampAxis(c.intAttr("start", 0));
  const int64_t end = clampAxis(c.intAttr("end", rank));
  c.out(c.e.ints(x.getShape().slice(start, std::max<int64_t>(0, end - start))));
}

void importSize(NodeContext &c) {
  c.out(
      nn::Literal::scalarInt(c.e.getContext(), c.in(0).type.getNumElements()));
}

//===----------------------------------------------------------------------===//
// Reshaping
//===----------------------------------------------------------------------===//

void importReshape(NodeContext &c) {
  const Val &x = c.in(0);
  const std::vector<int64_t> wanted = c.ints(1, "shape");
  const bool allowZero = c.intAttr("allowzero", 0) != 0;
  SmallVector<int64_t> shape;
  int64_t known = 1, unknown = -1;
  for (size_t i = 0; i < wanted.size(); ++i) {
    int64_t size = wanted[i];
    if (size == 0 && !allowZero) {
      if (static_cast<int64_t>(i) >= x.getRank())
        c.fail("its shape " + shapeText(wanted) +
               " copies a dimension that the input has not");
      size = x.dim(static_cast<int64_t>(i));
    }
    if (size == -1) {
      if (unknown >= 0)
        c.fail("its shape " + shapeText(wanted) + " has -1 twice");
      unknown = static_cast<int64_t>(i);
    } else if (size < 0 || __builtin_mul_overflow(known, size, &known)) {
      c.fail("its shape " + shapeText(wanted) + " is impossible");
    }
    shape.push_back(size);
  }
  if (unknown >= 0) {
    const int64_t count = x.type.getNumElements();
    if (known == 0 || count % known != 0)
      c.fail("its shape " + shapeText(wanted) + " does not divide the " +
                 std::to_string(count) + " elements of its input",
             "check the sizes given with --dim against those the model was "
             "exported for");
    shape[unknown] = count / known;
  }
  c.out(c.e.reshape(x, shape));
}

void importFlatten(NodeContext &c) {
  const Val &x = c.in(0);
  int64_t axis = c.intAttr("axis", 1);
  if (axis < -x.getRank() || axis > x.getRank())
    c.fail("its axis " + std::to_string(axis) + " is out of range");
  axis = axis < 0 ? axis + x.getRank() : axis;
  int64_t rows = 1, columns = 1;
  for (int64_t i = 0; i < x.getRank(); ++i)
    (i < axis ? rows : columns) *= x.dim(i);
  c.out(c.e.reshape(x, {rows, columns}));
}

void importSqueeze(NodeContext &c) {
  const Val &x = c.in(0);
  const auto given = c.intsInputOrAttr(1, "axes");
  std::vector<int64_t> axes;
  if (given)
    axes = c.axes(*given, x.getRank());
  SmallVector<int64_t> shape;
  for (int64_t i = 0; i < x.getRank(); ++i) {
    const bool drop = given ? llvm::is_contained(axes, i) : x.dim(i) == 1;
    if (drop && x.dim(i) != 1)
      c.fail("it removes axis " + std::to_string(i) + " of " +
             shapeText(x.getShape()) + ", which is not 1");
    if (!drop)
      shape.push_back(x.dim(i));
  }
  c.out(c.e.reshape(x, shape));
}

void importUnsqueeze(NodeContext &c) {
  const Val &x = c.in(0);
  const auto given = c.intsInputOrAttr(1, "axes");
  if (!given)
    c.fail("its axes are missing");
  const int64_t rank = x.getRank() + static_cast<int64_t>(given->size());
  const std::vector<int64_t> axes = c.axes(*given, rank);
  SmallVector<int64_t> shape;
  int64_t next = 0;
  for (int64_t i = 0; i < rank; ++i)
    shape.push_back(llvm::is_contained(axes, i) ? 1 : x.dim(next++));
  c.out(c.e.reshape(x, shape));
}

void importTranspose(NodeContext &c) {
  const Val &x = c.in(0);
  SmallVector<int64_t> permutation;
  if (const auto given = c.intsAttr("perm"))
    permutation.assign(given->begin(), given->end());
  else
    for (int64_t i = x.getRank(); i-- > 0;)
      permutation.push_back(i);
  c.out(c.e.transpose(x, permutation));
}

//===----------------------------------------------------------------------===//
// Repeating
//===----------------------------------------------------------------------===//

/// Broadcasting goes both ways: a 1 in the shape keeps the input's size.
void importExpand(NodeContext &c) {
  const Val &x = c.in(0);
  const std::vector<int64_t> wanted = c.ints(1, "shape");
  SmallVector<int64_t> shape(wanted.begin(), wanted.end());
  while (static_cast<int64_t>(shape.size()) < x.getRank())
    shape.insert(shape.begin(), 1);
  const int64_t extra = static_cast<int64_t>(shape.size()) - x.getRank();
  for (int64_t i = 0; i < x.getRank(); ++i)
    if (shape[extra + i] == 1)
      shape[extra + i] = x.dim(i);
  c.out(c.e.broadcast(x, shape));
}

void importTile(NodeContext &c) {
  const Val &x = c.in(0);
  const std::vector<int64_t> repeats = c.ints(1, "repeats");
  if (static_cast<int64_t>(repeats.size()) != x.getRank())
    c.fail("its repeats " + shapeText(repeats) + " do not fit its input " +
           shapeText(x.getShape()));
  // [a, b] becomes [1, a, 1, b], is repeated, and joined again.
  SmallVector<int64_t> split, wide, shape;
  for (int64_t i = 0; i < x.getRank(); ++i) {
    int64_t size = 0;
    if (repeats[i] < 0 || __builtin_mul_overflow(repeats[i], x.dim(i), &size))
      c.fail("its repeats " + shapeText(repeats) + " are impossible");
    split.append({1, x.dim(i)});
    wide.append({repeats[i], x.dim(i)});
    shape.push_back(size);
  }
  c.out(c.e.reshape(c.e.broadcast(c.e.reshape(x, split), wide), shape));
}

//===----------------------------------------------------------------------===//
// Joining and cutting
//===----------------------------------------------------------------------===//

void importConcat(NodeContext &c) {
  std::vector<Val> parts;
  for (size_t i = 0; i < c.inputCount(); ++i)
    parts.push_back(c.in(i));
  if (parts.empty() || parts[0].getRank() == 0)
    c.fail("it has nothing to join");
  c.out(c.e.concat(parts, c.axis(c.intAttr("axis"), parts[0].getRank())));
}

/// The sizes of the parts: given, or equal ones with a smaller last one.
std::vector<int64_t> splitSizes(NodeContext &c, int64_t size, size_t parts) {
  if (const auto given = c.intsInputOrAttr(1, "split")) {
    int64_t sum = 0;
    for (const int64_t part : *given)
      if (part < 0 || part > size || (sum += part) > size)
        c.fail("its parts " + shapeText(*given) + " do not sum to " +
               std::to_string(size));
    if (sum != size)
      c.fail("its parts " + shapeText(*given) + " do not sum to " +
             std::to_string(size));
    return *given;
  }
  const auto count = static_cast<int64_t>(parts);
  if (count < 1 || c.intAttr("num_outputs", count) != count)
    c.fail("its num_outputs is not the number of its outputs");
  const int64_t each = (size + count - 1) / count;
  std::vector<int64_t> sizes;
  for (int64_t at = 0; static_cast<int64_t>(sizes.size()) < count; at += each)
    sizes.push_back(std::clamp<int64_t>(size - at, 0, each));
  return sizes;
}

void importSplit(NodeContext &c) {
  const Val &x = c.in(0);
  const int64_t axis = c.axis(c.intAttr("axis", 0), x.getRank());
  const std::vector<int64_t> sizes =
      splitSizes(c, x.dim(axis), c.node.outputs.size());
  if (sizes.size() != c.node.outputs.size())
    c.fail("it has " + std::to_string(c.node.outputs.size()) + " outputs for " +
           std::to_string(sizes.size()) + " parts");
  int64_t at = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    c.out(i, c.e.sliceAxis(x, axis, at, sizes[i]));
    at += sizes[i];
  }
}

/// One axis of a slice by NumPy's rules: start, number of elements.
static std::pair<int64_t, int64_t> sliceRange(int64_t start, int64_t end,
                                              int64_t step, int64_t size) {
  const auto fromFront = [&](int64_t i) {
    return i < 0 ? (i < -size ? -1 : i + size) : i;
  };
  if (step > 0) {
    start = std::clamp<int64_t>(start < -size ? 0 : fromFront(start), 0, size);
    end = std::clamp<int64_t>(end < -size ? 0 : fromFront(end), 0, size);
    return {start, end > start ? (end - start - 1) / step + 1 : 0};
  }
  start = std::clamp<int64_t>(fromFront(start), -1, size - 1);
  end = std::clamp<int64_t>(fromFront(end), -1, size - 1);
  if (step == std::numeric_limits<int64_t>::min())
    return {start, start > end ? 1 : 0};
  return {start, start > end ? (start - end - 1) / -step + 1 : 0};
}

void importSlice(NodeContext &c) {
  const Val &x = c.in(0);
  const auto starts = c.intsInputOrAttr(1, "starts");
  const auto ends = c.intsInputOrAttr(2, "ends");
  if (!starts || !ends || starts->size() != ends->size())
    c.fail("its starts and ends do not match");
  const auto given = c.intsInputOrAttr(3, "axes");
  const auto steps =
      c.has(4) ? c.ints(4, "steps") : std::vector<int64_t>(starts->size(), 1);
  if ((given && given->size() != starts->size()) ||
      steps.size() != starts->size())
    c.fail("its axes or steps do not match its starts");
  SmallVector<int64_t> from(x.getRank(), 0), sizes(x.getShape()),
      strides(x.getRank(), 1);
  for (size_t i = 0; i < starts->size(); ++i) {
    const int64_t axis =
        c.axis(given ? (*given)[i] : static_cast<int64_t>(i), x.getRank());
    if (steps[i] == 0)
      c.fail("its step is 0");
    const auto [start, count] =
        sliceRange((*starts)[i], (*ends)[i], steps[i], x.dim(axis));
    from[axis] = count == 0 ? 0 : start;
    sizes[axis] = count;
    strides[axis] = count <= 1 ? 1 : steps[i];
  }
  c.out(c.e.slice(x, from, sizes, strides));
}

//===----------------------------------------------------------------------===//
// Padding
//===----------------------------------------------------------------------===//

/// One axis padded by repeating its own elements: their indices, in order.
static std::vector<int64_t> paddedIndices(NodeContext &c,
                                          const std::string &mode, int64_t low,
                                          int64_t high, int64_t size) {
  if (low + high + size > (int64_t(1) << 24))
    c.fail("it pads to more than any machine holds");
  if (size == 0 && low + high > 0)
    c.fail("it has no element to pad with");
  std::vector<int64_t> out;
  for (int64_t i = -low; i < size + high; ++i) {
    int64_t at = i;
    if (mode == "edge") {
      at = std::clamp<int64_t>(i, 0, size - 1);
    } else if (mode == "wrap") {
      at = ((i % size) + size) % size;
    } else { // reflect, without repeating the edge
      const int64_t period = std::max<int64_t>(1, 2 * (size - 1));
      at = ((i % period) + period) % period;
      at = at < size ? at : period - at;
    }
    out.push_back(at);
  }
  return out;
}

void importPad(NodeContext &c) {
  Emitter &e = c.e;
  Val x = c.in(0);
  const int64_t rank = x.getRank();
  const auto pads = c.intsInputOrAttr(1, "pads");
  std::vector<int64_t> axes;
  if (c.has(3))
    for (const int64_t a : c.ints(3, "axes"))
      axes.push_back(c.axis(a, rank));
  else
    for (int64_t i = 0; i < rank; ++i)
      axes.push_back(i);
  if (!pads || pads->size() != 2 * axes.size())
    c.fail("its pads do not fit its input " + shapeText(x.getShape()));
  SmallVector<int64_t> low(rank, 0), high(rank, 0), none(rank, 0);
  for (const int64_t pad : *pads)
    if (pad < -(int64_t(1) << 40) || pad > (int64_t(1) << 40))
      c.fail("it pads by " + std::to_string(pad) + " elements");
  for (size_t i = 0; i < axes.size(); ++i) {
    low[axes[i]] = (*pads)[i];
    high[axes[i]] = (*pads)[i + axes.size()];
  }
  // A negative pad cuts.
  SmallVector<int64_t> starts(rank, 0), sizes(x.getShape());
  for (int64_t i = 0; i < rank; ++i) {
    starts[i] = std::max<int64_t>(0, -low[i]);
    sizes[i] = x.dim(i) - starts[i] - std::max<int64_t>(0, -high[i]);
    if (sizes[i] < 0 || low[i] < -x.dim(i))
      c.fail("its pads cut away more than there is");
    low[i] = std::max<int64_t>(0, low[i]);
    high[i] = std::max<int64_t>(0, high[i]);
  }
  x = e.slice(x, starts, sizes, SmallVector<int64_t>(rank, 1));
  const std::string mode = c.stringAttr("mode", "constant");
  if (mode == "constant") {
    const double value =
        c.has(2) ? c.scalar(2, "value") : c.floatAttr("value", 0);
    c.out(e.pad(x, low, high, none, value));
    return;
  }
  if (mode != "edge" && mode != "reflect" && mode != "wrap")
    c.fail("its mode '" + mode + "' is unknown");
  for (int64_t i = 0; i < rank; ++i)
    if (low[i] + high[i] > 0)
      x = e.gather(x, e.ints(paddedIndices(c, mode, low[i], high[i], x.dim(i))),
                   i);
  c.out(x);
}

/// Cuts or pads each axis around its centre to the wanted size.
void importCenterCropPad(NodeContext &c) {
  Emitter &e = c.e;
  Val x = c.in(0);
  const std::vector<int64_t> wanted = c.ints(1, "shape");
  std::vector<int64_t> axes;
  if (const auto given = c.intsAttr("axes"))
    for (const int64_t a : *given)
      axes.push_back(c.axis(a, x.getRank()));
  else
    for (int64_t i = 0; i < x.getRank(); ++i)
      axes.push_back(i);
  if (wanted.size() != axes.size())
    c.fail("its shape does not fit its axes");
  SmallVector<int64_t> none(x.getRank(), 0);
  for (size_t i = 0; i < axes.size(); ++i) {
    const int64_t size = x.dim(axes[i]), to = wanted[i];
    if (to < 1)
      c.fail("its shape " + shapeText(wanted) + " is impossible");
    if (to <= size) {
      x = e.sliceAxis(x, axes[i], (size - to) / 2, to);
    } else {
      SmallVector<int64_t> low(none), high(none);
      low[axes[i]] = (to - size) / 2;
      high[axes[i]] = to - size - low[axes[i]];
      x = e.pad(x, low, high, none, 0);
    }
  }
  c.out(x);
}

//===----------------------------------------------------------------------===//
// Blocks
//===----------------------------------------------------------------------===//

static int64_t blockSize(NodeContext &c) {
  const int64_t b = c.intAttr("blocksize");
  if (c.in(0).getRank() != 4 || b < 1 || b > (1 << 15))
    c.fail("it needs a 4-D input and a positive block size");
  return b;
}

void importDepthToSpace(NodeContext &c) {
  const Val &x = c.in(0);
  const int64_t b = blockSize(c), n = x.dim(0), ch = x.dim(1), h = x.dim(2),
                w = x.dim(3);
  if (ch % (b * b) != 0)
    c.fail("its channels do not divide into blocks");
  const bool crd = c.stringAttr("mode", "DCR") == "CRD";
  Val y = crd ? c.e.reshape(x, {n, ch / (b * b), b, b, h, w})
              : c.e.reshape(x, {n, b, b, ch / (b * b), h, w});
  y = crd ? c.e.transpose(y, {0, 1, 4, 2, 5, 3})
          : c.e.transpose(y, {0, 3, 4, 1, 5, 2});
  c.out(c.e.reshape(y, {n, ch / (b * b), h * b, w * b}));
}

void importSpaceToDepth(NodeContext &c) {
  const Val &x = c.in(0);
  const int64_t b = blockSize(c), n = x.dim(0), ch = x.dim(1), h = x.dim(2),
                w = x.dim(3);
  if (h % b != 0 || w % b != 0)
    c.fail("its plane does not divide into blocks");
  Val y = c.e.reshape(x, {n, ch, h / b, b, w / b, b});
  y = c.stringAttr("mode", "DCR") == "CRD"
          ? c.e.transpose(y, {0, 1, 3, 5, 2, 4})
          : c.e.transpose(y, {0, 3, 5, 1, 2, 4});
  c.out(c.e.reshape(y, {n, ch * b * b, h / b, w / b}));
}

} // namespace pipec::onnx
