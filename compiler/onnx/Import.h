//===- Import.h - an ONNX file to the nn dialect ----------------*- C++ -*-===//
//
// The module that comes out has one `func.func @main` over static shapes, one
// `nn.parameter` a tensor of the file that the program uses, and the attribute
// `nn.files`. Weights stay in the file: a parameter refers to its bytes.
//
//   func.func @main(%0: tensor<4x64xi64> {nn.name = "input_ids",
//                                         nn.batch_axis = 0 : i64})
//       -> (tensor<4x64x256xf32> {nn.name = "logits"})
//
// `nn.batch_axis` is the axis that counts samples, or -1. Every op has the name
// of its ONNX node in its location.
//
//===----------------------------------------------------------------------===//

#pragma once

#include "support/Diagnostics.h"

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace pipec::onnx {

/// How batch normalizations are imported.
enum class BatchNorm {
  Auto,      ///< training: statistics of the microbatch, running averages as in
             ///< PyTorch; without training: the running averages
  Inference, ///< the running averages of the file, which do not change
  Written,   ///< without training: as the file says; else as Auto
};

struct ImportOptions {
  /// Symbolic dimension (or INPUT.AXIS for one without a name) to size.
  std::map<std::string, int64_t> dims;
  /// Graph input and the .npy file whose array it becomes. Where the two are
  /// joined by a '=' and the input's name has one, the name may end there: the
  /// longest name of an input counts.
  std::vector<std::pair<std::string, std::string>> constants;
  /// Extended regular expressions over initializer names, found anywhere in
  /// them. With `trainOnly`, what none of them matches is frozen.
  std::vector<std::string> freeze, trainOnly;
  /// Weights that are copies of others, transposed or not, train with them.
  bool tie = false;
  /// A tensor that the exporter merged of equal ones is a weight of its own in
  /// every place that reads it.
  bool untie = false;
  BatchNorm batchNorm = BatchNorm::Auto;
  /// The program is never trained: every weight is frozen, dropout is off, and
  /// batch norms take their running averages.
  bool forwardOnly = false;
  /// With forwardOnly: the program belongs to a training, whose checkpoints and
  /// seed it takes. Weights are f32 there, whatever the file has.
  bool evaluates = false;
};

/// One initializer of the model and what became of it.
struct TensorReport {
  std::string name;
  bool floating = false;
  bool trains = false;
  int64_t elements = 0;
  std::string reason; ///< "the exporter says PARAMETER", "operand 1 of Conv"
  int uses = 0;       ///< places that read it; more than one ties them
};

struct InputReport {
  std::string name, type; ///< type as in the IR: "4x64xi64"
  int64_t batchAxis = -1;
};

struct ImportReport {
  int64_t opset = 0, irVersion = 0;
  std::string producer; ///< name and version
  int64_t nodes = 0;    ///< in the file
  std::vector<InputReport> inputs, outputs;
  bool hasBatchNorms = false;
  std::string batchDimension; ///< its name; empty where sizes are fixed
  /// Initializers in the order of the file.
  std::vector<TensorReport> tensors;
  /// Remarks such as "batch norms are folded into convolutions".
  std::vector<std::string> notes;

  int64_t trainedTensors() const;
  int64_t trainedElements() const;
};

/// Reads and imports a model. Null when `diagnostics` has entries.
mlir::OwningOpRef<mlir::ModuleOp> importModel(const std::string &path,
                                              const ImportOptions &options,
                                              mlir::MLIRContext &context,
                                              Diagnostics &diagnostics,
                                              ImportReport &report);

/// The same for the bytes of a model. `name` stands for its path; external data
/// is looked up in `folder`.
mlir::OwningOpRef<mlir::ModuleOp>
importModel(llvm::StringRef bytes, const std::string &name,
            const std::string &folder, const ImportOptions &options,
            mlir::MLIRContext &context, Diagnostics &diagnostics,
            ImportReport &report);

/// The elements of a folded parameter as they are in memory: row-major, little
/// endian, i1 a byte an element.
std::string rawBytes(mlir::DenseElementsAttr value);

} // namespace pipec::onnx
