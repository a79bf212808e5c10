//===- CudnnGraph.h - a graph of operations that cuDNN runs -----*- C++ -*-===//
//
// cuDNN runs some graphs as one kernel: attention is a graph of products,
// pointwise operations and reductions. What a graph computes it is told in
// descriptors ("parts"), and so are the ways in which it can be computed.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "runtime/device/cuda/CudnnLibrary.h"

#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <utility>
#include <vector>

namespace pipec::cudnn {

/// A descriptor, which is destroyed with its owner. Functions return whether
/// cuDNN has taken what it was told.
class Descriptor {
public:
  explicit Descriptor(Part kind);
  Descriptor(Descriptor &&other) noexcept
      : part(std::exchange(other.part, nullptr)) {}
  Descriptor &operator=(Descriptor &&other) noexcept {
    std::swap(part, other.part);
    return *this;
  }
  ~Descriptor();

  bool set(Attribute name, AttributeType type, int64_t count,
           const void *values);
  template <typename T>
  bool set(Attribute name, AttributeType type, const T &value) {
    return set(name, type, 1, &value);
  }
  bool set(Attribute name, const Descriptor &other) {
    return set(name, kPartType, other.part);
  }
  bool finish();
  void *get() const { return part; }

private:
  void *part = nullptr;
};

/// One way to run a graph.
struct GraphPlan {
  Descriptor plan;
  size_t workspace; ///< bytes
};

/// Tensors have four dimensions and are known by their numbers, from 1 on.
class OperationGraph {
public:
  using Sizes = std::array<int64_t, 4>;

  /// One in the device's memory, whose address a run is given; between two
  /// operations; and one f32 number of the host's, whose address it is given.
  int64_t memory(int type, const Sizes &sizes, const Sizes &strides);
  int64_t between(int type, const Sizes &sizes);
  int64_t between(int type, const Sizes &sizes, const Sizes &strides);
  int64_t number();

  void multiply(int64_t a, int64_t b, int64_t c);
  void pointwise(PointwiseMode mode, int64_t x, int64_t y);
  void pointwise(PointwiseMode mode, int64_t x, int64_t b, int64_t y);
  /// y = t ? x : b
  void select(int64_t x, int64_t b, int64_t t, int64_t y);
  /// y = the index along an axis.
  void indices(int64_t axis, int64_t x, int64_t y);
  /// To y's sizes: over what y has one of.
  void reduce(int operation, int64_t x, int64_t y);
  /// The same numbers in other sizes, strides and of another type.
  void reshape(int64_t x, int64_t y);

  /// The first deterministic way, in the order of expected speed, that works in
  /// `most` bytes or less.
  std::optional<GraphPlan> plan(void *handle, size_t most);

  static Sizes dense(const Sizes &sizes);

private:
  enum Place { InMemory, Between, OnHost };
  int64_t add(int type, const Sizes &sizes, const Sizes &strides, Place place);
  void pointwise(PointwiseMode mode, const int64_t *axis,
                 std::initializer_list<std::pair<Attribute, int64_t>> tensors);
  void operation(Descriptor what,
                 std::initializer_list<std::pair<Attribute, int64_t>> tensors);
  const Descriptor &tensor(int64_t number) const {
    return tensors[static_cast<size_t>(number) - 1];
  }
  void expect(bool isTaken) { isRight &= isTaken; }

  bool isRight = true; ///< cuDNN has taken everything so far
  std::vector<Descriptor> tensors, kinds, operations;
};

/// Runs a plan: tensors' numbers, with their addresses.
int run(void *handle, const GraphPlan &plan,
        const std::vector<std::pair<int64_t, void *>> &at, void *workspace);

} // namespace pipec::cudnn
