//===- Council.cpp - what all ranks do together ---------------------------===//
#include "runtime/exec/Council.h"
#include "support/Phase.h"

#include <cstring>
#include <optional>

namespace pipec {
namespace {

struct Report {
  int code = 0;
  char text[2044] = "";
};

} // namespace

Operation Council::operation(const char *what, int peer) const {
  Operation result;
  result.what = what;
  result.peer = peer;
  return result;
}

void Council::agree(const char *what, const std::function<void()> &work) {
  std::optional<Phase> phase;
  if (watch.rank == 0)
    phase.emplace(what);
  Report mine;
  try {
    watch.enter(operation(what, -1));
    work();
  } catch (const Alarmed &) {
    throw;
  } catch (const Unattended &) {
    throw;
  } catch (const Failure &failure) {
    mine.code = static_cast<int>(failure.code);
    std::strncpy(mine.text, failure.what(), sizeof mine.text - 1);
  }
  const std::string waiting =
      std::string("waiting for all ranks while ") + what;
  if (watch.rank != 0) {
    Request request = transport.send(0, kTagReport, &mine, sizeof mine);
    watch.wait(transport, request, operation(what, 0));
  }
  for (int rank = 1; watch.rank == 0 && rank < transport.size(); ++rank) {
    Report theirs;
    Request request =
        transport.receive(rank, kTagReport, &theirs, sizeof theirs);
    watch.wait(transport, request, operation(what, rank));
    if (!mine.code && theirs.code)
      mine = theirs;
  }
  tell(what, &mine, sizeof mine);
  if (mine.code)
    throw Agreed(static_cast<Exit>(mine.code), mine.text);
}

void Council::tell(const char *what, void *data, int64_t bytes) {
  if (watch.rank != 0) {
    Request request = transport.receive(0, kTagReport, data, bytes);
    watch.wait(transport, request, operation(what, 0));
    return;
  }
  for (int rank = 1; rank < transport.size(); ++rank) {
    Request request = transport.send(rank, kTagReport, data, bytes);
    watch.wait(transport, request, operation(what, rank));
  }
}

void Council::gather(const char *what, const std::string &mine,
                     const std::function<void(int, const std::string &)> &use) {
  if (watch.rank != 0) {
    int64_t bytes = static_cast<int64_t>(mine.size());
    Request request = transport.send(0, kTagReport, &bytes, sizeof bytes);
    watch.wait(transport, request, operation(what, 0));
    request = transport.send(0, kTagReport, mine.data(), bytes);
    watch.wait(transport, request, operation(what, 0));
    return;
  }
  use(0, mine);
  for (int rank = 1; rank < transport.size(); ++rank) {
    int64_t bytes = 0;
    Request request = transport.receive(rank, kTagReport, &bytes, sizeof bytes);
    watch.wait(transport, request, operation(what, rank));
    std::string theirs(static_cast<size_t>(bytes), '\0');
    request = transport.receive(rank, kTagReport, theirs.data(), bytes);
    watch.wait(transport, request, operation(what, rank));
    use(rank, theirs);
  }
}

} // namespace pipec
