//===- EqualOrders.h - orders of schedules for equal stages -----*- C++ -*-===//
#pragma once

#include "compiler/schedule/Generator.h"

#include <string>

namespace pipec::plan {

/// schedule::generate(schedule, size) of a request of sizes alone, without
/// costs. Some of these orders are searched for, and plan after plan under one
/// name asks for the same: they are kept, up to some millions of actions.
schedule::Schedule equalOrder(const std::string &schedule,
                              const schedule::ScheduleRequest &size);

} // namespace pipec::plan
