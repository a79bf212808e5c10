//===- Fuse.h - an end to waiting that nobody watches -----------*- C++ -*-===//
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace pipec {

/// Ends the process (76) when it outlives its time, and says what was waited
/// for: while ranks meet nobody watches them yet, and a library that waits for
/// a rank that has died waits for ever.
class Fuse {
public:
  /// `who`: "rank 2"; `what`: "all ranks to connect".
  Fuse(std::string who, std::string what, double seconds);
  ~Fuse();
  /// What comes after it; the time goes on.
  void waitsFor(std::string next);
  Fuse(const Fuse &) = delete;
  Fuse &operator=(const Fuse &) = delete;

private:
  void burn();

  const std::string who;
  const double seconds;
  std::mutex mutex; ///< of the next two
  std::string what;
  bool out = false;
  std::condition_variable changed;
  std::thread thread;
};

} // namespace pipec
