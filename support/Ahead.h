//===- Ahead.h - results made before they are asked for ---------*- C++ -*-===//
//
// Work that is decided about step by step, of which each step is independent of
// the others: a search looks at one plan after the other, and by what it has
// seen leaves some of them out. Cores that have nothing else to do make the
// next ones meanwhile:
//
//   Ahead<Plan> plans([&](size_t i) { return makePlan(requests[i]); });
//   for (size_t i = 0; i < n; ++i)
//     plans.want(i);
//   for (size_t i = 0; i < n; ++i)
//     if (isWorthIt(i))
//       look(plans.take(i));
//
// What is taken is what `make` gives, whoever has made it and when, so that no
// result depends on the number of cores.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "support/Phase.h"
#include "support/SpareCore.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

namespace pipec {

template <typename Result> class Ahead {
public:
  /// `make` is called by several threads at a time, each with a task of its
  /// own; what it throws, take() throws.
  explicit Ahead(std::function<Result(size_t)> make) : make(std::move(make)) {}

  /// Waits for what has begun.
  ~Ahead() {
    {
      const std::lock_guard guard(mutex);
      waiting.clear();
    }
    for (std::thread &thread : threads)
      thread.join();
  }
  Ahead(const Ahead &) = delete;
  Ahead &operator=(const Ahead &) = delete;

  /// Whoever has time makes it, behind those that were wanted before: also who
  /// waits in take(), so that it should be a task that will be taken. Once is
  /// enough.
  void want(size_t task) {
    const std::lock_guard guard(mutex);
    if (begun.contains(task) || std::ranges::count(waiting, task) > 0)
      return;
    waiting.push_back(task);
    if (std::optional<SpareCore> core = SpareCore::claim())
      try {
        threads.emplace_back([this, own = std::move(*core)] { work(); });
      } catch (const std::system_error &) { // take() makes it
      }
  }

  /// It will not be taken after all: not begun where it is not yet.
  void drop(size_t task) {
    const std::lock_guard guard(mutex);
    std::erase(waiting, task);
  }

  /// Made now where nobody has begun it. Who waits for another to end makes
  /// what else is wanted.
  Result take(size_t task) {
    std::unique_lock guard(mutex);
    std::erase(waiting, task);
    while (begun.contains(task) && !begun[task].isMade)
      if (waiting.empty())
        changed.wait(guard);
      else
        makeNext(guard);
    const auto found = begun.find(task);
    if (found == begun.end()) {
      guard.unlock();
      return make(task);
    }
    Made made = std::move(found->second);
    begun.erase(found);
    if (made.failure)
      std::rethrow_exception(made.failure);
    return std::move(*made.result);
  }

private:
  struct Made {
    bool isMade = false;
    std::optional<Result> result;
    std::exception_ptr failure;
  };

  void work() {
    std::unique_lock guard(mutex);
    while (!waiting.empty())
      makeNext(guard);
  }

  /// With the lock, which it lets go meanwhile.
  void makeNext(std::unique_lock<std::mutex> &guard) {
    const size_t task = waiting.front();
    waiting.pop_front();
    Made &made = begun[task];
    guard.unlock();
    Made ended;
    try {
      const Phase::Silence silence; // another task is shown
      ended.result.emplace(make(task));
    } catch (...) {
      ended.failure = std::current_exception();
    }
    ended.isMade = true;
    guard.lock();
    made = std::move(ended);
    changed.notify_all();
  }

  const std::function<Result(size_t)> make;
  std::mutex mutex; ///< of all below
  std::condition_variable changed;
  std::deque<size_t> waiting;
  std::map<size_t, Made> begun;
  std::vector<std::thread> threads;
};

} // namespace pipec
