//===- conformance.cpp - what every transport must do ---------------------===//
//
// conformance NAME RANKS: starts that many ranks over the transport and lets
// each of them go through all cases. Exit 0: all passed.
//
//===----------------------------------------------------------------------===//
#include "runtime/transport/Transport.h"
#include "support/Doorbell.h"
#include "support/Failure.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <stdexcept>
#include <thread>
#include <unistd.h>

namespace pipec {
namespace {

using Bytes = std::vector<unsigned char>;

/// Bytes that depend on who sends what to whom.
Bytes pattern(int64_t size, int from, int to, int number) {
  Bytes bytes(static_cast<size_t>(size));
  auto state =
      static_cast<uint32_t>(from * 7919 + to * 104729 + number * 31 + size);
  for (unsigned char &byte : bytes) {
    state = state * 1664525 + 1013904223;
    byte = static_cast<unsigned char>(state >> 24);
  }
  return bytes;
}

#define CHECK(condition)                                                       \
  if (!(condition))                                                            \
  throw std::runtime_error(std::string(__func__) + ": " #condition)

class Cases {
public:
  explicit Cases(Transport &transport)
      : net(transport), me(transport.rank()), ranks(transport.size()) {}

  void all() {
    const std::function<void()> cases[] = {
        [&] { keepsTheOrderOfATag(); },
        [&] { tellsTagsApart(); },
        [&] { carriesAnySize(); },
        [&] { everyoneAtOnce(); },
        [&] { receivesBeforeAndAfterTheSend(); },
        [&] { takesBackAReceive(); },
        [&] { ringsTheBell(); },
        [&] { doesManyMessages(); },
        [&] { carriesALargeMessage(); },
    };
    for (const auto &one : cases)
      one(), barrier();
  }

private:
  Transport &net;
  const int me, ranks;

  void wait(Request &request) {
    while (!net.done(request))
      std::this_thread::yield();
    CHECK(request == kNoRequest);
  }
  void waitAll(std::vector<Request> &requests) {
    for (Request &request : requests)
      wait(request);
  }

  void barrier() {
    char byte = 0;
    std::vector<Request> requests;
    std::vector<char> got(static_cast<size_t>(ranks));
    for (int rank = 0; rank < ranks; ++rank)
      if (rank != me) {
        requests.push_back(net.receive(rank, kTagVerdict, &got[rank], 1));
        requests.push_back(net.send(rank, kTagVerdict, &byte, 1));
      }
    waitAll(requests);
  }

  int left() const { return (me + ranks - 1) % ranks; }
  int right() const { return (me + 1) % ranks; }

  void keepsTheOrderOfATag() {
    constexpr int kCount = 200;
    std::vector<Bytes> out, in;
    std::vector<Request> requests;
    for (int i = 0; i < kCount; ++i) {
      const int64_t size = i % 3 ? 100 : 100000; // eager and not
      out.push_back(pattern(size, me, right(), i));
      in.emplace_back(static_cast<size_t>(size));
    }
    for (int i = 0; i < kCount; ++i)
      requests.push_back(net.receive(left(), 5, in[i].data(),
                                     static_cast<int64_t>(in[i].size())));
    for (int i = 0; i < kCount; ++i)
      requests.push_back(net.send(right(), 5, out[i].data(),
                                  static_cast<int64_t>(out[i].size())));
    waitAll(requests);
    for (int i = 0; i < kCount; ++i)
      CHECK(in[i] ==
            pattern(static_cast<int64_t>(in[i].size()), left(), me, i));
  }

  void tellsTagsApart() {
    const int tags[] = {0, 1, (1 << 20) - 1, kTagTie, kTagHaltAck};
    std::vector<Bytes> out, in(std::size(tags), Bytes(5000));
    std::vector<Request> requests;
    for (size_t i = 0; i < std::size(tags); ++i)
      out.push_back(pattern(5000, me, right(), tags[i]));
    for (size_t i = 0; i < std::size(tags); ++i)
      requests.push_back(net.send(right(), tags[i], out[i].data(), 5000));
    for (size_t i = std::size(tags); i-- > 0;) // the other way round
      requests.push_back(net.receive(left(), tags[i], in[i].data(), 5000));
    waitAll(requests);
    for (size_t i = 0; i < std::size(tags); ++i)
      CHECK(in[i] == pattern(5000, left(), me, tags[i]));
  }

  void carriesAnySize() {
    for (int64_t size : {0, 1, 63, 4096, 65537, 1 << 20, 20000001}) {
      const Bytes out = pattern(size, me, right(), 1);
      Bytes in(static_cast<size_t>(size) + 2, 0xee); // a guard on each side
      Request receive = net.receive(left(), 9, in.data() + 1, size);
      Request send = net.send(right(), 9, out.data(), size);
      wait(receive), wait(send);
      CHECK(in.front() == 0xee && in.back() == 0xee);
      CHECK(Bytes(in.begin() + 1, in.end() - 1) ==
            pattern(size, left(), me, 1));
    }
  }

  void everyoneAtOnce() {
    std::vector<Bytes> out(ranks), in(ranks, Bytes(200000));
    std::vector<Request> requests;
    for (int rank = 0; rank < ranks; ++rank)
      if (rank != me) {
        out[rank] = pattern(200000, me, rank, 3);
        requests.push_back(net.send(rank, 2, out[rank].data(), 200000));
        requests.push_back(net.receive(rank, 2, in[rank].data(), 200000));
      }
    waitAll(requests);
    for (int rank = 0; rank < ranks; ++rank)
      if (rank != me)
        CHECK(in[rank] == pattern(200000, rank, me, 3));
  }

  void receivesBeforeAndAfterTheSend() {
    for (const bool late : {false, true}) {
      const Bytes out = pattern(300000, me, right(), late);
      Bytes in(300000);
      Request receive = kNoRequest;
      if (!late)
        receive = net.receive(left(), 4, in.data(), 300000);
      barrier();
      Request send = net.send(right(), 4, out.data(), 300000);
      barrier();
      if (late)
        receive = net.receive(left(), 4, in.data(), 300000);
      wait(receive), wait(send);
      CHECK(in == pattern(300000, left(), me, late));
    }
  }

  void takesBackAReceive() {
    Bytes never(1000, 0xcc), in(1000);
    Request first = net.receive(left(), 6, never.data(), 1000);
    CHECK(!net.done(first));
    net.cancel(first);
    CHECK(first == kNoRequest);
    Request none = kNoRequest;
    net.cancel(none);
    CHECK(net.done(none));
    barrier();
    const Bytes out = pattern(1000, me, right(), 8);
    Request receive = net.receive(left(), 6, in.data(), 1000);
    Request send = net.send(right(), 6, out.data(), 1000);
    wait(receive), wait(send);
    CHECK(in == pattern(1000, left(), me, 8));
    CHECK(never == Bytes(1000, 0xcc));
  }

  /// Here all ranks share a machine: nobody has to look for a message.
  void ringsTheBell() {
    CHECK(net.bell() && net.bell()->isComplete());
    for (int64_t size : {8, 300000}) {
      const Bytes out = pattern(size, me, right(), 4);
      Bytes in(static_cast<size_t>(size));
      Request receive = net.receive(left(), 8, in.data(), size);
      if (me == 0)
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      Request send = net.send(right(), 8, out.data(), size);
      // Where the kernel copies nothing between processes, a long one takes
      // steps of both sides.
      const long longest = size > 8 ? 1'000'000 : 20'000'000'000;
      sleepUntil(receive, longest), sleepUntil(send, longest);
      CHECK(in == pattern(size, left(), me, 4));
      barrier();
    }
  }
  void sleepUntil(Request &request, long longest) {
    const auto begin = std::chrono::steady_clock::now();
    while (true) {
      const uint32_t heard = net.bell()->rings();
      if (net.done(request))
        break;
      net.bell()->rest(heard, longest);
    }
    CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(15));
  }

  void doesManyMessages() {
    for (int i = 0; i < 20000; ++i) {
      const int out = me * 100000 + i;
      int in = -1;
      Request receive = net.receive(left(), 7, &in, sizeof in);
      Request send = net.send(right(), 7, &out, sizeof out);
      CHECK(receive < 1000 && send < 1000); // requests are used again
      wait(receive), wait(send);
      CHECK(in == left() * 100000 + i);
    }
  }

  /// More than MPI counts in one message; two ranks, 3 GiB of memory: asked
  /// for.
  void carriesALargeMessage() {
    if (!std::getenv("PIPEC_TEST_LARGE") || me > 1)
      return;
    const int64_t size = (int64_t(1) << 30) + 12345;
    if (me == 0) {
      const Bytes out = pattern(size, 0, 1, 1);
      Request send = net.send(1, 8, out.data(), size);
      wait(send);
    } else {
      Bytes in(static_cast<size_t>(size));
      Request receive = net.receive(0, 8, in.data(), size);
      wait(receive);
      CHECK(in == pattern(size, 0, 1, 1));
    }
  }
};

/// All ranks of this process.
int runHere(const TransportRow &row, int ranks) {
  auto ends = row.open({ranks, 60, 1});
  std::vector<std::thread> threads;
  std::atomic<int> failures{0};
  for (auto &end : ends)
    threads.emplace_back([&failures, &end] {
      try {
        Cases(*end).all();
        // A launcher may end with 0 whatever becomes of its ranks.
        std::printf("rank %d conforms\n", end->rank());
        std::fflush(stdout);
        end->close();
      } catch (const std::exception &error) {
        std::fprintf(stderr, "rank %d: %s\n", end->rank(), error.what());
        ++failures;
        std::fflush(nullptr);
        _exit(1); // the others wait for this one
      }
    });
  for (std::thread &thread : threads)
    thread.join();
  return failures != 0;
}

int start(const TransportRow &row, int ranks, char **argv) {
  std::vector<std::string> command = row.launch(ranks, {});
  if (row.joined(true) || command.empty())
    return runHere(row, ranks);
  std::vector<char *> words;
  for (std::string &word : command)
    words.push_back(word.data());
  for (char **word = argv; *word; ++word)
    words.push_back(*word);
  words.push_back(nullptr);
  execvp(words[0], words.data());
  std::perror(words[0]);
  return 1;
}

} // namespace
} // namespace pipec

int main(int argc, char **argv) {
  if (argc != 3)
    return 2;
  return pipec::start(pipec::transportNamed(argv[1]), std::atoi(argv[2]), argv);
}
