//===- GradientNorm.cpp - clipping by the global norm ---------------------===//
#include "runtime/exec/GradientNorm.h"

#include <algorithm>
#include <cmath>

namespace pipec {

double norm(const float *values, int64_t count) {
  double lanes[8] = {};
  int64_t i = 0;
  for (; i + 8 <= count; i += 8)
    for (int lane = 0; lane < 8; ++lane)
      lanes[lane] += double(values[i + lane]) * values[i + lane];
  for (; i < count; ++i)
    lanes[i % 8] += double(values[i]) * values[i];
  double sum = 0;
  for (double lane : lanes)
    sum += lane;
  return std::sqrt(sum);
}

GradientNorm::GradientNorm(RankState &state, Transport &transport, Watch &watch)
    : state(state), transport(transport), watch(watch),
      norms(state.plan.weights.size()), received(norms.size()) {
  // The first stage that has a weight answers for it.
  std::vector<bool> answered(norms.size());
  for (const plan::Stage &stage : state.plan.stages)
    for (const plan::StageWeight &weight : stage.weights) {
      if (weight.gradients.empty() || answered[weight.weight])
        continue;
      answered[weight.weight] = true;
      if (stage.ranks[0] != state.rank)
        continue;
      const char *gradients = state.unit(stage.id).memory.at(PIPEC_GRADIENTS);
      owned.push_back({weight.weight,
                       reinterpret_cast<const float *>(
                           gradients + weight.gradients[0].second),
                       elements(state.plan.weights[weight.weight])});
    }
}

void GradientNorm::measure(float *norms) const {
  for (const Owned &weight : owned)
    norms[weight.weight] = static_cast<float>(
        state.device->norm(weight.gradient, weight.elements));
}

float GradientNorm::coefficientOf(const float *norms, int64_t count,
                                  double limit) {
  const auto total = static_cast<float>(norm(norms, count));
  const float coefficient = static_cast<float>(limit) / (total + 1e-6f);
  // As torch.clamp(max=1): NaN stays NaN.
  return coefficient > 1 ? 1 : coefficient;
}

double GradientNorm::coefficient(double limit, int64_t step) {
  Operation operation;
  operation.what = "waiting for the gradient norm";
  operation.step = step;
  measure(norms.data());
  const auto bytes = static_cast<int64_t>(norms.size() * sizeof(float));
  float coefficient = 1;
  if (state.rank != 0) {
    operation.peer = 0;
    Request request = transport.send(0, kTagNorm, norms.data(), bytes);
    watch.wait(transport, request, operation);
    request = transport.receive(0, kTagNorm, &coefficient, sizeof coefficient);
    watch.wait(transport, request, operation);
    return coefficient;
  }
  for (int rank = 1; rank < transport.size(); ++rank) {
    operation.peer = rank;
    Request request = transport.receive(rank, kTagNorm, received.data(), bytes);
    watch.wait(transport, request, operation);
    for (size_t i = 0; i < norms.size(); ++i)
      norms[i] += received[i]; // one of the two is 0
  }
  coefficient =
      coefficientOf(norms.data(), static_cast<int64_t>(norms.size()), limit);
  std::fill(norms.begin(), norms.end(), 0.0f);
  for (int rank = 1; rank < transport.size(); ++rank) {
    operation.peer = rank;
    Request request =
        transport.send(rank, kTagNorm, &coefficient, sizeof coefficient);
    watch.wait(transport, request, operation);
  }
  return coefficient;
}

} // namespace pipec
