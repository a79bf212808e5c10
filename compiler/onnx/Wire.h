//===- Wire.h - tensors inside the bytes of a model -------------*- C++ -*-===//
//
// A model file is one protobuf message with the weights in it. Parsing it whole
// would copy every weight and stop at 2 GiB. This scan of the wire format finds
// the bytes of the large tensors and gives the message without them, which is
// small enough to parse.
//
//===----------------------------------------------------------------------===//

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pipec::onnx {

/// Bytes of a tensor that were left out of the message.
struct Span {
  int64_t offset = -1; ///< in the file; -1: nothing was left out
  int64_t length = 0;
};

/// A ModelProto without its large tensors.
struct StrippedModel {
  std::string message;
  std::vector<Span> initializers; ///< by index in GraphProto.initializer
  /// By index of node and attribute, for the tensors of Constant nodes.
  std::map<std::pair<int, int>, Span> attributeTensors;
};

/// Scans the bytes of a ModelProto. False, with a sentence in `why`, when they
/// are none.
bool stripTensors(std::string_view file, StrippedModel &out, std::string &why);

} // namespace pipec::onnx
