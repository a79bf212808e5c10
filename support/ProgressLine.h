//===- ProgressLine.h - one line that says what is being done ---*- C++ -*-===//
#pragma once

#include "support/Phase.h"

#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace pipec {

/// "planning: strategy 7 of 24, zb-v · 3.2 s", in less than `columns` columns:
/// one that is full would begin the next row.
std::string progressText(const std::vector<std::string> &phases, double seconds,
                         int columns);

/// The phases under way, drawn over each other in the last row of a screen:
/// only where the work takes more than a second, and never where other text is.
/// May be used by several threads.
class ProgressLine {
public:
  struct Screen {
    std::function<double()> now;  ///< seconds
    std::function<int()> columns; ///< 0 while nothing may be drawn
    std::function<void(const std::string &)> write;
  };
  static constexpr double kPatience = 1;   ///< seconds without a line
  static constexpr double kInterval = 0.1; ///< seconds between two
  /// Back to the beginning of the row, and all of it gone.
  static constexpr const char *kErase = "\r\x1b[K";

  explicit ProgressLine(Screen screen);
  ~ProgressLine();
  ProgressLine(const ProgressLine &) = delete;
  ProgressLine &operator=(const ProgressLine &) = delete;

  /// Draws what there is to say, where it is time to; called again and again.
  void look();

  /// `print` shows `text` on the same screen: on a clean row.
  void makeWay(std::string_view text, const std::function<void()> &print);

private:
  void erase();

  const Phase::Audience audience;
  const Screen screen;
  const double began;
  std::mutex lock; ///< of the rest
  double next;
  bool isDrawn = false;
  bool isAmidText = false; ///< the other text has not ended its row
};

} // namespace pipec
