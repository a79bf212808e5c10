//===- InspectCommand.h - `pipec inspect` -----------------------*- C++ -*-===//
#pragma once

namespace pipec {

/// `pipec inspect PLAN`: prints a plan as tables or as JSON; argv[0] is
/// "inspect". Returns the exit code, throws Failure (Usage, NoInput, BadPlan).
int inspectCommand(int argc, char **argv);

} // namespace pipec
