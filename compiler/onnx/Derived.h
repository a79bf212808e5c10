//===- Derived.h - what is computed from weights alone ----------*- C++ -*-===//
//
// Models compute weights from parameters: a scale as the exponential of its
// logarithm, a matrix as a direction times a length. What reads the computed
// tensor then says what the parameters are.
//
//===----------------------------------------------------------------------===//

#pragma once

#include "compiler/onnx/Uses.h"

#include <unordered_map>

namespace pipec::onnx {

/// A use of a computed tensor by a node that also reads what depends on an
/// input.
struct DerivedUse {
  Use use;
  /// On the way from the initializer is a function that one bends parameters
  /// with (an exponential, a sigmoid), or a second initializer.
  bool bent = false, joined = false;
};

/// Which values of the main graph depend on no input.
class Derived {
public:
  Derived(const Model &model, const Uses &uses);
  /// Where what is computed from an initializer meets the inputs; the
  /// initializer's own uses by such nodes are not among them.
  std::vector<DerivedUse> usesOf(const std::string &initializer) const;

private:
  const Uses &uses;
  /// The one floating-point initializer that a value is computed from; empty
  /// for several, or for none.
  struct Origin {
    std::string initializer;
    bool several = false;
  };
  std::unordered_map<std::string, Origin> origins;
};

} // namespace pipec::onnx
