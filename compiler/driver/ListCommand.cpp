//===- ListCommand.cpp - `pipec list` ------------------------------------===//
#include "compiler/driver/ListCommand.h"

#include "compiler/plan/DeviceModel.h"
#include "compiler/plan/planners/Planners.h"
#include "compiler/schedule/Generator.h"
#include "compiler/strategy/Strategy.h"
#include "report/Format.h"
#include "support/CommandLine.h"
#include "support/Failure.h"
#include "support/OptionChecks.h"
#include "support/UnknownName.h"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <iostream>

namespace pipec {
namespace {

std::string yesNo(bool value) { return value ? "yes" : "no"; }

std::vector<ListRow> scheduleRows() {
  static const char *const kChunks[] = {"1", "2", "any"};
  std::vector<ListRow> rows;
  for (const schedule::ScheduleRow &row : schedule::schedules())
    rows.push_back({row.name,
                    row.summary,
                    {{"chunks", kChunks[static_cast<int>(row.chunks)]},
                     {"flushes", yesNo(row.synchronous)},
                     {"splits_backward", yesNo(row.splitBackward)},
                     {"replicas", yesNo(row.replicates)},
                     {"source", row.source}}});
  return rows;
}

/// With the values of --strategy that are no row of the table.
std::vector<ListRow> strategyRows() {
  const auto unnamed = [](const char *name, const char *summary) {
    return ListRow{name,
                   summary,
                   {{"schedule", ""},
                    {"versions", ""},
                    {"update", ""},
                    {"recompute", ""},
                    {"synchronous", ""}}};
  };
  std::vector<ListRow> rows = {
      unnamed("auto", "the best synchronous one that fits (the default)"),
      unnamed("file:S.csv", "an order by hand, a line per rank, as "
                            "`pipec schedule … -o` writes it")};
  for (const strategy::StrategyRow &row : strategy::strategies())
    rows.push_back({row.name,
                    row.summary,
                    {{"schedule", row.schedule},
                     {"versions", strategy::toString(row.versions)},
                     {"update", strategy::toString(row.update)},
                     {"recompute", yesNo(row.recompute)},
                     {"synchronous", yesNo(row.synchronous())}}});
  return rows;
}

std::vector<ListRow> deviceRows() {
  std::vector<ListRow> rows;
  for (const plan::DeviceModel &device : plan::deviceModels())
    rows.push_back(
        {device.name,
         device.describe,
         {{"kind", device.kind},
          {"memory_GiB",
           report::plain(double(device.memoryBytes) / (1LL << 30))},
          {"fp32_TFLOPs", report::plain(device.flopsF32 / 1e12)},
          {"bf16_TFLOPs", report::plain(device.flopsBF16 / 1e12)},
          {"memory_GBps", report::plain(device.memoryBandwidth / 1e9)}}});
  return rows;
}

std::vector<ListRow> plannerRows() {
  std::vector<ListRow> rows;
  for (const plan::PlannerRow &row : plan::planners())
    rows.push_back({row.name, row.summary, {{"source", row.source}}});
  return rows;
}

std::vector<ListRow> lossRows() {
  return {
#define LOSS(NAME, SETTINGS, SUMMARY) {NAME, SUMMARY, {{"settings", SETTINGS}}},
#include "compiler/driver/Losses.def"
  };
}

/// What there is to list.
struct Table {
  const char *name, *summary;
  std::vector<ListRow> (*rows)(const ListTables &);
};
const Table kTables[] = {
    {"ops", "ONNX operators",
     [](const ListTables &tables) { return tables.ops; }},
    {"schedules", "orders of tasks, for `pipec schedule`",
     [](const ListTables &) { return scheduleRows(); }},
    {"strategies", "how to train, for --strategy",
     [](const ListTables &) { return strategyRows(); }},
    {"planners", "how stages are chosen, for --planner",
     [](const ListTables &) { return plannerRows(); }},
    {"devices", "device models, for --device",
     [](const ListTables &) { return deviceRows(); }},
    {"losses", "for --loss", [](const ListTables &) { return lossRows(); }},
    {"optimizers", "for --optimizer",
     [](const ListTables &tables) { return tables.optimizers; }}};

std::vector<std::string> tableNames() {
  std::vector<std::string> names;
  for (const Table &table : kTables)
    names.emplace_back(table.name);
  return names;
}

/// Without an argument: what there is to list.
std::vector<ListRow> rowsOf(const std::string &what, const ListTables &tables) {
  std::vector<ListRow> rows;
  for (const Table &table : kTables)
    if (what == table.name)
      return table.rows(tables);
    else
      rows.push_back({table.name, table.summary, {}});
  return rows;
}

std::string asText(const std::vector<ListRow> &rows) {
  std::vector<std::string> header = {"name"};
  if (!rows.empty())
    for (const auto &[column, value] : rows[0].extra)
      header.push_back(column);
  header.push_back("summary");
  report::TextTable table(header);
  for (const ListRow &row : rows) {
    std::vector<std::string> cells = {row.name};
    for (const auto &[column, value] : row.extra)
      cells.push_back(value.empty() ? "-" : value);
    cells.push_back(row.summary);
    table.add(cells);
  }
  return table.text();
}

std::string asJson(const std::vector<ListRow> &rows) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const ListRow &row : rows) {
    nlohmann::ordered_json entry = {{"name", row.name}};
    for (const auto &[column, value] : row.extra)
      entry[column] = value;
    entry["summary"] = row.summary;
    list.push_back(entry);
  }
  return list.dump(1) + "\n";
}

} // namespace

int listCommand(int argc, char **argv, const ListTables &tables) {
  CLI::App app("Lists what this build knows.", "pipec list");
  std::string what, format = "text";
  bool quiet = false;
  app.add_option("what", what, listed(tableNames()))
      ->check(oneOf(tableNames()));
  app.add_option("--format", format, "text or json")
      ->check(oneOf({"text", "json"}));
  app.add_flag("--quiet", quiet, "names alone, one a line");
  if (const auto done = parseCommandLine(app, "pipec list", argc, argv))
    return *done;
  std::vector<ListRow> rows = rowsOf(what, tables);
  if (quiet)
    for (const ListRow &row : rows)
      std::cout << row.name << "\n";
  else
    std::cout << (format == "json" ? asJson(rows) : asText(rows));
  return 0;
}

} // namespace pipec
