//===- InterOperator.h - stages on submeshes --------------------*- C++ -*-===//
//
// Alpa's dynamic program (section 5 of the paper): for a bound on the slowest
// stage it minimizes the sum of the stages; sum + (B - 1) * slowest is the
// objective. A submesh of n devices is n / t replicas, which take turns at the
// microbatches, of t devices that divide operators among them.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/plan/StepModel.h"

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

namespace pipec::plan {

/// Devices of a stage, how many of them form a group, and what a byte that they
/// keep is taken to be worth.
struct Mesh {
  int devices = 1, degree = 1;
  double secondsPerByte = 0;
  int replicas() const { return devices / degree; }
};

/// Layers [first, end) on a submesh.
struct MeshStage {
  size_t first = 0, end = 0;
  Mesh mesh;
};

/// All stages on submeshes with their times, then the dynamic program for each
/// bound. Layers begin at `starts`; groups are of so many devices.
class InterOperator {
public:
  InterOperator(const PlanRequest &request, const StepModel &model,
                std::vector<size_t> starts, const std::vector<int> &degrees);
  /// Stages of the best plan, first to last; empty when none fits. What is
  /// summed is what a stage takes, or, `turns`, what a microbatch takes there.
  std::vector<MeshStage> solve(bool turns);
  /// The best so many plans of stages on equal meshes: under the objective they
  /// are no better, but stages of unequally many replicas wait for each other.
  std::vector<std::vector<MeshStage>> solveEqual(size_t most);

private:
  size_t at(size_t i, size_t j, size_t m) const {
    return (i * (n + 1) + j) * meshes.size() + m;
  }
  size_t lastNode(size_t end) const {
    return (end < n ? starts[end] : model.intervals().nodes()) - 1;
  }
  void addMeshes(const std::vector<int> &degrees);
  void price(int degree, double secondsPerByte);
  void dropDominated();
  bool fits(size_t i, size_t j, size_t m, size_t depth, int devices) const;
  void findRoom();
  double plan(double bound, bool turns, std::vector<MeshStage> *stages,
              std::optional<size_t> only = std::nullopt);
  size_t mostBounds() const;

  const PlanRequest &request;
  const StepModel &model;
  std::vector<size_t> starts;
  size_t n, depth = 0; ///< layers, and stages at most
  std::vector<Mesh> meshes;
  std::vector<double> times; ///< by layers and mesh, as `ways` and `bytes`
  std::vector<double> ways;  ///< what a microbatch takes, whosever turn it is
  std::vector<ByteRates> bytes;
  struct Entry {
    double sum = std::numeric_limits<double>::infinity();
    uint32_t end = 0, mesh = 0;
  };
  std::vector<Entry> table; ///< plan()'s
  std::vector<int> room; ///< devices, by stages from there on, layers and mesh
};

} // namespace pipec::plan
