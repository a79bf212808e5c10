//===- Reader.h - a model file to plain data --------------------*- C++ -*-===//

#pragma once

#include "compiler/onnx/Model.h"
#include "support/Diagnostics.h"

namespace pipec::onnx {

/// Reads a model file and maps the files its tensors refer to. Null when the
/// file cannot be read at all; other problems (a tensor whose data is missing)
/// are in the tensors. Both kinds of problems go to `diagnostics`.
std::unique_ptr<Model> readModel(const std::string &path,
                                 Diagnostics &diagnostics);

/// The same for bytes in memory, which must outlive the model. External data is
/// looked up in `folder`.
std::unique_ptr<Model> readModel(std::string_view bytes,
                                 const std::string &name,
                                 const std::string &folder,
                                 Diagnostics &diagnostics);

} // namespace pipec::onnx
