//===- LearningRate.cpp - factors on the learning rate --------------------===//
#include "runtime/run/LearningRate.h"
#include "support/Failure.h"
#include "support/UnknownName.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <sstream>

namespace pipec {
namespace {

constexpr double kPi = 3.14159265358979323846;

struct Row {
  const char *name;
  double (*shape)(double p);
  bool needsTotal;
};

constexpr Row kRows[] = {
#define LEARNING_RATE(name, expression, needsTotal, summary)                   \
  {#name, []([[maybe_unused]] double p) -> double { return expression; },      \
   needsTotal},
#include "runtime/run/LearningRates.def"
};

std::vector<std::string> names() {
  std::vector<std::string> names;
  for (const Row &row : kRows)
    names.emplace_back(row.name);
  return names;
}

[[noreturn]] void bad(const std::string &text, const std::string &what) {
  throw Failure(Exit::Usage, "--lr-schedule " + text + ": " + what);
}

std::map<std::string, double> parse(const std::string &text,
                                    const std::string &options) {
  std::map<std::string, double> values = {
      {"warmup", 0}, {"total", 0}, {"min", 0}};
  std::stringstream parts(options);
  for (std::string part; std::getline(parts, part, ',');) {
    const size_t equals = part.find('=');
    const std::string key = part.substr(0, equals);
    if (equals == std::string::npos || !values.count(key))
      bad(text, "'" + part + "' is not warmup=, total= or min=" +
                    didYouMean(key, {"warmup", "total", "min"}));
    char *end = nullptr;
    const std::string value = part.substr(equals + 1);
    values[key] = std::strtod(value.c_str(), &end);
    if (value.empty() || *end || !(values[key] >= 0 && values[key] < 1e15))
      bad(text, "'" + part + "' is not a number >= 0");
  }
  return values;
}

} // namespace

std::string learningRateNames() { return listed(names()); }

std::function<double(int64_t)> learningRate(const std::string &text) {
  const size_t colon = text.find(':');
  const std::string kind = text.substr(0, colon);
  const Row *row = nullptr;
  for (const Row &candidate : kRows)
    if (kind == candidate.name)
      row = &candidate;
  if (!row)
    throw Failure(Exit::Usage,
                  "--lr-schedule: " + unknownName("factor", kind, names()));
  auto values =
      parse(text, colon == std::string::npos ? "" : text.substr(colon + 1));
  const double warmup = values["warmup"], total = values["total"],
               min = values["min"];
  if (row->needsTotal && total <= warmup)
    bad(text, "total=, the step that it ends with, must be given, and be more "
              "than warmup=");
  if (min > 1)
    bad(text, "min= must be at most 1");
  return [shape = row->shape, warmup, total, min](int64_t step) {
    const auto t = static_cast<double>(step);
    if (t < warmup)
      return std::min(1.0, (t + 1) / warmup);
    const double p =
        total > warmup ? std::min(1.0, (t - warmup) / (total - warmup)) : 0;
    return min + (1 - min) * shape(p);
  };
}

} // namespace pipec
