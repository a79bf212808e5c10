//===- Format.h - numbers and tables as people read them --------*- C++ -*-===//
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pipec::report {

/// "12.3 ms": three digits, unit chosen by size.
std::string seconds(double s);
/// "12.3 MiB".
std::string bytes(int64_t n);
/// The same in the unit of a number that it stands beside, so that a block has
/// one; in its own where it is far from that one.
std::string seconds(double s, double beside);
std::string bytes(int64_t n, int64_t beside);
/// "1.23 M"; below 10000 all digits.
std::string count(int64_t n);
/// "27.3 %" of a share.
std::string percent(double share);
/// "1.15x"; "-" when the other is zero.
std::string ratio(double value, double other);
/// The shortest text that reads back as (nearly) the same: "0.01", "1e-08".
std::string plain(double value);
/// Three significant digits, as "0.00123", "12.3", "1230".
std::string number(double value);
/// "0-2,5" of ascending numbers.
std::string ranges(const std::vector<int> &numbers);
/// "3 stages", "1 stage".
std::string plural(int64_t n, const std::string &noun);

/// Columns a text takes on a terminal (UTF-8, one column a character).
int width(const std::string &text);
/// At most `columns` wide, the middle replaced by "…".
std::string shorten(const std::string &text, int columns);

/// Rows of cells, padded to columns two spaces apart. Columns whose name in the
/// header starts with '>' are aligned to the right (the mark is not printed).
class TextTable {
public:
  explicit TextTable(std::vector<std::string> header);
  void add(std::vector<std::string> row);
  /// Shows the first and last rows only when there are more than `limit`.
  std::string text(size_t limit = SIZE_MAX,
                   const std::string &indent = "") const;

private:
  std::string line(const std::vector<std::string> &row,
                   const std::vector<int> &widths) const;
  std::vector<std::string> header;
  std::vector<bool> right;
  std::vector<std::vector<std::string>> rows;
};

} // namespace pipec::report
