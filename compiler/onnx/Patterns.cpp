//===- Patterns.cpp - names of weights that the user gives ----------------===//
#include "compiler/onnx/Patterns.h"
#include "support/EditDistance.h"

#include <algorithm>

namespace pipec::onnx {

/// A remedy: the three names that the text may have meant.
static std::string nearestNames(const std::string &text,
                                const std::vector<std::string> &names) {
  if (names.empty())
    return "nothing in it trains; leave the option out";
  std::vector<std::pair<size_t, size_t>> order; // distance, position
  for (size_t i = 0; i < names.size(); ++i)
    order.emplace_back(editDistanceToPart(text, names[i]), i);
  std::sort(order.begin(), order.end());
  if (order.size() > 3)
    order.resize(3);
  std::string list;
  for (const auto &[distance, i] : order)
    list += (list.empty() ? "" : ", ") + names[i];
  return "the nearest of its " + std::to_string(names.size()) +
         " weights: " + list;
}

Patterns::Patterns(const char *option, const std::vector<std::string> &texts,
                   Diagnostics &diagnostics)
    : option(option), texts(texts), matched(texts.size(), false) {
  for (const std::string &text : texts) {
    patterns.emplace_back(text);
    std::string error;
    if (!patterns.back().isValid(error))
      diagnostics.add(Exit::Usage,
                      std::string(option) + " '" + text +
                          "' is no regular expression: " + error,
                      "a character that stands for itself has a backslash "
                      "before it: '\\(', '\\['");
  }
}

bool Patterns::match(const std::string &name) {
  bool any = false;
  for (size_t i = 0; i < patterns.size(); ++i) {
    std::string error;
    if (patterns[i].isValid(error) && patterns[i].match(name))
      any = matched[i] = true;
  }
  return any;
}

void Patterns::reportUnmatched(const std::vector<std::string> &names,
                               Diagnostics &diagnostics) const {
  for (size_t i = 0; i < patterns.size(); ++i) {
    std::string error;
    if (!matched[i] && patterns[i].isValid(error))
      diagnostics.add(Exit::Usage,
                      std::string(option) + " '" + texts[i] +
                          "' matches no weight of the model",
                      nearestNames(texts[i], names));
  }
}

} // namespace pipec::onnx
