//===- MeasureCrowd.cpp - pipelines of more ranks than cores --------------===//
#include "compiler/driver/MeasureCrowd.h"

#include "compiler/schedule/Generator.h"
#include "runtime/kernels/cpu/Kernels.h"
#include "support/Backoff.h"
#include "support/Cores.h"
#include "support/Phase.h"
#include "support/TinyNumbers.h"
#include "support/TrimmedMean.h"

#include <algorithm>
#include <atomic>
#include <thread>

namespace pipec {
namespace {

using Worker = MeasuredPrograms::Worker;
using Team = std::vector<std::unique_ptr<Worker>>;

/// Steps alone; of pipelines so many, more of short ones: how their ranks take
/// turns changes, so that a few steps say little of the next.
constexpr int kSteps = 16, kMostSteps = 1000;
constexpr double kSpan = 0.02; // s

Team teamOf(const MeasuredPrograms &programs, int program, int count) {
  Team workers;
  for (int i = 0; i < count; ++i)
    workers.push_back(programs.worker(program));
  return workers;
}

/// Does `work` in so many threads.
template <typename Work> void onThreads(int count, int cores, Work work) {
  std::vector<std::thread> threads;
  for (int t = 0; t < count; ++t)
    threads.emplace_back([&, t] {
      pipec_set_threads(1);
      if (count % cores == 0) // as ranks do
        keepToCore(t % cores);
      flushTinyNumbers();
      work(t);
    });
  for (std::thread &thread : threads)
    thread.join();
}

/// What the threads of a pipeline tell each other.
class Pipeline {
public:
  Pipeline(int ranks, int64_t steps)
      : steps(steps), order(schedule::generate("1f1b", request(ranks))),
        bells(ranks), forwards(ranks), backwards(ranks) {
    for (Bell &bell : bells)
      all.push_back(&bell);
  }

  /// All steps of a rank; the first one's are timed.
  void run(int rank, Worker &worker, std::vector<double> &seconds) {
    const Doorbell door(rank, all, true);
    const int last = static_cast<int>(bells.size()) - 1;
    for (int64_t step = 0; step < steps; ++step) {
      const double begin = now();
      if (rank > 0) // the word of rank 0
        wait(door, started, step + 1);
      else
        tellAll(door, step + 1);
      worker.begin();
      for (const schedule::Action &action :
           order.order[static_cast<size_t>(rank)]) {
        const int64_t number = step * kCrowdMicrobatches + action.microbatch;
        if (action.kind == schedule::Kind::F) {
          if (rank > 0)
            wait(door, forwards[static_cast<size_t>(rank) - 1], number + 1);
          worker.forward(action.microbatch);
          tell(door, forwards[static_cast<size_t>(rank)], rank + 1);
        } else {
          if (rank < last)
            wait(door, backwards[static_cast<size_t>(rank) + 1], number + 1);
          worker.backward(action.microbatch);
          tell(door, backwards[static_cast<size_t>(rank)], rank - 1);
        }
      }
      worker.end();
      if (rank == 0)
        seconds.push_back(now() - begin);
    }
  }

private:
  static schedule::ScheduleRequest request(int ranks) {
    schedule::ScheduleRequest request;
    request.devices = ranks;
    request.microbatches = kCrowdMicrobatches;
    return request;
  }
  static void wait(const Doorbell &door, const std::atomic<int64_t> &done,
                   int64_t count) {
    Backoff backoff;
    while (true) {
      const uint32_t heard = door.rings();
      if (done >= count)
        return;
      backoff.pause(&door, heard);
    }
  }
  void tell(const Doorbell &door, std::atomic<int64_t> &done, int rank) {
    ++done;
    if (rank >= 0 && rank < static_cast<int>(bells.size()))
      door.ring(rank);
  }
  void tellAll(const Doorbell &door, int64_t step) {
    started = step;
    for (int rank = 1; rank < static_cast<int>(bells.size()); ++rank)
      door.ring(rank);
  }

  const int64_t steps;
  schedule::Schedule order;
  std::vector<Bell> bells;
  std::vector<Bell *> all;
  std::atomic<int64_t> started{0};
  std::vector<std::atomic<int64_t>> forwards, backwards; ///< done, by rank
};

} // namespace

/// The tasks of all workers, a thread for each core, in which its ranks do
/// theirs in turn: what each finds in its core's cache is what others of the
/// core have left there, as in the pipeline.
static void runAlone(Team &workers, int cores) {
  onThreads(cores, cores, [&](int core) {
    auto each = [&](auto task) {
      for (size_t w = static_cast<size_t>(core); w < workers.size();
           w += static_cast<size_t>(cores))
        task(*workers[w]);
    };
    for (int step = 0; step < kSteps; ++step) {
      each([](Worker &worker) { worker.begin(); });
      for (int i = 0; i < kCrowdMicrobatches; ++i) {
        each([&](Worker &worker) { worker.forward(i); });
        each([&](Worker &worker) { worker.backward(i); });
      }
      each([](Worker &worker) { worker.end(); });
    }
  });
}

std::vector<plan::CrowdSample> measureCrowd(const MeasuredPrograms &programs,
                                            int ranks, int cores) {
  std::vector<plan::CrowdSample> samples;
  Phase timing("ranks that share cores, program", programs.narrow);
  for (int program = 0; program < programs.narrow; ++program) {
    timing.next();
    Team team = teamOf(programs, program, ranks);
    runAlone(team, cores);
    plan::CrowdSample sample;
    for (const auto &worker : team) {
      sample.forward += worker->usual("forward") / ranks;
      sample.backward += worker->usual("backward") / ranks;
      sample.update += worker->usual("update") / ranks;
    }
    const double work =
        kCrowdMicrobatches * (sample.forward + sample.backward) * ranks / cores;
    Pipeline pipeline(ranks, static_cast<int64_t>(std::clamp<double>(
                                 kSpan / work, kSteps, kMostSteps)));
    std::vector<double> seconds;
    onThreads(ranks, cores, [&](int rank) {
      pipeline.run(rank, *team[static_cast<size_t>(rank)], seconds);
    });
    sample.step = trimmedMean(seconds);
    double crowded = 0;
    for (const auto &worker : team)
      crowded += (worker->usual("forward") + worker->usual("backward")) / ranks;
    sample.slower = crowded / (sample.forward + sample.backward);
    samples.push_back(sample);
  }
  return samples;
}

} // namespace pipec
