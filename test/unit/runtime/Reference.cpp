//===- Reference.cpp - versioned sequential SGD on the test model ---------===//
//
// One microbatch after the other, every version of every stage's weights kept.
//
//===----------------------------------------------------------------------===//
#include "test/unit/runtime/TestModel.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace pipec::test {
namespace {

constexpr int B = kBatch, D = kWidth, L = kLayers;
using Values = std::vector<float>;

/// Gradients of one microbatch, by weight; e has two uses.
struct Gradients {
  std::vector<Values> W, b;
  Values e0, e1;
  Gradients() : W(L, Values(D * D)), b(L, Values(D)), e0(D), e1(D) {}
  void add(const Gradients &other) {
    auto sum = [](Values &to, const Values &from) {
      for (size_t i = 0; i < to.size(); ++i)
        to[i] += from[i];
    };
    for (int l = 0; l < L; ++l)
      sum(W[l], other.W[l]), sum(b[l], other.b[l]);
    sum(e0, other.e0), sum(e1, other.e1);
  }
};

struct Weights {
  std::vector<Values> W, b;
  Values eFirst, eLast; ///< the copies of e that the two uses read
};

struct Result {
  float loss;
  Gradients gradients;
  std::vector<Values> means;
};

Result microbatch(const Weights &weights, const Values &c, int64_t number,
                  int M) {
  Result result;
  Values h(B * D), target, z0;
  std::vector<int64_t> label;
  Values x;
  const std::vector<int64_t> labels = sampleLabels();
  for (int n = 0; n < B; ++n) {
    const int64_t row = (number * B + n) % kSamples;
    for (float value : sampleX(row))
      x.push_back(value);
    for (float value : sampleTarget(row))
      target.push_back(value);
    label.push_back(labels[row]);
  }
  for (int i = 0; i < B * D; ++i)
    h[i] = x[i] * weights.eFirst[i % D] * c[i % D];
  std::vector<Values> hs(L), ys(L);
  for (int l = 0; l < L; ++l) {
    if (l == L - 1)
      for (int i = 0; i < B * D; ++i)
        h[i] += z0[i];
    hs[l] = h;
    Values y(B * D), mean(D);
    for (int n = 0; n < B; ++n)
      for (int j = 0; j < D; ++j) {
        float sum = weights.b[l][j];
        for (int i = 0; i < D; ++i)
          sum += h[n * D + i] * weights.W[l][i * D + j];
        y[n * D + j] = sum;
      }
    for (int j = 0; j < D; ++j) {
      float sum = 0;
      for (int n = 0; n < B; ++n)
        sum += y[n * D + j];
      mean[j] = sum / B;
    }
    result.means.push_back(mean);
    for (int i = 0; i < B * D; ++i)
      h[i] = y[i] > 0 ? y[i] : 0.5f * y[i];
    ys[l] = y;
    if (l == 0)
      z0 = h;
  }
  const Values &e = weights.eLast;
  float squares = 0, picked = 0;
  for (int i = 0; i < B * D; ++i) {
    const float d = h[i] * e[i % D] - target[i];
    squares += d * d;
  }
  for (int n = 0; n < B; ++n)
    picked += h[n * D + label[n]] * e[label[n]];
  result.loss = squares / (B * D) + picked / B;

  Values d(B * D);
  Values perO(B * D);
  for (int n = 0; n < B; ++n)
    for (int j = 0; j < D; ++j) {
      const int i = n * D + j;
      float g = 2.0f * (h[i] * e[j] - target[i]) / (B * D);
      if (label[n] == j)
        g += 1.0f / B;
      perO[i] = g / M;
      d[i] = perO[i] * e[j];
    }
  Gradients &grads = result.gradients;
  for (int j = 0; j < D; ++j) {
    float total = 0;
    for (int n = 0; n < B; ++n)
      total += perO[n * D + j] * h[n * D + j];
    grads.e1[j] = total;
  }
  Values skip;
  for (int l = L - 1; l >= 0; --l) {
    if (l == 0)
      for (int i = 0; i < B * D; ++i)
        d[i] += skip[i];
    Values g(B * D);
    for (int i = 0; i < B * D; ++i)
      g[i] = ys[l][i] > 0 ? d[i] : 0.5f * d[i];
    for (int i = 0; i < D; ++i)
      for (int j = 0; j < D; ++j) {
        float sum = 0;
        for (int n = 0; n < B; ++n)
          sum += hs[l][n * D + i] * g[n * D + j];
        grads.W[l][i * D + j] = sum;
      }
    for (int j = 0; j < D; ++j) {
      float sum = 0;
      for (int n = 0; n < B; ++n)
        sum += g[n * D + j];
      grads.b[l][j] = sum;
    }
    for (int n = 0; n < B; ++n)
      for (int i = 0; i < D; ++i) {
        float sum = 0;
        for (int j = 0; j < D; ++j)
          sum += g[n * D + j] * weights.W[l][i * D + j];
        d[n * D + i] = sum;
      }
    if (l == L - 1)
      skip = d;
  }
  for (int i = 0; i < D; ++i) {
    float total = 0;
    for (int n = 0; n < B; ++n)
      total += d[n * D + i] * x[n * D + i] * c[i];
    grads.e0[i] = total;
  }
  return result;
}

/// One stage's weights, versions and momentum, by weight name.
struct StageHistory {
  std::vector<std::map<std::string, Values>> versions;
  std::map<std::string, Values> momentum;

  void update(const std::map<std::string, Values> &gradients, float scale) {
    auto next = versions.back();
    for (auto &[name, weight] : next) {
      Values &m = momentum[name];
      const Values &g = gradients.at(name);
      m.resize(g.size());
      for (size_t i = 0; i < g.size(); ++i) {
        m[i] = 0.9f * m[i] + g[i] * scale;
        weight[i] = weight[i] - 0.05f * m[i];
      }
    }
    versions.push_back(next);
  }
};

class Trainer {
public:
  explicit Trainer(const Scenario &setup)
      : setup(setup), stages(setup.stages()), means(L, Values(D)) {
    for (int s = 0; s < setup.stages(); ++s) {
      std::map<std::string, Values> first;
      for (int l = setup.cuts[s]; l < setup.cuts[s + 1]; ++l)
        for (std::string name : {"W", "b"}) {
          name += std::to_string(l);
          first[name] = initialValue(name);
        }
      if (s == 0)
        first["e"] = initialValue("e");
      if (s == setup.stages() - 1)
        first[last] = initialValue("e");
      stages[s].versions.push_back(first);
    }
  }

  Reference run(int steps) {
    Reference result;
    for (int t = 0; t < steps; ++t)
      result.losses.push_back(setup.stream() ? streamed(t, steps) : step(t));
    for (const std::string &name : weightNames(setup))
      for (StageHistory &stage : stages)
        if (stage.versions.back().count(name)) {
          result.weights.push_back(stage.versions.back()[name]);
          break;
        }
    result.means = means;
    return result;
  }

private:
  const Scenario &setup;
  const std::string last = setup.tied ? "e" : "f"; ///< name of the second use
  std::vector<StageHistory> stages;
  std::vector<Values> means;
  /// stage -> gradients of a round's microbatches, in order.
  std::map<int, std::vector<Gradients>> rounds;
  std::map<int, std::vector<std::vector<Values>>> roundMeans;

  Weights read(const std::vector<int64_t> &version) {
    Weights weights;
    for (int s = 0; s < setup.stages(); ++s) {
      auto &values = stages[s].versions.at(version[s]);
      for (int l = setup.cuts[s]; l < setup.cuts[s + 1]; ++l) {
        weights.W.push_back(values["W" + std::to_string(l)]);
        weights.b.push_back(values["b" + std::to_string(l)]);
      }
      if (s == 0)
        weights.eFirst = values["e"];
      if (s == setup.stages() - 1)
        weights.eLast = values[last];
    }
    return weights;
  }

  void track(int l, const Values &mean) {
    for (int j = 0; j < D; ++j)
      means[l][j] = 0.9f * means[l][j] + 0.1f * mean[j];
  }

  std::map<std::string, Values> named(int s, const Gradients &g,
                                      const Values &e, const Values &f) {
    std::map<std::string, Values> result;
    for (int l = setup.cuts[s]; l < setup.cuts[s + 1]; ++l) {
      result["W" + std::to_string(l)] = g.W[l];
      result["b" + std::to_string(l)] = g.b[l];
    }
    result["e"] = e;
    if (!setup.tied)
      result["f"] = f;
    return result;
  }

  /// `f` is empty when it is the same weight as e.
  static float clipped(const Gradients &g, const Values &e, const Values &f,
                       double limit) {
    double total = 0;
    auto add = [&](const Values &values) {
      double sum = 0;
      for (float value : values)
        sum += double(value) * value;
      const auto norm = static_cast<float>(std::sqrt(sum));
      total += double(norm) * norm;
    };
    for (int l = 0; l < L; ++l)
      add(g.W[l]), add(g.b[l]);
    add(e);
    add(f);
    const float coefficient = static_cast<float>(limit) /
                              (static_cast<float>(std::sqrt(total)) + 1e-6f);
    return std::min(coefficient, 1.0f);
  }

  double step(int t) {
    const int M = setup.microbatches;
    const Weights weights = read(std::vector<int64_t>(setup.stages(), t));
    std::vector<Result> results;
    double loss = 0;
    for (int k = 0; k < M; ++k) {
      results.push_back(
          microbatch(weights, initialValue("c"), int64_t(t) * M + k, M));
      loss += results.back().loss;
    }
    // Each stage sums in its replicas' order.
    Gradients all;
    std::vector<Gradients> perStage;
    for (int s = 0; s < setup.stages(); ++s) {
      const auto r = static_cast<int>(setup.ranks[s].size());
      std::vector<Gradients> replica(r);
      for (int k = 0; k < M; ++k)
        replica[k % r].add(results[k].gradients);
      for (int q = 1; q < r; ++q)
        replica[0].add(replica[q]);
      perStage.push_back(replica[0]);
      for (int l = setup.cuts[s]; l < setup.cuts[s + 1]; ++l)
        all.W[l] = replica[0].W[l], all.b[l] = replica[0].b[l];
    }
    Values e = perStage.front().e0;
    for (int j = 0; j < D && setup.tied; ++j)
      e[j] += perStage.back().e1[j];
    const float scale =
        setup.clip > 0
            ? clipped(all, e, setup.tied ? Values() : perStage.back().e1,
                      setup.clip)
            : 1;
    for (int k = 0; k < M; ++k)
      for (int l = 0; l < L; ++l)
        track(l, results[k].means[l]);
    for (int s = 0; s < setup.stages(); ++s)
      stages[s].update(named(s, perStage[s], e, perStage.back().e1), scale);
    return loss / M;
  }

  int64_t delay(int s) const {
    int64_t from = 0;
    for (int q = s; q < setup.stages(); ++q)
      from += static_cast<int64_t>(setup.ranks[q].size());
    return (from - 1) / static_cast<int64_t>(setup.ranks[s].size());
  }

  double streamed(int k, int steps) {
    std::vector<int64_t> version;
    for (int s = 0; s < setup.stages(); ++s)
      version.push_back(std::max<int64_t>(
          0, k / static_cast<int64_t>(setup.ranks[s].size()) - delay(s)));
    const Result result = microbatch(read(version), initialValue("c"), k, 1);
    std::map<int, Gradients> finished;
    std::map<int, int> present;
    for (int s = 0; s < setup.stages(); ++s) {
      const auto r = static_cast<int>(setup.ranks[s].size());
      rounds[s].push_back(result.gradients);
      roundMeans[s].push_back(result.means);
      if (static_cast<int>(rounds[s].size()) < r && k + 1 < steps)
        continue;
      Gradients sum = rounds[s][0];
      for (size_t q = 1; q < rounds[s].size(); ++q)
        sum.add(rounds[s][q]);
      for (auto &row : roundMeans[s])
        for (int l = setup.cuts[s]; l < setup.cuts[s + 1]; ++l)
          track(l, row[l]);
      finished[s] = sum, present[s] = static_cast<int>(rounds[s].size());
      rounds[s].clear(), roundMeans[s].clear();
    }
    for (auto &[s, sum] : finished) {
      Values e = sum.e0;
      if (setup.tied && (s == 0 || s == setup.stages() - 1)) {
        // Stages that share e have rounds of equal length.
        e = finished.at(0).e0;
        for (int j = 0; j < D; ++j)
          e[j] += finished.at(setup.stages() - 1).e1[j];
      }
      stages[s].update(named(s, sum, e, sum.e1), 1.0f / present[s]);
    }
    return result.loss;
  }
};

} // namespace

Reference train(const Scenario &setup, int steps) {
  return Trainer(setup).run(steps);
}

} // namespace pipec::test
