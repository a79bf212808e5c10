//===- Gpu.h - a rank on an NVIDIA GPU --------------------------*- C++ -*-===//
//
// Tasks are queued on one stream, messages on another; events say what waits
// for what. A part of a step is queued as it is the first time, recorded as one
// graph the second time, and replayed from then on: the same functions are
// called again, but only write the numbers of frames and the step's data to the
// places that the graph reads them from.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "runtime/device/Device.h"
#include "runtime/device/cuda/Attention.h"
#include "runtime/device/cuda/CallSums.h"
#include "runtime/device/cuda/CallTimes.h"
#include "runtime/device/cuda/Convolutions.h"
#include "runtime/device/cuda/Driver.h"
#include "runtime/device/cuda/Links.h"
#include "runtime/device/cuda/Pinned.h"
#include "runtime/device/cuda/Products.h"

namespace pipec::cuda {

class Gpu : public Device {
public:
  explicit Gpu(const DeviceRequest &request);
  ~Gpu() override;
  /// All ranks' devices are connected, each by its own call.
  void connect();

  char *allocate(int64_t bytes) override;
  void release(char *memory, int64_t bytes) override;
  void read(const char *from, int64_t bytes,
            const std::function<void(const char *, int64_t)> &use) override;
  void
  write(char *to, int64_t bytes,
        const std::function<void(char *, int64_t, int64_t)> &make) override;
  void feed(char *to, int64_t bytes,
            const std::function<void(char *)> &make) override;
  const float *fetch(const char *from) override;
  void copy(char *to, const char *from, int64_t bytes) override;
  void clear(char *at, int64_t bytes) override;

  PipecDevice *adopt(void *library, const std::string &path) override;
  void run(PipecTask task, PipecFrame &frame) override;
  void sum(float *to, const std::vector<const float *> &terms,
           int64_t count) override;
  double norm(const float *values, int64_t count) override;
  Mark mark() override;
  void resolve(Mark &mark) override;
  void settle() override;
  bool isImmediate() const override { return false; }
  void begin(int part) override;
  void end(int part) override;

  std::unique_ptr<Traffic> traffic(RankState &state, Transport &transport,
                                   Watch &watch) override;
  std::unique_ptr<Exchange> exchange(Transport &transport,
                                     Watch &watch) override;
  std::vector<std::pair<std::string, int64_t>> overhead() const override;
  DeviceFacts facts() const override;

  //===--------------------------------------------------------------------===//
  // Streams, for traffic and exchanges
  //===--------------------------------------------------------------------===//

  enum class Queue { Compute, Communication };

  /// A point in a queue; the same one in every repetition of a part.
  Event record(Queue queue);
  /// What is queued from now on comes after the event. Nothing for null.
  void wait(Queue queue, Event event);
  /// Device::sum in a queue.
  void sum(Queue queue, float *to, const std::vector<const float *> &terms,
           int64_t count);
  /// Of the next task: `look` is called before its first call and after each,
  /// with how many there have been. Not when a part is replayed.
  void duringTask(std::function<void(int64_t)> look) {
    looking = std::move(look);
  }
  /// Messages, on the communication queue.
  void exchange(const std::vector<Links::Message> &messages,
                const Operation &operation);

private:
  struct StageCode;
  struct Recorded; // a part of a step
  friend struct StageCode;

  void openDevice(const DeviceRequest &request);
  int64_t mostRowBytes() const;
  Module loadCode(void *library, const std::string &path);
  /// Whether the calls of now are the rank's first, queued one by one.
  bool isFirstStep() const;
  CallSums::Read reader();
  void checkQueued(int result) const;
  /// True when calls are queued: not while a part is replayed.
  bool queues() const { return mode != Replaying; }
  /// Host memory for what is queued now, untouched until it has been done.
  char *staging(int64_t bytes);
  void waitForStream();
  /// Once it is reached in the queue the host sees that work goes on.
  void pulse(Queue queue);
  void drain();
  void launch(Stream stream, Function function, int64_t blocks, int32_t threads,
              int32_t sharedBytes, void **arguments);
  Stream streamOf(Queue queue) const {
    return queue == Queue::Compute ? compute : communication;
  }
  /// A task has made a call. A long one is no standstill, either.
  void called() {
    if (++calls % kCallsOfPulse == 0)
      pulse(Queue::Compute);
    if (looking)
      looking(calls);
  }
  /// So few that a pulse costs nothing beside them.
  static constexpr int64_t kCallsOfPulse = 32;
  Function helper(const char *name) const;
  /// Numbers of bf16 as f32 (`widens`), or rounded to bf16.
  void convert(bool widens, char *to, const char *from, int64_t count);

  const Driver &cuda;
  Links *const links;
  Watch *const watch;
  const bool graphs;
  const int rank;
  int ordinal = 0, device = 0, major = 0, minor = 0;
  /// Shared memory that any kernel may have, and what this device lets one
  /// have.
  static constexpr int64_t kSharedLimit = 48 * 1024;
  int64_t rowBytes = kSharedLimit;
  bool isFirst = false; ///< of this process's ranks on the device
  Context context = nullptr;
  Stream compute = nullptr, communication = nullptr;
  std::unique_ptr<Products> products;
  std::unique_ptr<Convolutions> convolutions;
  std::unique_ptr<Attention> attention;
  std::unique_ptr<CallTimes> callTimes; ///< when they are asked for
  std::unique_ptr<CallSums> callSums;   ///< as well
  const bool syncsCalls;                ///< PIPEC_CALL_SYNC
  bool isPtx = false;                   ///< the code of a stage
  std::string whyPtx;                   ///< unless somebody asked for it
  std::vector<std::unique_ptr<StageCode>> stages;

  enum Mode { Direct, Recording, Replaying } mode = Direct;
  bool inPart = false;
  std::vector<std::unique_ptr<Recorded>> parts;
  Recorded *part = nullptr; ///< the one that is queued, or was last
  int number = 0;           ///< of that part

  std::function<void(int64_t)> looking; ///< during the task under way
  int64_t calls = 0;                    ///< that it has made

  PinnedPool stagingPool;
  Pinned pieces;      ///< for read and write
  Address frame = 0;  ///< the frame of the task under way
  Address faults = 0; ///< int64_t[3] (PipecDevice::fault)
  Pinned faultCopy;
  Address partial = 0; ///< partial sums of a norm
  /// A byte of each queue, which changes when something in it is done.
  Address pulses = 0;
  Pinned pulseCopy;
  unsigned char lastPulse = 0;
};

} // namespace pipec::cuda
