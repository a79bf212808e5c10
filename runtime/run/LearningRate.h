//===- LearningRate.h - factors on the learning rate ------------*- C++ -*-===//
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace pipec {

/// The factor at every step (from 0) of `KIND[:warmup=…,total=…,min=…]`, where
/// KIND is a row of LearningRates.def. Failure(Usage).
std::function<double(int64_t)> learningRate(const std::string &text);

/// "constant, cosine, linear".
std::string learningRateNames();

} // namespace pipec
