//===- Export.cpp - the model with trained weights ------------------------===//
#include "runtime/run/Export.h"
#include "runtime/OnnxPatch.h"
#include "runtime/state/Tensors.h"
#include "support/OutputFile.h"

#include <algorithm>
#include <cstring>

namespace pipec {

/// The elements of a matrix that comes in pieces, columns first.
static void giveTransposed(const plan::Weight &weight,
                           const std::function<void(const Sink &)> &fetch,
                           const Sink &sink) {
  std::string rows;
  rows.reserve(static_cast<size_t>(weight.bytes));
  fetch([&](const char *data, int64_t bytes) {
    rows.append(data, static_cast<size_t>(bytes));
  });
  const int64_t height = weight.shape[0], width = weight.shape[1];
  const int64_t element = weight.bytes / std::max<int64_t>(height * width, 1);
  std::string column(static_cast<size_t>(height * element), 0);
  for (int64_t j = 0; j < width; ++j) {
    for (int64_t i = 0; i < height; ++i)
      std::memcpy(column.data() + i * element,
                  rows.data() + (i * width + j) * element,
                  static_cast<size_t>(element));
    sink(column.data(), static_cast<int64_t>(column.size()));
  }
}

void exportModel(const plan::Plan &plan, const std::string &planFolder,
                 const std::string &target, const Fetch &fetch) {
  std::map<std::string, NewValues> values;
  for (size_t i = 0; i < plan.weights.size(); ++i) {
    const plan::Weight &weight = plan.weights[i];
    const auto index = static_cast<int>(i);
    const bool changes = weight.role == "weight" || weight.role == "state";
    if (!changes || !weight.exported || ownerOf(plan, index) < 0)
      continue;
    values[weight.name] = {weight.dtype,
                           weight.bytes,
                           weight.split.of,
                           weight.split.node,
                           weight.split.input,
                           [&fetch, index](const Sink &sink) { fetch(index, sink); }};
    for (const plan::Copy &copy : weight.copies) {
      NewValues &same = values[copy.name] = values[weight.name];
      if (copy.transposed)
        same.give = [&weight, give = same.give](const Sink &sink) {
          giveTransposed(weight, give, sink);
        };
      same.bytes *= copy.repeats;
      if (copy.repeats > 1)
        same.give = [times = copy.repeats, give = same.give](const Sink &sink) {
          for (int64_t i = 0; i < times; ++i)
            give(sink);
        };
    }
  }
  patchOnnx(findFile(plan.files[0], planFolder), target, values);
}

void checkExport(const plan::Plan &plan, const std::string &planFolder,
                 const std::string &target) {
  if (plan.files.empty())
    throw Failure(Exit::Usage, "--export: the plan names no model file");
  findFile(plan.files[0], planFolder); // it is patched
  expectWritable(target);
}

} // namespace pipec
