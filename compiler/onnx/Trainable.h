//===- Trainable.h - which initializers are weights -------------*- C++ -*-===//
//
// Of the float tensors in an exported file some are weights and some are not:
// running statistics, rotary tables, masks, scales. The dynamo exporter says
// which is which in its metadata; for other files the way a tensor is used
// decides. Either way the user has the last word (--freeze, --train-only).
//
//===----------------------------------------------------------------------===//

#pragma once

#include "compiler/onnx/Import.h"
#include "compiler/onnx/Model.h"

#include <set>

namespace pipec::onnx {

/// What an initializer is to training.
enum class Role {
  Weight, ///< trains
  Frozen, ///< a weight that does not train
  Buffer, ///< never was a weight: a mask, a table, a scale, an integer
  State,  ///< a running statistic of a batch norm
};

struct Classification {
  Role role = Role::Buffer;
  std::string reason;
  bool masters = false; ///< frozen, and f32 as where it trains
  /// A parameter that the exporter computed it from, with further tensors.
  std::string computedFrom{};
  int uses = 0; ///< inputs of nodes that read it, subgraphs included
};

/// The names of the parameters that the dynamo exporter was given, if it says.
std::set<std::string> parameterTargets(const Metadata &metadata);
/// The same for its buffers.
std::set<std::string> bufferTargets(const Metadata &metadata);

/// Metadata of a tensor: what the dynamo exporter computed it from.
constexpr const char *kFoldedFrom = "pkg.onnxscript.optimizer.folded_from";

/// The quoted names of a list such as ['a.weight', "b"]; a bare name is itself.
std::vector<std::string> quotedNames(const std::string &text);

/// Classifies every initializer of the main graph, in its order. Reports a
/// pattern that is no regular expression, or that matches nothing.
std::vector<Classification> classify(const Model &model,
                                     const ImportOptions &options,
                                     Diagnostics &diagnostics);

} // namespace pipec::onnx
