//===- StandardOutput.h - what was printed has arrived ----------*- C++ -*-===//
#pragma once

namespace pipec {

/// The last thing before a program ends with `code`. Who is done, but could not
/// print all of it, is not: Failure(CannotWrite). Another code says more.
int endOfOutput(int code);

} // namespace pipec
