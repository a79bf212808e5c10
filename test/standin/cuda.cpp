//===- cuda.cpp - a stand-in for libcuda ----------------------------------===//
#include "support/Clock.h"
#include "test/standin/Machine.h"
#include "test/unit/target/DeviceCode.h"
#include "test/unit/target/Fibers.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <elf.h>
#include <set>

using namespace pipec::standin;

namespace {

// Of cuda.h.
enum Result {
  Success = 0,
  InvalidValue = 1,
  OutOfMemory = 2,
  NoDevice = 100,
  InvalidImage = 200,
  InvalidContext = 201,
  EccError = 214,
  InvalidHandle = 400,
  NotFound = 500,
  NotReady = 600,
  IllegalAddress = 700,
  NotSupported = 801,
  CaptureUnjoined = 904,
  CaptureIsolation = 905,
  CapturedEvent = 907,
};
constexpr unsigned kExternal = 1;
constexpr int kJitErrors = 5, kJitErrorBytes = 6;
constexpr unsigned long long kNodePriorities = 8;

using Lock = std::lock_guard<std::recursive_mutex>;

char contexts[64]; ///< of devices; what is in them does not matter
thread_local void *current = nullptr;

struct Event {
  EventState state;
  void *context = nullptr;
};
struct Kernel {
  void *context;
  std::string name;
  void (*entry)(char **);
  int arguments;
  bool meets;
  char *shared;
  unsigned mostShared = 48 * 1024;
};
struct Module {
  void *context, *code;
  std::map<std::string, Kernel> kernels;
};
struct Exec {
  Capture recorded;
};

/// Kernels that refer to this library's functions are opened by it.
void offerOurselves() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<void *>(&offerOurselves), &info))
    dlopen(info.dli_fname, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
}

/// Bytes of machine code or of PTX text.
size_t sizeOf(const char *image) {
  if (std::memcmp(image, ELFMAG, SELFMAG) != 0)
    return std::strlen(image);
  Elf64_Ehdr header;
  std::memcpy(&header, image, sizeof header);
  size_t end = header.e_shoff + size_t(header.e_shnum) * header.e_shentsize;
  return std::max(end,
                  header.e_phoff + size_t(header.e_phnum) * header.e_phentsize);
}

std::string keyOf(const char *image) {
  uint64_t hash = 14695981039346656037u; // FNV-1a
  for (size_t i = 0, size = sizeOf(image); i < size; ++i)
    hash = (hash ^ static_cast<unsigned char>(image[i])) * 1099511628211u;
  char text[20];
  std::snprintf(text, sizeof text, "%016llx",
                static_cast<unsigned long long>(hash));
  return text;
}

Stream *streamOf(void *stream) { return static_cast<Stream *>(stream); }

int work(void *stream, std::function<void()> body) {
  queueWork(stream, std::move(body));
  return Success;
}

void runKernel(const Kernel &kernel, unsigned blocks, unsigned threads,
               unsigned sharedBytes, std::vector<char *> &arguments) {
  for (unsigned block = 0; block < blocks; ++block) {
    std::memset(kernel.shared, 0xff, sharedBytes);
    pipec::test::runBlock(block, static_cast<int>(threads), kernel.meets, false,
                          [&] { kernel.entry(arguments.data()); });
  }
}

/// When the kernel that is launched now may begin; null for at once.
std::function<bool()> delay() {
  if (Machine::get().launches++ == setting("PIPEC_STANDIN_HANG", -1))
    return [] { return false; };
  const int64_t slow = setting("PIPEC_STANDIN_SLOW", 0);
  if (!slow)
    return nullptr;
  auto due = std::make_shared<double>(0);
  return [=] {
    if (*due == 0)
      *due = pipec::now() + 1e-3 * static_cast<double>(slow);
    if (pipec::now() < *due)
      return false;
    *due = 0; // for the next replay
    return true;
  };
}

/// Of a recording: whether every stream's work is behind its origin's end.
bool isJoined(Capture &capture) {
  std::set<Stream *> joined = {capture.origin};
  bool moved = true;
  while (moved) {
    moved = false;
    for (auto &[stream, ops] : capture.streams) {
      if (joined.count(stream) || ops.empty() || ops.back().kind != Op::Record)
        continue;
      for (auto &[other, theirs] : capture.streams)
        for (const Op &op : theirs)
          if (joined.count(other) && op.kind == Op::Wait &&
              op.event == ops.back().event && op.count == ops.back().count)
            moved |= joined.insert(stream).second;
    }
  }
  return joined.size() >= capture.streams.size();
}

} // namespace

void *pipec::standin::currentContext() { return current; }
bool pipec::standin::isOurs(const void *stream) {
  return current && current == static_cast<const Stream *>(stream)->context;
}

extern "C" {

int cuInit(unsigned) {
  return setting("PIPEC_STANDIN_DEVICES", 2) < 0 ? NoDevice : Success;
}
int cuDriverGetVersion(int *version) {
  *version = static_cast<int>(setting("PIPEC_STANDIN_DRIVER", 13000));
  return Success;
}
int cuGetErrorName(int error, const char **name) {
  static const std::map<int, const char *> names = {
      {InvalidValue, "CUDA_ERROR_INVALID_VALUE"},
      {OutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY"},
      {NoDevice, "CUDA_ERROR_NO_DEVICE"},
      {InvalidImage, "CUDA_ERROR_INVALID_IMAGE"},
      {InvalidContext, "CUDA_ERROR_INVALID_CONTEXT"},
      {EccError, "CUDA_ERROR_ECC_UNCORRECTABLE"},
      {InvalidHandle, "CUDA_ERROR_INVALID_HANDLE"},
      {IllegalAddress, "CUDA_ERROR_ILLEGAL_ADDRESS"},
      {CapturedEvent, "CUDA_ERROR_CAPTURED_EVENT"},
      {NotFound, "CUDA_ERROR_NOT_FOUND"},
      {CaptureUnjoined, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED"},
      {CaptureIsolation, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION"}};
  auto found = names.find(error);
  *name = found == names.end() ? "CUDA_ERROR_UNKNOWN" : found->second;
  return Success;
}
int cuGetErrorString(int error, const char **text) {
  *text = error == IllegalAddress ? "an illegal memory access was encountered"
                                  : "a text";
  return Success;
}
int cuDeviceGetCount(int *count) {
  *count = static_cast<int>(setting("PIPEC_STANDIN_DEVICES", 2));
  return Success;
}
int cuDeviceGet(int *device, int ordinal) {
  *device = ordinal;
  return Success;
}
int cuDeviceGetName(char *name, int length, int) {
  std::snprintf(name, static_cast<size_t>(length), "stand-in");
  return Success;
}
int cuDeviceGetPCIBusId(char *id, int length, int device) {
  std::snprintf(id, static_cast<size_t>(length), "0000:%02x:00.0", device);
  return Success;
}
int cuDeviceGetAttribute(int *value, int attribute, int) {
  const auto chip = static_cast<int>(setting("PIPEC_STANDIN_CHIP", 90));
  const std::map<int, int> values = {
      {75, chip / 10},
      {76, chip % 10},
      {81, (chip < 90 ? 164 : 228) * 1024}, // shared memory of all blocks,
      {97, (chip < 90 ? 163 : 227) * 1024}, // of one, and of each the driver's
      {111, 1024}};
  const auto found = values.find(attribute);
  *value = found == values.end() ? 0 : found->second;
  return Success;
}
int cuDevicePrimaryCtxRetain(void **context, int device) {
  *context = &contexts[device];
  return device == setting("PIPEC_STANDIN_BROKEN", -1) ? EccError : Success;
}
int cuCtxGetDevice(int *device) {
  if (!current)
    return InvalidContext;
  *device = static_cast<int>(static_cast<char *>(current) - contexts);
  return Success;
}
int cuCtxSetCurrent(void *context) {
  current = context;
  return Success;
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

int cuMemGetInfo_v2(size_t *free, size_t *total) {
  Machine &machine = Machine::get();
  Lock lock(machine.mutex);
  *total =
      static_cast<size_t>(setting("PIPEC_STANDIN_MEMORY", int64_t(1) << 30));
  *free = *total - static_cast<size_t>(machine.used);
  return Success;
}
int cuMemAlloc_v2(unsigned long long *memory, size_t bytes) {
  Machine &machine = Machine::get();
  Lock lock(machine.mutex);
  if (!current)
    return InvalidContext;
  char *start = bytes ? machine.allocate(static_cast<int64_t>(bytes)) : nullptr;
  *memory = reinterpret_cast<unsigned long long>(start);
  return !bytes ? InvalidValue : start ? Success : OutOfMemory;
}
int cuMemFree_v2(unsigned long long memory) {
  if (!current)
    return InvalidContext;
  Machine &machine = Machine::get();
  Lock lock(machine.mutex);
  machine.demandAll(); // as the driver, which waits for the device
  return machine.release(reinterpret_cast<char *>(memory)) ? Success
                                                           : InvalidValue;
}
int cuMemHostAlloc(void **memory, size_t bytes, unsigned) {
  if (!current)
    return InvalidContext;
  *memory = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
  return *memory ? Success : OutOfMemory;
}
int cuMemFreeHost(void *memory) {
  std::free(memory);
  return Success;
}

static int copy(void *to, const void *from, size_t bytes, void *stream,
                bool toDevice, bool fromDevice) {
  Machine &machine = Machine::get();
  Lock lock(machine.mutex);
  const auto size = static_cast<int64_t>(bytes);
  if (machine.isDevice(to, size) != toDevice ||
      machine.isDevice(from, size) != fromDevice)
    return InvalidValue;
  return work(stream, [=] { std::memmove(to, from, bytes); });
}
int cuMemcpyHtoDAsync_v2(unsigned long long to, const void *from, size_t bytes,
                         void *stream) {
  return copy(reinterpret_cast<void *>(to), from, bytes, stream, true, false);
}
int cuMemcpyDtoHAsync_v2(void *to, unsigned long long from, size_t bytes,
                         void *stream) {
  return copy(to, reinterpret_cast<void *>(from), bytes, stream, false, true);
}
int cuMemcpyDtoDAsync_v2(unsigned long long to, unsigned long long from,
                         size_t bytes, void *stream) {
  return copy(reinterpret_cast<void *>(to), reinterpret_cast<void *>(from),
              bytes, stream, true, true);
}
int cuMemcpyPeerAsync(unsigned long long to, void *, unsigned long long from,
                      void *, size_t bytes, void *stream) {
  return cuMemcpyDtoDAsync_v2(to, from, bytes, stream);
}
int cuMemsetD2D8Async(unsigned long long at, size_t pitch, unsigned char value,
                      size_t width, size_t height, void *stream) {
  return work(stream, [=] {
    for (size_t row = 0; row < height; ++row)
      std::memset(reinterpret_cast<char *>(at) + row * pitch, value, width);
  });
}
int cuMemsetD8Async(unsigned long long at, unsigned char value, size_t bytes,
                    void *stream) {
  return cuMemsetD2D8Async(at, bytes, value, bytes, 1, stream);
}
int cuMemsetD32Async(unsigned long long at, unsigned value, size_t count,
                     void *stream) {
  return work(stream, [=] {
    std::fill_n(reinterpret_cast<unsigned *>(at), count, value);
  });
}

//===----------------------------------------------------------------------===//
// Streams and events
//===----------------------------------------------------------------------===//

int cuCtxGetStreamPriorityRange(int *least, int *greatest) {
  *least = 0, *greatest = -5;
  return Success;
}
int cuCtxEnablePeerAccess(void *, unsigned flags) {
  Machine::get().log("peer access");
  return flags == 0 ? Success : InvalidValue;
}
int cuStreamCreateWithPriority(void **stream, unsigned, int priority) {
  Machine &machine = Machine::get();
  Lock lock(machine.mutex);
  if (!current)
    return InvalidContext;
  Stream *made = machine.createStream();
  made->context = current;
  *stream = made;
  machine.log("stream of priority " + std::to_string(priority));
  return Success;
}
int cuStreamDestroy_v2(void *) { return Success; }
int cuStreamQuery(void *stream) {
  Machine &machine = Machine::get();
  Lock lock(machine.mutex);
  if (streamOf(stream)->capture) {
    streamOf(stream)->capture->broken = true;
    return CaptureIsolation;
  }
  const bool isDone = machine.demand(streamOf(stream));
  return machine.hasFault ? IllegalAddress : isDone ? Success : NotReady;
}
int cuEventCreate(void **event, unsigned) {
  if (!current)
    return InvalidContext;
  *event = new Event{{}, current};
  return Success;
}
int cuEventDestroy_v2(void *) { return Success; } // waits may refer to it
int cuEventRecordWithFlags(void *event, void *stream, unsigned flags) {
  Machine &machine = Machine::get();
  Lock lock(machine.mutex);
  EventState &state = static_cast<Event *>(event)->state;
  Stream *on = streamOf(stream);
  if (static_cast<Event *>(event)->context != on->context)
    return InvalidHandle;
  if (on->capture && (flags & kExternal)) { // a count of 0: at each replay
    machine.queue(on, {Op::Record, {}, {}, &state, 0, {}});
    return Success;
  }
  state.stream = on;
  state.capture = on->capture;
  machine.queue(on, {Op::Record, {}, {}, &state, ++state.recorded, {}});
  return Success;
}

/// Of a rank, whose thread makes its calls: by whatever order ranks run in, it
/// is the same wait that is left out.
static thread_local int waitsOfThread = 0;

int cuStreamWaitEvent(void *stream, void *event, unsigned) {
  Machine &machine = Machine::get();
  Lock lock(machine.mutex);
  EventState &state = static_cast<Event *>(event)->state;
  Stream *waiting = streamOf(stream);
  const int number = waitsOfThread++;
  if (state.recorded == 0)
    return Success; // as the driver: nothing to wait for
  if (number == setting("PIPEC_STANDIN_DROP_WAIT", -1)) {
    machine.log("dropped wait " + std::to_string(number));
    return Success;
  }
  if (state.capture && state.capture->ended)
    return CapturedEvent;
  if (state.capture && !waiting->capture) // joins the recording
    waiting->capture = state.capture;
  if (waiting->capture != state.capture)
    return CaptureIsolation;
  machine.queue(waiting, {Op::Wait, {}, {}, &state, state.recorded, {}});
  return Success;
}
int cuEventElapsedTime(float *milliseconds, void *start, void *end) {
  for (void *event : {start, end})
    if (static_cast<Event *>(event)->state.capture)
      return CapturedEvent;
  *milliseconds =
      static_cast<float>(1e3 * (static_cast<Event *>(end)->state.time -
                                static_cast<Event *>(start)->state.time));
  return Success;
}

//===----------------------------------------------------------------------===//
// Code
//===----------------------------------------------------------------------===//

int cuModuleLoadDataEx(void **module, const void *image, unsigned count,
                       const int *options, void **values) {
  if (!current)
    return InvalidContext;
  char *errors = nullptr;
  size_t room = 0;
  for (unsigned i = 0; i < count; ++i)
    if (options[i] == kJitErrors)
      errors = static_cast<char *>(values[i]);
    else if (options[i] == kJitErrorBytes)
      room = reinterpret_cast<size_t>(values[i]);
    else
      return InvalidValue;
  offerOurselves();
  Machine &machine = Machine::get();
  const char *folder = std::getenv("PIPEC_STANDIN_CODE");
  const auto *bytes = static_cast<const char *>(image);
  const bool isPtx = std::memcmp(bytes, ELFMAG, SELFMAG) != 0;
  machine.log(std::string("load ") + (isPtx ? "ptx" : "cubin"));
  const std::string path =
      std::string(folder ? folder : ".") + "/" + keyOf(bytes) + ".so";
  const bool isRefused = !isPtx && !setting("PIPEC_STANDIN_CUBIN", 1);
  void *code =
      isRefused ? nullptr : dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!code) {
    machine.log(isRefused ? "refused" : dlerror());
    if (room)
      std::snprintf(errors, room, "ptxas fatal: an old image\n");
    return InvalidImage;
  }
  *module = new Module{current, code, {}};
  return Success;
}
int cuModuleUnload(void *) { return Success; }
int cuModuleGetFunction(void **function, void *module, const char *name) {
  auto &of = *static_cast<Module *>(module);
  auto symbol = [&](const std::string &symbolName) {
    return dlsym(of.code, symbolName.c_str());
  };
  const std::string base = name;
  void *entry = symbol(base + "_entry");
  if (!entry)
    return NotFound;
  *function =
      &(of.kernels[name] = {of.context, name,
                            reinterpret_cast<void (*)(char **)>(entry),
                            *static_cast<int *>(symbol(base + "_arguments")),
                            *static_cast<int *>(symbol(base + "_meets")) != 0,
                            static_cast<char *>(symbol("pipec_test_shared"))});
  return Success;
}
int cuFuncSetAttribute(void *function, int attribute, int value) {
  Kernel &kernel = *static_cast<Kernel *>(function);
  if (attribute == 9)
    return value >= 0 && value <= 100 ? Success : InvalidValue;
  int most = 0;
  cuDeviceGetAttribute(&most, 97, 0);
  if (attribute != 8 || value < 0 || value > most)
    return InvalidValue;
  kernel.mostShared = static_cast<unsigned>(value);
  Machine::get().log("shared memory of " + kernel.name + ": " +
                     std::to_string(value));
  return Success;
}
int cuLaunchKernel(void *function, unsigned gridX, unsigned gridY,
                   unsigned gridZ, unsigned blockX, unsigned blockY,
                   unsigned blockZ, unsigned sharedBytes, void *stream,
                   void **parameters, void **) {
  const Kernel &kernel = *static_cast<Kernel *>(function);
  if (gridX < 1 || gridY != 1 || gridZ != 1 || blockX < 1 || blockX > 1024 ||
      blockY != 1 || blockZ != 1 || sharedBytes > kernel.mostShared)
    return InvalidValue;
  if (kernel.context != streamOf(stream)->context || !isOurs(stream))
    return InvalidHandle;
  if (const char *fails = std::getenv("PIPEC_STANDIN_FAIL");
      fails && kernel.name == fails)
    return InvalidValue;
  std::vector<char *> arguments;
  for (int i = 0; i < kernel.arguments; ++i)
    arguments.push_back(*static_cast<char **>(parameters[i]));
  Machine::get().log("launch " + kernel.name + " on stream " +
                     std::to_string(streamOf(stream)->number));
  const char *faults = std::getenv("PIPEC_STANDIN_FAULT");
  const char *idle = std::getenv("PIPEC_STANDIN_IDLE");
  const bool isIdle = idle && kernel.name == idle;
  queueWork(
      stream,
      [=]() mutable {
        if (faults && kernel.name == faults)
          Machine::get().hasFault = true;
        if (!isIdle)
          runKernel(kernel, gridX, blockX, sharedBytes, arguments);
      },
      delay());
  return Success;
}

//===----------------------------------------------------------------------===//
// Graphs
//===----------------------------------------------------------------------===//

int cuStreamBeginCapture_v2(void *stream, int) {
  if (!setting("PIPEC_STANDIN_CAPTURE", 1))
    return NotSupported;
  Machine &machine = Machine::get();
  Lock lock(machine.mutex);
  auto *capture = new Capture;
  capture->origin = streamOf(stream);
  capture->of(streamOf(stream));
  streamOf(stream)->capture = capture;
  machine.log("capture begins");
  return Success;
}
int cuStreamEndCapture(void *stream, void **graph) {
  Machine &machine = Machine::get();
  Lock lock(machine.mutex);
  Capture *capture = streamOf(stream)->capture;
  if (!capture || capture->origin != stream)
    return InvalidValue;
  size_t nodes = 0;
  for (auto &[known, ops] : capture->streams) {
    known->capture = nullptr;
    nodes += ops.size();
  }
  capture->ended = true;
  machine.log("capture ends with " + std::to_string(capture->streams.size()) +
              " streams and " + std::to_string(nodes) + " nodes");
  *graph = capture;
  return capture->broken       ? CaptureIsolation
         : !isJoined(*capture) ? CaptureUnjoined
                               : Success;
}
int cuGraphInstantiateWithFlags(void **exec, void *graph,
                                unsigned long long flags) {
  Machine::get().log(flags == kNodePriorities
                         ? "graph with its nodes' priorities"
                         : "graph of one priority");
  *exec = new Exec{*static_cast<Capture *>(graph)};
  return Success;
}
int cuGraphLaunch(void *exec, void *stream) {
  Machine &machine = Machine::get();
  Lock lock(machine.mutex);
  machine.log("graph launch on stream " +
              std::to_string(streamOf(stream)->number));
  machine.launch(static_cast<Exec *>(exec)->recorded, streamOf(stream));
  return Success;
}
int cuGraphDestroy(void *) { return Success; }
int cuGraphExecDestroy(void *exec) {
  delete static_cast<Exec *>(exec);
  return Success;
}
}
