//===- ScheduleCommand.h - `pipec schedule` ---------------------*- C++ -*-===//
#pragma once

namespace pipec {

/// `pipec schedule NAME …` and `pipec schedule --check FILE …`: generates or
/// reads a schedule, verifies and simulates it, prints its figures; argv[0] is
/// "schedule". Returns the exit code, throws Failure (Usage, NoInput,
/// CannotWrite, BadPlan, NoFit).
int scheduleCommand(int argc, char **argv);

} // namespace pipec
