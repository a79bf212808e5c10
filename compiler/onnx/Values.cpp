//===- Values.cpp - what the numbers of a tensor look like ----------------===//
#include "compiler/onnx/Values.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <unordered_set>

namespace pipec::onnx {

/// Adds elements [first, last) that are not among `seen`, up to three.
static void collectDistinct(const Model &model, const TensorData &t,
                            size_t first, size_t last,
                            std::vector<std::string_view> &seen) {
  constexpr size_t kPiece = 1 << 15; // most are decided by their first numbers
  const auto width = static_cast<size_t>(byteWidth(t.type));
  for (; first < last && seen.size() < 3; first += kPiece) {
    const size_t count = std::min(kPiece, last - first);
    const std::string_view bytes =
        model.partOf(t, first * width, count * width);
    for (size_t i = 0; i < count && seen.size() < 3; ++i) {
      const std::string_view element = bytes.substr(i * width, width);
      if (std::find(seen.begin(), seen.end(), element) == seen.end())
        seen.push_back(element);
    }
  }
}

int distinctValues(const Model &model, const TensorData &t) {
  const int64_t width = byteWidth(t.type);
  if (!t.problem.empty() || width == 0)
    return 3;
  const size_t count = model.bytesOf(t).size() / static_cast<size_t>(width);
  constexpr size_t whole = 1 << 24, parts = 64, part = 4096;
  std::vector<std::string_view> seen;
  collectDistinct(model, t, 0, std::min(count, part), seen);
  if (count <= whole)
    collectDistinct(model, t, part, count, seen);
  else
    for (size_t p = 1; p < parts; ++p) {
      const size_t first = (count - part) / (parts - 1) * p;
      collectDistinct(model, t, first, first + part, seen);
    }
  return static_cast<int>(seen.size());
}

bool isUniform(const Model &model, const TensorData &tensor) {
  return distinctValues(model, tensor) == 1;
}

bool isSinusoidal(const Model &model, const TensorData &t) {
  if (t.type != ElementType::Float || !t.problem.empty() || t.dims.size() < 2)
    return false;
  const std::string_view bytes = model.bytesOf(t);
  const auto width = static_cast<size_t>(t.dims.back());
  if (width < 2 || bytes.size() < 2 * width * sizeof(float))
    return false;
  const size_t positions = bytes.size() / (width * sizeof(float));
  size_t zeros = 0, ones = 0;
  for (const size_t position : {size_t(0), size_t(1), positions - 1}) {
    if (position > 0 && (!zeros || !ones))
      return false;
    double squares = 0;
    for (size_t i = 0; i < width; ++i) {
      float value;
      std::memcpy(&value, bytes.data() + (position * width + i) * sizeof value,
                  sizeof value);
      squares += static_cast<double>(value) * value;
      if (position > 0)
        continue;
      zeros += value == 0, ones += value == 1;
      if (zeros + ones <= i)
        return false; // most weights, by their first value
    }
    if (!(std::abs(squares - static_cast<double>(ones)) <
          1e-3 * static_cast<double>(width)))
      return false;
  }
  return true;
}

bool fewValues(const Model &model, const TensorData &t) {
  const int64_t width = byteWidth(t.type);
  if (!t.problem.empty() || width == 0 || distinctValues(model, t) < 2)
    return false;
  constexpr size_t most = 1 << 16;
  const size_t count = std::min(model.bytesOf(t).size() / width, most);
  const std::string_view bytes = model.partOf(t, 0, count * width);
  std::unordered_set<std::string_view> seen;
  for (size_t i = 0; i < count; ++i)
    seen.insert(bytes.substr(i * width, width));
  return seen.size() * 4 < count;
}

bool isZeroOne(const Model &model, const TensorData &t) {
  if (t.type != ElementType::Float || distinctValues(model, t) != 2)
    return false;
  const std::string_view bytes = model.wholeOf(t);
  for (size_t i = 0; i + sizeof(float) <= bytes.size(); i += sizeof(float)) {
    float value;
    std::memcpy(&value, bytes.data() + i, sizeof value);
    if (value != 0 && value != 1)
      return false;
  }
  return true;
}

bool repeatsItself(const Model &model, const TensorData &t) {
  if (!t.problem.empty() || t.dims.empty() || t.dims[0] < 2)
    return false;
  const size_t part = model.bytesOf(t).size() / static_cast<size_t>(t.dims[0]);
  const size_t few = std::min<size_t>(part, 4096); // which decide of most
  if (part == 0 || model.partOf(t, 0, few) != model.partOf(t, part, few))
    return false;
  const std::string_view bytes = model.wholeOf(t);
  return bytes.substr(part) == bytes.substr(0, bytes.size() - part);
}

bool firstRowVaries(const Model &model, const TensorData &t) {
  const int64_t width = byteWidth(t.type);
  if (!t.problem.empty() || width == 0 || t.dims.empty())
    return false;
  const std::string_view row =
      model.bytesOf(t).substr(0, static_cast<size_t>(width * t.dims.back()));
  return row.size() > static_cast<size_t>(width) &&
         row.substr(width) != row.substr(0, row.size() - width);
}

bool looksDrawn(const Model &model, const TensorData &t) {
  if (t.type != ElementType::Float || !t.problem.empty() || t.dims.empty() ||
      t.dims.back() < 2 || distinctValues(model, t) < 3)
    return false;
  const std::string_view bytes = model.wholeOf(t);
  const size_t count = bytes.size() / sizeof(float);
  const auto at = [&](size_t i) {
    float value;
    std::memcpy(&value, bytes.data() + i * sizeof value, sizeof value);
    return value;
  };
  size_t negative = 0, zeros = 0, even = 0;
  for (size_t i = 0; i < count; ++i) {
    negative += at(i) < 0;
    zeros += at(i) == 0;
    even += i >= 2 && std::abs(at(i) - 2 * at(i - 1) + at(i - 2)) <
                          1e-4F * (1 + std::abs(at(i)));
  }
  return firstRowVaries(model, t) && negative * 8 > count &&
         (count - negative) * 8 > count && zeros * 8 < count &&
         even * 4 < count;
}

} // namespace pipec::onnx
