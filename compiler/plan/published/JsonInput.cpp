#include "compiler/plan/published/JsonInput.h"

#include "support/Failure.h"

#include <climits>
#include <cmath>

namespace pipec::published {

JsonInput::JsonInput(const std::string &text, const std::string &origin,
                     const std::string &kind)
    : document(parseJson(text, origin, Exit::BadModel)), kind_(kind) {
  if (!root().is_object())
    bad(kind + " is not an object", &root());
}

void JsonInput::bad(const std::string &reason, const Json *at) const {
  throw Failure(Exit::BadModel,
                document.origin +
                    (at ? ":" + std::to_string(document.lineOf(*at)) : "") +
                    ": " + reason);
}

const JsonInput::Json &JsonInput::field(const Json &object, const char *key,
                                        const std::string &where) const {
  if (!object.is_object())
    bad(where + " is not an object", &object);
  auto it = object.find(key);
  if (it == object.end())
    bad(where + " has no \"" + key + "\"", &object);
  return *it;
}

double JsonInput::number(const Json &object, const char *key,
                         const std::string &where) const {
  const Json &value = field(object, key, where);
  if (!value.is_number())
    bad(where + ": \"" + key + "\" is not a number", &value);
  double d = value.get<double>();
  if (!(d >= 0 && d <= mostOfANumber))
    bad(where + ": \"" + key + "\" must be a number between 0 and 1e15",
        &value);
  return d;
}

double JsonInput::limit(const Json &object, const char *key,
                        const std::string &where) const {
  const Json &value = field(object, key, where);
  if (value.is_number() && value.get<double>() > mostOfANumber)
    return mostOfANumber;
  return number(object, key, where);
}

int JsonInput::count(const Json &object, const char *key,
                     const std::string &where, int least) const {
  double d = number(object, key, where);
  if (d != std::floor(d) || d < least || d > 1e9)
    bad(where + ": \"" + key + "\" must be a whole number of at least " +
            std::to_string(least) + " and at most 1e9",
        &object[key]);
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
  bad(where + ": \"" + key + "\" is neither true nor false", &value);
}

std::string JsonInput::id(const Json &object, const char *key,
                          const std::string &where) const {
  const Json &value = field(object, key, where);
  if (value.is_string())
    return value.get<std::string>();
  if (value.is_number_integer())
    return value.dump();
  bad(where + ": \"" + key + "\" is neither a whole number nor a string",
      &value);
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
  const bool isWide =
      it->is_number_unsigned() && it->get<unsigned long long>() > LLONG_MAX;
  if (!it->is_number_integer() || isWide)
    bad(where + ": \"" + key + "\" is not a whole number" +
            (isWide ? " below 2^63" : ""),
        &*it);
  return it->get<long long>();
}

const JsonInput::Json &JsonInput::list(const Json &object,
                                       const char *key) const {
  const Json &value = field(object, key, kind());
  if (!value.is_array())
    bad(std::string("\"") + key + "\" is not a list", &value);
  return value;
}

const JsonInput::Json &JsonInput::object(const Json &parent, const char *key,
                                         const std::string &where) const {
  const Json &value = field(parent, key, where);
  if (!value.is_object())
    bad(where + ": \"" + key + "\" is not an object", &value);
  return value;
}

} // namespace pipec::published
