//===- TensorExchange.cpp - tensors of all ranks, at rank 0 ---------------===//
#include "runtime/state/TensorExchange.h"
#include "runtime/program/Memory.h"
#include "runtime/state/Tensors.h"

#include <algorithm>
#include <exception>

namespace pipec {
namespace {

Operation operation(const char *what, int peer) {
  Operation result;
  result.what = what;
  result.peer = peer;
  return result;
}

} // namespace

void TensorExchange::fetch(int index, const Sink &sink) {
  const plan::Weight &weight = state.plan.weights[index];
  if (const char *local = newest(state, index, steps))
    return state.device->read(local, weight.bytes, sink);
  const int owner = ownerOf(state.plan, index);
  const Operation waiting = operation("waiting for a trained weight", owner);
  int32_t wanted = index;
  Request request = transport.send(owner, kTagGather, &wanted, sizeof wanted);
  watch.wait(transport, request, waiting);
  buffer.resize(plan::kPieceBytes);
  std::exception_ptr failed;
  for (int64_t at = 0; at < weight.bytes; at += plan::kPieceBytes) {
    const int64_t bytes = std::min(plan::kPieceBytes, weight.bytes - at);
    request = transport.receive(owner, kTagGather, buffer.data(), bytes);
    watch.wait(transport, request, waiting);
    try {
      if (!failed)
        sink(buffer.data(), bytes);
    } catch (...) { // the owner must get rid of the rest all the same
      failed = std::current_exception();
    }
  }
  if (failed)
    std::rethrow_exception(failed);
}

void TensorExchange::finish() {
  int32_t end = -1;
  for (int rank = 1; rank < transport.size(); ++rank) {
    Request request = transport.send(rank, kTagGather, &end, sizeof end);
    watch.wait(transport, request,
               operation("waiting for the other ranks", rank));
  }
}

void TensorExchange::serve() {
  const Operation waiting =
      operation("waiting for rank 0 to ask for weights", 0);
  while (true) {
    int32_t wanted = -1;
    Request request = transport.receive(0, kTagGather, &wanted, sizeof wanted);
    watch.wait(transport, request, waiting);
    if (wanted < 0)
      return;
    const char *data = newest(state, wanted, steps);
    const int64_t total = state.plan.weights[wanted].bytes;
    buffer.resize(plan::kPieceBytes);
    for (int64_t at = 0; at < total; at += plan::kPieceBytes) {
      const int64_t bytes = std::min(plan::kPieceBytes, total - at);
      state.device->download(buffer.data(), data + at, bytes);
      request = transport.send(0, kTagGather, buffer.data(), bytes);
      watch.wait(transport, request, waiting);
    }
  }
}

} // namespace pipec
