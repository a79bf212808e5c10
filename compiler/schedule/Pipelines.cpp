#include "compiler/schedule/Pipelines.h"

#include "support/Failure.h"

#include <algorithm>
#include <utility>

namespace pipec::schedule {

bool mayRepeat(const ScheduleRow &row) {
  return row.layout != Layout::Bidirectional &&
         row.layout != Layout::Replicated && row.extra != Extra::Slices;
}

Schedule repeated(const Schedule &one, int microbatches,
                  std::vector<std::vector<int>> placement) {
  Schedule all;
  all.name = one.name;
  all.stages = one.stages;
  all.microbatches = microbatches;
  all.placement = std::move(placement);
  const int copies = all.replicas(0);
  int devices = 0;
  for (const std::vector<int> &on : all.placement)
    devices = std::max(devices, *std::max_element(on.begin(), on.end()) + 1);
  all.order.resize(static_cast<std::size_t>(devices));
  for (int column = 0; column < one.devices(); ++column)
    for (int copy = 0; copy < copies; ++copy) {
      const std::vector<int> held = one.stagesOf(column);
      const auto deviceOf = [&](int stage) {
        return all.placement[static_cast<std::size_t>(stage)]
                            [static_cast<std::size_t>(copy)];
      };
      for (const int stage : held)
        if (deviceOf(stage) != deviceOf(held.front()))
          throw Failure(Exit::Internal,
                        one.name + ": the stages of a device are apart in a "
                                   "copy of the pipeline");
      std::vector<Action> &order = all.order[deviceOf(held.front())];
      for (Action action : one.order[column])
        if (action.microbatch = action.microbatch * copies + copy;
            action.microbatch < microbatches)
          order.push_back(action);
    }
  return all;
}

} // namespace pipec::schedule
