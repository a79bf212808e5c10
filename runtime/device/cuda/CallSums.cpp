//===- CallSums.cpp - what a rank's calls leave in memory -----------------===//
#include "runtime/device/cuda/CallSums.h"
#include "runtime/kernels/cpu/Kernels.h"
#include "support/Failure.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>

namespace pipec::cuda {
namespace {

/// 1 or -1, which no step from one place to another foresees.
double signAt(int64_t place) {
  uint64_t bits = uint64_t(place + 1) * 0x9e3779b97f4a7c15;
  bits = (bits ^ (bits >> 31)) * 0xd6e8feb86659fd93;
  return bits >> 63 ? 1 : -1;
}

/// Words that have changed: how many bytes, and as far as they are numbers the
/// sum of their absolute values, the root of that of their squares, and a sum
/// with signs that go by the place: right numbers at wrong places change it,
/// and it is as long as the root, so that one wrong number does, too.
struct Change {
  int64_t bytes = 0, odd = 0;
  double sum = 0, squares = 0, placed = 0;

  void add(double value, int64_t place, int64_t size) {
    bytes += size;
    if (!std::isfinite(value)) {
      ++odd;
      return;
    }
    sum += std::fabs(value);
    squares += value * value;
    placed += signAt(place) * value;
  }
};

template <typename Word> Word load(const char *at) {
  Word word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

double valueAt(const char *at, int32_t dtype) {
  if (dtype == PIPEC_F64)
    return load<double>(at);
  if (dtype != PIPEC_BF16)
    return load<float>(at);
  const uint32_t bits = uint32_t(load<uint16_t>(at)) << 16;
  return load<float>(reinterpret_cast<const char *>(&bits));
}

} // namespace

CallSums::CallSums(const std::string &file, int rank) : rank(rank), out(file) {
  if (!out)
    throw Failure(Exit::CannotWrite, "cannot write " + file);
}

std::unique_ptr<CallSums> CallSums::asked(int rank) {
  const char *file = std::getenv("PIPEC_CALL_SUMS");
  if (!file)
    return nullptr;
  return std::unique_ptr<CallSums>(
      new CallSums(std::string(file) + ".rank" + std::to_string(rank), rank));
}

void CallSums::add(char *memory, int64_t bytes) {
  known[memory].resize(static_cast<size_t>(bytes));
}

void CallSums::remove(char *memory) { known.erase(memory); }

void CallSums::begin(const Read &read) {
  for (auto &[memory, bytes] : known) {
    char *to = bytes.data();
    read(memory, static_cast<int64_t>(bytes.size()),
         [&](const char *piece, int64_t count) {
           std::memcpy(to, piece, static_cast<size_t>(count));
           to += count;
         });
  }
}

void CallSums::after(const std::string &name, int32_t dtype, const Read &read) {
  const int64_t size = dtype == PIPEC_F64 ? 8 : dtype == PIPEC_BF16 ? 2 : 4;
  Change change;
  for (auto &[memory, bytes] : known) {
    char *before = bytes.data();
    // A piece begins at a whole word: pieces and allocations are multiples.
    read(memory, static_cast<int64_t>(bytes.size()),
         [&](const char *piece, int64_t count) {
           for (int64_t at = 0; at + size <= count; at += size)
             if (std::memcmp(before + at, piece + at,
                             static_cast<size_t>(size)) != 0)
               change.add(valueAt(piece + at, dtype),
                          (before - bytes.data() + at) / size, size);
           std::memcpy(before, piece, static_cast<size_t>(count));
           before += count;
         });
  }
  nlohmann::ordered_json line = {
      {"rank", rank},           {"call", number++},
      {"name", name},           {"changed", change.bytes},
      {"sum", change.sum},      {"length", std::sqrt(change.squares)},
      {"placed", change.placed}};
  if (change.odd)
    line["no_numbers"] = change.odd;
  out << line.dump() << std::endl; // also when a later call ends the run
}

} // namespace pipec::cuda
