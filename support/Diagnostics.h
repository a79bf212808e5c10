//===- Diagnostics.h - all problems of an input in one report ---*- C++ -*-===//
//
// A reader that meets a problem adds it here and goes on, so that the user sees
// everything that is wrong at once. The report is printed as text or as JSON;
// the worst entry decides the exit code.
//
//===----------------------------------------------------------------------===//

#pragma once

#include "support/Failure.h"

#include <cstdint>
#include <string>
#include <vector>

namespace pipec {

/// One problem: what, where, why, and what to do about it.
struct Diagnostic {
  Exit code = Exit::BadModel;
  std::string node;     ///< name of the ONNX node, empty when of no node
  std::string op;       ///< its operator
  std::string domain;   ///< of the operator; empty is ai.onnx
  int64_t opset = 0;    ///< version of the domain the model asks for; 0 unknown
  std::string location; ///< file:line in the source of the model
  std::string cause;    ///< what is wrong, one sentence without a period
  std::string remedy;   ///< what to type or change
  int64_t count = 1;    ///< nodes with this very problem
  std::vector<std::string> also; ///< names of some of the others
};

/// "pipec: note: …", a line.
std::string noteLine(const std::string &note);

/// Collects problems and remarks about one input.
class Diagnostics {
public:
  /// Adds a problem. One that differs from an earlier one only in its node is
  /// counted there.
  void add(Diagnostic diagnostic);
  /// Adds a problem of the input as a whole.
  void add(Exit code, const std::string &cause, const std::string &remedy = "");
  /// The same of a failure, whose remedy is what stands behind its first "; ".
  void add(const Failure &failure);
  /// Something the user should know that stops nothing.
  void note(const std::string &text);

  bool empty() const { return entries.empty(); }
  const std::vector<Diagnostic> &getEntries() const { return entries; }
  const std::vector<std::string> &getNotes() const { return notes; }

  /// 0 without entries; a bug in pipec outweighs a missing file, which
  /// outweighs a bad model.
  Exit exitCode() const;

  /// The notes, once: they are forgotten.
  std::vector<std::string> takeNotes();

  /// The report about `input` as lines of text, the notes first, or as one JSON
  /// object {"input", "exit", "problems": [{...}], "notes": [...]}.
  std::string text(const std::string &input) const;
  std::string json(const std::string &input) const;

private:
  std::vector<Diagnostic> entries;
  std::vector<std::string> notes;
};

} // namespace pipec
