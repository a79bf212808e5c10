//===- JsonInput.h - reading the published JSON inputs ----------*- C++ -*-===//
#pragma once

#include <nlohmann/json.hpp>

#include <optional>
#include <string>

namespace pipec::published {

/// A JSON document whose fields are read with a message for every mistake: all
/// members throw Failure(Exit::BadModel) naming the origin, the place and the
/// reason. Numbers must be finite and not negative.
class JsonInput {
public:
  using Json = nlohmann::json;
  JsonInput(const std::string &text, const std::string &origin);

  const Json &root() const { return document; }
  [[noreturn]] void bad(const std::string &reason) const;

  double number(const Json &object, const char *key,
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
  std::string origin;
  Json document;
};

} // namespace pipec::published
