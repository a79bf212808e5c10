//===- Format.cpp - numbers and tables as people read them ---------------===//
#include "report/Format.h"
#include "support/Printable.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <optional>

namespace pipec::report {

namespace {

std::string print(const char *format, double value) {
  char text[64];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

/// Three significant digits without an exponent, for 1 <= value < 1000 and
/// beyond where no unit is left.
std::string threeDigits(double value) {
  if (std::abs(value) >= 99.95)
    return print("%.0f", value);
  return print(std::abs(value) >= 9.995 ? "%.1f" : "%.2f", value);
}

} // namespace

std::string plain(double value) { return print("%.6g", value); }

std::string number(double value) {
  if (value == 0 || !std::isfinite(value))
    return print("%g", value);
  double size = std::abs(value);
  if (size >= 1)
    return threeDigits(value);
  int digits = 2 - static_cast<int>(std::floor(std::log10(size)));
  return digits > 9
             ? print("%.2e", value)
             : print(("%." + std::to_string(digits) + "f").c_str(), value);
}

namespace {

struct Unit {
  const char *name;
  double size;
};

/// In `unit`, unless that leaves too little of the number or too much.
std::optional<std::string> inUnit(double value, const Unit &unit,
                                  double most = 10000) {
  const double size = std::abs(value) / unit.size;
  if (!std::isfinite(value) || size < 0.01 || size >= most)
    return std::nullopt;
  return number(value / unit.size) + " " + unit.name;
}

Unit timeUnit(double s) {
  const double size = std::abs(s);
  if (size >= 0.9995)
    return {"s", 1};
  return size >= 0.9995e-3 ? Unit{"ms", 1e-3} : Unit{"us", 1e-6};
}

Unit byteUnit(double n) {
  static constexpr Unit kUnits[] = {{"B", 1},
                                    {"KiB", 0x1p10},
                                    {"MiB", 0x1p20},
                                    {"GiB", 0x1p30},
                                    {"TiB", 0x1p40}};
  size_t at = 0;
  while (std::abs(n) / kUnits[at].size >= 1000 && at + 1 < std::size(kUnits))
    ++at;
  return kUnits[at];
}

constexpr double kLong = 120; ///< seconds that are told as minutes

} // namespace

std::string seconds(double s) {
  if (!std::isfinite(s))
    return "-";
  if (std::abs(s) >= kLong)
    return print("%.1f min", s / 60);
  if (s == 0)
    return "0 s";
  const Unit unit = timeUnit(s);
  return threeDigits(s / unit.size) + " " + unit.name;
}

std::string seconds(double s, double beside) {
  if (std::abs(beside) >= kLong || !std::isfinite(beside))
    return seconds(s);
  // Thousands of the smallest unit nobody writes; it is that of short steps,
  // beside which others may be much longer.
  const Unit unit = timeUnit(beside);
  const double most = unit.size < 1e-3 ? 999.5 : 10000;
  return inUnit(s, unit, most).value_or(seconds(s));
}

std::string bytes(int64_t n) {
  const auto value = static_cast<double>(n);
  const Unit unit = byteUnit(value);
  return (unit.size == 1 ? std::to_string(n) : threeDigits(value / unit.size)) +
         " " + unit.name;
}

std::string bytes(int64_t n, int64_t beside) {
  const Unit unit = byteUnit(static_cast<double>(beside));
  if (unit.size == 1)
    return bytes(n);
  return inUnit(static_cast<double>(n), unit).value_or(bytes(n));
}

std::string count(int64_t n) {
  double value = static_cast<double>(n);
  if (n < 10000)
    return std::to_string(n);
  if (value < 999.5e3)
    return threeDigits(value / 1e3) + " k";
  return value < 999.5e6 ? threeDigits(value / 1e6) + " M"
                         : threeDigits(value / 1e9) + " G";
}

std::string percent(double share) { return print("%.1f %%", share * 100); }

std::string ratio(double value, double other) {
  return other > 0 ? print("%.2fx", value / other) : "-";
}

std::string ranges(const std::vector<int> &numbers) {
  std::string text;
  for (size_t i = 0; i < numbers.size();) {
    size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1)
      ++last;
    if (!text.empty())
      text += ",";
    text += std::to_string(numbers[i]);
    if (last > i)
      text += (last == i + 1 ? "," : "-") + std::to_string(numbers[last]);
    i = last + 1;
  }
  return text;
}

std::string plural(int64_t n, const std::string &noun) {
  std::string text = std::to_string(n) + " " + noun;
  if (n == 1)
    return text;
  return text + (noun.ends_with("x") || noun.ends_with("ch") ? "es" : "s");
}

int width(const std::string &text) {
  return static_cast<int>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

/// Byte position of character `index`.
static size_t byteOf(const std::string &text, int index) {
  size_t at = 0;
  for (; at < text.size(); ++at) {
    if ((static_cast<unsigned char>(text[at]) & 0xC0) == 0x80)
      continue;
    if (index-- == 0)
      break;
  }
  return at;
}

std::string shorten(const std::string &raw, int columns) {
  const std::string text = printable(raw);
  int size = width(text);
  if (size <= columns || columns < 3)
    return text;
  int head = (columns - 1) / 2, tail = columns - 1 - head;
  return text.substr(0, byteOf(text, head)) + "…" +
         text.substr(byteOf(text, size - tail));
}

//===----------------------------------------------------------------------===//
// Tables
//===----------------------------------------------------------------------===//

TextTable::TextTable(std::vector<std::string> names)
    : header(std::move(names)) {
  for (std::string &name : header) {
    right.push_back(name.starts_with(">"));
    if (right.back())
      name.erase(0, 1);
  }
}

void TextTable::add(std::vector<std::string> row) {
  row.resize(header.size());
  for (std::string &cell : row)
    cell = printable(cell);
  rows.push_back(std::move(row));
}

std::string TextTable::line(const std::vector<std::string> &row,
                            const std::vector<int> &widths) const {
  std::string text;
  for (size_t c = 0; c < row.size(); ++c) {
    std::string pad(widths[c] - width(row[c]), ' ');
    text += (c ? "  " : "") + (right[c] ? pad + row[c] : row[c] + pad);
  }
  text.erase(text.find_last_not_of(' ') + 1);
  return text + "\n";
}

std::string TextTable::text(size_t limit, const std::string &indent) const {
  std::vector<int> widths;
  for (size_t c = 0; c < header.size(); ++c) {
    int w = width(header[c]);
    for (const auto &row : rows)
      w = std::max(w, width(row[c]));
    widths.push_back(w);
  }
  std::string text = indent + line(header, widths);
  const bool cut = rows.size() > limit;
  const size_t head = cut ? limit - 2 : rows.size();
  for (size_t r = 0; r < head; ++r)
    text += indent + line(rows[r], widths);
  if (cut)
    text += indent + "… " + std::to_string(rows.size() - head - 1) +
            " more, pipec inspect shows them\n" + indent +
            line(rows.back(), widths);
  return text;
}

} // namespace pipec::report
