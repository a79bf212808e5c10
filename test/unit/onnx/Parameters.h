//===- Parameters.h - the tensors of an imported module --------*- C++ -*-===//
#pragma once

#include "compiler/onnx/Literals.h"
#include "compiler/onnx/Reader.h"
#include "dialects/nn/NN.h"
#include "mlir/IR/BuiltinOps.h"

#include <map>

namespace pipec::test {

/// The elements of every nn.parameter, from the module or from the model file.
inline std::map<std::string, nn::Literal>
readParameters(mlir::ModuleOp module, const std::string &file) {
  mlir::MLIRContext *context = module.getContext();
  Diagnostics ignored;
  const auto model = onnx::readModel(file, ignored);
  std::map<std::string, nn::Literal> parameters;
  for (auto p : module.getOps<nn::ParameterOp>()) {
    nn::Literal &literal = parameters[p.getSymName().str()];
    if (const auto value = p.getValue()) {
      literal =
          nn::Literal::fromAttr(mlir::cast<mlir::DenseElementsAttr>(*value));
      continue;
    }
    onnx::TensorData t;
    t.file = static_cast<int>(*p.getFile());
    t.offset = static_cast<int64_t>(*p.getOffset());
    t.length = static_cast<int64_t>(*p.getLength());
    const mlir::Type element =
        p.getStored() ? *p.getStored() : p.getTensorType().getElementType();
    for (int type = 1; type <= 16; ++type)
      if (onnx::elementType(context, static_cast<onnx::ElementType>(type)) ==
          element)
        t.type = static_cast<onnx::ElementType>(type);
    t.dims.assign(p.getTensorType().getShape().begin(),
                  p.getTensorType().getShape().end());
    literal = onnx::readLiteral(context, *model, t);
    if (p.getStored())
      literal = nn::Literal(p.getTensorType(), literal.doubles());
  }
  return parameters;
}

} // namespace pipec::test
