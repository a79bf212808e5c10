//===- Optimizer.cpp - the rows of Optimizers.def -------------------------===//
#include "passes/Optimizer.h"
#include "passes/optimizers/Rules.h"

#include <cmath>

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

static bool parseNumber(StringRef text, double &value) {
  if (text == "true" || text == "false") {
    value = text == "true";
    return true;
  }
  return !text.empty() && !text.getAsDouble(value) && std::isfinite(value);
}

bool parseSettings(const OptimizerRow &row, StringRef text,
                   Optimizer::Settings &settings, std::string &error) {
  for (StringRef part : llvm::split(row.settings, ',')) {
    auto [key, value] = part.split('=');
    parseNumber(value, settings[key.str()]);
  }
  if (text.empty())
    return true;
  for (StringRef part : llvm::split(text, ',')) {
    auto [key, value] = part.split('=');
    auto it = settings.find(key.str());
    if (it == settings.end()) {
      error = ("optimizer '" + Twine(row.name) + "' has no setting '" + key +
               "'; it has " + row.settings)
                  .str();
      return false;
    }
    if (!parseNumber(value, it->second)) {
      error = ("setting " + key + " of optimizer '" + row.name +
               "' is not a finite number: '" + value + "'")
                  .str();
      return false;
    }
  }
  return true;
}

Value spread(nn::NNBuilder &b, Value scalar, Value like) {
  auto type = nn::tensorType(like);
  Value narrow = nn::cast(b, scalar, type.getElementType());
  return nn::broadcastTo(b, narrow, type.getShape());
}

} // namespace pipec
