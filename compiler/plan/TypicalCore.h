//===- TypicalCore.h - what a core takes that nobody timed ------*- C++ -*-===//
//
// A roofline takes the routines of a CPU for several times too fast where their
// tensors are small, convolutions above all. Without `pipec calibrate` a core
// is therefore taken for one that has been timed (TypicalCore.def).
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/plan/DeviceModel.h"

#include <string>

namespace pipec::plan {

/// The device with a typical core's costs of routines, tasks and messages, for
/// products in `tile`; wide registers are of a faster core. Its peaks and its
/// memory stay.
DeviceModel typicalCore(DeviceModel device, const ProductTile &tile);

/// deviceModel(), a CPU's as a typical core.
DeviceModel namedDevice(const std::string &name);

} // namespace pipec::plan
