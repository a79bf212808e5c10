//===- Session.h - one rank, from loading to the summary --------*- C++ -*-===//
#pragma once

#include "runtime/control/Watch.h"
#include "runtime/exec/Council.h"
#include "runtime/exec/Executor.h"
#include "runtime/run/Export.h"
#include "runtime/run/Metrics.h"
#include "runtime/run/Options.h"
#include "runtime/run/Results.h"

#include <memory>

namespace pipec {

class Checkpoint;

/// All ranks make a Session each, with the same plan and options, and run it.
class Session {
public:
  Session(const plan::Plan &plan, const RunOptions &options,
          Transport &transport, Watch &watch, Links *links);
  ~Session();

  /// Trains, writes what the options ask for. Ok, or Stopped when a signal
  /// asked for it. Throws Failure.
  Exit run();

private:
  Exit work();
  void load();
  void trainSteps();
  void trainStream();
  void evaluate();
  void dropOutputs();
  void rememberCheckpoint(const std::string &folder, int64_t steps);
  void conclude(double seconds, double loss);
  void loadCheckpoint();
  void note(const std::string &text) const;
  void noteFewSamples() const;
  void noteIdleSteps() const;
  void noteUnwritten() const;
  void expectOutputs() const;
  void noteOtherData(const Checkpoint &checkpoint) const;
  void noteOtherSettings(const Checkpoint &checkpoint) const;
  void stepDone(int64_t step, double loss);
  void writeStep(int64_t step, double seconds);
  bool decideToStop();
  void checkpoint(bool due);
  void withTensors(const char *what,
                   const std::function<void(const Fetch &)> &work);
  void compareClocks();
  void collect();
  void report();
  bool leads() const { return watch.rank == 0; }

  const plan::Plan &plan;
  const RunOptions &options;
  Transport &transport;
  Watch &watch;
  Links *const links; ///< between GPUs
  Council council;

  std::unique_ptr<DataSource> data;
  std::unique_ptr<RankState> state;
  std::unique_ptr<Metrics> metrics;
  std::unique_ptr<SampleLosses> sampleLosses; ///< of a pass without updates
  std::unique_ptr<OutputLedger> outputs;      ///< of the same
  Numbers numbers;
  Recorder recorder;

  Pass pass;             ///< over the data, when nothing is trained
  int64_t lastStep = 0;  ///< where the run ends
  int64_t firstStep = 0; ///< not 0 after --resume
  std::string resumed;   ///< a mark of that checkpoint
  int64_t stepsDone = 0; ///< by all ranks
  int64_t saved = -1;    ///< steps in the last checkpoint
  bool stopped = false;
  double lastTime = 0;    ///< clock at the last step's end
  CoreUse loaded;         ///< when the steps began
  double clockOffset = 0; ///< from this rank's clock to rank 0's
  Results results;        ///< filled at rank 0
};

} // namespace pipec
