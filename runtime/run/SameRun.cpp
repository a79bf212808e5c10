//===- SameRun.cpp - all ranks run the same -------------------------------===//
#include "runtime/run/SameRun.h"

#include "runtime/exec/RankState.h"
#include "runtime/program/Sha256.h"

#include <nlohmann/json.hpp>

#include <algorithm>

namespace pipec {
namespace {

/// How the facts say it; of a key that they lack that there is none.
std::string said(const RunFacts &facts, const std::string &key) {
  const auto found =
      std::ranges::find(facts, key, &RunFacts::value_type::first);
  return found == facts.end() ? "no " + key : found->second;
}

/// "rank 2 (stage 2) has --shuffle 2, rank 0 (stage 0) has --shuffle 1", of the
/// first that is not the same; empty where all is.
std::string difference(const plan::Plan &plan, int rank, const RunFacts &theirs,
                       const RunFacts &mine) {
  for (const RunFacts *facts : {&mine, &theirs})
    for (const auto &[key, text] : *facts)
      if (said(theirs, key) != said(mine, key))
        return RankState::nameOf(plan, rank) + " has " + said(theirs, key) +
               ", " + RankState::nameOf(plan, 0) + " has " + said(mine, key);
  return "";
}

} // namespace

RunFacts factsOf(const RunOptions &options,
                 const std::map<std::string, std::string> &data) {
  constexpr size_t kDigest = 16;
  RunFacts facts;
  const auto valued = [&](const std::string &key, const std::string &value) {
    if (!value.empty())
      facts.emplace_back(key, key + " " + value);
  };
  const auto given = [&](const std::string &flag, bool isGiven) {
    if (isGiven)
      facts.emplace_back(flag, flag);
  };
  valued("plan.json",
         sha256OfFile(options.plan + "/plan.json").substr(0, kDigest));
  given("--evaluate", options.evaluate);
  valued("--steps", options.steps ? std::to_string(options.steps) : "");
  valued("--shuffle", options.shuffle ? std::to_string(*options.shuffle) : "");
  valued("--seed", std::to_string(options.seed));
  valued("--lr-schedule", options.rate);
  given("--resume", !options.resume.empty());
  given("--checkpoint", !options.checkpoint.empty());
  valued("--checkpoint-every", options.checkpointEvery
                                   ? std::to_string(options.checkpointEvery)
                                   : "");
  given("--export", !options.exportFile.empty());
  given("--verify", options.verify);
  for (const auto &[name, path] : options.outputs)
    given("--output " + name, true);
  for (const auto &[input, mark] : data)
    valued("--data " + input, mark);
  return facts;
}

void expectSameRun(Council &council, const plan::Plan &plan,
                   const RunFacts &facts) {
  std::string found;
  // Names of inputs need not be valid UTF-8.
  const std::string mine = nlohmann::json(facts).dump(
      -1, ' ', false, nlohmann::json::error_handler_t::replace);
  council.gather("comparing what the ranks run", mine,
                 [&](int rank, const std::string &theirs) {
                   if (found.empty() && theirs != mine)
                     found = difference(
                         plan, rank,
                         nlohmann::json::parse(theirs).get<RunFacts>(),
                         nlohmann::json::parse(mine).get<RunFacts>());
                 });
  council.agree("comparing what the ranks run", [&] {
    if (!found.empty())
      throw Failure(Exit::Usage, "the ranks do not run the same: " + found +
                                     "; give all of them the same options and "
                                     "the same files");
  });
}

} // namespace pipec
