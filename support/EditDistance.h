//===- EditDistance.h - how far a word is from what was meant ---*- C++ -*-===//
#pragma once

#include <cstddef>
#include <string>

namespace pipec {

/// Letters to insert, delete, replace or swap with the next to come from one to
/// the other (Levenshtein's, with neighbours swapped as one edit).
size_t editDistance(const std::string &from, const std::string &to);

/// The same to the nearest part of `name` (Sellers).
size_t editDistanceToPart(const std::string &text, const std::string &name);

} // namespace pipec
