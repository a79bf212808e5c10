//===- Dropped.h - biases that an exporter left out -------------*- C++ -*-===//
//
// The dynamo exporter lists the parameters that it was given, and then leaves
// out those whose values do nothing: a bias of zeros is an Add that its
// optimizer takes away. Such a bias does not train, and nothing else in the
// file tells of it.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/onnx/Model.h"

#include <map>

namespace pipec::onnx {

/// Biases of the exporter's list that no tensor of the file is, is folded
/// from or stands for. `standsFor`: names of tensors with those of others that
/// were merged into them.
std::vector<std::string>
droppedBiases(const Model &model,
              const std::map<std::string, std::vector<std::string>> &standsFor);

} // namespace pipec::onnx
