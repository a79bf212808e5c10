//===- Extras.cpp - what a plan folder holds for people -------------------===//
#include "compiler/driver/Extras.h"

#include "compiler/driver/Launch.h"
#include "compiler/driver/Terminal.h"
#include "compiler/schedule/Csv.h"
#include "report/Facts.h"
#include "report/Report.h"
#include "runtime/program/Sequence.h"
#include "support/OutputFile.h"
#include "support/ShellWord.h"

#include <nlohmann/json.hpp>

#include <iostream>
#include <map>
#include <utility>

namespace pipec {

void writeExtras(const plan::Plan &plan, const schedule::Schedule &schedule,
                 const std::string &folder) {
  writeFile(folder + "/schedule.csv", schedule::writeCsv(schedule));
  report::writeReport(plan, folder + "/report.html");
  writeLaunchFiles(plan, folder);
}

void addWhatIf(nlohmann::ordered_json &root,
               const std::vector<plan::WhatIfRow> &rows) {
  for (const plan::WhatIfRow &row : rows)
    root["what_if"].push_back({{"axis", row.axis},
                               {"value", row.value},
                               {"fits", row.fits},
                               {"step_s", row.stepSeconds},
                               {"samples_per_s", row.samplesPerSecond},
                               {"peak_bytes_estimate", row.peakBytes},
                               {"counted", row.isCounted},
                               {"may_not_fit", row.isClose},
                               {"strategy", row.strategy},
                               {"replicas", row.shape},
                               {"note", row.note}});
}

Fullest fullestDevice(const plan::Plan &plan) {
  Fullest most;
  std::map<std::pair<int, int>, int64_t> onDevice;
  for (const plan::Rank &rank : plan.ranks) {
    const int64_t bytes = onDevice[{rank.host, rank.device}] += rank.peak_bytes;
    if (bytes > most.bytes)
      most = {rank.rank, bytes};
  }
  return most;
}

void printPlan(const plan::Plan &plan, bool json, const plan::Replanned *own,
               const std::vector<plan::WhatIfRow> &rows) {
  if (!json) {
    std::cout << report::summary(plan, terminalOptions());
    if (!rows.empty())
      std::cout << "\n" << plan::whatIfTable(*own, rows);
    return;
  }
  auto root = nlohmann::ordered_json::parse(report::inspectJson(plan));
  addWhatIf(root, rows);
  std::cout << root.dump(1) << "\n";
}

void printNext(const plan::Plan &plan, const std::string &folder) {
  std::string arrays, data;
  for (size_t i = 0; i < plan.inputs.size(); ++i) {
    if (!plan.reads(static_cast<int>(i)))
      continue;
    const plan::Input &input = plan.inputs[i];
    arrays += (arrays.empty() ? "data       " : "\n           ") +
              shellWord(input.name) + ": " + input.dtype + " " +
              report::arrayText(input);
    data += " --data " + shellWord(input.name + "=FILE.npy");
  }
  std::string aim = " --steps 100";
  if (plan::forwardOnly(plan)) {
    aim.clear();
    for (const plan::Output &output : plan.outputs)
      aim += " --output " + shellWord(output.name + "=FILE.npy");
  }
  std::cout << "\nwritten    " << folder << " (pipec inspect, report.html)\n"
            << arrays << (arrays.empty() ? "" : "\n") << "run it     pipec-run "
            << shellWord(folder) << data << aim << "\n";
}

} // namespace pipec
