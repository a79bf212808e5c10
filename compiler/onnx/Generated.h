//===- Generated.h - names that exporters make up ---------------*- C++ -*-===//
#pragma once

#include "compiler/onnx/Model.h"

namespace pipec::onnx {

/// Whether nobody chose this symbol of a dimension: tf2onnx and others leave
/// the batch of every input open under a number of its own.
bool isGeneratedSymbol(const std::string &symbol);

/// Whether a tensor's name says that it is a number or a table which stands in
/// the code of the model, not a variable of it.
bool isLiteralByName(const Model &model, const TensorData &tensor);

} // namespace pipec::onnx
