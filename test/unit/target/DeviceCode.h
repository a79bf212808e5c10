//===- DeviceCode.h - device code as a library of this machine -*- C++ -*-===//
#pragma once

#include <cstddef>
#include <string>

namespace pipec::test {

constexpr size_t kSharedBytes = 113 * 1024;

/// Compiles the LLVM IR that a GPU's code is made from for this machine, as a
/// shared object. It exports for every kernel
///   void <kernel>_entry(char **arguments)  one thread (DeviceCalls.cpp,
///   Fibers.h) int32_t <kernel>_arguments             how many they are int32_t
///   <kernel>_meets                 1 when threads wait for each other
/// and kSharedBytes of shared memory, pipec_test_shared. Throws
/// std::runtime_error.
void buildDeviceCode(const std::string &llvm, const std::string &path);

} // namespace pipec::test
