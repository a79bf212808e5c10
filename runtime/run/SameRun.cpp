//===- SameRun.cpp - all ranks run the same -------------------------------===//
#include "runtime/run/SameRun.h"

#include "runtime/exec/RankState.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <vector>

namespace pipec {
namespace {

/// What must be the same, as a message says it, in an order.
std::vector<std::string> factsOf(const RunOptions &options,
                                 const std::map<std::string, std::string> &data,
                                 const std::string &resumed) {
  std::vector<std::string> facts;
  const auto valued = [&](const char *flag, const std::string &value) {
    facts.push_back(value.empty() ? std::string("no ") + flag
                                  : std::string(flag) + " " + value);
  };
  const auto given = [&](const char *flag, bool isGiven) {
    facts.push_back(std::string(isGiven ? "" : "no ") + flag);
  };
  given("--evaluate", options.evaluate);
  valued("--steps", options.steps ? std::to_string(options.steps) : "");
  valued("--shuffle", options.shuffle ? std::to_string(*options.shuffle) : "");
  valued("--seed", std::to_string(options.seed));
  valued("--lr-schedule", options.rate);
  given("--resume", !options.resume.empty());
  facts.push_back("the checkpoint " + resumed);
  given("--checkpoint", !options.checkpoint.empty());
  valued("--checkpoint-every", options.checkpointEvery
                                   ? std::to_string(options.checkpointEvery)
                                   : "");
  given("--export", !options.exportFile.empty());
  given("--verify", options.verify);
  for (const auto &[name, path] : options.outputs)
    facts.push_back("--output " + name);
  for (const auto &[input, mark] : data)
    facts.push_back("'" + input + "' " + mark);
  return facts;
}

/// "rank 2 (stage 2) has --shuffle 2, rank 0 (stage 0) has --shuffle 1", of the
/// first that is not the same; empty where all is.
std::string difference(const plan::Plan &plan, int rank,
                       const std::vector<std::string> &theirs,
                       const std::vector<std::string> &mine) {
  const auto of = [](const std::vector<std::string> &facts, size_t i) {
    return i < facts.size() ? facts[i] : std::string("nothing more");
  };
  for (size_t i = 0; i < std::max(theirs.size(), mine.size()); ++i)
    if (of(theirs, i) != of(mine, i))
      return RankState::nameOf(plan, rank) + " has " + of(theirs, i) + ", " +
             RankState::nameOf(plan, 0) + " has " + of(mine, i);
  return "";
}

} // namespace

void expectSameRun(Council &council, const plan::Plan &plan,
                   const RunOptions &options,
                   const std::map<std::string, std::string> &data,
                   const std::string &resumed) {
  const std::vector<std::string> mine = factsOf(options, data, resumed);
  std::string found;
  // Names of inputs need not be valid UTF-8.
  const std::string message = nlohmann::json(mine).dump(
      -1, ' ', false, nlohmann::json::error_handler_t::replace);
  council.gather("comparing what the ranks run", message,
                 [&](int rank, const std::string &theirs) {
                   if (found.empty() && theirs != message)
                     found = difference(plan, rank,
                                        nlohmann::json::parse(theirs), mine);
                 });
  council.agree("comparing what the ranks run", [&] {
    if (!found.empty())
      throw Failure(Exit::Usage, "the ranks do not run the same: " + found +
                                     "; give all of them the same options and "
                                     "the same files");
  });
}

} // namespace pipec
