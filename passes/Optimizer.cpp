//===- Optimizer.cpp - the rows of Optimizers.def -------------------------===//
#include "passes/Optimizer.h"
#include "passes/optimizers/Rules.h"
#include "support/UnknownName.h"

#include <cmath>
#include <set>

using namespace mlir;

namespace pipec {

ArrayRef<OptimizerRow> optimizerRows() {
#define OPTIMIZER(NAME, CLASS, STATES, SETTINGS, SUMMARY)                      \
  static const CLASS the##CLASS;
#include "passes/Optimizers.def"
#undef OPTIMIZER
  static const OptimizerRow rows[] = {
#define OPTIMIZER(NAME, CLASS, STATES, SETTINGS, SUMMARY)                      \
  {NAME, STATES, SETTINGS, SUMMARY, &the##CLASS},
#include "passes/Optimizers.def"
#undef OPTIMIZER
  };
  return rows;
}

const OptimizerRow *findOptimizer(StringRef name) {
  for (const OptimizerRow &row : optimizerRows())
    if (name == row.name)
      return &row;
  return nullptr;
}

/// The values of a setting.
struct Range {
  const char *text;
  bool (*holds)(double);
};

static bool isFlag(StringRef key) { return key == "nesterov"; }

static Range rangeOf(StringRef key) {
  if (isFlag(key))
    return {"true or false", [](double v) { return v == 0 || v == 1; }};
  // What is remembered fades.
  if (key == "momentum" || key.starts_with("beta"))
    return {"at least 0 and below 1", [](double v) { return v >= 0 && v < 1; }};
  return {"at least 0", [](double v) { return v >= 0; }};
}

static bool parseNumber(StringRef key, StringRef text, double &value) {
  if (isFlag(key) && (text == "true" || text == "false")) {
    value = text == "true";
    return true;
  }
  return !text.empty() && !text.getAsDouble(value) && std::isfinite(value);
}

bool parseSettings(const OptimizerRow &row, StringRef text,
                   Optimizer::Settings &settings, std::string &error) {
  for (StringRef part : llvm::split(row.settings, ',')) {
    auto [key, value] = part.split('=');
    parseNumber(key, value, settings[key.str()]);
  }
  if (text.empty())
    return true;
  std::set<StringRef> given;
  for (StringRef part : llvm::split(text, ',')) {
    auto [key, value] = part.split('=');
    auto it = settings.find(key.str());
    if (it == settings.end()) {
      std::vector<std::string> known;
      for (const auto &setting : settings)
        known.push_back(setting.first);
      error = ("optimizer '" + Twine(row.name) + "' has no setting '" + key +
               "'" + didYouMean(key.str(), known) + "; it has " + row.settings)
                  .str();
      return false;
    }
    if (!given.insert(key).second) {
      error =
          ("setting " + key + " of optimizer '" + row.name + "' is given twice")
              .str();
      return false;
    }
    const Range range = rangeOf(key);
    const bool number = parseNumber(key, value, it->second);
    if (!number && !isFlag(key)) {
      error = ("setting " + key + " of optimizer '" + row.name +
               "' is not a finite number: '" + value + "'")
                  .str();
      return false;
    }
    if (!number || !range.holds(it->second)) {
      error = ("setting " + key + " of optimizer '" + row.name + "' must be " +
               range.text + ", not " + value)
                  .str();
      return false;
    }
  }
  const auto setting = [&](const char *key) {
    auto it = settings.find(key);
    return it == settings.end() ? 0 : it->second;
  };
  if (setting("nesterov") != 0 && setting("momentum") == 0) {
    error = (Twine("nesterov of optimizer '") + row.name +
             "' needs a momentum above 0")
                .str();
    return false;
  }
  return true;
}

Value spread(nn::NNBuilder &b, Value scalar, Value like) {
  auto type = nn::tensorType(like);
  Value narrow = nn::cast(b, scalar, type.getElementType());
  return nn::broadcastTo(b, narrow, type.getShape());
}

} // namespace pipec
