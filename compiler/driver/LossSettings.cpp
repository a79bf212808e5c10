//===- LossSettings.cpp - what stands behind --loss KIND: -----------------===//
#include "compiler/driver/LossSettings.h"

#include "compiler/onnx/Npy.h"
#include "report/Facts.h"
#include "support/EditDistance.h"
#include "support/Failure.h"
#include "support/UnknownName.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstring>

namespace pipec {
namespace {

class Settings {
public:
  explicit Settings(const CompileOptions &options) : options(options) {}

  const std::string *find(const std::string &key) const {
    auto found = options.lossOptions.find(key);
    return found == options.lossOptions.end() ? nullptr : &found->second;
  }

  [[noreturn]] void bad(const std::string &key, const std::string &why,
                        Exit exit = Exit::Usage) const {
    throw Failure(exit, "--loss " + options.loss + ":" + key + "=" +
                            *find(key) + ": " + why);
  }

  double number(const std::string &key, double otherwise, double low,
                double high) const {
    const std::string *text = find(key);
    if (!text)
      return otherwise;
    char *end = nullptr;
    const double value = std::strtod(text->c_str(), &end);
    if (*end || !(value >= low && value <= high))
      bad(key, high < HUGE_VAL
                   ? "not a number from " + shown(low) + " to " + shown(high)
                   : "not a number of at least " + shown(low));
    return value;
  }

  int64_t integer(const std::string &key, int64_t otherwise) const {
    const std::string *text = find(key);
    if (!text)
      return otherwise;
    char *end = nullptr;
    errno = 0;
    const long long value = std::strtoll(text->c_str(), &end, 10);
    if (*end || errno)
      bad(key, "not an integer");
    return value;
  }

  /// Of at least `low`, where it is given.
  int64_t count(const std::string &key, int64_t otherwise, int64_t low) const {
    const int64_t value = integer(key, otherwise);
    if (find(key) && value < low)
      bad(key, "not an integer of at least " + std::to_string(low));
    return value;
  }

  /// A vector of numbers in a file.
  std::vector<double> numbers(const std::string &key) const {
    std::vector<double> values;
    const std::string *path = find(key);
    if (!path)
      return values;
    const onnx::TensorData array = onnx::readNpy(*path);
    if (!array.problem.empty())
      bad(key, array.problem + "; give a .npy file of a number for each class",
          array.missingFile ? Exit::NoInput : Exit::BadModel);
    const bool wide = array.type == onnx::ElementType::Double;
    if (array.dims.size() != 1 || array.dims[0] < 1 ||
        (!wide && array.type != onnx::ElementType::Float))
      bad(key, "not a vector of float32 or float64", Exit::BadModel);
    for (int64_t i = 0; i < array.dims[0]; ++i) {
      double value = 0;
      float narrow = 0;
      std::memcpy(wide ? static_cast<void *>(&value) : &narrow,
                  array.bytes.data() + i * (wide ? 8 : 4), wide ? 8 : 4);
      values.push_back(wide ? value : narrow);
      if (!(values.back() >= 0 && std::isfinite(values.back())))
        bad(key, "number " + std::to_string(i) + " is negative or not finite",
            Exit::BadModel);
    }
    return values;
  }

private:
  static std::string shown(double value) {
    return std::to_string(static_cast<int64_t>(value));
  }
  const CompileOptions &options;
};

bool isInteger(const std::string &type) { // "4x64xi64", "f32"
  const std::string element = type.substr(type.rfind('x') + 1);
  return element[0] == 'i' || element[0] == 'u';
}

void mustBeOneOf(const std::string &what, const std::string &given,
                 const std::string &role, const std::vector<std::string> &names,
                 const std::string &remedy, Diagnostics &diagnostics) {
  if (std::find(names.begin(), names.end(), given) != names.end())
    return;
  diagnostics.add(Exit::Usage,
                  what + ": the model has no " + role + " '" + given + "'" +
                      didYouMean(given, names),
                  names.empty() ? "it has none at all: take another --loss "
                                  "(pipec list losses)"
                                : remedy + listed(names));
}

/// Letters and digits, small.
std::string plainName(const std::string &name) {
  std::string plain;
  for (const char c : name)
    if (std::isalnum(static_cast<unsigned char>(c)))
      plain += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return plain;
}

/// Whether who types `given` may have meant `name`: one letter is wrong, or two
/// of many. Numbers tell names apart: view_1, view_2.
bool isMistaken(const std::string &given, const std::string &name) {
  constexpr size_t kShort = 4, kLong = 10;
  const std::string a = plainName(given), b = plainName(name);
  if (a.size() < kShort || b.size() < kShort)
    return false;
  const auto digits = [](const std::string &text) {
    std::string found;
    for (const char c : text)
      if (std::isdigit(static_cast<unsigned char>(c)))
        found += c;
    return found;
  };
  return digits(a) == digits(b) &&
         editDistance(a, b) <= (std::min(a.size(), b.size()) < kLong ? 1 : 2);
}

/// The input that a label of this name may have meant, which it is none of.
std::string mistakenInput(const std::string &label,
                          const onnx::ImportReport &model) {
  std::string found;
  for (const onnx::InputReport &input : model.inputs) {
    if (input.name == label)
      return "";
    if (isMistaken(label, input.name))
      found = input.name;
  }
  return found;
}

/// Where the user names a label that is no input of the model, a new one is
/// made: not of a typing error.
void checkLabel(const CompileOptions &options, const onnx::ImportReport &model,
                Diagnostics &diagnostics) {
  const auto label = options.lossOptions.find("label");
  if (label == options.lossOptions.end())
    return;
  if (const std::string meant = mistakenInput(label->second, model);
      !meant.empty())
    diagnostics.add(Exit::Usage,
                    "--loss " + options.loss + ":label=" + label->second +
                        ": the model has no input '" + label->second +
                        "', did you mean " + meant + "?",
                    "label=" + meant +
                        "; or, for an input that the loss is to add, a name "
                        "less like it");
}

} // namespace

void checkLossNames(const CompileOptions &options,
                    const onnx::ImportReport &model, Diagnostics &diagnostics) {
  std::vector<std::string> outputs, integers;
  for (const onnx::InputReport &output : model.outputs)
    outputs.push_back(output.name);
  for (const onnx::InputReport &input : model.inputs)
    if (isInteger(input.type))
      integers.push_back(input.name);
  if (!options.logits.empty())
    mustBeOneOf("--logits " + options.logits, options.logits, "output", outputs,
                "its outputs: ", diagnostics);
  if (options.loss != "next-token")
    return checkLabel(options, model, diagnostics);
  const auto label = options.lossOptions.find("label");
  mustBeOneOf("--loss next-token",
              label == options.lossOptions.end() ? "input_ids" : label->second,
              "integer input", integers,
              "name the one that holds the tokens with label=NAME; it has ",
              diagnostics);
}

void noteLabel(const CompileOptions &options, const onnx::ImportReport &model,
               const std::vector<plan::Input> &inputs,
               Diagnostics &diagnostics) {
  const bool named = options.lossOptions.contains("label");
  for (const plan::Input &input : inputs) {
    const bool own = std::any_of(
        model.inputs.begin(), model.inputs.end(),
        [&](const onnx::InputReport &one) { return one.name == input.name; });
    const std::string like = mistakenInput(input.name, model);
    if (own || (!named && like.empty()))
      continue;
    diagnostics.note("the loss adds the input '" + input.name + "', " +
                     input.dtype + " " + report::arrayText(input) +
                     (like.empty()
                          ? ""
                          : "; the model's own '" + like +
                                "' takes its place with label=" + like));
  }
}

LossChoice lossChoice(const CompileOptions &options) {
  const Settings settings(options);
  LossChoice choice;
  choice.kind = options.loss;
  choice.logits = options.logits;
  if (const std::string *label = settings.find("label"))
    choice.label = *label;
  choice.ignoreIndex = settings.integer("ignore_index", choice.ignoreIndex);
  choice.classAxis = settings.count("axis", choice.classAxis, 1);
  choice.labelSmoothing = settings.number("label_smoothing", 0, 0, 1);
  choice.posWeight = settings.number("pos_weight", 1, 0, HUGE_VAL);
  choice.classWeights = settings.numbers("weight");
  return choice;
}

} // namespace pipec
