#include "compiler/plan/published/JsonInput.h"

#include "support/Failure.h"

#include <cmath>

namespace pipec::published {

JsonInput::JsonInput(const std::string &text, const std::string &origin)
    : origin(origin) {
  try {
    document = Json::parse(text);
  } catch (const Json::parse_error &e) {
    size_t line = 1;
    for (size_t i = 0; i + 1 < e.byte && i < text.size(); ++i)
      line += text[i] == '\n';
    throw Failure(Exit::BadModel, origin + ":" + std::to_string(line) +
                                      ": not JSON: " + e.what());
  }
  if (!document.is_object())
    bad("the document is not an object");
}

void JsonInput::bad(const std::string &reason) const {
  throw Failure(Exit::BadModel, origin + ": " + reason);
}

const JsonInput::Json &JsonInput::field(const Json &object, const char *key,
                                        const std::string &where) const {
  if (!object.is_object())
    bad(where + " is not an object");
  auto it = object.find(key);
  if (it == object.end())
    bad(where + " has no \"" + key + "\"");
  return *it;
}

double JsonInput::number(const Json &object, const char *key,
                         const std::string &where) const {
  const Json &value = field(object, key, where);
  if (!value.is_number())
    bad(where + ": \"" + key + "\" is not a number");
  double d = value.get<double>();
  if (!std::isfinite(d) || d < 0)
    bad(where + ": \"" + key + "\" must be a number of at least 0");
  return d;
}

int JsonInput::count(const Json &object, const char *key,
                     const std::string &where, int least) const {
  double d = number(object, key, where);
  if (d != std::floor(d) || d < least || d > 1e9)
    bad(where + ": \"" + key + "\" must be a whole number of at least " +
        std::to_string(least));
  return static_cast<int>(d);
}

bool JsonInput::flag(const Json &object, const char *key,
                     const std::string &where) const {
  const Json &value = field(object, key, where);
  if (value.is_boolean())
    return value.get<bool>();
  if (value.is_number() &&
      (value.get<double>() == 0 || value.get<double>() == 1))
    return value.get<double>() == 1;
  bad(where + ": \"" + key + "\" is neither true nor false");
}

std::string JsonInput::id(const Json &object, const char *key,
                          const std::string &where) const {
  const Json &value = field(object, key, where);
  if (value.is_string())
    return value.get<std::string>();
  if (value.is_number_integer())
    return std::to_string(value.get<long long>());
  bad(where + ": \"" + key + "\" is neither a whole number nor a string");
}

std::string JsonInput::textOr(const Json &object, const char *key,
                              const char *otherwise) const {
  auto it = object.find(key);
  return it != object.end() && it->is_string() ? it->get<std::string>()
                                               : otherwise;
}

std::optional<long long>
JsonInput::optionalInteger(const Json &object, const char *key,
                           const std::string &where) const {
  auto it = object.find(key);
  if (it == object.end() || it->is_null())
    return std::nullopt;
  if (!it->is_number_integer())
    bad(where + ": \"" + key + "\" is not a whole number");
  return it->get<long long>();
}

const JsonInput::Json &JsonInput::list(const Json &object,
                                       const char *key) const {
  const Json &value = field(object, key, "the file");
  if (!value.is_array())
    bad(std::string("\"") + key + "\" is not a list");
  return value;
}

const JsonInput::Json &JsonInput::object(const Json &parent, const char *key,
                                         const std::string &where) const {
  const Json &value = field(parent, key, where);
  if (!value.is_object())
    bad(where + ": \"" + key + "\" is not an object");
  return value;
}

} // namespace pipec::published
