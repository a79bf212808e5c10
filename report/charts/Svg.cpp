//===- Svg.cpp - drawing into a string -----------------------------------===//
#include "report/charts/Svg.h"

#include <cmath>
#include <cstdio>

namespace pipec::report {

std::string escape(const std::string &text) {
  std::string out;
  for (char c : text)
    switch (c) {
    case '<':
      out += "&lt;";
      break;
    case '>':
      out += "&gt;";
      break;
    case '&':
      out += "&amp;";
      break;
    case '"':
      out += "&quot;";
      break;
    default:
      out += c;
    }
  return out;
}

std::string coordinate(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", value);
  std::string number = text;
  if (number.ends_with(".0"))
    number.resize(number.size() - 2);
  return number == "-0" ? "0" : number;
}

Svg::Svg(double width, double height, const std::string &label) {
  std::string w = coordinate(width), h = coordinate(height);
  body = "<svg role=\"img\" aria-label=\"" + escape(label) +
         "\" viewBox=\"0 0 " + w + " " + h + "\" width=\"" + w +
         "\" height=\"" + h + "\">\n";
}

void Svg::rect(double x, double y, double w, double h, const std::string &style,
               const std::string &tip) {
  body += "<rect x=\"" + coordinate(x) + "\" y=\"" + coordinate(y) +
          "\" width=\"" + coordinate(w) + "\" height=\"" + coordinate(h) +
          "\" class=\"" + style + "\"";
  body += tip.empty() ? "/>\n" : "><title>" + escape(tip) + "</title></rect>\n";
}

void Svg::text(double x, double y, const std::string &text,
               const std::string &style, Anchor anchor) {
  static const char *const kAnchors[] = {"", " text-anchor=\"middle\"",
                                         " text-anchor=\"end\""};
  body += "<text x=\"" + coordinate(x) + "\" y=\"" + coordinate(y) +
          "\" class=\"" + style + "\"" + kAnchors[static_cast<int>(anchor)] +
          ">" + escape(text) + "</text>\n";
}

void Svg::line(double x1, double y1, double x2, double y2,
               const std::string &style) {
  body += "<line x1=\"" + coordinate(x1) + "\" y1=\"" + coordinate(y1) +
          "\" x2=\"" + coordinate(x2) + "\" y2=\"" + coordinate(y2) +
          "\" class=\"" + style + "\"/>\n";
}

void Svg::path(const std::string &data, const std::string &style,
               const std::string &tip) {
  body += "<path d=\"" + data + "\" class=\"" + style + "\"";
  body += tip.empty() ? "/>\n" : "><title>" + escape(tip) + "</title></path>\n";
}

std::string Svg::finish() { return body + "</svg>\n"; }

std::vector<double> ticks(double end, int most, bool binary) {
  if (!(end > 0) || most < 1)
    return {0};
  const double base = binary ? 2 : 10;
  double step =
      std::pow(base, std::floor(std::log(end / most) / std::log(base)));
  static const double kDecimal[] = {1, 2, 5, 10}, kBinary[] = {1, 2, 2, 2};
  for (double factor : binary ? kBinary : kDecimal)
    if (end / (step * factor) <= most) {
      step *= factor;
      break;
    }
  std::vector<double> list;
  for (int i = 0; i * step <= end * (1 + 1e-9); ++i)
    list.push_back(i * step);
  return list;
}

} // namespace pipec::report
