//===- Extras.cpp - what a plan folder holds for people -------------------===//
#include "compiler/driver/Extras.h"

#include "compiler/driver/Launch.h"
#include "compiler/driver/Terminal.h"
#include "compiler/schedule/Csv.h"
#include "report/Report.h"
#include "support/Failure.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>

namespace pipec {

void writeExtras(const plan::Plan &plan, const schedule::Schedule &schedule,
                 const std::string &folder) {
  const std::string csv = folder + "/schedule.csv";
  std::ofstream file(csv, std::ios::binary);
  file << schedule::writeCsv(schedule);
  file.close();
  if (!file)
    throw Failure(Exit::CannotWrite,
                  "cannot write " + csv + ": " + std::strerror(errno));
  report::writeReport(plan, folder + "/report.html");
  writeLaunchFiles(plan, folder);
}

void printPlan(const plan::Plan &plan, bool json) {
  std::cout << (json ? report::inspectJson(plan)
                     : report::summary(plan, terminalOptions()));
}

} // namespace pipec
