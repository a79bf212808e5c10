//===- DataSource.h - which sample goes where -------------------*- C++ -*-===//
//
// Sample i of microbatch k of step t is row ((t*M + k)*B + i) mod N of every
// array, with M microbatches of B samples in a step and N rows. It never
// depends on stages, replicas or ranks. With a shuffle seed, every pass over
// the rows (an epoch) goes through a permutation of its own.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "runtime/data/Npy.h"
#include "runtime/program/Plan.h"

#include <map>
#include <memory>
#include <optional>

namespace pipec {

/// " --data x=FILE.npy" for every input that a stage reads and `files` has not.
std::string missingData(const plan::Plan &plan,
                        const std::map<std::string, std::string> &files);

class DataSource {
public:
  /// Opens the array of every input of the plan, and checks its type and shape.
  /// Failure(Usage) lists inputs that a stage reads and that have no array, and
  /// names that are no input;
  /// Failure(NoInput, BadModel) as Npy, or for a type or shape that does not go
  /// with the input.
  DataSource(const plan::Plan &plan,
             const std::map<std::string, std::string> &files,
             std::optional<uint64_t> shuffle);

  /// Copies the input's rows of microbatch `number` (t*M + k, from 0) to `to`.
  /// Failure(BadModel) names the file and index of a value out of range.
  void load(int input, int64_t number, char *to) const;

  /// Checks all values of an input's array now, unless it is large (then rows
  /// are checked as they are used). Failure(BadModel) as load.
  void checkValues(int input) const;

  /// The first value below 0 of an input whose values may be, unless its array
  /// is large, and what it means. Empty when there is none.
  std::string countsFromEnd() const;

  /// The first NaN among the inputs' samples of a microbatch: "; its data has
  /// NaN: value [22, 3] of input 'x' (x.npy)". Empty when there is none.
  std::string notANumber(int64_t number) const;
  /// As notANumber, of an infinite number. A mask may have such.
  std::string infinite(int64_t number) const;

  /// Whether the labels of a microbatch are there, and none of them counts.
  bool ignoresAllLabels(int64_t number) const;

  /// By input, what tells one array from another: its shape and a digest of its
  /// ends.
  std::map<std::string, std::string> marks() const;

  /// Samples in the arrays, N; 0 when no input has a batch axis.
  int64_t samples() const { return rows; }

private:
  using Search = int64_t (*)(const std::string &, const char *, int64_t);
  std::string find(int64_t number, Search first) const;
  int64_t row(int64_t sample) const;
  void copyRow(int input, int64_t row, char *to) const;
  void countRows(const Npy &array);

  const plan::Plan &plan;
  std::optional<uint64_t> shuffle;
  std::vector<std::unique_ptr<Npy>> arrays; ///< by input; null: not read
  int64_t rows = 0;
};

/// The position of `index` in the permutation of [0, size) that (seed, epoch)
/// name: a Feistel network, so that it takes no memory.
int64_t permuted(int64_t index, int64_t size, uint64_t seed, uint64_t epoch);

} // namespace pipec
