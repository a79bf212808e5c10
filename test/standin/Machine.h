//===- Machine.h - a stand-in for GPUs -------------------------*- C++ -*-===//
//
// The libraries of this folder have the names and entry points of NVIDIA's and
// do their work on the processor, so that the runtime is tested up to the
// driver's calls. Streams are lazy: nothing runs before somebody waits for it,
// and then only what the events between streams ask for. A missing event is a
// wrong number. PIPEC_STANDIN_ORDER=random:SEED runs what may run at random
// moments instead, =messages-first messages as soon as events allow (without
// graphs).
//
// Device memory cannot be touched by the host: its pages are closed while no
// queued work runs. Calls are refused as the driver refuses them: without a
// current context, with what is of another one, with an event of a recording
// that has ended.
//
//   PIPEC_STANDIN_CODE=DIR     kernels: DIR/<key of the image>.so
//   (emulate-stages) PIPEC_STANDIN_DEVICES=N    2 unless said
//   PIPEC_STANDIN_CHIP=90      compute capability, times ten
//   PIPEC_STANDIN_MEMORY=N     bytes of each device, 1 GiB unless said
//   PIPEC_STANDIN_DRIVER=N     the driver's version, 13000 unless said
//   PIPEC_STANDIN_LOG=FILE     one line for each call that a test looks at;
//                              FOLDER/: in a file of each process
//   PIPEC_STANDIN_FAIL=KERNEL  cannot be launched
//   PIPEC_STANDIN_FAULT=KERNEL touches what it must not when it runs
//   PIPEC_STANDIN_IDLE=KERNEL  does nothing when it runs
//   PIPEC_STANDIN_CUBIN=0      machine code is not loaded, PTX is
//   PIPEC_STANDIN_CAPTURE=0    streams cannot be recorded
//   PIPEC_STANDIN_HANG=N       the Nth kernel launched (from 0) never ends
//   PIPEC_STANDIN_SLOW=N       each kernel takes N milliseconds more
//   PIPEC_STANDIN_BROKEN=N     device N cannot be opened
//   PIPEC_STANDIN_ALONE=N      rank N cannot make its communicator
//   PIPEC_STANDIN_ABSENT=N     rank N never comes back from making it
//   PIPEC_STANDIN_ASYNCH=N     messages of rank N fail, with the status
//   PIPEC_STANDIN_STATUS=N     (3 unless said)
//   PIPEC_STANDIN_EPILOGUES=0  no algorithm of cuBLASLt adds a bias
//   PIPEC_STANDIN_PRODUCTS=0   cuBLASLt runs no product that it has found
//   PIPEC_STANDIN_PROMISE=1    cuBLASLt offers an algorithm for each that it
//                              does not run
//   PIPEC_STANDIN_FASTER=1     cuBLASLt's first choice is slow; others follow
//   PIPEC_STANDIN_NARROW=none  cuDNN finds no convolution of bf16; =refused: it
//                              finds one that it does not run
//   PIPEC_STANDIN_ATTENTION=0  cuDNN runs no graph
//   PIPEC_STANDIN_TRANSFORMS=1 cuDNN has no algorithms but those that transform
//                              their operands
//   PIPEC_STANDIN_DROP_WAIT=N  each thread leaves out its Nth wait for an event
//                              (from 0)
//
//===----------------------------------------------------------------------===//
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace pipec::standin {

struct Stream;
struct Capture;

/// A recording of an event counts up; a wait is for a count.
struct EventState {
  int64_t recorded = 0, done = 0;
  double time = 0;            ///< of the last recording that was done
  Stream *stream = nullptr;   ///< of the last recording
  Capture *capture = nullptr; ///< that the last recording is part of
};

/// Something queued.
struct Op {
  enum Kind { Work, Record, Wait } kind = Work;
  std::function<void()> work;
  std::function<bool()> ready; ///< of work that waits for another process
  EventState *event = nullptr;
  int64_t count = 0;
  std::shared_ptr<EventState> own; ///< keeps an event of a replay
};

struct Stream {
  int number = 0;
  void *context = nullptr;
  std::deque<Op> ops;
  Capture *capture = nullptr;
  bool temporary = false; ///< of a replay: goes when it is empty
};

/// What is recorded of each stream, in the order of the streams' joining.
struct Capture {
  Stream *origin = nullptr;
  std::vector<std::pair<Stream *, std::deque<Op>>> streams;
  bool broken = false, ended = false;
  std::deque<Op> &of(Stream *stream);
};

/// All streams of the process.
class Machine {
public:
  static Machine &get();

  Stream *createStream();
  /// Queues, or records when the stream is captured.
  void queue(Stream *stream, Op op);
  /// Runs all of the stream; false when it waits for another process.
  bool demand(Stream *stream);
  /// Runs whatever can run.
  void demandAll();
  void launch(const Capture &graph, Stream *stream);

  char *allocate(int64_t bytes);
  bool release(char *memory);
  bool isDevice(const void *memory, int64_t bytes) const;
  /// Bytes of device memory in use.
  int64_t used = 0;

  void log(const std::string &line);
  std::recursive_mutex mutex;
  int launches = 0;      ///< of kernels
  bool hasFault = false; ///< a kernel has touched what it must not

private:
  Machine();
  bool isReady(const Op &op) const;
  void runFront(Stream *stream);
  bool demandEvent(EventState *event, int64_t count);
  void runAtRandom();
  void runMessages();
  void setAccess(bool open);
  struct Access;

  std::vector<std::unique_ptr<Stream>> streams;
  std::map<char *, int64_t> memory;
  int accesses = 0;
  bool isOpen = false; ///< what setAccess has said last
  int64_t seed = -1; ///< of random order; -1: lazy
  bool messagesFirst = false;
  int numbers = 0;
};

/// For the other libraries: work in the order of a stream of libcuda.
void queueWork(void *stream, std::function<void()> work,
               std::function<bool()> ready = nullptr);

/// That of the thread; null for none.
void *currentContext();
/// Whether the thread's context is the stream's.
bool isOurs(const void *stream);

/// A number in the environment.
int64_t setting(const char *name, int64_t otherwise);

} // namespace pipec::standin
