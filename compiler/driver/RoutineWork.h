//===- RoutineWork.h - what a library routine has to do ---------*- C++ -*-===//
#pragma once

#include "compiler/plan/ConvolutionWork.h"
#include "runtime/kernels/cpu/Kernels.h"

namespace pipec {

// The amounts of a call of the kernel library, by its descriptor.

plan::KernelWork routineWork(const PipecMatmul &product,
                             const plan::ProductTile &tile);
/// `which` is a PipecConvKind.
plan::KernelWork routineWork(const PipecConv &convolution, int which,
                             const plan::ProductTile &tile);
/// `name`: max-pool, max-pool-grad, avg-pool or avg-pool-grad.
plan::KernelWork routineWork(const PipecPool &pool, const std::string &name,
                             const plan::ProductTile &tile);
/// `adds`: rows are added to the table, of which so many bytes are cleared
/// first.
plan::KernelWork routineWork(const PipecGather &rows, bool adds,
                             int64_t cleared);
plan::KernelWork routineWork(const PipecCopy &copy);

} // namespace pipec
