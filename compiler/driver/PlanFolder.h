//===- PlanFolder.h - the plan directory on disk ----------------*- C++ -*-===//
#pragma once

#include "runtime/program/Plan.h"
#include "support/Failure.h"
#include "support/WorkingCopy.h"

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace pipec {

/// What compilations write into a plan directory, with whatever options.
const std::vector<std::string> &planEntries();

/// A plan directory in the making: everything is written to a temporary folder
/// beside it and appears, complete, with commit(). Without it nothing is left.
class PlanFolder {
public:
  /// Throws Failure(CannotWrite) when `path` exists and is no plan, or its
  /// parent cannot be written.
  explicit PlanFolder(const std::string &path);
  /// A plan inside a plan: comes and goes with `outer`.
  PlanFolder(const PlanFolder &outer, const std::string &name);
  ~PlanFolder();
  PlanFolder(const PlanFolder &) = delete;

  /// Where files go meanwhile.
  const std::string &temporary() const { return temporaryPath; }
  void writeFile(const std::string &relative, const std::string &content);
  /// Folded tensors: name, dtype, shape, bytes. Fills the weights' sources.
  void writeFolded(plan::Plan &plan,
                   const std::map<std::string, std::string> &bytes);
  /// Digests and paths of the files; with `copy` they move into the plan.
  void addFiles(plan::Plan &plan, bool copy);
  /// The same for a plan inside that of `outer`, which has the same files.
  void shareFiles(plan::Plan &plan, const plan::Plan &outer);
  /// Digests of the stage programs, which are in the folder by now.
  void addStages(plan::Plan &plan) const;
  /// A message with the plan's name in place of the temporary one.
  std::string shown(std::string message) const;
  /// Throws the failure that is being handled; where it names a file under the
  /// temporary name, which goes away, the same about the plan's.
  [[noreturn]] void rethrow(const Failure &failure) const;
  /// Replaces the plan that was there. What else lies in its folder, as
  /// checkpoints and trained models, stays in it.
  void commit();

private:
  void addOwn(plan::File &file);
  void copyFile(const std::string &from, const std::string &relative);
  /// Moves from the folder before what is of no plan, and removes the rest.
  void takeOver(const std::string &old) const;

  std::string path;
  std::optional<WorkingCopy> copy; ///< none of a plan inside another
  std::string temporaryPath;       ///< empty when it has become the plan
};

} // namespace pipec
