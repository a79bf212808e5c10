//===- RunTool.cpp - pipec-run as a process -------------------------------===//
#include "test/unit/runtime/RunTool.h"
#include "test/unit/runtime/TestModel.h"

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace pipec::test {
namespace {

double clockSeconds() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

} // namespace

std::string readText(const std::string &path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

bool anyHalfWritten(const std::string &folder) {
  for (const auto &entry : std::filesystem::directory_iterator(folder))
    if (entry.path().filename().string().find(".writing") != std::string::npos)
      return true;
  return false;
}

Process::Process(const std::vector<std::string> &command,
                 const std::string &folder,
                 const std::vector<std::string> &environment)
    : folder(folder), started(clockSeconds()) {
  child = fork();
  if (child < 0)
    throw std::runtime_error("fork");
  if (child > 0)
    return;
  const int out =
      open((folder + "/stdout").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
  const int err =
      open((folder + "/stderr").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
  dup2(out, 1), dup2(err, 2);
  for (const std::string &entry : environment)
    putenv(strdup(entry.c_str()));
  std::vector<char *> arguments;
  for (const std::string &argument : command)
    arguments.push_back(const_cast<char *>(argument.c_str()));
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  _exit(127);
}

Process::~Process() {
  if (running()) {
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
  }
}

bool Process::running() {
  if (!finished)
    finished = waitpid(child, &status, WNOHANG) == child;
  return !finished;
}

double Process::age() const { return clockSeconds() - started; }

Outcome Process::wait(double limit) {
  Outcome run;
  while (running()) {
    if (clockSeconds() - started > limit)
      kill(child, SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  run.seconds = clockSeconds() - started;
  run.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  run.output = readText(folder + "/stdout");
  run.errors = readText(folder + "/stderr");
  return run;
}

std::vector<std::string>
toolCommand(const std::string &folder,
            const std::vector<std::string> &arguments) {
  std::vector<std::string> command = {PIPEC_RUN, folder, "--quiet", "--metrics",
                                      folder + "/metrics.jsonl"};
  for (const std::string &argument : dataArguments(folder))
    command.push_back(argument);
  command.insert(command.end(), arguments.begin(), arguments.end());
  return command;
}

void readMetrics(const std::string &path, Outcome &run) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const auto json = nlohmann::json::parse(line);
    if (json.contains("summary")) {
      run.summary = json["summary"];
      continue;
    }
    run.steps.push_back(json["step"]);
    run.losses.push_back(json["loss"]);
  }
}

Outcome runTool(const std::string &folder,
                const std::vector<std::string> &arguments,
                const std::vector<std::string> &environment) {
  Outcome run =
      Process(toolCommand(folder, arguments), folder, environment).wait();
  readMetrics(folder + "/metrics.jsonl", run);
  return run;
}

} // namespace pipec::test
