//===- Arena.cpp - the one allocation of a rank ---------------------------===//
#include "runtime/Arena.h"
#include "runtime/program/Memory.h"
#include "support/Failure.h"

#include <string>

namespace pipec {

Arena::Arena(Device &device, int64_t bytes) : device(device), size(bytes) {
  if (bytes > 0)
    memory = device.allocate(bytes);
}

Arena::~Arena() {
  if (memory)
    device.release(memory, size);
}

char *Arena::take(int64_t bytes) {
  const int64_t rounded = plan::alignUp(bytes);
  if (rounded > size - used)
    throw Failure(Exit::Internal,
                  "the arena of " + std::to_string(size) +
                      " bytes is too small: the plan's prediction is wrong");
  char *piece = memory + used;
  used += rounded;
  return piece;
}

} // namespace pipec
