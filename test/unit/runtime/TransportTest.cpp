//===- TransportTest.cpp - every row of transports.def --------------------===//
#include "runtime/transport/Transport.h"
#include "runtime/control/LineSocket.h"
#include "runtime/transport/SharedPage.h"
#include "runtime/transport/TcpMesh.h"
#include "support/Failure.h"
#include "test/unit/runtime/RunTool.h"
#include "test/unit/runtime/TestModel.h"

#include <chrono>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

namespace pipec::test {
namespace {

class EveryTransport : public testing::TestWithParam<TransportRow> {};

TEST_P(EveryTransport, Conforms) {
  for (int ranks : {2, 3, 5}) {
    const std::string folder = freshFolder("transport");
    const Outcome run =
        Process({PIPEC_CONFORMANCE, GetParam().name, std::to_string(ranks)},
                folder)
            .wait(60);
    EXPECT_EQ(run.code, 0) << ranks << " ranks: " << run.errors;
    EXPECT_EQ(run.errors, "");
    for (int rank = 0; rank < ranks; ++rank)
      EXPECT_THAT(
          run.output,
          testing::HasSubstr("rank " + std::to_string(rank) + " conforms"));
  }
}

INSTANTIATE_TEST_SUITE_P(Transport, EveryTransport,
                         testing::ValuesIn(transports()),
                         [](auto &info) { return info.param.name; });

TEST(Transport, ListsTheNamesThereAre) {
  try {
    transportNamed("pigeon");
    FAIL();
  } catch (const Failure &failure) {
    EXPECT_EQ(failure.code, Exit::Usage);
    for (const TransportRow &row : transports())
      EXPECT_THAT(failure.what(), testing::HasSubstr(row.name));
  }
}

/// Several have one memory; its name is gone when its maker says so, and where
/// there is none nobody ends.
TEST(SharedPage, IsOneMemoryAndLeavesNothing) {
  SharedPage mine, theirs, late;
  const std::string name = mine.make(64);
  ASSERT_NE(mine.memory(), nullptr);
  theirs.open(name, 64);
  ASSERT_NE(theirs.memory(), nullptr);
  static_cast<char *>(mine.memory())[7] = 42;
  EXPECT_EQ(static_cast<char *>(theirs.memory())[7], 42);
  mine.forget();
  late.open(name, 64);
  EXPECT_EQ(late.memory(), nullptr);
  late.open("", 64);
  EXPECT_EQ(late.memory(), nullptr);
}

/// A rank that everybody has met, and that then connects to nobody.
TEST(Transport, TcpNamesTheRankThatDoesNotConnect) {
  int port = 0;
  ::close(listenOn(true, port)); // it is free
  const auto whereIs = [&](int rank) {
    return Rendezvous{rank, 3, "127.0.0.1", port, 7};
  };
  std::thread first([&] {
    for (int fd : connectAll(whereIs(0), 20))
      ::close(fd);
  });
  const auto comeIn = [&] {
    AwakeTime time(20);
    while (true)
      try {
        return connectTo("127.0.0.1", port, time, 20);
      } catch (const Failure &) { // rank 0 does not listen yet
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
  };
  std::thread silent([&] {
    LineSocket socket = comeIn();
    const struct {
      uint64_t job;
      int32_t rank, port;
    } hello = {7, 2, 9};
    ::send(socket.descriptor(), &hello, sizeof hello, MSG_NOSIGNAL);
    char table[1024];
    while (::recv(socket.descriptor(), table, sizeof table, 0) > 0)
      ;
  });
  try {
    connectAll(whereIs(1), 2.5);
    ADD_FAILURE();
  } catch (const Failure &failure) {
    EXPECT_EQ(failure.code, Exit::Unavailable);
    EXPECT_STREQ(failure.what(),
                 "within --timeout 2.5 s rank 1 has no connection to rank 2; "
                 "have all ranks been started, does one of them say why it "
                 "ended, and is --timeout long enough for the last to come?");
  }
  first.join();
  silent.join();
}

/// Something else listens where rank 0 should.
TEST(Transport, TcpSaysWhoseConnectionEnded) {
  int port = 0;
  const int listener = listenOn(true, port);
  std::thread other([&] { ::close(::accept(listener, nullptr, nullptr)); });
  try {
    connectAll({1, 3, "127.0.0.1", port, 7}, 10);
    ADD_FAILURE();
  } catch (const Failure &failure) {
    EXPECT_EQ(failure.code, Exit::Unavailable);
    EXPECT_EQ(failure.what(),
              "a connection ended while the ranks were connecting: rank 1 has "
              "not heard from rank 0 at 127.0.0.1:" +
                  std::to_string(port) +
                  " that all 3 ranks are there; a rank has left, or it is "
                  "another program that listens there");
  }
  other.join();
  ::close(listener);
}

} // namespace
} // namespace pipec::test
