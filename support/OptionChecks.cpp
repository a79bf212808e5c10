//===- OptionChecks.cpp - what values an option takes ---------------------===//
#include "support/OptionChecks.h"

#include "support/UnknownName.h"

#include <charconv>
#include <cmath>

namespace pipec {

/// A whole number of [least, most].
static CLI::Validator wholeNumber(int64_t least, int64_t most) {
  return CLI::Validator(
      [least, most](const std::string &text) -> std::string {
        int64_t value = 0;
        const char *end = text.data() + text.size();
        const auto [stop, error] = std::from_chars(text.data(), end, value);
        if (error == std::errc() && stop == end && value >= least &&
            value <= most)
          return "";
        return "must be a whole number from " + std::to_string(least) + " to " +
               std::to_string(most) + ", not '" + text + "'";
      },
      "");
}

CLI::Validator aCount(int64_t most) { return wholeNumber(1, most); }

CLI::Validator upTo(int64_t most) { return wholeNumber(0, most); }

// CLI11 takes -1 for the largest of all.
CLI::Validator aSeed() {
  return CLI::Validator(
      [](const std::string &text) -> std::string {
        uint64_t value = 0;
        const char *end = text.data() + text.size();
        const auto [stop, error] = std::from_chars(text.data(), end, value);
        if (error == std::errc() && stop == end)
          return "";
        return "must be a whole number from 0 to 18446744073709551615, not '" +
               text + "'";
      },
      "");
}

// CLI11's own check names its bound with all of its 309 digits.
CLI::Validator aboveZero() {
  return CLI::Validator(
      [](const std::string &text) -> std::string {
        char *end = nullptr;
        const double value = std::strtod(text.c_str(), &end);
        const bool good = end != text.c_str() && !*end && std::isfinite(value);
        return good && value > 0 ? "" : "must be a finite number above 0";
      },
      "NUMBER > 0");
}

CLI::Validator oneOf(const std::vector<std::string> &words) {
  return CLI::Validator(
      [words](const std::string &text) -> std::string {
        for (const std::string &word : words)
          if (text == word)
            return "";
        return "takes " + listed(words) + ", not '" + text + "'" +
               didYouMean(text, words);
      },
      "");
}

void takeMany(CLI::Option *option) {
  option->expected(1)->allow_extra_args(false)->multi_option_policy(
      CLI::MultiOptionPolicy::TakeAll);
}

} // namespace pipec
