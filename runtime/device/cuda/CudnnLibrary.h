//===- CudnnLibrary.h - libcudnn, opened when needed ------------*- C++ -*-===//
#pragma once

#include "runtime/device/cuda/Cudnn.h"
#include "runtime/device/cuda/Driver.h"
#include "runtime/device/cuda/Library.h"

namespace pipec::cudnn {

using cuda::Stream;

#define ENTRIES "runtime/device/cuda/Cudnn.def"
#include "runtime/device/cuda/Entries.inc"

/// Failure(Unavailable): no library, or too old a one.
const Entries &entries();

/// Throws for a status that is no success: Failure(Unavailable), which says
/// `what` was called.
void check(int status, const char *what);

} // namespace pipec::cudnn
