//===- OperandUses.h - when a call's operands were last touched -*- C++ -*-===//
#pragma once

#include "compiler/plan/DeviceModel.h"
#include "compiler/target/fusion/Plan.h"

namespace pipec {

/// Of each unit of a task, by its number: what it reads and writes. An operand
/// that the task has touched before is as far away as the buffers it has
/// touched since are large together; a new one of the workspace is where
/// others were.
std::vector<std::vector<plan::OperandUse>>
operandUses(const fusion::TaskPlan &task);

} // namespace pipec
