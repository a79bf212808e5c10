//===- DiagnosticsTest.cpp - reports and their exit codes -----------------===//
#include "support/Diagnostics.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

using namespace pipec;

static Diagnostic ofNode(const std::string &node, const std::string &cause) {
  Diagnostic d;
  d.node = node;
  d.op = "Foo";
  d.opset = 18;
  d.cause = cause;
  d.remedy = "do something";
  return d;
}

TEST(Diagnostics, NoneIsSuccess) {
  EXPECT_EQ(Diagnostics().exitCode(), Exit::Ok);
  EXPECT_EQ(Diagnostics().text("m.onnx"), "");
}

TEST(Diagnostics, SameProblemsAreCounted) {
  Diagnostics all;
  for (int i = 0; i < 7; ++i)
    all.add(ofNode("n" + std::to_string(i), "is wrong"));
  all.add(ofNode("other", "is wrong in another way"));
  ASSERT_EQ(all.getEntries().size(), 2u);
  EXPECT_EQ(all.getEntries()[0].count, 7);
  EXPECT_EQ(all.text("m.onnx"),
            "pipec: error: m.onnx: 2 problems\n"
            "  1. node 'n0', 'n1', 'n2', 'n3' and 3 more (Foo, opset 18): is "
            "wrong\n"
            "     remedy: do something\n"
            "  2. node 'other' (Foo, opset 18): is wrong in another way\n"
            "     remedy: do something\n");
}

TEST(Diagnostics, OneProblemNeedsNoNumberAndNotesComeFirst) {
  Diagnostics one;
  Diagnostic d = ofNode("n", "is wrong");
  d.location = "model.py:12";
  one.add(d);
  one.note("remark");
  one.note("remark");
  const std::string error =
      "pipec: error: m.onnx: node 'n' (Foo, opset 18): is wrong\n"
      "  in the model's source: model.py:12\n"
      "  remedy: do something\n";
  EXPECT_EQ(one.text("m.onnx"), "pipec: note: remark\n" + error);
  EXPECT_EQ(one.takeNotes(), std::vector<std::string>{"remark"});
  EXPECT_EQ(noteLine("remark"), "pipec: note: remark\n");
  EXPECT_EQ(one.text("m.onnx"), error);
}

TEST(Diagnostics, TheWorstDecidesTheCode) {
  Diagnostics all;
  all.add(Exit::Usage, "a");
  EXPECT_EQ(all.exitCode(), Exit::Usage);
  all.add(Exit::BadModel, "b");
  EXPECT_EQ(all.exitCode(), Exit::BadModel);
  all.add(Exit::NoInput, "c");
  EXPECT_EQ(all.exitCode(), Exit::NoInput);
  all.add(Exit::Internal, "d");
  EXPECT_EQ(all.exitCode(), Exit::Internal);
}

TEST(Diagnostics, ControlCharactersDoNotReachTheTerminal) {
  Diagnostics all;
  all.add(ofNode("a\x1b[31m\n", "is wrong"));
  EXPECT_NE(all.text("m").find("node 'a\\x1b[31m\\x0a'"), std::string::npos)
      << all.text("m");
}

TEST(Diagnostics, JsonHoldsEverything) {
  Diagnostics all;
  Diagnostic d = ofNode("n", "is wrong");
  d.location = "model.py:12";
  d.domain = "my.domain";
  all.add(d);
  all.note("remark");
  const auto j = nlohmann::json::parse(all.json("m.onnx"));
  EXPECT_EQ(j["input"], "m.onnx");
  EXPECT_EQ(j["exit"], 65);
  EXPECT_EQ(j["notes"][0], "remark");
  const auto &p = j["problems"][0];
  EXPECT_EQ(p["node"], "n");
  EXPECT_EQ(p["op"], "Foo");
  EXPECT_EQ(p["domain"], "my.domain");
  EXPECT_EQ(p["opset"], 18);
  EXPECT_EQ(p["count"], 1);
  EXPECT_EQ(p["location"], "model.py:12");
  EXPECT_EQ(p["cause"], "is wrong");
  EXPECT_EQ(p["remedy"], "do something");
}

TEST(Diagnostics, NamesThatAreNoUtf8StillGiveJson) {
  Diagnostics all;
  all.add(ofNode("\xff\xfe", "is wrong"));
  EXPECT_TRUE(nlohmann::json::accept(all.json("m.onnx")));
}
