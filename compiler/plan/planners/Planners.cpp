#include "compiler/plan/planners/Planners.h"

#include "compiler/plan/Candidates.h"
#include "support/Failure.h"
#include "support/UnknownName.h"

namespace pipec::plan {

static constexpr PlannerRow rows[] = {
#define PLANNER(NAME, FUNCTION, SUMMARY, SOURCE)                               \
  {NAME, FUNCTION, SUMMARY, SOURCE},
#include "compiler/plan/planners/Planners.def"
};

std::span<const PlannerRow> planners() { return rows; }

const PlannerRow &planner(std::string_view name) {
  std::vector<std::string> names;
  for (const PlannerRow &row : rows) {
    if (row.name == name)
      return row;
    names.emplace_back(row.name);
  }
  throw Failure(Exit::Usage, unknownName("planner", std::string(name), names));
}

void expectFreeShape(const PlanRequest &request, const char *name) {
  const StrategyFacts &facts = request.strategy;
  if (request.stages || !request.replicas.empty())
    throw Failure(Exit::Usage,
                  std::string("planner ") + name +
                      " chooses stages and replicas itself; leave them out");
  if (!request.replication || !facts.replicates || facts.chunks > 1)
    throw Failure(Exit::Usage, std::string("planner ") + name +
                                   " replicates stages, which strategy '" +
                                   facts.name + "' does not do here; use " +
                                   (request.tensorParallel == std::vector{1}
                                        ? "planner auto"
                                        : "strategy 1f1b"));
}

Layers layersOf(const PlanRequest &request, const StepModel &model,
                size_t most) {
  Layers layers;
  layers.starts = coarseStarts(request.graph, legalStarts(request.graph), most);
  for (size_t i = 0; i < layers.starts.size(); ++i) {
    size_t end = i + 1 < layers.starts.size() ? layers.starts[i + 1]
                                              : model.intervals().nodes();
    layers.costs.push_back(model.intervals().cost(layers.starts[i], end - 1));
  }
  return layers;
}

} // namespace pipec::plan
