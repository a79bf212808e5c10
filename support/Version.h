//===- Version.h - the program's version -------------------------*- C++ -*-===//
#pragma once

namespace pipec {
inline constexpr const char *kVersion = "0.1.0";
} // namespace pipec
