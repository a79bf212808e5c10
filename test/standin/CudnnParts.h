//===- CudnnParts.h - a stand-in for cuDNN's graph API ---------*- C++ -*-===//
//
// Descriptors are lists of attributes. A graph of operations becomes a list of
// steps over tensors, which the processor goes through one after the other:
// what is tested is that the graph says what it should.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "runtime/device/cuda/Cudnn.h"

#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

namespace pipec::standin {

struct CudnnHandle {
  void *stream = nullptr;
};

using Index = std::array<int64_t, 4>;

/// One of a graph, in the order of its axes.
struct GraphTensor {
  int64_t number = 0;
  int type = 0;
  Index sizes{}, strides{};
  bool isBetween = false, isOnHost = false;
};

/// One operation: tensors by their numbers, 0 for none.
struct GraphStep {
  int kind = 0; ///< cudnn::Part, of the operation
  int mode = 0; ///< of a pointwise one, or of a reduction
  int64_t axis = 0;
  int64_t x = 0, b = 0, t = 0, y = 0;
};

struct GraphProgram {
  std::map<int64_t, GraphTensor> tensors;
  std::vector<GraphStep> steps;

  /// Does all steps; `at`: of each tensor that is not between steps. Aborts
  /// where the graph makes no sense.
  void run(const std::map<int64_t, void *> &at) const;
};

/// A descriptor.
struct CudnnPart {
  int kind = 0;
  bool isFinished = false;
  std::map<int, std::vector<char>> attributes;
  std::shared_ptr<const GraphProgram> program; ///< of graphs, and from there on
  int choice = -1; ///< of configurations, and from there on

  bool has(int name) const { return attributes.count(name) != 0; }
  template <typename T> T get(int name) const {
    T value{};
    const auto found = attributes.find(name);
    if (found != attributes.end() && found->second.size() >= sizeof value)
      std::memcpy(&value, found->second.data(), sizeof value);
    return value;
  }
  template <typename T> std::vector<T> list(int name) const {
    const auto found = attributes.find(name);
    if (found == attributes.end())
      return {};
    std::vector<T> values(found->second.size() / sizeof(T));
    std::memcpy(values.data(), found->second.data(), found->second.size());
    return values;
  }
};

} // namespace pipec::standin
