//===- Device.h - where a rank's tensors and tasks are ----------*- C++ -*-===//
//
// The processor, or a GPU. Everything that touches a rank's tensors goes
// through its device, so that the executor, checkpoints and the oracle are the
// same code on both. Work is done in the order of the calls; on a GPU later
// than the calls, unless a function says that it waits.
//
// Adding one: a folder here and a row in devices.def.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "runtime/StageAbi.h"
#include "runtime/program/Plan.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace pipec {

class Exchange;
class Links;
class RankState;
class Traffic;
class Transport;
class Watch;

/// A point in a device's work. The times are known after settle().
struct Mark {
  int part = 0, id = -1; ///< the device's own
  double time = 0;       ///< on the clock, in seconds
  double core = 0; ///< seconds that this thread has had a core (processor only)
};

/// Of a GPU, for those who look for what has gone wrong.
struct DeviceFacts {
  bool hasCode = false, isPtx = false; ///< that the driver has translated
  std::string whyPtx;                  ///< and not machine code, if unasked
  /// Kinds of products with a bias that a library adds, and that it refuses.
  int64_t biasesAdded = 0, biasesRefused = 0;
  /// Kinds of attention, and of its gradients, that a library computes.
  int64_t attended = 0;
  /// Kinds of products for which an algorithm was found by trying.
  int64_t tuned = 0;
};

/// Used by one thread at a time.
class Device {
public:
  virtual ~Device() = default;

  //===--------------------------------------------------------------------===//
  // Memory
  //===--------------------------------------------------------------------===//

  /// Zeroed memory at a multiple of 64. Waits. Failure(NoFit) when there is not
  /// that much.
  virtual char *allocate(int64_t bytes) = 0;
  virtual void release(char *memory, int64_t bytes) = 0;

  /// use(data, count) for the bytes at `from`, in pieces. Waits.
  virtual void read(const char *from, int64_t bytes,
                    const std::function<void(const char *, int64_t)> &use) = 0;
  /// make(piece, offset, count) for the bytes at `to`, in pieces. Waits.
  virtual void
  write(char *to, int64_t bytes,
        const std::function<void(char *, int64_t, int64_t)> &make) = 0;
  /// The same in one piece and without waiting: for a step's data.
  virtual void feed(char *to, int64_t bytes,
                    const std::function<void(char *)> &make) = 0;
  /// Where the number at `from` will be after settle().
  virtual const float *fetch(const char *from) = 0;

  virtual void copy(char *to, const char *from, int64_t bytes) = 0;
  virtual void clear(char *at, int64_t bytes) = 0;

  //===--------------------------------------------------------------------===//
  // Work
  //===--------------------------------------------------------------------===//

  /// Prepares a loaded stage program (of dlopen) that `path` names; what its
  /// frames have as `device`. Failure(BadPlan, Unavailable).
  virtual PipecDevice *adopt(void *library, const std::string &path) = 0;
  virtual void run(PipecTask task, PipecFrame &frame) = 0;
  /// to[i] = terms[0][i] + terms[1][i] + ..., in that order; `to` may be one of
  /// the terms. Where it is one behind the eighth, terms[0] may be overwritten.
  virtual void sum(float *to, const std::vector<const float *> &terms,
                   int64_t count) = 0;
  /// Square root of the sum of squares, in double and in an order given by
  /// `count`. Waits.
  virtual double norm(const float *values, int64_t count) = 0;

  virtual Mark mark() = 0;
  /// Fills in the times of a mark, after settle().
  virtual void resolve(Mark &mark) = 0;

  /// Waits until everything is done. Failure(BadNumbers) when an index was out
  /// of range.
  virtual void settle() = 0;
  /// Whether work is done when its call returns.
  virtual bool isImmediate() const = 0;

  /// Between the two lies part `part` (from 0) of a step: the same calls in
  /// every step, but for the numbers in frames and for fed data.
  virtual void begin(int part) = 0;
  virtual void end(int part) = 0;

  //===--------------------------------------------------------------------===//
  // Other ranks
  //===--------------------------------------------------------------------===//

  virtual std::unique_ptr<Traffic>
  traffic(RankState &state, Transport &transport, Watch &watch) = 0;
  virtual std::unique_ptr<Exchange> exchange(Transport &transport,
                                             Watch &watch) = 0;

  /// Bytes of the device's memory that are not the arena's, by what they are
  /// for: ("libraries", 33554432).
  virtual std::vector<std::pair<std::string, int64_t>> overhead() const {
    return {};
  }
  virtual DeviceFacts facts() const { return {}; }

  // Short forms; they wait.
  void upload(char *to, const void *from, int64_t bytes);
  void download(void *to, const char *from, int64_t bytes);
};

/// What a rank's device is made from.
struct DeviceRequest {
  const plan::Plan &plan;
  int rank = 0;
  Links *links = nullptr; ///< between GPUs; null for a single rank
  Watch *watch = nullptr;
  bool graphs = true; ///< steps are recorded once and replayed
};

/// The device of the plan's kind. Failure(Unavailable) when it is not there.
std::unique_ptr<Device> openDevice(const DeviceRequest &request);

} // namespace pipec
