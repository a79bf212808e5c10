//===- CalibrateCommand.h - `pipec calibrate` -------------------*- C++ -*-===//
#pragma once

namespace pipec {

int calibrateCommand(int argc, char **argv);

} // namespace pipec
