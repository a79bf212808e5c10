//===- CudnnGraph.cpp - a graph of operations that cuDNN runs -------------===//
#include "runtime/device/cuda/CudnnGraph.h"

#include <algorithm>

namespace pipec::cudnn {

Descriptor::Descriptor(Part kind) {
  if (entries().createPart(kind, &part))
    part = nullptr;
}
Descriptor::~Descriptor() {
  if (part)
    entries().destroyPart(part);
}
bool Descriptor::set(Attribute name, AttributeType type, int64_t count,
                     const void *values) {
  return part && entries().setPart(part, name, type, count, values) == kSuccess;
}
bool Descriptor::finish() {
  return part && entries().finishPart(part) == kSuccess;
}

//===----------------------------------------------------------------------===//
// Tensors
//===----------------------------------------------------------------------===//

OperationGraph::Sizes OperationGraph::dense(const Sizes &sizes) {
  Sizes strides;
  int64_t step = 1;
  for (size_t i = sizes.size(); i-- > 0; step *= sizes[i])
    strides[i] = step;
  return strides;
}

int64_t OperationGraph::add(int type, const Sizes &sizes, const Sizes &strides,
                            Place place) {
  constexpr int64_t kAlignment = 16;
  const auto number = static_cast<int64_t>(tensors.size()) + 1;
  Descriptor tensor(kTensor);
  expect(tensor.set(kTensorType, kDataType, type) &&
         tensor.set(kTensorSizes, kNumberType, 4, sizes.data()) &&
         tensor.set(kTensorStrides, kNumberType, 4, strides.data()) &&
         tensor.set(kTensorNumber, kNumberType, number) &&
         tensor.set(kTensorAlignment, kNumberType, kAlignment) &&
         tensor.set(kTensorIsVirtual, kBooleanType, place == Between) &&
         tensor.set(kTensorIsByValue, kBooleanType, place == OnHost) &&
         tensor.finish());
  tensors.push_back(std::move(tensor));
  return number;
}

int64_t OperationGraph::memory(int type, const Sizes &sizes,
                               const Sizes &strides) {
  return add(type, sizes, strides, InMemory);
}
int64_t OperationGraph::between(int type, const Sizes &sizes) {
  return add(type, sizes, dense(sizes), Between);
}
int64_t OperationGraph::between(int type, const Sizes &sizes,
                                const Sizes &strides) {
  return add(type, sizes, strides, Between);
}
int64_t OperationGraph::number() {
  return add(kFloat, {1, 1, 1, 1}, {1, 1, 1, 1}, OnHost);
}

//===----------------------------------------------------------------------===//
// Operations
//===----------------------------------------------------------------------===//

void OperationGraph::operation(
    Descriptor what,
    std::initializer_list<std::pair<Attribute, int64_t>> list) {
  for (auto [name, number] : list)
    expect(what.set(name, tensor(number)));
  expect(what.finish());
  operations.push_back(std::move(what));
}

void OperationGraph::multiply(int64_t a, int64_t b, int64_t c) {
  Descriptor kind(kMatmul), what(kMatmulOperation);
  expect(kind.set(kMatmulPrecision, kDataType, kFloat) && kind.finish() &&
         what.set(kMatmulDescriptor, kind));
  kinds.push_back(std::move(kind));
  operation(std::move(what), {{kMatmulA, a}, {kMatmulB, b}, {kMatmulC, c}});
}

void OperationGraph::pointwise(
    PointwiseMode mode, const int64_t *axis,
    std::initializer_list<std::pair<Attribute, int64_t>> list) {
  Descriptor kind(kPointwise), what(kPointwiseOperation);
  expect(kind.set(kPointwiseMode, kPointwiseType, mode) &&
         kind.set(kPointwisePrecision, kDataType, kFloat) &&
         (!axis || kind.set(kPointwiseAxis, kNumberType, *axis)) &&
         kind.finish() && what.set(kPointwiseDescriptor, kind));
  kinds.push_back(std::move(kind));
  operation(std::move(what), list);
}
void OperationGraph::pointwise(PointwiseMode mode, int64_t x, int64_t y) {
  pointwise(mode, nullptr, {{kPointwiseX, x}, {kPointwiseY, y}});
}
void OperationGraph::pointwise(PointwiseMode mode, int64_t x, int64_t b,
                               int64_t y) {
  pointwise(mode, nullptr,
            {{kPointwiseX, x}, {kPointwiseB, b}, {kPointwiseY, y}});
}
void OperationGraph::select(int64_t x, int64_t b, int64_t t, int64_t y) {
  pointwise(
      cudnn::kSelect, nullptr,
      {{kPointwiseX, x}, {kPointwiseB, b}, {kPointwiseT, t}, {kPointwiseY, y}});
}
void OperationGraph::indices(int64_t axis, int64_t x, int64_t y) {
  pointwise(kIndexAlong, &axis, {{kPointwiseX, x}, {kPointwiseY, y}});
}

void OperationGraph::reduce(int which, int64_t x, int64_t y) {
  Descriptor kind(kReduction), what(kReductionOperation);
  expect(kind.set(kReductionOperator, kReductionType, which) &&
         kind.set(kReductionPrecision, kDataType, kFloat) && kind.finish() &&
         what.set(kReductionDescriptor, kind));
  kinds.push_back(std::move(kind));
  operation(std::move(what), {{kReductionX, x}, {kReductionY, y}});
}

void OperationGraph::reshape(int64_t x, int64_t y) {
  operation(Descriptor(kReshapeOperation), {{kReshapeX, x}, {kReshapeY, y}});
}

//===----------------------------------------------------------------------===//
// Plans
//===----------------------------------------------------------------------===//

/// Whether the engine of a configuration says that its results may differ from
/// run to run; also where it says nothing.
static bool mayDiffer(const Descriptor &config) {
  Descriptor engine(kEngine);
  void *found = engine.get();
  int64_t count = 0;
  if (!found || entries().getPart(config.get(), kConfigEngine, kPartType, 1,
                                  &count, &found))
    return true;
  constexpr int64_t kMostNotes = 32;
  std::array<int, kMostNotes> notes{};
  if (entries().getPart(engine.get(), kEngineNotes, kNoteType, kMostNotes,
                        &count, notes.data()))
    return true;
  return std::find(notes.begin(), notes.begin() + std::min(count, kMostNotes),
                   kNotDeterministic) !=
         notes.begin() + std::min(count, kMostNotes);
}

/// Configurations in the order of expected speed.
static std::vector<Descriptor> configurations(const Descriptor &graph) {
  constexpr int64_t kMost = 16;
  std::vector<Descriptor> configs;
  std::vector<void *> parts;
  for (int64_t i = 0; i < kMost; ++i) {
    configs.emplace_back(kEngineConfig);
    parts.push_back(configs.back().get());
  }
  Descriptor heuristic(kHeuristic);
  int64_t count = 0;
  if (!heuristic.set(kHeuristicGraph, graph) ||
      !heuristic.set(kHeuristicMode, kHeuristicType, kFastHeuristic) ||
      !heuristic.finish() ||
      entries().getPart(heuristic.get(), kHeuristicResults, kPartType, kMost,
                        &count, parts.data()))
    count = 0;
  configs.erase(configs.begin() + std::min(count, kMost), configs.end());
  return configs;
}

std::optional<GraphPlan> OperationGraph::plan(void *handle, size_t most) {
  std::vector<void *> parts;
  for (const Descriptor &one : operations)
    parts.push_back(one.get());
  Descriptor graph(kOperationGraph);
  expect(graph.set(kGraphHandle, kHandleType, handle) &&
         graph.set(kGraphOperations, kPartType,
                   static_cast<int64_t>(parts.size()), parts.data()) &&
         graph.finish());
  if (!isRight)
    return std::nullopt;
  for (const Descriptor &config : configurations(graph)) {
    Descriptor one(kPlan);
    int64_t bytes = 0, count = 0;
    if (mayDiffer(config) || !one.set(kPlanHandle, kHandleType, handle) ||
        !one.set(kPlanConfig, config) || !one.finish() ||
        entries().getPart(one.get(), kPlanWorkspace, kNumberType, 1, &count,
                          &bytes) ||
        static_cast<size_t>(bytes) > most)
      continue;
    return GraphPlan{std::move(one), static_cast<size_t>(bytes)};
  }
  return std::nullopt;
}

int run(void *handle, const GraphPlan &plan,
        const std::vector<std::pair<int64_t, void *>> &at, void *workspace) {
  std::vector<int64_t> numbers;
  std::vector<void *> pointers;
  for (auto [number, pointer] : at)
    numbers.push_back(number), pointers.push_back(pointer);
  const auto count = static_cast<int64_t>(at.size());
  Descriptor pack(kVariantPack);
  // What does not take the parts is the call that follows.
  (void)(pack.set(kPackNumbers, kNumberType, count, numbers.data()) &&
         pack.set(kPackPointers, kPointerType, count, pointers.data()) &&
         pack.set(kPackWorkspace, kPointerType, workspace) && pack.finish());
  return entries().execute(handle, plan.plan.get(), pack.get());
}

} // namespace pipec::cudnn
