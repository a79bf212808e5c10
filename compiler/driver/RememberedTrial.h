//===- RememberedTrial.h - trials that are not made twice -------*- C++ -*-===//
#pragma once

#include "compiler/driver/WithinLimit.h"

#include <exception>
#include <memory>
#include <utility>
#include <vector>

namespace pipec {

/// A trial whose outcomes are remembered: the ways to one limit cross.
class RememberedTrial {
public:
  explicit RememberedTrial(Trial trial) : trial(std::move(trial)) {}

  Prospect operator()(const CompileOptions &options) {
    for (const auto &[asked, outcome] : *known)
      if (asked == options)
        return outcome.result();
    return known->emplace_back(options, outcomeOf(options)).second.result();
  }

private:
  struct Outcome {
    Prospect prospect{};
    std::exception_ptr thrown;
    Prospect result() const {
      if (thrown)
        std::rethrow_exception(thrown);
      return prospect;
    }
  };

  Outcome outcomeOf(const CompileOptions &options) {
    try {
      return {trial(options), nullptr};
    } catch (const OverLimit &) {
      return {{}, std::current_exception()};
    } catch (const Failure &) {
      return {{}, std::current_exception()};
    }
  }

  Trial trial;
  /// Copies, as std::function makes them, remember together.
  std::shared_ptr<std::vector<std::pair<CompileOptions, Outcome>>> known =
      std::make_shared<std::vector<std::pair<CompileOptions, Outcome>>>();
};

} // namespace pipec
