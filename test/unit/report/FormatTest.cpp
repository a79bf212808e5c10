//===- FormatTest.cpp - numbers and tables -------------------------------===//
#include "report/Format.h"

#include <gtest/gtest.h>

namespace pipec::report {

TEST(Format, SecondsKeepThreeDigitsInEveryUnit) {
  EXPECT_EQ(seconds(0), "0 s");
  EXPECT_EQ(seconds(1.234e-6), "1.23 us");
  EXPECT_EQ(seconds(0.0123), "12.3 ms");
  EXPECT_EQ(seconds(0.99949), "999 ms");
  EXPECT_EQ(seconds(0.9996), "1.00 s");
  EXPECT_EQ(seconds(99.96), "100 s");
  EXPECT_EQ(seconds(300), "5.0 min");
}

TEST(Format, BytesAreBinary) {
  EXPECT_EQ(bytes(0), "0 B");
  EXPECT_EQ(bytes(999), "999 B");
  EXPECT_EQ(bytes(1024), "1.00 KiB");
  EXPECT_EQ(bytes(int64_t(1) << 34), "16.0 GiB");
  EXPECT_EQ(bytes(1023 * 1024), "1.00 MiB");
}

TEST(Format, NumbersOfABlockHaveOneUnit) {
  EXPECT_EQ(bytes(602 << 10, 12 << 20), "0.588 MiB");
  EXPECT_EQ(bytes(12 << 20, 12 << 20), "12.0 MiB");
  EXPECT_EQ(bytes(900 << 20, 12 << 20), "900 MiB");
  EXPECT_EQ(bytes(1200 << 20, 12 << 20), "1200 MiB");
  EXPECT_EQ(bytes(0, 12 << 20), "0 B");
  EXPECT_EQ(bytes(2 << 10, 12 << 20), "2.00 KiB");
  EXPECT_EQ(bytes(100, 200), "100 B");
  EXPECT_EQ(bytes(int64_t(1) << 40, 12 << 20), "1.00 TiB");
  EXPECT_EQ(seconds(1.02, 0.0914), "1020 ms");
  EXPECT_EQ(seconds(0.0914, 1.02), "0.0914 s");
  EXPECT_EQ(seconds(0.00914, 1.02), "9.14 ms");
  EXPECT_EQ(seconds(0, 1.02), "0 s");
  EXPECT_EQ(seconds(90, 300), "90.0 s");
  EXPECT_EQ(seconds(300, 90), "300 s");
  EXPECT_EQ(seconds(0.000982, 0.00085), "982 us");
  EXPECT_EQ(seconds(0.006168, 0.00085), "6.17 ms");
  EXPECT_EQ(seconds(0.00101, 0.00085), "1.01 ms");
}

TEST(Format, Counts) {
  EXPECT_EQ(count(9999), "9999");
  EXPECT_EQ(count(124439808), "124 M");
  EXPECT_EQ(count(1540000), "1.54 M");
  EXPECT_EQ(count(7'000'000'000), "7.00 G");
}

TEST(Format, Numbers) {
  EXPECT_EQ(number(0), "0");
  EXPECT_EQ(number(0.00012345), "0.000123");
  EXPECT_EQ(number(1234.5), "1234");
  EXPECT_EQ(plain(1e-8), "1e-08");
  EXPECT_EQ(plain(0.01), "0.01");
  EXPECT_EQ(percent(0.2727), "27.3 %");
  EXPECT_EQ(ratio(3, 2), "1.50x");
  EXPECT_EQ(ratio(3, 0), "-");
}

TEST(Format, Ranges) {
  EXPECT_EQ(ranges({}), "");
  EXPECT_EQ(ranges({3}), "3");
  EXPECT_EQ(ranges({0, 1}), "0,1");
  EXPECT_EQ(ranges({0, 1, 2, 5, 7, 8, 9, 10}), "0-2,5,7-10");
}

TEST(Format, Plural) {
  EXPECT_EQ(plural(1, "microbatch"), "1 microbatch");
  EXPECT_EQ(plural(2, "microbatch"), "2 microbatches");
  EXPECT_EQ(plural(0, "stage"), "0 stages");
}

TEST(Format, ShortensTheMiddleByCharacters) {
  EXPECT_EQ(shorten("abcdef", 6), "abcdef");
  EXPECT_EQ(shorten("abcdefgh", 5), "ab…gh");
  EXPECT_EQ(shorten("äöüäöüäöü", 4), "ä…öü");
  EXPECT_EQ(width("äöü…"), 4);
}

TEST(TextTable, AlignsAndCuts) {
  TextTable table({"name", ">n"});
  for (int i = 0; i < 5; ++i)
    table.add({"row" + std::to_string(i), std::to_string(10 * i)});
  EXPECT_EQ(table.text(), "name   n\n"
                          "row0   0\n"
                          "row1  10\n"
                          "row2  20\n"
                          "row3  30\n"
                          "row4  40\n");
  EXPECT_EQ(table.text(4), "name   n\n"
                           "row0   0\n"
                           "row1  10\n"
                           "… 2 more, pipec inspect shows them\n"
                           "row4  40\n");
}

} // namespace pipec::report
