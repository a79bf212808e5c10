//===- DeviceEmulator.h - GPU kernels on the processor ---------*- C++ -*-===//
//
// Runs the LLVM IR that the GPU's code is made from, compiled for this machine:
// blocks one after the other, the threads of a block as fibers that meet at
// barriers, shuffles and votes. Memory of the device is that of the process.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/target/Target.h"
#include "runtime/StageAbi.h"

#include <string>
#include <utility>
#include <vector>

namespace pipec::test {

/// The kernels of one stage, and the table that its host code calls.
class DeviceEmulator {
public:
  /// `llvm` is StageCode::llvm, `library` the loaded stage. Fails the running
  /// test when the code cannot be compiled.
  DeviceEmulator(const std::string &llvm, void *library);
  ~DeviceEmulator();
  DeviceEmulator(const DeviceEmulator &) = delete;

  PipecDevice *table() { return &device.table; }
  /// In which order threads run until they wait: ascending or descending, and
  /// then with little shared memory. The results must not depend on it.
  void setDescending(bool on) {
    descending = on;
    device.table.row_bytes = on ? 48 * 1024 : 113 * 1024;
  }
  /// Whether products add biases, as cuBLASLt may; how many could.
  void setAddsBiases(bool on) { addsBiases = on; }
  /// Which calls of attention a library takes: none at first.
  enum Attends { Never, Forward, Always };
  void setAttends(Attends which) { attends = which; }
  int takeAttendedCalls() { return std::exchange(attendedCalls, 0); }
  int takeBiasedCalls() { return std::exchange(biasedCalls, 0); }
  /// Whether an index was out of range since the last call.
  bool takeFault();

private:
  struct Device {
    PipecDevice table; // first: the host code has its address
    DeviceEmulator *emulator;
  };
  using Entry = void (*)(char *const *);
  struct Kernel {
    Entry entry = nullptr;
    bool meets = false; // threads wait for each other
  };

  void compile(const std::string &llvm);
  void launch(int32_t kernel, int64_t blocks, int32_t threads,
              int32_t sharedBytes, char *const *arguments);

  Device device = {};
  std::vector<Kernel> kernels;
  std::vector<char> literals;
  int64_t fault[3] = {};
  char *shared = nullptr;
  void *code = nullptr;
  bool descending = false, addsBiases = true;
  Attends attends = Never;
  int biasedCalls = 0, attendedCalls = 0;
};

} // namespace pipec::test
