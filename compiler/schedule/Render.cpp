//===- Render.cpp - a schedule as text ------------------------------------===//
#include "compiler/schedule/Render.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <utility>

namespace pipec::schedule {

namespace {

/// What one column of one device shows.
struct Cell {
  char glyph = '.';
  int kind = -1; ///< index of Kind, -1 idle
  bool odd = false;
};

class Picture {
public:
  Picture(const Schedule &schedule, const Timeline &timeline,
          const RenderOptions &options)
      : schedule(schedule), timeline(timeline), options(options) {
    label = std::to_string(schedule.devices() - 1).size();
    begin = std::numeric_limits<double>::infinity();
    for (const auto &starts : timeline.start)
      if (!starts.empty())
        begin = std::min(begin, starts.front());
    columns = std::max(8, options.width - static_cast<int>(label) - 2);
    scale = options.columnsPerUnit > 0 ? options.columnsPerUnit : fit();
    columns =
        static_cast<int>(std::ceil(timeline.makespan * scale - kRounding));
  }

  std::string draw() const {
    std::string text;
    int shown = std::min(schedule.devices(), options.devices);
    for (int d = 0; d < shown; ++d) {
      std::string name = std::to_string(d);
      text += std::string(label - name.size(), ' ') + name + " |" +
              line(cells(d)) + "\n";
    }
    if (shown < schedule.devices())
      text += "… and " + std::to_string(schedule.devices() - shown) +
              " more devices\n";
    return text;
  }

private:
  /// Whole columns for the shortest task where the window allows two of them.
  double fit() const {
    double unit = std::numeric_limits<double>::infinity();
    for (int d = 0; d < schedule.devices(); ++d)
      for (std::size_t i = 0; i < timeline.start[d].size(); ++i)
        if (double time = timeline.end[d][i] - timeline.start[d][i]; time > 0)
          unit = std::min(unit, time);
    if (!(timeline.makespan > 0))
      return 1;
    double wide = std::floor(columns * unit / timeline.makespan);
    return wide >= 1 ? std::min(wide, 6.0) / unit : columns / timeline.makespan;
  }

  int column(double time) const {
    return static_cast<int>(std::lround((time - begin) * scale));
  }

  std::vector<Cell> cells(int device) const {
    std::vector<Cell> row(columns);
    std::vector<double> filled(columns, 0); // by the cell's kind so far
    const auto &order = schedule.order[device];
    const auto held = schedule.stagesOf(device);
    for (std::size_t i = 0; i < order.size(); ++i) {
      int from = column(timeline.start[device][i]);
      int to = std::min(column(timeline.end[device][i]), columns);
      auto chunk = std::lower_bound(held.begin(), held.end(), order[i].stage) -
                   held.begin();
      if (to > from)
        put(row, from, to, order[i], chunk % 2 == 1);
      else if (from < columns)
        share(row[from], filled[from], order[i],
              timeline.end[device][i] - timeline.start[device][i],
              chunk % 2 == 1);
    }
    return row;
  }

  void put(std::vector<Cell> &row, int from, int to, const Action &action,
           bool odd) const {
    std::string text(1, glyph(action, odd));
    std::string number = std::to_string(action.microbatch);
    if (static_cast<int>(number.size()) < to - from)
      text += number;
    text.resize(to - from, '=');
    for (int c = from; c < to; ++c)
      row[c] = {text[c - from], static_cast<int>(action.kind), odd};
  }

  /// Several tasks in one column: the longest wins it.
  void share(Cell &cell, double &longest, const Action &action, double time,
             bool odd) const {
    if (cell.kind >= 0 && time <= longest)
      return;
    longest = time;
    cell = {glyph(action, odd), static_cast<int>(action.kind), odd};
  }

  static char glyph(const Action &action, bool odd) {
    char c = letter(action.kind);
    return odd ? static_cast<char>(c - 'A' + 'a') : c;
  }

  std::string line(const std::vector<Cell> &row) const {
    // F blue, B and I orange, W green; odd chunks in the lighter shade.
    static const char *const kColors[4][2] = {{"44;97", "104;30"},
                                              {"43;30", "103;30"},
                                              {"43;30", "103;30"},
                                              {"42;30", "102;30"}};
    std::string text;
    int kind = -1;
    bool odd = false;
    for (const Cell &cell : row) {
      if (options.color && (cell.kind != kind || cell.odd != odd)) {
        text += cell.kind < 0
                    ? "\033[0m"
                    : std::string("\033[") + kColors[cell.kind][cell.odd] + "m";
        kind = cell.kind;
        odd = cell.odd;
      }
      text += cell.glyph;
    }
    if (options.color && kind >= 0)
      text += "\033[0m";
    return text;
  }

  static constexpr double kRounding = 1e-6;

  const Schedule &schedule;
  const Timeline &timeline;
  const RenderOptions &options;
  std::size_t label;
  double begin, scale;
  int columns;
};

} // namespace

std::string renderTimeline(const Schedule &schedule, const Timeline &timeline,
                           const RenderOptions &options) {
  return Picture(schedule, timeline, options).draw();
}

std::string timelineLegend(const Schedule &schedule) {
  bool has[4] = {}, isLower = false;
  for (int d = 0; d < schedule.devices(); ++d) {
    isLower |= schedule.stagesOf(d).size() > 1;
    for (const Action &action : schedule.order[d])
      has[static_cast<int>(action.kind)] = true;
  }
  std::string text;
  for (auto [kind, what] :
       {std::pair(Kind::F, "F forward"), std::pair(Kind::B, "B backward"),
        std::pair(Kind::I, "I input gradient"),
        std::pair(Kind::W, "W weight gradient")})
    if (has[static_cast<int>(kind)])
      text += (text.empty() ? "" : ", ") + std::string(what);
  if (isLower)
    text += "; lower case: its 2nd, 4th … stage";
  return text + "\n";
}

} // namespace pipec::schedule
