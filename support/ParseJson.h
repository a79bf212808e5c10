//===- ParseJson.h - JSON files that users name -----------------*- C++ -*-===//
#pragma once

#include "support/Failure.h"

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace pipec {

/// A JSON document with the places of its values. Members keep their order.
struct ParsedJson {
  nlohmann::ordered_json root;
  std::string origin;
  const std::string *text; ///< what was parsed; outlives this

  /// Line of a value inside `root`, from 1.
  size_t lineOf(const nlohmann::ordered_json &value) const;

  /// Throws Failure(code) as "origin:line: reason" when `object`, inside
  /// `root`, is an object with a member that is none of `names`: most likely a
  /// slip of the pen, which would be believed to have an effect. `what` says
  /// whose member it is.
  void refuseUnknown(const nlohmann::ordered_json &object,
                     const std::vector<std::string> &names,
                     const std::string &what, Exit code) const;
};

/// Throws Failure(code) as "origin:line: reason" for text that is not JSON, a
/// member that an object has twice, a number beyond a double's range, and
/// values nested more than 500 deep. A byte order mark is skipped.
ParsedJson parseJson(const std::string &text, const std::string &origin,
                     Exit code);

} // namespace pipec
