//===- Literals.h - tensors of a model as types and literals ----*- C++ -*-===//

#pragma once

#include "compiler/onnx/Model.h"
#include "dialects/nn/eval/Literal.h"

namespace pipec::onnx {

/// The element type in the IR (bool is i1, unsigned integers are ui8 ...), or
/// null for a type that pipec has not.
mlir::Type elementType(mlir::MLIRContext *context, ElementType type);

/// The tensor type, or null when the element type is not supported.
mlir::RankedTensorType tensorType(mlir::MLIRContext *context,
                                  const TensorData &tensor);

/// Reads all elements. The tensor must have no problem and a supported type.
nn::Literal readLiteral(mlir::MLIRContext *context, const Model &model,
                        const TensorData &tensor);

/// The elements as an attribute.
mlir::DenseElementsAttr readAttr(mlir::MLIRContext *context, const Model &model,
                                 const TensorData &tensor);

} // namespace pipec::onnx
