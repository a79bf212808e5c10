//===- Schedule.h - a static pipeline schedule as plain data ----*- C++ -*-===//
//
// A schedule is one ordered list of actions per device and a placement of the
// model's stages on devices. Nothing else is needed: start times follow from
// costs (Simulator.h), communication follows from the placement, and a program
// is free of deadlock exactly when list order and data dependencies together
// have no cycle (Verifier.h). Generators (Generator.h) only emit this data.
//
//===----------------------------------------------------------------------===//
#pragma once

#include <string>
#include <vector>

namespace pipec::schedule {

/// What a device does in one action. The letters are those of PyTorch's CSV.
enum class Kind : unsigned char {
  F, ///< forward
  B, ///< full backward: input gradient and weight gradient together
  I, ///< input gradient alone
  W, ///< weight gradient alone
};

/// 'F', 'B', 'I' or 'W'.
char letter(Kind kind);

/// One task: `kind` of microbatch `microbatch` at stage `stage` (both from 0).
struct Action {
  Kind kind;
  int stage;
  int microbatch;
  bool operator==(const Action &) const = default;
};

/// `<stage><letter><microbatch>`, e.g. "3F11".
std::string toString(const Action &action);

/// Per-device order plus placement.
///
/// Stages are numbered 0..stages-1 in the order data flows, chunks included.
/// `placement[s]` lists the devices that hold a copy of stage s; microbatch k
/// is handled, forward and backward alike, by copy k mod placement[s].size().
/// That one rule covers plain pipelines (one copy), interleaved and V-shaped
/// ones (a device appears under several stages), replicated stages (round
/// robin, PipeDream section 3.2) and bidirectional pipelines (two copies in
/// opposite device order: even microbatches go down, odd ones up).
///
/// With `slices` = q > 1 every microbatch is cut into q sequence pieces and the
/// "microbatch" of an action counts pieces: piece j of microbatch k is k*q+j.
/// At one stage piece j's forward follows piece j-1's (it reads its keys and
/// values) and piece j's backward follows piece j+1's.
struct Schedule {
  std::string name;
  int stages = 0;       ///< in all, chunks included
  int microbatches = 0; ///< (pieces, when slices > 1)
  int slices = 1;
  std::vector<std::vector<int>> placement; ///< [stage][copy] -> device
  std::vector<std::vector<Action>> order;  ///< [device] -> actions, in order
  /// [device] -> positions of actions meant to run together with the next one
  /// (DualPipe), each hiding the other's communication; may be empty.
  std::vector<std::vector<int>> pairs;

  int devices() const { return static_cast<int>(order.size()); }
  int replicas(int stage) const {
    return static_cast<int>(placement[stage].size());
  }
  /// The device that runs every action of `microbatch` at `stage`.
  int deviceOf(int stage, int microbatch) const {
    const auto &copies = placement[stage];
    return copies[microbatch % copies.size()];
  }
  /// Stages held by `device`, ascending, each once.
  std::vector<int> stagesOf(int device) const;
  /// Which copy of `stage` lives on `device`, -1 if none does.
  int replicaOn(int stage, int device) const;
};

/// The same order in the terms of a program that was unrolled into pieces
/// (nn-slice-sequence): piece j of stage s is stage j * stages + s,
/// microbatches are whole, and only the placement tells that pieces share a
/// device. Neither simulate() nor verify() knows what such a stage waits for.
Schedule unrollSlices(const Schedule &schedule);

/// \name Placements
/// @{
/// Stage s on device s.
std::vector<std::vector<int>> linearPlacement(int devices);
/// Stage s on device s mod devices (Megatron's interleaving).
std::vector<std::vector<int>> loopedPlacement(int devices, int chunks);
/// Stages go down the devices and come back up: chunk c of device d is stage
/// c*P+d for even c and c*P+(P-1-d) for odd c.
std::vector<std::vector<int>> zigzagPlacement(int devices, int chunks);
/// Copy 0 of stage s on device s, copy 1 on device P-1-s.
std::vector<std::vector<int>> bidirectionalPlacement(int devices);
/// Stage s on replicas[s] devices of its own, numbered stage by stage.
std::vector<std::vector<int>>
replicatedPlacement(const std::vector<int> &replicas);
/// @}

/// The largest number of microbatches of `stage` whose forward has run on
/// `device` and whose backward (B, or W when split; I when `untilInput`) has
/// not: how many stash slots that device needs for the stage.
int inFlight(const Schedule &schedule, int device, int stage,
             bool untilInput = false);

/// The largest number of microbatches of `stage` whose input gradient `device`
/// has computed and whose weight gradient it has not; 1 where it computes both
/// at once.
int betweenHalves(const Schedule &schedule, int device, int stage);

/// inFlight for every (stage, copy): result[stage][copy].
std::vector<std::vector<int>> inFlight(const Schedule &schedule);

/// By device: the forwards at the head of its list that may run before it knows
/// whether its last update stands (post-validation). What they need comes from
/// such forwards of devices up to this one, none computes the loss, and the
/// last device, which knows first, has none.
std::vector<int> forwardsAhead(const Schedule &schedule);

} // namespace pipec::schedule
