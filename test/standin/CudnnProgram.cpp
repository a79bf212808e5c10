//===- CudnnProgram.cpp - a graph of operations, step by step -------------===//
#include "support/NarrowFloat.h"
#include "test/standin/CudnnParts.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

using namespace pipec;
using namespace pipec::standin;
using namespace pipec::cudnn;

namespace {

[[noreturn]] void refuse(const char *what) {
  std::fprintf(stderr, "cuDNN's stand-in: %s\n", what);
  std::abort();
}

/// A tensor's numbers while a graph runs. What is between steps is stored as
/// f32, rounded to its type.
class Numbers {
public:
  Numbers(const GraphTensor &tensor, void *memory)
      : tensor(tensor), memory(memory) {
    if (memory)
      return;
    int64_t span = 1;
    for (size_t d = 0; d < 4; ++d)
      span += (tensor.sizes[d] - 1) * tensor.strides[d];
    between.resize(static_cast<size_t>(span));
  }

  const Index &sizes() const { return tensor.sizes; }
  /// Of which there is one along an axis, it is for all.
  float at(Index index) const {
    const auto place = static_cast<size_t>(placeOf(index));
    if (!memory)
      return between[place];
    return tensor.type == kBfloat16
               ? fromBfloat(static_cast<const uint16_t *>(memory)[place])
               : static_cast<const float *>(memory)[place];
  }
  void set(const Index &index, float value) {
    const auto place = static_cast<size_t>(placeOf(index));
    if (tensor.type == kBfloat16 && memory)
      static_cast<uint16_t *>(memory)[place] = toBfloat(value);
    else if (memory)
      static_cast<float *>(memory)[place] = value;
    else
      between[place] =
          tensor.type == kBfloat16 ? fromBfloat(toBfloat(value)) : value;
  }
  /// The same memory as `other`'s, element by element.
  void takeMemory(const Numbers &other) {
    if (!between.empty() && other.memory && other.tensor.type == kBfloat16)
      for (size_t i = 0; i < between.size(); ++i)
        between[i] = fromBfloat(static_cast<const uint16_t *>(other.memory)[i]);
    else if (!between.empty() && !other.memory &&
             other.between.size() == between.size())
      for (size_t i = 0; i < between.size(); ++i)
        between[i] = tensor.type == kBfloat16
                         ? fromBfloat(toBfloat(other.between[i]))
                         : other.between[i];
    else
      refuse("a reshape of other numbers");
  }

private:
  int64_t placeOf(const Index &index) const {
    int64_t place = 0;
    for (size_t d = 0; d < 4; ++d)
      if (tensor.sizes[d] > 1)
        place += index[d] * tensor.strides[d];
    return place;
  }

  const GraphTensor &tensor;
  void *memory;
  std::vector<float> between;
};

template <typename Body> void forAll(const Index &sizes, Body body) {
  Index i;
  for (i[0] = 0; i[0] < sizes[0]; ++i[0])
    for (i[1] = 0; i[1] < sizes[1]; ++i[1])
      for (i[2] = 0; i[2] < sizes[2]; ++i[2])
        for (i[3] = 0; i[3] < sizes[3]; ++i[3])
          body(i);
}

float apply(const GraphStep &step, const Index &i, float x, float b, float t) {
  switch (step.mode) {
  case kAdd:
    return x + b;
  case kMultiply:
    return x * b;
  case kDivide:
    return x / b;
  case kSubtract:
    return x - b;
  case kExp:
    return std::exp(x);
  case kLog:
    return std::log(x);
  case kIsGreaterOrEqual:
    return x >= b;
  case kIndexAlong:
    return static_cast<float>(i[static_cast<size_t>(step.axis)]);
  case kSelect:
    return t != 0 ? x : b;
  }
  refuse("a pointwise operation without a meaning here");
}

void multiply(const Numbers &a, const Numbers &b, Numbers &c) {
  const int64_t depth = a.sizes()[3];
  if (b.sizes()[2] != depth || c.sizes()[2] != a.sizes()[2] ||
      c.sizes()[3] != b.sizes()[3])
    refuse("a product of matrices that do not fit");
  forAll(c.sizes(), [&](const Index &i) {
    float sum = 0;
    for (int64_t k = 0; k < depth; ++k)
      sum += a.at({i[0], i[1], i[2], k}) * b.at({i[0], i[1], k, i[3]});
    c.set(i, sum);
  });
}

void reduce(int mode, const Numbers &x, Numbers &y) {
  forAll(y.sizes(), [&](const Index &i) {
    if (y.sizes()[3] != 1)
      refuse("a reduction that is not of rows");
    float sum = mode == kLargest ? -INFINITY : 0;
    for (int64_t k = 0; k < x.sizes()[3]; ++k) {
      const float one = x.at({i[0], i[1], i[2], k});
      sum = mode == kLargest ? std::max(sum, one) : sum + one;
    }
    y.set(i, sum);
  });
}

} // namespace

void GraphProgram::run(const std::map<int64_t, void *> &at) const {
  std::map<int64_t, Numbers> all;
  for (const auto &[number, tensor] : tensors) {
    const auto place = at.find(number);
    if ((place == at.end()) != tensor.isBetween)
      refuse("a tensor without its address");
    all.emplace(number,
                Numbers(tensor, place == at.end() ? nullptr : place->second));
  }
  for (const GraphStep &step : steps) {
    auto of = [&](int64_t number) -> Numbers & { return all.at(number); };
    Numbers &y = of(step.y);
    if (step.kind == kMatmulOperation)
      multiply(of(step.x), of(step.b), y);
    else if (step.kind == kReductionOperation)
      reduce(step.mode, of(step.x), y);
    else if (step.kind == kReshapeOperation)
      y.takeMemory(of(step.x));
    else
      forAll(y.sizes(), [&](const Index &i) {
        y.set(i, apply(step, i, of(step.x).at(i), step.b ? of(step.b).at(i) : 0,
                       step.t ? of(step.t).at(i) : 0));
      });
  }
}
