//===- StraddleSearch.h - replicas across server borders --------*- C++ -*-===//
//
// PipeDream's search places a stage inside a server or on whole servers, so the
// plan it is known for, 15 replicas and one on 4x4, is outside it. Here a stage
// takes any consecutive devices. Costs keep to its formulas where they apply
// and charge what crosses a border to the servers' network cards:
//  - a stage of r replicas on s servers, at most g in one, takes
//    (C + 4(g-1)W/(b_intra g) + 4(s-1)W/(b_inter s)) / r
//    (on whole servers this is PipeDream's two-level data parallelism);
//  - over a cut of a bytes each replica moves 2a per minibatch it handles over
//    its own link; the minibatches whose two replicas live in different servers
//    move them over both servers' cards, one card a server.
// Of more levels every one adds its exchange, of the most machines that the
// stage has in one of its components, and its cards: one for each machine,
// which carries the minibatches with one of their replicas in it.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/plan/published/PipeDreamSearch.h"

namespace pipec::published {

/// Best plan with stages on any consecutive devices, all devices used. Nothing
/// (seconds = inf) when no plan is below `incumbent`. With a limit above 0 each
/// stage keeps at most so many bytes on a device, and fewer devices than there
/// are may be used: that is searched for all of them and then for fewer, until
/// the effort is spent.
PipeDreamPlan searchStraddling(const CutStates &states,
                               const std::vector<PipeDreamLevel> &levels,
                               double incumbent, double limit = 0,
                               SearchEffort *effort = nullptr);

/// Seconds of one boundary of `bytes`: replicas a on the devices up to
/// `border`, b from there on.
double straddlingBoundary(const std::vector<PipeDreamLevel> &levels, int border,
                          int a, int b, double bytes);

/// Seconds of a stage on devices [first, first + replicas).
double straddlingStage(const std::vector<PipeDreamLevel> &levels, int first,
                       int replicas, double compute, double weights);

/// Seconds of a plan with stages on any consecutive devices.
double straddlingSeconds(const CutStates &states,
                         const std::vector<PipeDreamLevel> &levels,
                         const PipeDreamPlan &plan);

} // namespace pipec::published
