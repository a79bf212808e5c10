//===- Device.cpp - the table of devices ----------------------------------===//
#include "runtime/device/Device.h"
#include "support/Failure.h"

#include <cstring>

namespace pipec {

#define DEVICE(kind, open)                                                     \
  std::unique_ptr<Device> open(const DeviceRequest &request);
#include "runtime/device/devices.def"

std::unique_ptr<Device> openDevice(const DeviceRequest &request) {
  const std::string &wanted = request.plan.cluster.kind;
#define DEVICE(kind, open)                                                     \
  if (wanted == #kind)                                                         \
    return open(request);
#include "runtime/device/devices.def"
  throw Failure(Exit::BadPlan, "the plan is for devices of kind '" + wanted +
                                   "', which this pipec-run does not know; "
                                   "compile the model again");
}

void Device::upload(char *to, const void *from, int64_t bytes) {
  write(to, bytes, [&](char *piece, int64_t offset, int64_t count) {
    std::memcpy(piece, static_cast<const char *>(from) + offset,
                static_cast<size_t>(count));
  });
}

void Device::download(void *to, const char *from, int64_t bytes) {
  auto *next = static_cast<char *>(to);
  read(from, bytes, [&](const char *data, int64_t count) {
    std::memcpy(next, data, static_cast<size_t>(count));
    next += count;
  });
}

} // namespace pipec
