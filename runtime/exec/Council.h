//===- Council.h - what all ranks do together -------------------*- C++ -*-===//
#pragma once

#include "runtime/control/Watch.h"

#include <functional>
#include <string>

namespace pipec {

/// The same failure on all ranks; rank 0 tells the user.
class Agreed : public Failure {
public:
  using Failure::Failure;
};

/// Every rank calls the same functions in the same order.
class Council {
public:
  Council(Transport &transport, Watch &watch)
      : transport(transport), watch(watch) {}

  /// Runs `work` on every rank. Returns when all have succeeded; otherwise
  /// throws on every rank Agreed with the code and message of the lowest rank
  /// whose work threw Failure; Alarmed and Unattended pass. `what`: "loading",
  /// for messages; a literal, like all of them here.
  void agree(const char *what, const std::function<void()> &work);

  /// Rank 0's `bytes` at `data` reach all ranks.
  void tell(const char *what, void *data, int64_t bytes);

  /// At rank 0 use(rank, message) for every rank in order, each of a size of
  /// its own. `mine` is this rank's message.
  void gather(const char *what, const std::string &mine,
              const std::function<void(int, const std::string &)> &use);

private:
  Operation operation(const char *what, int peer) const;

  Transport &transport;
  Watch &watch;
};

} // namespace pipec
