//===- OutputLedger.h - the model's outputs, in files at rank 0 -*- C++ -*-===//
#pragma once

#include "runtime/control/Watch.h"
#include "runtime/data/NpyFile.h"
#include "runtime/exec/RankState.h"
#include "runtime/exec/SampleLosses.h"

#include <deque>
#include <map>
#include <memory>

namespace pipec {

Pass passOver(const plan::Plan &plan, int64_t samples);

/// The outputs of every microbatch travel to rank 0, which puts the rows of
/// each where they belong. An output whose axis 0 counts samples has one row
/// for every sample of the data; another one has, when there are several
/// microbatches, one entry for each.
class OutputLedger {
public:
  /// `files`: output to .npy file. Rank 0 opens them. Failure(CannotWrite).
  /// `losses` takes plan::kLossOfSamples, where the plan has it.
  OutputLedger(const plan::Plan &plan, Transport &transport, Watch &watch,
               const std::map<std::string, std::string> &files,
               const Pass &pass, SampleLosses &losses);

  /// Begins to receive; all ranks have made theirs.
  void start();

  /// After the forward of microbatch `number` of the pass on a stage here.
  void record(Device &device, StageUnit &unit, int64_t number);

  /// Rank 0: takes what has arrived. Others: lets go of what has been sent.
  void poll();

  /// Returns when rank 0 has everything.
  void finish();

  /// Returns when rank 0 has what this rank has sent, while rank 0 polls.
  void drain();

  /// Ends the transfers: nobody sends any more.
  void close();

  /// Rank 0: the files take their names.
  void commit();

  /// The files that have no name yet go. What is under way may still arrive.
  void drop();

  struct Nan {
    std::string what; ///< "output 'y' has NaN, first of sample 22"
    int64_t number;   ///< of the microbatch
  };
  /// Rank 0: one for each file that has some.
  std::vector<Nan> notNumbers() const;

  /// Failure(Usage) that lists the outputs there are, for a name that is none.
  static void checkNames(const plan::Plan &plan,
                         const std::map<std::string, std::string> &files);

private:
  /// An output that somebody wants.
  struct Wanted {
    const plan::Output *output;
    int tag;
    std::unique_ptr<NpyFile> file; ///< at rank 0; null: of the loss
    int64_t missing = 0;           ///< microbatches
    int64_t nanIn = INT64_MAX;     ///< the first microbatch that has one
    std::string nanPlace;
  };
  struct Message {
    std::vector<char> bytes; ///< the microbatch's number, then its data
    Request request = kNoRequest;
  };
  struct Source { ///< a rank that makes the output, seen from rank 0
    Wanted *wanted;
    int rank;
    Message message;
  };
  void receive(Source &source);
  void send(const Wanted &wanted, int64_t number, const char *data);
  void take(Wanted &wanted, int64_t number, const char *data);
  int64_t rowsOf(int64_t number) const;
  Operation operation(const char *what) const;

  const plan::Plan &plan;
  Transport &transport;
  Watch &watch;
  const Pass pass;
  SampleLosses &losses;
  std::deque<Wanted> wanted;
  std::deque<Source> sources;
  std::deque<Message> outgoing;
  std::vector<char> data; ///< of one output
};

} // namespace pipec
