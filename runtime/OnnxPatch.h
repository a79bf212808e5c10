//===- OnnxPatch.h - new weights for an ONNX file ---------------*- C++ -*-===//
//
// Copies a model file and puts new values into some of its initializers,
// without a protobuf library: the wire format is walked where the weights are,
// everything else is copied byte for byte. Field numbers are those of
// onnx.proto.
//
//===----------------------------------------------------------------------===//
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace pipec {

/// New float32 values of an initializer (or, with another type in the plan, its
/// bytes as they are).
struct NewValues {
  std::string dtype; ///< numpy's name; float32 is converted to what the model
                     ///< has: float16, bfloat16, float64
  int64_t bytes = 0;
  /// Not empty: there is no such initializer yet. It is made like `of`, and
  /// input `input` of the graph's node `node` reads it from now on.
  std::string of = {};
  int64_t node = 0, input = 0;
  /// Gives the bytes in order, piece by piece; pieces are whole elements.
  std::function<void(const std::function<void(const char *, int64_t)> &)> give;
};

/// Writes `target`: the model `source` with new values, by initializer name.
/// Tensors that `source` keeps in other files go, old or new, to one new file
/// beside `target`, named after it with ".data". Both appear whole or not at
/// all; neither `source` nor its files are written. Models of any size: memory
/// is constant.
///
/// Failure(NoInput, BadModel) for the source, Failure(CannotWrite).
void patchOnnx(const std::string &source, const std::string &target,
               const std::map<std::string, NewValues> &values);

} // namespace pipec
