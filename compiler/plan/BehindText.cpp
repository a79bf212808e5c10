#include "compiler/plan/BehindText.h"

#include "report/Format.h"

#include <cstdio>

namespace pipec::plan {

std::string behindText(double stepSeconds, double bestStepSeconds,
                       double times) {
  const double behind = 100 * (times - 1);
  char share[32] = "as fast";
  if (behind >= 0.05)
    std::snprintf(share, sizeof share, "%+.1f %%", behind);
  return report::seconds(stepSeconds, bestStepSeconds) + " a step, " + share;
}

} // namespace pipec::plan
