//===- ArrayCheck.cpp - whether an array goes with an input ---------------===//
#include "runtime/data/ArrayCheck.h"
#include "support/Failure.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace pipec {

std::string shapeText(const std::vector<int64_t> &shape) {
  std::string result = "[";
  for (size_t i = 0; i < shape.size(); ++i)
    result += (i ? ", " : "") + std::to_string(shape[i]);
  return result + "]";
}

namespace {

/// "3, 32, 32", each plus nothing: arguments of reshape and transpose.
std::string joined(const std::vector<int64_t> &numbers, size_t first) {
  const std::vector<int64_t> rest(
      numbers.begin() + static_cast<std::ptrdiff_t>(first), numbers.end());
  const std::string text = shapeText(rest);
  return text.substr(1, text.size() - 2);
}

int64_t elements(const std::vector<int64_t> &shape, size_t first) {
  return std::accumulate(shape.begin() + static_cast<std::ptrdiff_t>(first),
                         shape.end(), int64_t(1), std::multiplies<>());
}

/// The order in which the axes of `from` make `to`, the first one staying where
/// it is; empty when none does.
std::vector<int64_t> transposition(const std::vector<int64_t> &from,
                                   const std::vector<int64_t> &to) {
  constexpr size_t kMostAxes = 6; // of which there are 120 orders
  if (from.size() != to.size() || from.size() < 3 || from.size() > kMostAxes)
    return {};
  std::vector<int64_t> axes(from.size());
  std::iota(axes.begin(), axes.end(), 0);
  do {
    bool same = true;
    for (size_t i = 1; same && i < to.size(); ++i)
      same = from[static_cast<size_t>(axes[i])] == to[i];
    if (same)
      return axes;
  } while (std::next_permutation(axes.begin() + 1, axes.end()));
  return {};
}

/// What to call on the loaded array so that it has the shape of the input: "",
/// when nothing keeps its values.
std::string conversion(const plan::Input &input,
                       const std::vector<int64_t> &shape) {
  const std::vector<int64_t> &wanted = input.shape;
  if (input.batch_axis != 0)
    return elements(shape, 0) == elements(wanted, 0)
               ? ".reshape(" + joined(wanted, 0) + ")"
               : "";
  if (std::equal(shape.begin(), shape.end(), wanted.begin() + 1, wanted.end()))
    return "[None]"; // one sample, without the axis that counts them
  if (shape.empty())
    return "";
  if (const std::vector<int64_t> axes = transposition(shape, wanted);
      !axes.empty())
    return ".transpose(" + joined(axes, 0) + ")";
  if (wanted.size() == 1 && shape.size() == 2 && shape[1] > 1 &&
      shape[1] == input.upper)
    return ".argmax(1)"; // a column for each class
  if (elements(shape, 1) != elements(wanted, 1))
    return "";
  return ".reshape(-1" + (wanted.size() > 1 ? ", " : std::string()) +
         joined(wanted, 1) + ")";
}

/// "; convert it: numpy.save("x.npy", numpy.load("x.npy").astype("int64"))"
std::string remedy(const Npy &array, const std::string &call) {
  const std::string file = "\"" + array.path + "\"";
  return "; convert it: numpy.save(" + file + ", numpy.load(" + file + ")" +
         call + ")";
}

std::string wantedShape(const plan::Input &input) {
  if (input.batch_axis != 0)
    return shapeText(input.shape);
  return "[samples" + (input.shape.size() > 1 ? ", " : std::string()) +
         joined(input.shape, 1) + "]";
}

} // namespace

void checkArray(const plan::Input &input, const Npy &array) {
  const auto bad = [&](const std::string &has, const std::string &takes,
                       const std::string &rest) {
    throw Failure(Exit::BadModel, array.path + ": " + has + ", input '" +
                                      input.name + "' takes " + takes + rest);
  };
  const bool widens = array.dtype == "int32" && input.dtype == "int64";
  if (array.dtype != input.dtype && !widens)
    bad("element type " + array.dtype, input.dtype,
        remedy(array, ".astype(\"" + input.dtype + "\")"));
  std::vector<int64_t> expected = input.shape;
  const bool batched = input.batch_axis == 0;
  if (batched && !array.shape.empty())
    expected[0] = array.shape[0];
  if (array.shape != expected) {
    const std::string call = conversion(input, array.shape);
    bad("shape " + shapeText(array.shape), wantedShape(input),
        call.empty() ? "; these dimensions are fixed in the plan: change the "
                       "data, or the model's --dim when compiling"
                     : remedy(array, call));
  }
  if (batched && array.shape[0] < 1)
    bad("shape " + shapeText(array.shape) + " has no samples",
        wantedShape(input), ", at least one");
}

} // namespace pipec
