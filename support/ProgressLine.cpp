//===- ProgressLine.cpp - one line that says what is being done -----------===//
#include "support/ProgressLine.h"
#include "support/Printable.h"

#include <algorithm>
#include <cstdio>

namespace pipec {
namespace {

/// Columns of the character that begins with `lead`, 0 of what goes on with
/// one. Letters of East Asia have two; others with three bytes are taken for
/// them, but for punctuation (U+2000 and on).
int columnsOf(unsigned char lead) {
  if ((lead & 0xc0) == 0x80)
    return 0;
  return lead < 0xe0 || lead == 0xe2 ? 1 : 2;
}

int columnsOf(const std::string &text) {
  int columns = 0;
  for (const char c : text)
    columns += columnsOf(static_cast<unsigned char>(c));
  return columns;
}

/// Its beginning, where there is no room for all of it.
std::string cut(const std::string &text, int room) {
  if (columnsOf(text) <= room)
    return text;
  int columns = 0;
  size_t end = 0;
  for (; end < text.size(); ++end) {
    columns += columnsOf(static_cast<unsigned char>(text[end]));
    if (columns >= room)
      break;
  }
  return text.substr(0, end) + (room > 0 ? "…" : "");
}

std::string elapsed(double seconds) {
  char text[40];
  const auto whole = static_cast<long long>(seconds);
  if (whole < 60)
    std::snprintf(text, sizeof text, "%.1f s", seconds);
  else
    std::snprintf(text, sizeof text, "%lld min %02lld s", whole / 60,
                  whole % 60);
  return text;
}

} // namespace

std::string progressText(const std::vector<std::string> &phases, double seconds,
                         int columns) {
  const std::string end = " · " + elapsed(seconds);
  constexpr int kLeast = 10; // to say anything before the time
  const int room = columns - 1, left = room - columnsOf(end);
  if (left < kLeast)
    return cut(phases.empty() ? "" : printable(phases[0]), room);
  std::string what;
  for (size_t i = 0; i < phases.size(); ++i) {
    const std::string more = what +
                             (i == 0   ? ""
                              : i == 1 ? ": "
                                       : ", ") +
                             printable(phases[i]);
    if (i > 0 && columnsOf(more) > left)
      break; // what lies deepest says least
    what = more;
  }
  return cut(what, left) + end;
}

ProgressLine::ProgressLine(Screen to)
    : screen(std::move(to)), began(screen.now()), next(began + kPatience) {}

ProgressLine::~ProgressLine() {
  const std::lock_guard<std::mutex> guard(lock);
  erase();
}

void ProgressLine::erase() {
  if (isDrawn)
    screen.write(kErase);
  isDrawn = false;
}

void ProgressLine::look() {
  const std::lock_guard<std::mutex> guard(lock);
  const double time = screen.now();
  if (time < next || isAmidText)
    return;
  const int columns = screen.columns();
  if (columns <= 0)
    return;
  const std::vector<std::string> phases = phasesUnderWay();
  if (phases.empty())
    return erase();
  // What is left of a longer one goes last: nothing flickers.
  screen.write("\r" + progressText(phases, time - began, columns) + "\x1b[K");
  isDrawn = true;
  next = time + kInterval;
}

void ProgressLine::makeWay(std::string_view text,
                           const std::function<void()> &print) {
  const std::lock_guard<std::mutex> guard(lock);
  erase();
  print();
  if (!text.empty())
    isAmidText = text.back() != '\n';
}

} // namespace pipec
