//===- AgendaTest.cpp -----------------------------------------------------===//
#include "compiler/schedule/search/Agenda.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

using namespace pipec::schedule::search;

// One group, a full one, a tree of two levels and of three.
TEST(Agenda, TheFirstOfTheEarliest) {
  std::mt19937 random(1);
  for (int devices : {1, 2, 7, 8, 9, 64, 65, 100, 520}) {
    Agenda agenda(devices);
    std::vector<double> times(devices, kNever);
    EXPECT_EQ(agenda.next().time, kNever);
    for (int step = 0; step < 2000; ++step) {
      const int d = static_cast<int>(random() % devices);
      const double at = random() % 8 ? random() % 20 : kNever;
      if (random() % 2) {
        agenda.set(d, at);
        times[d] = at;
      } else {
        agenda.sooner(d, at);
        times[d] = std::min(times[d], at);
      }
      const auto least = std::ranges::min_element(times);
      ASSERT_EQ(agenda.next().time, *least) << devices << " " << step;
      if (*least < kNever)
        ASSERT_EQ(agenda.next().device, least - times.begin())
            << devices << " " << step;
    }
  }
}
