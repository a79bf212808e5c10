//===- TcpMesh.h - a connection between every two ranks ---------*- C++ -*-===//
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pipec {

/// Where a launcher has put this process: what torchrun and its kin say.
struct Rendezvous {
  int rank = 0, size = 1;
  std::string host; ///< of rank 0
  int port = 0;     ///< on which rank 0 listens
  uint64_t job = 0; ///< a process of another job is turned away
  bool quiet = false;
};

/// Sockets by rank (this rank's own is -1). All ranks call it. Every rank meets
/// rank 0, which tells each where the others listen.
/// Failure(Unavailable) when not all come within `seconds`.
std::vector<int> connectAll(const Rendezvous &where, double seconds);

} // namespace pipec
