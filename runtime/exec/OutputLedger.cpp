//===- OutputLedger.cpp - the model's outputs, in files at rank 0 ---------===//
#include "runtime/exec/OutputLedger.h"
#include "runtime/data/NotANumber.h"
#include "runtime/program/PlanCheck.h"
#include "support/UnknownName.h"

#include <algorithm>
#include <cstring>

namespace pipec {
namespace {

/// Messages that may be under way from a rank.
constexpr size_t kOutgoing = 4;

} // namespace

Pass passOver(const plan::Plan &plan, int64_t samples) {
  const int64_t size = plan.training.microbatch_size;
  return {samples, std::max<int64_t>(1, (samples + size - 1) / size)};
}

void OutputLedger::checkNames(const plan::Plan &plan,
                              const std::map<std::string, std::string> &files) {
  std::vector<std::string> names;
  for (const plan::Output &output : plan.outputs)
    if (output.name != plan::kLossOfSamples)
      names.push_back(output.name);
  for (auto &[name, file] : files)
    if (std::find(names.begin(), names.end(), name) == names.end())
      throw Failure(Exit::Usage,
                    "--output " + name + ": the model has no such output" +
                        didYouMean(name, names) + "; it has " + listed(names));
}

OutputLedger::OutputLedger(const plan::Plan &plan, Transport &transport,
                           Watch &watch,
                           const std::map<std::string, std::string> &files,
                           const Pass &pass, SampleLosses &losses)
    : plan(plan), transport(transport), watch(watch), pass(pass),
      losses(losses) {
  for (size_t i = 0; i < plan.outputs.size(); ++i) {
    const plan::Output &output = plan.outputs[i];
    const bool ofLoss = output.name == plan::kLossOfSamples;
    const auto file = files.find(output.name);
    if (file == files.end() && !ofLoss)
      continue;
    Wanted &entry = wanted.emplace_back();
    entry.output = &output;
    entry.tag = kTagOutput + static_cast<int>(i);
    entry.missing = pass.microbatches;
    if (watch.rank != 0 || ofLoss)
      continue;
    std::vector<int64_t> shape = output.shape;
    if (output.batch_axis == 0)
      shape[0] = pass.samples;
    else if (pass.microbatches > 1)
      shape.insert(shape.begin(), pass.microbatches);
    entry.file = std::make_unique<NpyFile>(file->second, output.dtype, shape);
  }
}

void OutputLedger::start() {
  if (watch.rank != 0)
    return;
  for (Wanted &entry : wanted)
    for (int rank : plan.stages[entry.output->stage].ranks)
      if (rank != 0) {
        Source &source = sources.emplace_back();
        source.wanted = &entry;
        source.rank = rank;
        source.message.bytes.resize(sizeof(int64_t) +
                                    static_cast<size_t>(entry.output->bytes));
        receive(source);
      }
}

void OutputLedger::receive(Source &source) {
  std::vector<char> &bytes = source.message.bytes;
  source.message.request =
      transport.receive(source.rank, source.wanted->tag, bytes.data(),
                        static_cast<int64_t>(bytes.size()));
}

Operation OutputLedger::operation(const char *what) const {
  Operation operation;
  operation.what = what;
  operation.peer = watch.rank ? 0 : -1;
  return operation;
}

void OutputLedger::send(const Wanted &entry, int64_t number, const char *data) {
  // Idle waiting polls too: no reference into `outgoing` is kept meanwhile.
  watch.until(
      [&] {
        poll();
        return outgoing.size() < kOutgoing;
      },
      operation("waiting to send an output"), transport.bell());
  Message &message = outgoing.emplace_back();
  const auto bytes = static_cast<size_t>(entry.output->bytes);
  message.bytes.resize(sizeof number + bytes);
  std::memcpy(message.bytes.data(), &number, sizeof number);
  if (bytes)
    std::memcpy(message.bytes.data() + sizeof number, data, bytes);
  message.request = transport.send(0, entry.tag, message.bytes.data(),
                                   static_cast<int64_t>(message.bytes.size()));
}

void OutputLedger::record(Device &device, StageUnit &unit, int64_t number) {
  if (number >= pass.microbatches)
    return; // of a step that is longer than the data
  for (Wanted &entry : wanted) {
    if (entry.output->stage != unit.stage->id)
      continue;
    data.resize(static_cast<size_t>(entry.output->bytes));
    device.download(data.data(),
                    unit.memory.at(PIPEC_OUTPUTS) + entry.output->offset,
                    entry.output->bytes);
    if (entry.output->name == plan::kLossOfSamples)
      losses.check(number, data.data(), rowsOf(number));
    if (watch.rank == 0)
      take(entry, number, data.data());
    else
      send(entry, number, data.data());
  }
}

/// Samples of the data in a microbatch.
int64_t OutputLedger::rowsOf(int64_t number) const {
  const int64_t size = plan.training.microbatch_size;
  return std::min<int64_t>(size, pass.samples - number * size);
}

void OutputLedger::take(Wanted &entry, int64_t number, const char *data) {
  const plan::Output &output = *entry.output;
  --entry.missing;
  if (!entry.file)
    return losses.take(number, data, rowsOf(number));
  int64_t bytes = output.bytes;
  if (output.batch_axis == 0)
    bytes = bytes / plan.training.microbatch_size * rowsOf(number);
  entry.file->write(number * output.bytes, data, bytes);
  const int64_t count = bytes / plan::dtypeBytes(output.dtype);
  if (number >= entry.nanIn) // one before it is known
    return;
  if (const int64_t nan = firstNan(output.dtype, data, count); nan >= 0) {
    entry.nanIn = number;
    entry.nanPlace =
        output.batch_axis == 0
            ? "sample " +
                  std::to_string(number * plan.training.microbatch_size +
                                 nan / (count / rowsOf(number)))
            : "microbatch " + std::to_string(number);
  }
}

std::vector<OutputLedger::Nan> OutputLedger::notNumbers() const {
  std::vector<Nan> found;
  for (const Wanted &entry : wanted)
    if (entry.nanIn != INT64_MAX)
      found.push_back({"output '" + entry.output->name +
                           "' has NaN, first of " + entry.nanPlace,
                       entry.nanIn});
  return found;
}

void OutputLedger::poll() {
  for (Source &source : sources)
    while (source.wanted->missing > 0 &&
           transport.done(source.message.request)) {
      int64_t number = 0;
      const char *bytes = source.message.bytes.data();
      std::memcpy(&number, bytes, sizeof number);
      take(*source.wanted, number, bytes + sizeof number);
      receive(source);
    }
  while (!outgoing.empty() && transport.done(outgoing.front().request))
    outgoing.pop_front();
}

void OutputLedger::drain() {
  watch.until(
      [&] {
        poll();
        return outgoing.empty();
      },
      operation("waiting to send an output"), transport.bell());
}

void OutputLedger::finish() {
  drain();
  watch.until(
      [&] {
        poll();
        return watch.rank != 0 ||
               std::all_of(wanted.begin(), wanted.end(),
                           [](const Wanted &entry) { return !entry.missing; });
      },
      operation("waiting for outputs"), transport.bell());
}

void OutputLedger::close() {
  for (Source &source : sources)
    transport.cancel(source.message.request);
}

void OutputLedger::commit() {
  for (Wanted &entry : wanted)
    if (entry.file)
      entry.file->commit();
}

void OutputLedger::drop() {
  for (Wanted &entry : wanted)
    entry.file.reset();
}

} // namespace pipec
