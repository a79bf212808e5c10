//===- Mpi.cpp - ranks as processes connected by Open MPI -----------------===//
#include "runtime/control/Fuse.h"
#include "runtime/transport/SharedPage.h"
#include "runtime/transport/Transport.h"
#include "support/Doorbell.h"
#include "support/Failure.h"

#define OMPI_SKIP_MPICXX 1
#include <mpi.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <dlfcn.h>

namespace pipec {

std::optional<int> joinedMpi(bool) {
  // mpirun, and srun --mpi=pmix or pmi2.
  for (const char *name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"})
    if (const std::optional<int> rank = integerVariable(name))
      return rank;
  return std::nullopt;
}

namespace {

/// MPI counts in int: a longer message is several, which arrive in order.
constexpr int64_t kMaxMessage = int64_t(1) << 30;

/// What is no longer goes with its announcement: its sender waits for nobody.
constexpr int64_t kAtOnce = 1024;

void check(int result, const char *what) {
  if (result == MPI_SUCCESS)
    return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(result, text, &length);
  throw Failure(Exit::Unavailable, std::string(what) + ": " + text);
}

/// Open MPI 4 has a thread that runs what its plugins post to it, and
/// MPI_Finalize unloads the plugins before it ends the thread. MPI_Init posts
/// something already: where the thread has had no core since, it runs code that
/// is gone. It is not needed any more once all messages have arrived.
void stopEventThread() {
#if defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION < 5
  if (void *pause = dlsym(RTLD_DEFAULT, "opal_progress_thread_pause"))
    reinterpret_cast<int (*)(const char *)>(pause)(nullptr);
#endif
}

class Mpi : public Transport {
public:
  explicit Mpi(const Meeting &meeting) {
    if (meeting.fuse) // what follows waits for all ranks, for ever
      meeting.fuse->emplace("rank " +
                                std::to_string(joinedMpi(true).value_or(0)),
                            "all ranks to connect", meeting.seconds);
    int provided = 0;
    check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided),
          "MPI_Init");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    check(MPI_Comm_rank(MPI_COMM_WORLD, &self), "MPI_Comm_rank");
    check(MPI_Comm_size(MPI_COMM_WORLD, &ranks), "MPI_Comm_size");
    int *bound = nullptr, found = 0;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &bound, &found);
    if (!found || *bound < kTagLinks)
      throw Failure(Exit::Unavailable, "this MPI has too few message tags");
    hangBells();
  }

  int rank() const override { return self; }
  int size() const override { return ranks; }

  Request send(int to, int tag, const void *data, int64_t bytes) override {
    const Request request = start();
    auto *next = static_cast<const char *>(data);
    do {
      const int64_t part = std::min(bytes, kMaxMessage);
      check(MPI_Isend(next, static_cast<int>(part), MPI_BYTE, to, tag,
                      MPI_COMM_WORLD, &more(request)),
            "MPI_Isend");
      next += part, bytes -= part;
    } while (bytes > 0);
    if (door)
      door->ring(to);
    return request;
  }

  Request receive(int from, int tag, void *data, int64_t bytes) override {
    const Request request = start();
    transfers[request].tell = bytes > kAtOnce ? from : -1;
    auto *next = static_cast<char *>(data);
    do {
      const int64_t part = std::min(bytes, kMaxMessage);
      check(MPI_Irecv(next, static_cast<int>(part), MPI_BYTE, from, tag,
                      MPI_COMM_WORLD, &more(request)),
            "MPI_Irecv");
      next += part, bytes -= part;
    } while (bytes > 0);
    return request;
  }

  bool done(Request &request) override {
    if (request == kNoRequest)
      return true;
    // A look that moves a message's data may say so only at the next one: who
    // would sleep between the two looks twice.
    Transfer &transfer = transfers[request];
    if (!look(transfer.parts) && !look(transfer.parts))
      return false;
    if (door && transfer.tell >= 0)
      door->ring(transfer.tell);
    finish(request);
    return true;
  }

  void cancel(Request &request) override {
    if (request == kNoRequest)
      return;
    for (MPI_Request &part : transfers[request].parts)
      if (part != MPI_REQUEST_NULL)
        check(MPI_Cancel(&part), "MPI_Cancel");
    while (!done(request)) {
    }
  }

  const Doorbell *bell() const override { return door ? &*door : nullptr; }

  void close() override {
    stopEventThread();
    check(MPI_Finalize(), "MPI_Finalize");
  }

private:
  struct Transfer {
    std::vector<MPI_Request> parts;
    int tell = -1; ///< whose send ends with it
  };

  /// Ranks of this machine share a page of bells, where that can be had.
  void hangBells() {
    MPI_Comm near = MPI_COMM_NULL;
    check(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0,
                              MPI_INFO_NULL, &near),
          "MPI_Comm_split_type");
    int count = 0, place = 0;
    MPI_Comm_size(near, &count);
    MPI_Comm_rank(near, &place);
    char name[64] = "";
    const auto bytes = sizeof(Bell) * static_cast<size_t>(count);
    if (place == 0)
      page.make(bytes).copy(name, sizeof name - 1);
    check(MPI_Bcast(name, sizeof name, MPI_BYTE, 0, near), "MPI_Bcast");
    if (place > 0)
      page.open(name, bytes);
    int here = page.memory() != nullptr, everywhere = 0;
    check(MPI_Allreduce(&here, &everywhere, 1, MPI_INT, MPI_MIN, near),
          "MPI_Allreduce");
    page.forget(); // nobody else is to open it
    std::vector<int> who(static_cast<size_t>(count));
    check(MPI_Allgather(&self, 1, MPI_INT, who.data(), 1, MPI_INT, near),
          "MPI_Allgather");
    MPI_Comm_free(&near);
    if (!everywhere)
      return;
    std::vector<Bell *> bells(static_cast<size_t>(ranks));
    for (size_t i = 0; i < who.size(); ++i)
      bells[static_cast<size_t>(who[i])] =
          static_cast<Bell *>(page.memory()) + i;
    door.emplace(self, std::move(bells), count == ranks);
  }

  Request start() {
    if (free.empty()) {
      transfers.emplace_back();
      free.push_back(static_cast<Request>(transfers.size()) - 1);
    }
    const Request request = free.back();
    free.pop_back();
    transfers[request].parts.clear();
    transfers[request].tell = -1;
    return request;
  }
  static bool look(std::vector<MPI_Request> &parts) {
    int all = 0;
    check(MPI_Testall(static_cast<int>(parts.size()), parts.data(), &all,
                      MPI_STATUSES_IGNORE),
          "MPI_Testall");
    return all;
  }
  MPI_Request &more(Request request) {
    return transfers[request].parts.emplace_back(MPI_REQUEST_NULL);
  }
  void finish(Request &request) {
    free.push_back(request);
    request = kNoRequest;
  }

  int self = 0, ranks = 1;
  std::vector<Transfer> transfers;
  std::vector<Request> free;
  SharedPage page;
  std::optional<Doorbell> door;
};

} // namespace

std::vector<std::unique_ptr<Transport>> openMpi(const Meeting &meeting) {
  std::vector<std::unique_ptr<Transport>> ends;
  ends.push_back(std::make_unique<Mpi>(meeting));
  return ends;
}

std::vector<std::string> launchMpi(int ranks, const LaunchFolders &folders) {
  // Shared memory is all that is needed on one machine. A rank that dies must
  // not take the others with it: they end by themselves, with a reason.
  std::vector<std::string> command = {"mpirun",
                                      "-q",
                                      "-n",
                                      std::to_string(ranks),
                                      "--oversubscribe",
                                      "--allow-run-as-root",
                                      "--bind-to",
                                      "none",
                                      "--enable-recovery"};
  auto set = [&](const char *parameter, const std::string &value) {
    if (!value.empty())
      command.insert(command.end(), {"--mca", parameter, value});
  };
  set("pml", "ob1");
  set("btl", "self,vader");
  set("orte_tmpdir_base", folders.disk);
  set("btl_vader_backing_directory", folders.memory);
  return command;
}

} // namespace pipec
