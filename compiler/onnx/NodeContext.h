//===- NodeContext.h - what the importer of an operator sees ----*- C++ -*-===//
//
// The operands and attributes of one node, with the checks that every operator
// needs, and the emitter to write its meaning with. Importers report what they
// cannot do by throwing NodeError, usually through fail().
//
//===----------------------------------------------------------------------===//

#pragma once

#include "compiler/onnx/Emitter.h"

namespace pipec::onnx {

class Importer;

class NodeContext {
public:
  NodeContext(const Node &node, int64_t opset, Emitter &e, Importer &importer,
              std::vector<Val> inputs,
              const std::map<std::string, Attribute> &bindings);

  const Node &node;
  const int64_t opset; ///< version of the node's domain
  Emitter &e;
  Importer &importer; ///< for operators with a subgraph
  const ImportOptions &options;

  //===--- Operands
  //---------------------------------------------------------===//

  size_t inputCount() const { return inputs.size(); }
  bool has(size_t i) const { return i < inputs.size() && inputs[i]; }
  /// An input that must be there, and must be a tensor.
  const Val &in(size_t i) const;
  /// A tensor of floats.
  const Val &floatIn(size_t i) const;
  /// An input that may be a sequence.
  const Val &inputOrSequence(size_t i) const { return inputs[i]; }
  const std::vector<Val> &sequenceIn(size_t i) const;
  /// The integers of an input that must be known at compile time; `what` names
  /// it in the error ("shape").
  std::vector<int64_t> ints(size_t i, const char *what) const;
  int64_t scalarInt(size_t i, const char *what) const;
  double scalar(size_t i, const char *what) const;
  /// The elements of such an input.
  nn::Literal known(size_t i, const char *what) const;
  /// Input `i` has lengths from 0 to `longest`: fails for others that are known
  /// here; those in an array of data are for the runtime to check.
  void limitLengths(size_t i, int64_t longest) const;

  //===--- Attributes
  //-------------------------------------------------------===//

  /// The attribute, or null. A reference in a function body is followed.
  const Attribute *attribute(const char *name) const;
  int64_t intAttr(const char *name, int64_t otherwise) const;
  int64_t intAttr(const char *name) const; ///< required
  double floatAttr(const char *name, double otherwise) const;
  std::string stringAttr(const char *name, const std::string &otherwise) const;
  std::optional<std::vector<int64_t>> intsAttr(const char *name) const;
  std::optional<std::vector<float>> floatsAttr(const char *name) const;
  /// From input `i`, or from the attribute that older opsets have instead.
  std::optional<std::vector<int64_t>> intsInputOrAttr(size_t i,
                                                      const char *name) const;
  mlir::Type typeAttr(const char *name, ElementType otherwise) const;

  //===--- Results
  //----------------------------------------------------------===//

  /// Whether anything names output i.
  bool wants(size_t i) const {
    return i < node.outputs.size() && !node.outputs[i].empty();
  }
  void out(size_t i, Val v);
  void out(Val v) { out(0, std::move(v)); }
  const std::vector<Val> &getOutputs() const { return outputs; }
  /// An inference-form node reports a remark of the whole import.
  void note(const std::string &text) const;

  //===--- Errors
  //-----------------------------------------------------------===//

  [[noreturn]] void fail(const std::string &cause,
                         const std::string &remedy = "") const;
  /// `axis` counted from the front; fails when a tensor of `rank` has none
  /// such.
  int64_t axis(int64_t axis, int64_t rank) const;
  /// Distinct axes, sorted.
  std::vector<int64_t> axes(const std::vector<int64_t> &axes,
                            int64_t rank) const;

private:
  /// The attribute, checked to be of a kind.
  const Attribute *typed(const char *name, Attribute::Kind kind) const;

  std::vector<Val> inputs, outputs;
  const std::map<std::string, Attribute> &bindings;
};

/// "[4,64]"
std::string shapeText(llvm::ArrayRef<int64_t> shape);
/// "tensor<4x64xf32>"
std::string typeText(mlir::Type type);

} // namespace pipec::onnx
