//===- OrderFile.cpp - `--strategy file:S.csv` ----------------------------===//
#include "compiler/driver/OrderFile.h"

#include "compiler/schedule/Csv.h"
#include "compiler/strategy/Strategy.h"
#include "support/Failure.h"
#include "support/ReadFile.h"

#include <filesystem>

namespace pipec {

std::optional<std::string> orderFileOf(const std::string &strategy) {
  const std::string prefix = "file:";
  if (strategy.rfind(prefix, 0) != 0)
    return std::nullopt;
  return strategy.substr(prefix.size());
}

void expectRunnable(const schedule::Schedule &order, const std::string &text) {
  for (int rank = 0; rank < order.devices(); ++rank)
    if (order.order[rank].empty())
      throw Failure(Exit::BadPlan, order.name + ":" + std::to_string(rank + 1) +
                                       ": rank " + std::to_string(rank) +
                                       " has nothing to do; delete the line");
  schedule::VerifyOptions options;
  options.versions = strategy::versionRule(strategy::fileStrategy(), order);
  options.messages = schedule::MessageOrder::PerEdge;
  schedule::verifyCsv(order, text, options);
}

schedule::Schedule readOrderFile(const std::string &path) {
  const std::string text = readFile(path, "the order of --strategy file:");
  schedule::Schedule order = schedule::readCsv(text, path);
  schedule::verifyCsv(order, text); // before anything relies on the tasks
  expectRunnable(order, text);
  order.name = std::filesystem::path(path).filename().string();
  return order;
}

} // namespace pipec
