//===- Gpu.cpp - a rank on an NVIDIA GPU ----------------------------------===//
#include "runtime/device/cuda/Gpu.h"
#include "runtime/device/cuda/Recorded.h"
#include "runtime/device/cuda/StageCode.h"
#include "runtime/device/cuda/Usage.h"
#include "runtime/exec/StreamExchange.h"
#include "runtime/exec/StreamTraffic.h"
#include "support/Clock.h"
#include "support/Environment.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <sched.h>
#include <utility>

namespace pipec::cuda {
namespace {

/// What moves between host and device at once.
constexpr int64_t kPieceBytes = 4 << 20;
constexpr double kDrainSeconds = 5;
constexpr size_t kQueues = 2;
/// Terms that the device adds up in one pass.
constexpr size_t kTerms = PIPEC_SUM_TERMS;
/// Numbers that pipec_squares leaves.
constexpr size_t kSquares = size_t(PIPEC_SQUARES_BLOCKS) * PIPEC_HELPER_THREADS;

const plan::Rank &rankOf(const DeviceRequest &request) {
  return request.plan.ranks[static_cast<size_t>(request.rank)];
}

} // namespace

Gpu::Gpu(const DeviceRequest &request)
    : cuda(Driver::get()), links(request.links), watch(request.watch),
      graphs(request.graphs), rank(request.rank),
      syncsCalls(isWished("PIPEC_CALL_SYNC", "1")),
      pieces((openDevice(request), kPieceBytes)),
      faultCopy(3 * sizeof(int64_t)), pulseCopy(kQueues) {
  cuda.check(cuda.allocate(&frame, sizeof(PipecFrame)), "cuMemAlloc");
  cuda.check(cuda.allocate(&faults, 3 * sizeof(int64_t)), "cuMemAlloc");
  cuda.check(cuda.allocate(&partial, kSquares * sizeof(double)), "cuMemAlloc");
  cuda.check(cuda.fill(faults, 0, 3 * sizeof(int64_t), compute),
             "cuMemsetD8Async");
  cuda.check(cuda.allocate(&pulses, kQueues), "cuMemAlloc");
  std::memset(pulseCopy.data(), 0, kQueues);
  products = std::make_unique<Products>(compute, [this] { waitForStream(); });
  convolutions = std::make_unique<Convolutions>(
      compute, [this](bool widens, char *to, const char *from, int64_t count) {
        convert(widens, to, from, count);
      });
  attention = std::make_unique<Attention>(compute, major);
  callTimes = CallTimes::asked(rank, compute);
  callSums = CallSums::asked(rank);
}

void Gpu::connect() {
  if (links && watch)
    links->attach(context, device, compute, communication, *watch);
}

void Gpu::openDevice(const DeviceRequest &request) {
  const plan::Rank &own = rankOf(request);
  ordinal = (links ? links->deviceOf(own) : own.device) % cuda.devices;
  cuda.check(cuda.device(&device, ordinal), "cuDeviceGet");
  cuda.check(cuda.deviceAttribute(&major, kComputeMajor, device),
             "cuDeviceGetAttribute");
  cuda.check(cuda.deviceAttribute(&minor, kComputeMinor, device),
             "cuDeviceGetAttribute");
  if (!isWished("PIPEC_HELD_ROWS", "off"))
    rowBytes = mostRowBytes();
  cuda.check(cuda.retainContext(&context, device), "cuDevicePrimaryCtxRetain");
  cuda.check(cuda.setContext(context), "cuCtxSetCurrent");
  isFirst = Usage::get().open(device);
  // Others wait for messages: they go first where both could.
  int least = 0, greatest = 0;
  cuda.check(cuda.priorities(&least, &greatest), "cuCtxGetStreamPriorityRange");
  cuda.check(cuda.createStream(&compute, kNonBlocking, least),
             "cuStreamCreateWithPriority");
  cuda.check(cuda.createStream(&communication, kNonBlocking, greatest),
             "cuStreamCreateWithPriority");
}

/// PipecDevice::row_bytes.
int64_t Gpu::mostRowBytes() const {
  int all = 0, most = 0, reserved = 0;
  for (auto [attribute, value] : {std::pair{kSharedOfAll, &all},
                                  {kSharedOfBlock, &most},
                                  {kSharedOfDriver, &reserved}})
    if (cuda.deviceAttribute(value, attribute, device))
      return kSharedLimit; // an old driver
  return std::max<int64_t>(kSharedLimit, std::min(most, all / 2 - reserved));
}

Gpu::~Gpu() {
  drain();
  for (Address memory : {frame, faults, partial, pulses})
    cuda.release(memory);
  stages.clear(), parts.clear();
  products.reset(), convolutions.reset(), attention.reset();
  callTimes.reset();
  cuda.destroyStream(compute);
  cuda.destroyStream(communication);
  Usage::get().close(device);
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

char *Gpu::allocate(int64_t bytes) {
  Address memory = 0;
  if (int result = cuda.allocate(&memory, static_cast<size_t>(bytes))) {
    size_t free = 0, total = 0;
    cuda.memoryInfo(&free, &total);
    if (result != kOutOfMemory)
      cuda.check(result, "cuMemAlloc");
    throw Failure(Exit::NoFit,
                  "a rank needs " + std::to_string(bytes) + " bytes, GPU " +
                      std::to_string(ordinal) + " has " + std::to_string(free) +
                      " of " + std::to_string(total) +
                      " free; compile with more stages, fewer microbatches in "
                      "flight or --recompute full");
  }
  Usage::get().add(device, bytes);
  if (callSums)
    callSums->add(reinterpret_cast<char *>(memory), bytes);
  cuda.check(cuda.fill(memory, 0, static_cast<size_t>(bytes), compute),
             "cuMemsetD8Async");
  waitForStream();
  return reinterpret_cast<char *>(memory);
}

/// What is under way uses memory that is about to go. Throws nothing, and gives
/// up when a lost peer is waited for.
void Gpu::drain() {
  const double until = now() + kDrainSeconds;
  for (Stream stream : {compute, communication})
    while (cuda.queryStream(stream) == kNotReady && now() < until)
      sched_yield();
}

void Gpu::release(char *memory, int64_t bytes) {
  drain();
  if (callSums)
    callSums->remove(memory);
  Usage::get().add(device, -bytes);
  cuda.release(addressOf(memory));
}

void Gpu::read(const char *from, int64_t bytes,
               const std::function<void(const char *, int64_t)> &use) {
  for (int64_t at = 0; at < bytes; at += kPieceBytes) {
    const int64_t count = std::min(kPieceBytes, bytes - at);
    cuda.check(cuda.copyToHost(pieces.data(), addressOf(from + at),
                               static_cast<size_t>(count), compute),
               "cuMemcpyDtoHAsync");
    waitForStream();
    use(pieces.data(), count);
  }
}

void Gpu::write(char *to, int64_t bytes,
                const std::function<void(char *, int64_t, int64_t)> &make) {
  for (int64_t at = 0; at < bytes; at += kPieceBytes) {
    const int64_t count = std::min(kPieceBytes, bytes - at);
    make(pieces.data(), at, count);
    cuda.check(cuda.copyToDevice(addressOf(to + at), pieces.data(),
                                 static_cast<size_t>(count), compute),
               "cuMemcpyHtoDAsync");
    waitForStream();
  }
}

char *Gpu::staging(int64_t bytes) {
  if (!inPart) { // nobody says when a step ends
    waitForStream();
    stagingPool.rewind({});
  }
  return stagingPool.take(bytes);
}

void Gpu::feed(char *to, int64_t bytes,
               const std::function<void(char *)> &make) {
  char *place = staging(bytes);
  make(place);
  if (queues())
    cuda.check(cuda.copyToDevice(addressOf(to), place,
                                 static_cast<size_t>(bytes), compute),
               "cuMemcpyHtoDAsync");
}

const float *Gpu::fetch(const char *from) {
  char *place = staging(sizeof(float));
  if (queues())
    cuda.check(cuda.copyToHost(place, addressOf(from), sizeof(float), compute),
               "cuMemcpyDtoHAsync");
  return reinterpret_cast<const float *>(place);
}

void Gpu::copy(char *to, const char *from, int64_t bytes) {
  if (bytes && queues())
    cuda.check(cuda.copyOnDevice(addressOf(to), addressOf(from),
                                 static_cast<size_t>(bytes), compute),
               "cuMemcpyDtoDAsync");
}

void Gpu::clear(char *at, int64_t bytes) {
  if (bytes && queues())
    cuda.check(cuda.fill(addressOf(at), 0, static_cast<size_t>(bytes), compute),
               "cuMemsetD8Async");
}

//===----------------------------------------------------------------------===//
// Work
//===----------------------------------------------------------------------===//

PipecDevice *Gpu::adopt(void *library, const std::string &path) {
  stages.push_back(std::make_unique<StageCode>(*this, library, path));
  return &stages.back()->table;
}

void Gpu::run(PipecTask task, PipecFrame &taskFrame) {
  char *place = staging(sizeof taskFrame);
  taskFrame.scalars = reinterpret_cast<char *>(frame);
  std::memcpy(place, &taskFrame, sizeof taskFrame);
  const std::function<void(int64_t)> look = std::exchange(looking, nullptr);
  if (!queues())
    return;
  // The stream is in order: the last task has read its frame before.
  cuda.check(cuda.copyToDevice(frame, place, sizeof taskFrame, compute),
             "cuMemcpyHtoDAsync");
  calls = 0;
  if (callSums && isFirstStep())
    callSums->begin(reader());
  if (look)
    look(0);
  looking = look;
  task(&taskFrame);
  looking = nullptr;
  for (auto &stage : stages)
    stage->rethrow();
  pulse(Queue::Compute);
}

bool Gpu::isFirstStep() const {
  return inPart && mode == Direct && part->repetitions == 0;
}

CallSums::Read Gpu::reader() {
  return [this](auto... arguments) { read(arguments...); };
}

void Gpu::pulse(Queue queue) {
  const auto which = static_cast<size_t>(queue);
  cuda.check(cuda.fill(pulses + which, ++lastPulse, 1, streamOf(queue)),
             "cuMemsetD8Async");
  cuda.check(cuda.copyToHost(pulseCopy.data() + which, pulses + which, 1,
                             streamOf(queue)),
             "cuMemcpyDtoHAsync");
}

void Gpu::launch(Stream stream, Function function, int64_t blocks,
                 int32_t threads, int32_t sharedBytes, void **arguments) {
  cuda.check(cuda.launch(function, static_cast<unsigned>(blocks), 1, 1,
                         static_cast<unsigned>(threads), 1, 1,
                         static_cast<unsigned>(sharedBytes), stream, arguments,
                         nullptr),
             "cuLaunchKernel");
}

Function Gpu::helper(const char *name) const {
  if (stages.empty())
    throw Failure(Exit::Internal, "a rank without stages adds up nothing");
  return stages.front()->function(name);
}

void Gpu::convert(bool widens, char *to, const char *from, int64_t count) {
  Address target = addressOf(to), source = addressOf(from);
  auto elements = static_cast<Address>(count);
  void *arguments[] = {&target, &elements, &source};
  launch(compute, helper(widens ? "pipec_widen" : "pipec_round"),
         (count + PIPEC_HELPER_THREADS - 1) / PIPEC_HELPER_THREADS,
         PIPEC_HELPER_THREADS, 0, arguments);
}

void Gpu::sum(float *to, const std::vector<const float *> &terms,
              int64_t count) {
  sum(Queue::Compute, to, terms, count);
}

void Gpu::sum(Queue queue, float *to, const std::vector<const float *> &terms,
              int64_t count) {
  if (count == 0 || !queues())
    return;
  const Function add = helper("pipec_sum");
  // Where passes leave the sum so far: not in a term that is still to come.
  const bool early = std::find(terms.begin() + std::min(kTerms, terms.size()),
                               terms.end(), to) == terms.end();
  const Address sofar = addressOf(early ? to : terms[0]);
  for (size_t first = 0; first < terms.size();) {
    // From the second pass on it is the first term.
    Address values[kTerms] = {};
    size_t number = 0;
    if (first > 0)
      values[number++] = sofar;
    while (number < kTerms && first < terms.size())
      values[number++] = addressOf(terms[first++]);
    Address target = first < terms.size() ? sofar : addressOf(to);
    auto elements = static_cast<Address>(count);
    void *arguments[kTerms + 2] = {&target, &elements};
    for (size_t i = 0; i < kTerms; ++i)
      arguments[i + 2] = &values[i];
    launch(streamOf(queue), add,
           (count + PIPEC_HELPER_THREADS - 1) / PIPEC_HELPER_THREADS,
           PIPEC_HELPER_THREADS, 0, arguments);
  }
  pulse(queue);
}

double Gpu::norm(const float *values, int64_t count) {
  Address from = addressOf(values), to = partial;
  auto elements = static_cast<Address>(count);
  void *arguments[] = {&to, &elements, &from};
  launch(compute, helper("pipec_squares"), PIPEC_SQUARES_BLOCKS,
         PIPEC_HELPER_THREADS, 0, arguments);
  double sum = 0;
  read(reinterpret_cast<const char *>(partial), kSquares * sizeof(double),
       [&](const char *data, int64_t bytes) {
         for (int64_t at = 0; at < bytes; at += sizeof(double)) {
           double value;
           std::memcpy(&value, data + at, sizeof value);
           sum += value;
         }
       });
  return std::sqrt(sum);
}

/// What the device says of all that was queued.
void Gpu::checkQueued(int result) const {
  try {
    cuda.check(result, "cuStreamQuery");
  } catch (const Failure &failure) {
    // Who has waited for each call knows it: of a replay nobody has.
    if (syncsCalls && (inPart || !graphs))
      throw;
    throw Failure(failure.code,
                  std::string(failure.what()) +
                      "; PIPEC_CALL_SYNC=1 in the environment and --graphs "
                      "off name the call");
  }
}

void Gpu::waitForStream() {
  char seen[kQueues] = {};
  auto ready = [&] {
    const int result = cuda.queryStream(compute);
    if (result != kNotReady) {
      checkQueued(result);
      return true;
    }
    if (links)
      links->checkPeers();
    bool moved = false; // a long step is no standstill
    for (size_t i = 0; i < kQueues; ++i) {
      const char now = std::atomic_ref(pulseCopy.data()[i]).load();
      moved |= std::exchange(seen[i], now) != now;
    }
    if (moved && watch)
      watch->enter(watch->snapshot().operation);
    return false;
  };
  if (!watch) {
    while (!ready())
      sched_yield();
    return;
  }
  Operation operation = watch->snapshot().operation;
  watch->until(ready, operation);
}

void Gpu::settle() {
  waitForStream();
  cuda.check(
      cuda.copyToHost(faultCopy.data(), faults, faultCopy.bytes(), compute),
      "cuMemcpyDtoHAsync");
  waitForStream();
  if (callTimes)
    callTimes->settle();
  int64_t fault[3];
  std::memcpy(fault, faultCopy.data(), sizeof fault);
  if (fault[0])
    throw Failure(Exit::BadNumbers, "index " + std::to_string(fault[1]) +
                                        " was computed for an axis of " +
                                        std::to_string(fault[2]) +
                                        " on the GPU");
  stagingPool.rewind({}); // all of it has been read
}

//===----------------------------------------------------------------------===//
// Parts of a step
//===----------------------------------------------------------------------===//

void Gpu::begin(int begun) {
  number = begun;
  if (number == 0)
    stagingPool.rewind({});
  if (parts.size() <= static_cast<size_t>(number))
    parts.push_back(std::make_unique<Recorded>());
  part = parts[static_cast<size_t>(number)].get();
  part->rewind();
  inPart = true;
  mode = !graphs || part->repetitions == 0 ? Direct
         : part->repetitions == 1          ? Recording
                                           : Replaying;
  part->start = now();
  if (mode == Recording) {
    if (links)
      links->beginCapture();
    else
      cuda.check(cuda.beginCapture(compute, kRelaxed), "cuStreamBeginCapture");
  }
  mark(); // what the times of the others are counted from
}

void Gpu::end(int) {
  if (mode == Recording) {
    if (links)
      links->endCapture();
    else
      part->graph = endCapture(cuda, compute);
  }
  if (mode != Direct) {
    part->start = now();
    if (links)
      links->replay(number);
    else
      cuda.check(cuda.launchGraph(part->graph, compute), "cuGraphLaunch");
  }
  ++part->repetitions;
  mode = Direct;
  inPart = false;
}

Mark Gpu::mark() {
  Mark mark;
  if (!inPart) { // times are those of the calls
    mark.time = now();
    return mark;
  }
  mark.part = number;
  mark.id = static_cast<int>(part->marks);
  const Event event = part->nextMark();
  if (queues())
    cuda.check(
        cuda.recordEvent(event, compute, mode == Recording ? kExternal : 0),
        "cuEventRecord");
  return mark;
}

void Gpu::resolve(Mark &mark) {
  if (mark.id < 0)
    return;
  const Recorded &of = *parts[static_cast<size_t>(mark.part)];
  float milliseconds = 0;
  cuda.check(cuda.elapsed(&milliseconds, of.markEvents[0],
                          of.markEvents[static_cast<size_t>(mark.id)]),
             "cuEventElapsedTime");
  mark.time = mark.core = of.start + 1e-3 * milliseconds;
}

//===----------------------------------------------------------------------===//
// Streams
//===----------------------------------------------------------------------===//

Event Gpu::record(Queue queue) {
  const Event event = part->nextEvent();
  if (queues())
    cuda.check(cuda.recordEvent(event, streamOf(queue), 0), "cuEventRecord");
  return event;
}

void Gpu::wait(Queue queue, Event event) {
  if (event && queues())
    cuda.check(cuda.waitEvent(streamOf(queue), event, 0), "cuStreamWaitEvent");
}

void Gpu::exchange(const std::vector<Links::Message> &messages,
                   const Operation &operation) {
  if (queues() && links)
    links->exchange(messages, operation);
}

std::unique_ptr<Traffic> Gpu::traffic(RankState &state, Transport &, Watch &) {
  return std::make_unique<StreamTraffic>(state, *this);
}

std::unique_ptr<Exchange> Gpu::exchange(Transport &, Watch &) {
  return std::make_unique<StreamExchange>(*this);
}

DeviceFacts Gpu::facts() const {
  const Products::Biases &biases = products->biases();
  return {!stages.empty(),  isPtx,          whyPtx,
          biases.added,     biases.refused, attention->kinds(),
          products->tuned()};
}

/// What else the device's memory is full of is the first rank's to say: the
/// context, code, what libraries keep for themselves, other ranks' workspaces,
/// and what other processes have.
std::vector<std::pair<std::string, int64_t>> Gpu::overhead() const {
  const int64_t ofProducts = products->bytes(),
                ofCudnn = convolutions->bytes() + attention->bytes();
  std::vector<std::pair<std::string, int64_t>> result = {
      {"cuBLASLt's workspace", ofProducts}, {"cuDNN's workspace", ofCudnn}};
  size_t free = 0, total = 0;
  if (isFirst && cuda.memoryInfo(&free, &total) == 0)
    result.push_back({"context, code and libraries",
                      static_cast<int64_t>(total - free) -
                          Usage::get().of(device) - ofProducts - ofCudnn});
  return result;
}

} // namespace pipec::cuda

namespace pipec {
std::unique_ptr<Device> openGpu(const DeviceRequest &request) {
  std::unique_ptr<cuda::Gpu> gpu;
  try {
    gpu = std::make_unique<cuda::Gpu>(request);
  } catch (const Failure &failure) {
    if (request.links && request.watch)
      request.links->decline(failure, *request.watch);
    throw;
  }
  gpu->connect();
  return gpu;
}
} // namespace pipec
