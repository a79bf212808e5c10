//===- Generated.cpp - names that exporters make up -----------------------===//
#include "compiler/onnx/Generated.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringRef.h"

#include <algorithm>

namespace pipec::onnx {

/// "unk__12" is "unk__" and a number.
static bool isNumbered(llvm::StringRef name, llvm::StringRef prefix) {
  return name.consume_front(prefix) && !name.empty() &&
         llvm::all_of(name, llvm::isDigit);
}

bool isGeneratedSymbol(const std::string &symbol) {
  const llvm::StringRef name = symbol;
  const size_t mark = name.rfind("_dynamic_axes_"); // TorchScript's exporter
  return name.empty() || name == "?" || name == "None" ||
         isNumbered(name, "unk__") || isNumbered(name, "DynamicDimension.") ||
         isNumbered(name, "s") ||
         (mark != llvm::StringRef::npos &&
          isNumbered(name.substr(mark), "_dynamic_axes_"));
}

bool isLiteralByName(const Model &model, const TensorData &tensor) {
  const llvm::StringRef name = tensor.name;
  // One element that the exporter made, not a parameter of one element.
  if (tensor.elements() == 1)
    for (const char *prefix :
         {"const_fold_opt__", "auto.cast.", "helper.constant."})
      if (name.starts_with(prefix))
        return true;
  // TensorFlow names the operands that are no variables: "normalization/Sub/y".
  if (model.producer != "tf2onnx")
    return false;
  const llvm::StringRef last =
      name.take_front(name.rfind(':')).rsplit('/').second;
  return last == "x" || last == "y" || last == "Const" ||
         last.ends_with("_recip") || isNumbered(last, "Const_");
}

} // namespace pipec::onnx
