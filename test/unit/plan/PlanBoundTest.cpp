#include "compiler/plan/published/PlanBound.h"
#include "PipeDreamBrute.h"
#include "RandomGraphs.h"

#include <gtest/gtest.h>

#include <map>
#include <regex>

using namespace pipec::published;
using namespace pipec::plan::test;

/// What is named takes as long as the plan, whatever it is and at any level.
TEST(PlanBound, AccountsForTheWholeTime) {
  Random random(5);
  std::map<std::string, int> named;
  for (int round = 0; round < 300; ++round) {
    const PipeDreamProfile profile = randomProfile(random, 6);
    std::vector<PipeDreamLevel> levels{{3, random.real(1e7, 1e10)}};
    if (round % 2)
      levels.push_back({2, random.real(1e7, 1e9)});
    const CutStates states = cutStates(profile, 1000);
    const PipeDreamPlan plan = searchPipeDream(states, levels);
    const std::string text = boundOf(states, levels, plan);
    double seconds = 0;
    std::smatch found;
    if (std::regex_match(text, found, std::regex("compute of stage (\\d+)"))) {
      const PipeDreamStage &stage = plan.stages.at(std::stoul(found[1]));
      seconds = (states.seconds[stage.after] - states.seconds[stage.before]) /
                stage.replicas;
      ++named["compute"];
    } else {
      const std::regex part("([\\d.e+-]+) ms");
      for (std::sregex_iterator at(text.begin(), text.end(), part), end;
           at != end; ++at)
        seconds += std::stod((*at)[1]) / 1000;
      ++named[text.substr(0, 7) == "the cut" ? "cut" : "exchange"];
    }
    EXPECT_NEAR(seconds, plan.seconds, 2e-3 * plan.seconds)
        << "round " << round << ": " << text;
  }
  for (const char *kind : {"compute", "cut", "exchange"})
    EXPECT_GT(named[kind], 10) << kind;
}
