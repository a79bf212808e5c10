//===- DataSource.cpp - which sample goes where ---------------------------===//
#include "runtime/data/DataSource.h"
#include "runtime/data/ArrayCheck.h"
#include "runtime/data/NotANumber.h"
#include "runtime/program/PlanCheck.h"
#include "runtime/program/Sha256.h"
#include "support/Failure.h"
#include "support/ShellWord.h"
#include "support/UnknownName.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>

namespace pipec {
namespace {

/// Arrays up to this size are checked before training begins.
constexpr int64_t kCheckAtOnce = int64_t(256) << 20;

/// A well-mixed function of 64 bits (the finalizer of splitmix64).
uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

/// The values that an input allows: of [lower, upper) all but `mark`, and
/// `ignored`.
struct Allowed {
  int64_t lower, upper, ignored = INT64_MIN, mark = INT64_MIN;

  bool has(int64_t value) const {
    return value == ignored ||
           (value >= lower && value < upper && value != mark);
  }
};

template <class T>
int64_t firstOutside(const char *data, int64_t count, const Allowed &allowed) {
  for (int64_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, data + i * static_cast<int64_t>(sizeof(T)),
                sizeof value);
    if (!allowed.has(static_cast<int64_t>(value)))
      return i;
  }
  return -1;
}

/// Index of the first of `count` values that is not allowed, or -1.
int64_t firstOutside(const std::string &dtype, const char *data, int64_t count,
                     const Allowed &allowed) {
  if (dtype == "int64")
    return firstOutside<int64_t>(data, count, allowed);
  if (dtype == "int32")
    return firstOutside<int32_t>(data, count, allowed);
  if (dtype == "int16")
    return firstOutside<int16_t>(data, count, allowed);
  if (dtype == "int8")
    return firstOutside<int8_t>(data, count, allowed);
  if (dtype == "uint8")
    return firstOutside<uint8_t>(data, count, allowed);
  if (dtype == "uint16")
    return firstOutside<uint16_t>(data, count, allowed);
  if (dtype == "uint32")
    return firstOutside<uint32_t>(data, count, allowed);
  if (dtype == "uint64") // those of 2^63 and more are below 0 then: no index
    return firstOutside<uint64_t>(data, count, allowed);
  return -1;
}

/// The number below 0 by which labels of the plan say that they do not count,
/// or INT64_MIN. In ids that choose rows it is no number from the end: it has
/// got there with the labels.
int64_t markOf(const plan::Plan &plan) {
  for (const plan::Input &input : plan.inputs)
    if (input.ignored < 0 && input.ignored != INT64_MIN)
      return input.ignored;
  return INT64_MIN;
}

Allowed allowed(const plan::Plan &plan, const plan::Input &input) {
  return {input.lower, input.upper, input.ignored,
          input.lower < 0 ? markOf(plan) : INT64_MIN};
}

int64_t integerAt(const Npy &array, int64_t index) {
  int64_t value = 0;
  std::memcpy(&value, array.data() + index * array.itemBytes,
              static_cast<size_t>(array.itemBytes));
  const int unused = 64 - 8 * static_cast<int>(array.itemBytes);
  if (array.dtype[0] == 'u')
    return value;
  return static_cast<int64_t>(static_cast<uint64_t>(value) << unused) >> unused;
}

int64_t elements(const Npy &array) {
  return std::accumulate(array.shape.begin(), array.shape.end(), int64_t(1),
                         std::multiplies<>());
}

/// numpy's index of a value.
std::string indexOf(const Npy &array, int64_t flat) {
  std::vector<int64_t> index(array.shape.size());
  for (size_t axis = array.shape.size(); axis-- > 0;) {
    index[axis] = flat % array.shape[axis];
    flat /= array.shape[axis];
  }
  return shapeText(index);
}

/// "tokens.npy: value -1 at [3, 5]"
std::string valueAt(const Npy &array, int64_t flat) {
  return array.path + ": value " + std::to_string(integerAt(array, flat)) +
         " at " + indexOf(array, flat);
}

/// What to do about a value that an input does not allow.
std::string remedyFor(const plan::Input &input, int64_t value) {
  if (value >= 0)
    return "";
  if (input.lower < 0 || input.ignored != INT64_MIN)
    return input.lower < 0
               ? ""
               : "; they count from 0, and " + std::to_string(input.ignored) +
                     " marks what is not to count (--loss's ignore_index)";
  const int64_t samples = input.shape.empty() ? 1 : input.shape[0];
  if (input.bytes == samples * plan::dtypeBytes(input.dtype))
    return ""; // one a sample, a length or an id: there is nothing to pad
  // Labels that choose rows as well.
  return "; the model looks up a row by each of them: pad with an id it has, "
         "which pipec's --loss KIND:ignore_index=ID keeps from counting";
}

[[noreturn]] void outside(const Npy &array, const plan::Input &input,
                          int64_t flat) {
  const int64_t value = integerAt(array, flat);
  const std::string text = valueAt(array, flat);
  if (value >= input.lower && value < input.upper)
    throw Failure(Exit::BadModel,
                  text + " of input '" + input.name +
                      "' is how labels say that they do not count; here the "
                      "model looks up a row by it: pad with an id it has");
  throw Failure(Exit::BadModel,
                text + " is outside [" + std::to_string(input.lower) + ", " +
                    std::to_string(input.upper) + ") of input '" + input.name +
                    "'" + remedyFor(input, value));
}

} // namespace

int64_t permuted(int64_t index, int64_t size, uint64_t seed, uint64_t epoch) {
  if (size < 2)
    return index;
  const uint64_t key = mix(seed ^ mix(epoch));
  const int half = (std::bit_width(static_cast<uint64_t>(size - 1)) + 1) / 2;
  const uint64_t mask = (uint64_t(1) << half) - 1;
  auto x = static_cast<uint64_t>(index);
  // A permutation of the next power of four; walking its cycle from an element
  // of [0, size) until it is back inside makes one of [0, size).
  do {
    uint64_t left = x >> half, right = x & mask;
    for (uint64_t round = 0; round < 6; ++round) {
      const uint64_t next = left ^ (mix(key + (round << 56) + right) & mask);
      left = right, right = next;
    }
    x = left << half | right;
  } while (x >= static_cast<uint64_t>(size));
  return static_cast<int64_t>(x);
}

std::string missingData(const plan::Plan &plan,
                        const std::map<std::string, std::string> &files) {
  std::string missing;
  for (size_t i = 0; i < plan.inputs.size(); ++i)
    if (const std::string &name = plan.inputs[i].name;
        !files.count(name) && plan.reads(static_cast<int>(i)))
      missing += " --data " + shellWord(name + "=FILE.npy");
  return missing;
}

DataSource::DataSource(const plan::Plan &plan,
                       const std::map<std::string, std::string> &files,
                       std::optional<uint64_t> shuffle)
    : plan(plan), shuffle(shuffle) {
  std::vector<std::string> names;
  for (const plan::Input &input : plan.inputs)
    names.push_back(input.name);
  for (auto &[name, file] : files) {
    if (std::find(names.begin(), names.end(), name) == names.end())
      throw Failure(Exit::Usage,
                    "--data " + name + ": the plan has no such input" +
                        didYouMean(name, names) + "; it has " + listed(names));
  }
  if (const std::string missing = missingData(plan, files); !missing.empty())
    throw Failure(Exit::Usage, "inputs without data; add" + missing);
  for (const plan::Input &input : plan.inputs) {
    const auto file = files.find(input.name);
    arrays.push_back(file == files.end()
                         ? nullptr
                         : std::make_unique<Npy>(file->second, input.dtype));
    if (!arrays.back())
      continue;
    checkArray(input, *arrays.back());
    if (input.batch_axis == 0)
      countRows(*arrays.back());
  }
}

void DataSource::countRows(const Npy &array) {
  if (rows && rows != array.shape[0])
    throw Failure(Exit::BadModel,
                  array.path + ": " + std::to_string(array.shape[0]) +
                      " samples, the arrays before it have " +
                      std::to_string(rows) +
                      "; all arrays need the same samples, a row each");
  rows = array.shape[0];
}

int64_t DataSource::row(int64_t sample) const {
  const int64_t index = sample % rows;
  if (!shuffle)
    return index;
  return permuted(index, rows, *shuffle, static_cast<uint64_t>(sample / rows));
}

void DataSource::copyRow(int id, int64_t row, char *to) const {
  const plan::Input &input = plan.inputs[id];
  const Npy &array = *arrays[id];
  const int64_t parts = input.batch_axis == 0 ? input.shape[0] : 1;
  const int64_t count = input.bytes / plan::dtypeBytes(input.dtype) / parts;
  const char *from = array.data() + row * count * array.itemBytes;
  if (input.upper >= 0) {
    const int64_t wrong =
        firstOutside(array.dtype, from, count, allowed(plan, input));
    if (wrong >= 0)
      outside(array, input, row * count + wrong);
  }
  if (array.dtype == input.dtype) {
    std::memcpy(to, from, static_cast<size_t>(count * array.itemBytes));
    return;
  }
  for (int64_t i = 0; i < count; ++i) { // int32 to int64
    int32_t narrow;
    std::memcpy(&narrow, from + i * 4, 4);
    const int64_t wide = narrow;
    std::memcpy(to + i * 8, &wide, 8);
  }
}

void DataSource::load(int id, int64_t number, char *to) const {
  const plan::Input &input = plan.inputs[id];
  if (input.batch_axis != 0)
    return copyRow(id, 0, to);
  const int64_t samples = plan.training.microbatch_size;
  for (int64_t i = 0; i < samples; ++i)
    copyRow(id, row(number * samples + i), to + i * (input.bytes / samples));
}

std::map<std::string, std::string> DataSource::marks() const {
  constexpr int64_t kPart = 1 << 16;
  std::map<std::string, std::string> marks;
  for (size_t id = 0; id < arrays.size(); ++id) {
    if (!arrays[id])
      continue;
    const Npy &array = *arrays[id];
    const int64_t bytes = elements(array) * array.itemBytes;
    const int64_t part = std::min(bytes, kPart);
    Sha256 digest;
    digest.add(array.data(), static_cast<size_t>(part));
    digest.add(array.data() + bytes - part, static_cast<size_t>(part));
    marks[plan.inputs[id].name] =
        shapeText(array.shape) + " " + digest.hex().substr(0, 16);
  }
  return marks;
}

std::string DataSource::notANumber(int64_t number) const {
  const std::string found = find(number, firstNan);
  return found.empty() ? "" : "; its data has NaN: " + found;
}

std::string DataSource::infinite(int64_t number) const {
  const std::string found = find(number, firstInfinity);
  return found.empty() ? "" : "; its data has an infinite number: " + found;
}

/// Where in a microbatch is what `first` finds?
std::string DataSource::find(int64_t number, Search first) const {
  for (size_t id = 0; id < arrays.size(); ++id) {
    const plan::Input &input = plan.inputs[id];
    if (!arrays[id])
      continue;
    const Npy &array = *arrays[id];
    const bool batched = input.batch_axis == 0;
    const int64_t samples = batched ? plan.training.microbatch_size : 1;
    const int64_t count = input.bytes / plan::dtypeBytes(input.dtype) / samples;
    for (int64_t i = 0; i < samples; ++i) {
      const int64_t at = batched ? row(number * samples + i) : 0;
      const int64_t found = first(
          array.dtype, array.data() + at * count * array.itemBytes, count);
      if (found >= 0)
        return "value " + indexOf(array, at * count + found) + " of input '" +
               input.name + "' (" + array.path + ")";
    }
  }
  return "";
}

bool DataSource::ignoresAllLabels(int64_t number) const {
  // Of a sequence, the first token is nobody's label.
  const bool next = plan.training.loss == "next-token";
  for (size_t id = 0; id < arrays.size(); ++id) {
    const plan::Input &input = plan.inputs[id];
    if (!arrays[id] || input.ignored == INT64_MIN || input.batch_axis != 0)
      continue;
    const Npy &array = *arrays[id];
    const int64_t samples = plan.training.microbatch_size;
    const int64_t count = input.bytes / plan::dtypeBytes(input.dtype) / samples;
    bool all = true;
    for (int64_t i = 0; all && i < samples; ++i)
      for (int64_t j = 0; all && j < count; ++j)
        all = (next && j % input.shape.back() == 0) ||
              integerAt(array, row(number * samples + i) * count + j) ==
                  input.ignored;
    if (all)
      return true;
  }
  return false;
}

std::string DataSource::countsFromEnd() const {
  for (size_t id = 0; id < arrays.size(); ++id) {
    const plan::Input &input = plan.inputs[id];
    if (!arrays[id] || input.upper < 0 || input.lower == 0)
      continue;
    const Npy &array = *arrays[id];
    const int64_t count = elements(array);
    if (count * array.itemBytes > kCheckAtOnce)
      continue;
    const int64_t at =
        firstOutside(array.dtype, array.data(), count, {0, INT64_MAX});
    if (at >= 0)
      return valueAt(array, at) + " of input '" + input.name +
             "' counts from the end, as in ONNX: it means " +
             std::to_string(input.upper + integerAt(array, at)) +
             "; where it marks padding, take an id that does";
  }
  return "";
}

void DataSource::checkValues(int id) const {
  const plan::Input &input = plan.inputs[id];
  const Npy &array = *arrays[id];
  const int64_t count = elements(array);
  if (input.upper < 0 || count * array.itemBytes > kCheckAtOnce)
    return;
  const int64_t wrong =
      firstOutside(array.dtype, array.data(), count, allowed(plan, input));
  if (wrong >= 0)
    outside(array, input, wrong);
}

} // namespace pipec
