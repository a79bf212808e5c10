//===- Nccl.h - what is known of NCCL ---------------------------*- C++ -*-===//
//
// Constants and structures of nccl.h, so that building needs no NCCL.
//
//===----------------------------------------------------------------------===//
#pragma once

namespace pipec::nccl {

constexpr int kBytes = 1;       ///< ncclUint8
constexpr int kRemoteError = 6; ///< ncclRemoteError
constexpr int kInProgress = 7;  ///< ncclInProgress

struct UniqueId { // ncclUniqueId
  char bytes[128];
};

} // namespace pipec::nccl
