//===- GradientCases.h - ops whose gradients are checked --------*- C++ -*-===//

#pragma once

#include <ostream>
#include <string>
#include <vector>

/// One op (or a few) over operands %0, %1, … of f64; its result is %y.
struct GradientCase {
  std::string name;
  std::vector<std::string> shapes; ///< of the operands, as "2x3"
  std::string body;
  double low = -2, high = 2; ///< operands are drawn from this range
};
inline void PrintTo(const GradientCase &c, std::ostream *out) {
  *out << c.name;
}

/// Every differentiable op and attribute variant of the nn dialect.
std::vector<GradientCase> gradientCases();
