//===- Svg.h - drawing into a string ----------------------------*- C++ -*-===//
//
// Colors come from the page's style sheet by class name, so that one drawing
// serves light and dark. Coordinates are pixels with one decimal.
//
//===----------------------------------------------------------------------===//
#pragma once

#include <string>
#include <vector>

namespace pipec::report {

/// Text with <, >, & and quotes made safe for HTML.
std::string escape(const std::string &text);

/// A coordinate: "12.3", "12".
std::string coordinate(double value);

enum class Anchor { Start, Middle, End };

class Svg {
public:
  /// `label` is read to those who cannot see the picture.
  Svg(double width, double height, const std::string &label);

  void rect(double x, double y, double w, double h, const std::string &style,
            const std::string &tip = "");
  void text(double x, double y, const std::string &text,
            const std::string &style, Anchor anchor = Anchor::Start);
  void line(double x1, double y1, double x2, double y2,
            const std::string &style);
  void path(const std::string &data, const std::string &style,
            const std::string &tip = "");
  std::string finish();

private:
  std::string body;
};

/// At most about `most` round numbers from 0 to `end`: steps of 1, 2 or 5
/// times a power of ten (of two with `binary`).
std::vector<double> ticks(double end, int most, bool binary = false);

} // namespace pipec::report
