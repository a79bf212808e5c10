//===- StageText.h - stages of training networks, as text ------*- C++ -*-===//
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace pipec::test {

/// Short forms, so that functions of nn ops can be read. Types are written
/// without `tensor<>`; types of operands are looked up.
class StageText {
public:
  /// Loads and stores take the next free place of their region.
  StageText &load(const std::string &name, const std::string &region,
                  const std::string &type);
  StageText &store(const std::string &name, const std::string &region,
                   bool accumulate = false, int64_t at = -1);
  StageText &scalar(const std::string &name);
  /// The type is that of the first operand when none is given.
  StageText &op(const std::string &name, const std::string &op,
                const std::vector<std::string> &operands, std::string type = "",
                const std::string &attributes = "");
  StageText &constant(const std::string &name, const std::string &value,
                      const std::string &type);
  StageText &reduce(const std::string &name, const std::string &kind,
                    const std::string &x, const std::string &axes,
                    const std::string &type);
  /// Where `name` was loaded from.
  int64_t placeOf(const std::string &name) { return places[name]; }
  std::string stage(const std::string &task = "forward") const;

private:
  std::string text;
  std::map<std::string, std::string> types;
  std::map<std::string, int64_t> places, offsets;
};

/// x = a + b and its layer norm over [rows, c]; `inverse` is 1/c.
StageText layerNormForward(const std::string &rows, const std::string &c,
                           const std::string &inverse);
/// With `before`, of what that op made of a kept value.
StageText layerNormBackward(const std::string &rows, const std::string &c,
                            const std::string &inverse,
                            const std::string &before = "");
/// y = GELU(x) (the tanh form), with its parts named t3 = tanh, t4, t5, ….
void gelu(StageText &t, const std::string &shape);
/// dx of dy, after gelu.
void geluGradient(StageText &t, const std::string &shape);
/// g, the gradient of softmax p times dp, over the axis of the given number.
void softmaxGradient(StageText &t, const std::string &full,
                     const std::string &row, const std::string &axis);
/// Cross-entropy of logits [batch, tokens, vocabulary] against the next token;
/// with the gradient of the logits if `backward`.
StageText crossEntropy(const std::string &batch, int tokens,
                       const std::string &vocabulary, bool backward);
/// Batch norm over [n, c, plane] with ReLU; `inverse` is 1/(n * plane).
StageText batchNormForward(const std::string &n, const std::string &c,
                           const std::string &plane,
                           const std::string &inverse);
StageText batchNormBackward(const std::string &n, const std::string &c,
                            const std::string &plane,
                            const std::string &inverse);
/// What all weights share in AdamW's update, and the update of one.
void adamWScalars(StageText &t);
void adamWUpdate(StageText &t, const std::string &prefix,
                 const std::string &type, const std::string &ones);

} // namespace pipec::test
