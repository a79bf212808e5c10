//===- JsonInput.h - reading the published JSON inputs ----------*- C++ -*-===//
#pragma once

#include "support/ParseJson.h"

#include <optional>
#include <string>

namespace pipec::published {

/// What one number of a graph may be.
constexpr double mostOfANumber = 1e15;

/// What all nodes of a graph may take: byte counts are whole numbers of 64 bits
/// in messages and in our own objective.
constexpr double mostBytesOfGraph = 1e18;

/// A JSON document whose fields are read with a message for every mistake: all
/// members throw Failure(Exit::BadModel) naming the origin, the line, the place
/// and the reason. Numbers must lie between 0 and 1e15. `kind` is what the file
/// is taken for, as "this placement graph".
class JsonInput {
public:
  using Json = nlohmann::ordered_json;
  JsonInput(const std::string &text, const std::string &origin,
            const std::string &kind);

  const Json &root() const { return document.root; }
  const std::string &kind() const { return kind_; }
  /// `at`: the value that is wrong, or none in particular.
  [[noreturn]] void bad(const std::string &reason,
                        const Json *at = nullptr) const;

  double number(const Json &object, const char *key,
                const std::string &where) const;
  /// Of a device: a number of at least 0, any above 1e15 being none.
  double limit(const Json &object, const char *key,
               const std::string &where) const;
  /// A whole number of at least `least`.
  int count(const Json &object, const char *key, const std::string &where,
            int least) const;
  /// true/false, or 0/1 as some files write it.
  bool flag(const Json &object, const char *key,
            const std::string &where) const;
  /// A string or whole number, as text.
  std::string id(const Json &object, const char *key,
                 const std::string &where) const;
  std::string textOr(const Json &object, const char *key,
                     const char *otherwise) const;
  std::optional<long long> optionalInteger(const Json &object, const char *key,
                                           const std::string &where) const;
  const Json &list(const Json &object, const char *key) const;
  const Json &object(const Json &parent, const char *key,
                     const std::string &where) const;

private:
  const Json &field(const Json &object, const char *key,
                    const std::string &where) const;
  ParsedJson document;
  std::string kind_;
};

} // namespace pipec::published
