//===- nccl.cpp - a stand-in for libnccl ----------------------------------===//
//
// Messages are files in /dev/shm. A stream stands still until the other end of
// a message is there, in both directions, as NCCL's may: what would wait for
// ever on GPUs waits for ever here, the meeting of all ranks as well. Two ranks
// cannot have one GPU.
//
//===----------------------------------------------------------------------===//
#include "test/standin/Machine.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <unistd.h>

using namespace pipec::standin;
namespace fs = std::filesystem;

extern "C" int cuCtxGetDevice(int *device);

namespace {

// Of nccl.h.
enum Result {
  Success = 0,
  SystemError = 2,
  InternalError = 3,
  InvalidArgument = 4,
  InvalidUsage = 5,
  RemoteError = 6
};

struct UniqueId {
  char bytes[128];
};

struct Communicator {
  fs::path folder;
  int rank = 0, ranks = 0;
  std::atomic<bool> aborted{false};
  std::map<int, int64_t> sent, received; ///< by peer, of what has run

  fs::path file(int from, int to, int64_t number) const {
    return folder / (std::to_string(from) + "-" + std::to_string(to) + "-" +
                     std::to_string(number));
  }
};

/// A call between ncclGroupStart and ncclGroupEnd.
struct Call {
  bool sending;
  char *data;
  size_t bytes;
  int peer;
  Communicator *communicator;
  void *stream;
};
thread_local std::vector<Call> group;
thread_local int depth = 0;

void put(const Call &call) {
  Communicator &all = *call.communicator;
  if (all.aborted)
    return;
  const fs::path name = all.file(all.rank, call.peer, all.sent[call.peer]++);
  const fs::path part = name.string() + ".part";
  std::ofstream(part, std::ios::binary)
      .write(call.data, static_cast<std::streamsize>(call.bytes));
  fs::rename(part, name);
}

void take(const Call &call) {
  Communicator &all = *call.communicator;
  if (all.aborted)
    return;
  const fs::path name =
      all.file(call.peer, all.rank, all.received[call.peer]++);
  if (fs::file_size(name) != call.bytes) {
    std::fprintf(stderr, "stand-in of NCCL: %s has %zu bytes, %zu expected\n",
                 name.c_str(), size_t(fs::file_size(name)), call.bytes);
    std::abort();
  }
  std::ifstream(name, std::ios::binary)
      .read(call.data, static_cast<std::streamsize>(call.bytes));
  fs::remove(name);
}

void queueGroup() {
  std::vector<Call> calls;
  calls.swap(group);
  for (const Call &call : calls)
    if (call.sending)
      queueWork(call.stream, [=] { put(call); });
  for (const Call &call : calls)
    if (!call.sending)
      queueWork(
          call.stream, [=] { take(call); },
          [=] {
            Communicator &all = *call.communicator;
            return all.aborted || fs::exists(all.file(call.peer, all.rank,
                                                      all.received[call.peer]));
          });
  for (const Call &call : calls)
    if (call.sending)
      queueWork(
          call.stream, [] {},
          [=] {
            Communicator &all = *call.communicator;
            return all.aborted ||
                   !fs::exists(
                       all.file(all.rank, call.peer, all.sent[call.peer] - 1));
          });
}

/// Returns when all ranks have come.
int meet(const Communicator &all) {
  int device = -1;
  if (cuCtxGetDevice(&device))
    return InvalidUsage;
  std::ofstream(all.file(all.rank, all.rank, device));
  std::set<int> devices;
  for (int rank = 0; rank < all.ranks; ++rank) {
    int theirs = -1;
    for (; theirs < 0; usleep(200))
      for (int number = 0; number < 64 && theirs < 0; ++number)
        if (fs::exists(all.file(rank, rank, number)))
          theirs = number;
    // As far as it can tell, which who names machines can prevent.
    if (!devices.insert(theirs).second && !std::getenv("NCCL_HOSTID"))
      return InvalidUsage; // "Duplicate GPU detected"
  }
  return Success;
}

int add(const Call &call) {
  if (!isOurs(call.stream) || call.peer < 0 ||
      call.peer >= call.communicator->ranks ||
      !Machine::get().isDevice(call.data, static_cast<int64_t>(call.bytes)))
    return InvalidArgument;
  Machine::get().log(std::string(call.sending ? "send" : "receive") + " peer " +
                     std::to_string(call.peer) + " " +
                     std::to_string(call.bytes) + " bytes");
  group.push_back(call);
  if (depth == 0)
    queueGroup();
  return Success;
}

} // namespace

extern "C" {

int ncclGetUniqueId(UniqueId *id) {
  std::snprintf(id->bytes, sizeof id->bytes, "/dev/shm/pipec-standin-XXXXXX");
  return mkdtemp(id->bytes) ? Success : InvalidArgument;
}
int ncclCommInitRank(void **communicator, int ranks, UniqueId id, int rank) {
  // C's stdout, which nobody empties, unless a file is named.
  if (std::getenv("NCCL_DEBUG") && !std::getenv("NCCL_DEBUG_FILE"))
    std::printf("NCCL version 2.0.0, a stand-in\n");
  auto *made = new Communicator;
  made->folder = id.bytes, made->rank = rank, made->ranks = ranks;
  if (rank == setting("PIPEC_STANDIN_ALONE", -1))
    return SystemError;
  if (rank == setting("PIPEC_STANDIN_ABSENT", -1))
    for (;;)
      sleep(1);
  if (const int result = meet(*made))
    return result;
  Machine::get().log("communicator of " + std::to_string(ranks));
  *communicator = made;
  return Success;
}
static int leave(void *communicator) {
  auto *mine = static_cast<Communicator *>(communicator);
  mine->aborted = true;
  if (mine->rank == 0) {
    std::error_code ignored;
    fs::remove_all(mine->folder, ignored);
  }
  return Success;
}
int ncclCommAbort(void *communicator) {
  Machine::get().log("abort communicator");
  return leave(communicator);
}
int ncclCommDestroy(void *communicator) {
  Machine::get().log("destroy communicator");
  return leave(communicator);
}
const char *ncclGetErrorString(int result) {
  return result == RemoteError ? "remote process exited" : "internal error";
}
const char *ncclGetLastError(void *) { return "what was said last"; }
int ncclCommGetAsyncError(void *communicator, int *result) {
  const bool fails = static_cast<Communicator *>(communicator)->rank ==
                     setting("PIPEC_STANDIN_ASYNCH", -1);
  *result =
      fails ? static_cast<int>(setting("PIPEC_STANDIN_STATUS", InternalError))
            : Success;
  return Success;
}
int ncclGroupStart() {
  ++depth;
  return Success;
}
int ncclGroupEnd() {
  if (--depth == 0)
    queueGroup();
  return Success;
}
int ncclSend(const void *data, size_t count, int type, int peer,
             void *communicator, void *stream) {
  return type != 1
             ? InvalidArgument
             : add({true, const_cast<char *>(static_cast<const char *>(data)),
                    count, peer, static_cast<Communicator *>(communicator),
                    stream});
}
int ncclRecv(void *data, size_t count, int type, int peer, void *communicator,
             void *stream) {
  return type != 1 ? InvalidArgument
                   : add({false, static_cast<char *>(data), count, peer,
                          static_cast<Communicator *>(communicator), stream});
}
int ncclAllReduce(const void *data, void *sum, size_t count, int type, int op,
                  void *communicator, void *stream) {
  constexpr int kFloat = 7, kSum = 0;
  const auto bytes = static_cast<int64_t>(4 * count);
  if (!isOurs(stream) || type != kFloat || op != kSum ||
      !Machine::get().isDevice(const_cast<void *>(data), bytes) ||
      !Machine::get().isDevice(sum, bytes))
    return InvalidArgument;
  // The runtime adds up by itself; only a rank alone is asked of this.
  if (static_cast<Communicator *>(communicator)->ranks != 1)
    return InvalidUsage;
  queueWork(stream, [=] { std::memmove(sum, data, 4 * count); });
  return Success;
}
}
