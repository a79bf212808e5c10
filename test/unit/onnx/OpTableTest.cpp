//===- OpTableTest.cpp - the rows of OpTable.def --------------------------===//
#include "compiler/onnx/OpTable.h"

#include <gtest/gtest.h>

using namespace pipec::onnx;

TEST(OpTable, RowsAreDistinctAndComplete) {
  const auto &rows = opTable();
  ASSERT_GT(rows.size(), 150u);
  for (size_t i = 0; i < rows.size(); ++i) {
    const OpRow &row = rows[i];
    EXPECT_TRUE(row.import) << row.name;
    EXPECT_FALSE(row.since.empty()) << row.name;
    for (size_t v = 1; v < row.since.size(); ++v)
      EXPECT_LT(row.since[v - 1], row.since[v]) << row.name;
    EXPECT_EQ(findOp(row.domain, row.name), &row);
    if (i > 0)
      EXPECT_FALSE(rows[i - 1].domain == row.domain &&
                   rows[i - 1].name == row.name)
          << row.name << " has two rows";
  }
}

TEST(OpTable, UnknownOperatorsHaveNoRow) {
  EXPECT_EQ(findOp("", "NoSuchOp"), nullptr);
  EXPECT_EQ(findOp("no.such.domain", "Add"), nullptr);
  EXPECT_NE(findOp("", "Add"), nullptr);
}

TEST(OpTable, WhatIsRefusedHasNoRow) {
  ASSERT_NE(findRefused("NonMaxSuppression"), nullptr);
  EXPECT_EQ(findRefused("Add"), nullptr);
  for (const char *name : {"ImageDecoder", "MaxRoiPool", "Multinomial",
                           "NonMaxSuppression", "Unique"}) {
    EXPECT_NE(findRefused(name), nullptr) << name;
    EXPECT_EQ(findOp("", name), nullptr) << name;
  }
}
