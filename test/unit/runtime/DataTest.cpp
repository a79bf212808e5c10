//===- DataTest.cpp - arrays, sample order, learning rates ----------------===//
#include "runtime/data/DataSource.h"
#include "runtime/program/PlanCheck.h"
#include "runtime/run/LearningRate.h"
#include "support/Failure.h"
#include "support/OutputFile.h"
#include "test/unit/runtime/RunTool.h"
#include "test/unit/runtime/TestModel.h"

#include <cmath>
#include <cstring>
#include <fstream>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>

namespace pipec::test {
namespace {

using testing::HasSubstr;

/// A .npy file with this dictionary.
void writeArray(const std::string &path, const std::string &dictionary,
                const std::string &data, int major = 1) {
  std::string header = dictionary + "\n";
  std::ofstream file(path, std::ios::binary);
  file << "\x93NUMPY" << static_cast<char>(major) << '\0';
  const auto length = static_cast<uint32_t>(header.size());
  file.write(reinterpret_cast<const char *>(&length), major == 1 ? 2 : 4);
  file << header << data;
}

std::string dictionary(const std::string &descr, const std::string &shape,
                       const std::string &fortran = "False") {
  return "{'descr': '" + descr + "', 'fortran_order': " + fortran +
         ", 'shape': " + shape + ", }";
}

template <class T> std::string raw(const std::vector<T> &values) {
  return {reinterpret_cast<const char *>(values.data()),
          values.size() * sizeof(T)};
}

/// Code and message of the failure of `work`.
std::pair<Exit, std::string> failure(const std::function<void()> &work) {
  try {
    work();
  } catch (const Failure &failure) {
    return {failure.code, failure.what()};
  }
  return {Exit::Ok, ""};
}

TEST(Npy, ReadsTheFormatsThereAre) {
  const std::string path = freshFolder("npy") + "/a.npy";
  for (int major : {1, 2, 3}) {
    writeArray(path, dictionary("<f4", "(2, 3)"),
               raw(std::vector<float>{1, 2, 3, 4, 5, 6}), major);
    const Npy array(path);
    EXPECT_EQ(array.dtype, "float32");
    EXPECT_EQ(array.shape, (std::vector<int64_t>{2, 3}));
    float last;
    std::memcpy(&last, array.data() + 20, 4);
    EXPECT_EQ(last, 6);
  }
  writeArray(path, dictionary("|b1", "(3,)"), std::string("\1\0\1", 3));
  EXPECT_EQ(Npy(path).dtype, "bool");
  writeArray(path, dictionary("<i8", "()"), std::string(8, 0));
  EXPECT_TRUE(Npy(path).shape.empty());
}

TEST(Npy, SaysWhatIsWrong) {
  const std::string path = freshFolder("npy") + "/a.npy";
  const std::string data = raw(std::vector<float>(6));
  struct Case {
    std::string header, message;
  };
  for (const Case &wrong : std::vector<Case>{
           {dictionary("<f4", "(2, 4)"), "truncated, copy it again"},
           {dictionary("<f4", "(1000000000000, 1000000000000)"), "truncated"},
           {dictionary("<f4", "(99999999999999999999,)"), "truncated"},
           {dictionary(">f4", "(2, 3)"),
            "little-endian numbers, as array.astype(\"<f4\")"},
           {dictionary("<c8", "(3,)"), "element type '<c8' is not supported"},
           {dictionary("|O", "(3,)"), "holds Python objects"},
           {dictionary("<f4", "(2, 3)", "True"), "Fortran"},
           {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (6,)}",
            "records"},
           {"{'descr': '<f4', 'fortran_order': False}", "no shape"},
           {dictionary("<f4", "(2, x)"), "shape"},
           {"", "descr"}}) {
    writeArray(path, wrong.header, data);
    const auto [code, message] = failure([&] { Npy array(path); });
    EXPECT_EQ(code, Exit::BadModel) << wrong.header;
    EXPECT_THAT(message, HasSubstr(wrong.message));
    EXPECT_THAT(message, HasSubstr(path));
  }
  // The remedy has the type of what the array is for.
  writeArray(path, dictionary(">i8", "(3,)"), data);
  EXPECT_THAT(failure([&] { Npy array(path, "int64"); }).second,
              HasSubstr("array.astype(\"<i8\")"));
  std::ofstream(path) << "PK\x03\x04 and more";
  EXPECT_THAT(failure([&] { Npy array(path); }).second,
              HasSubstr("is an archive (.npz)"));
  for (const char *content : {"", "\x93NUM", "not an array at all"}) {
    std::ofstream(path) << content;
    EXPECT_EQ(failure([&] { Npy array(path); }).first, Exit::BadModel);
  }
  EXPECT_EQ(failure([&] { Npy array(path + "x"); }).first, Exit::NoInput);
  EXPECT_EQ(failure([&] { Npy array(freshFolder("npy")); }).first,
            Exit::BadModel);
}

/// A plan with one input that its stage reads, and the array of `rows` rows
/// whose values count up.
struct OneInput {
  plan::Plan plan;
  std::string file = freshFolder("data") + "/a.npy";

  OneInput(int batch, int microbatches) {
    plan.training.microbatch_size = batch;
    plan.training.microbatches = microbatches;
    plan::Input input;
    input.name = "ids", input.dtype = "int64";
    input.shape = {batch, 2};
    input.bytes = batch * 16;
    plan.inputs.push_back(input);
    plan.stages.emplace_back().inputs.push_back({0, 0});
  }
  void write(int64_t rows, bool narrow = false) {
    std::vector<int64_t> values;
    for (int64_t i = 0; i < 2 * rows; ++i)
      values.push_back(i);
    const std::string shape = "(" + std::to_string(rows) + ", 2)";
    if (narrow)
      writeArray(file, dictionary("<i4", shape),
                 raw(std::vector<int32_t>(values.begin(), values.end())));
    else
      writeArray(file, dictionary("<i8", shape), raw(values));
  }
  /// First value of each row that the microbatch gets, halved: the row.
  std::vector<int64_t> rows(const DataSource &data, int64_t number) {
    std::vector<int64_t> values(2 * plan.training.microbatch_size), rows;
    data.load(0, number, reinterpret_cast<char *>(values.data()));
    for (size_t i = 0; i < values.size(); i += 2) {
      EXPECT_EQ(values[i] + 1, values[i + 1]);
      rows.push_back(values[i] / 2);
    }
    return rows;
  }
};

TEST(DataSource, TakesRowsInTheDocumentedOrder) {
  OneInput input(3, 2);
  input.write(10);
  const DataSource data(input.plan, {{"ids", input.file}}, std::nullopt);
  for (int64_t t = 0; t < 7; ++t)
    for (int64_t k = 0; k < 2; ++k) {
      std::vector<int64_t> expected;
      for (int64_t i = 0; i < 3; ++i)
        expected.push_back(((t * 2 + k) * 3 + i) % 10);
      EXPECT_EQ(input.rows(data, t * 2 + k), expected);
    }
}

TEST(DataSource, WidensInt32) {
  OneInput input(2, 1);
  input.write(5, true);
  const DataSource data(input.plan, {{"ids", input.file}}, std::nullopt);
  EXPECT_EQ(input.rows(data, 2), (std::vector<int64_t>{4, 0}));
}

TEST(DataSource, ShufflesEveryEpochAnew) {
  OneInput input(1, 1);
  for (int64_t rows : {1, 2, 3, 10, 16, 17, 1000}) {
    input.write(rows);
    const DataSource data(input.plan, {{"ids", input.file}}, 7);
    const DataSource other(input.plan, {{"ids", input.file}}, 8);
    std::vector<std::vector<int64_t>> epochs(3);
    std::vector<int64_t> others;
    for (int64_t i = 0; i < 3 * rows; ++i)
      epochs[i / rows].push_back(input.rows(data, i)[0]);
    for (int64_t i = 0; i < rows; ++i)
      others.push_back(input.rows(other, i)[0]);
    for (const auto &epoch : epochs)
      EXPECT_EQ(std::set<int64_t>(epoch.begin(), epoch.end()).size(), rows);
    if (rows >= 10) {
      EXPECT_NE(epochs[0], epochs[1]);
      EXPECT_NE(epochs[1], epochs[2]);
      EXPECT_NE(epochs[0], others);
    }
    EXPECT_EQ(input.rows(data, 0), std::vector<int64_t>{epochs[0][0]});
  }
}

TEST(DataSource, ShufflesWithoutPreference) {
  // Each of 20 rows at each of 20 places about equally often: over 4,000 epochs
  // 200 times, with a standard deviation of 14.
  std::vector<std::vector<int>> counts(20, std::vector<int>(20));
  for (uint64_t epoch = 0; epoch < 4000; ++epoch)
    for (int64_t i = 0; i < 20; ++i)
      ++counts[i][permuted(i, 20, 1, epoch)];
  for (const auto &row : counts)
    for (int count : row) {
      EXPECT_GT(count, 200 - 75);
      EXPECT_LT(count, 200 + 75);
    }
}

TEST(DataSource, ChecksValues) {
  OneInput input(2, 1);
  input.write(6); // values 0 to 11
  plan::Input &ids = input.plan.inputs[0];
  auto open = [&] {
    return DataSource(input.plan, {{"ids", input.file}}, std::nullopt);
  };
  ids.upper = 12;
  EXPECT_NO_THROW(open().checkValues(0));
  ids.upper = 11;
  auto [code, message] = failure([&] { open().checkValues(0); });
  EXPECT_EQ(code, Exit::BadModel);
  EXPECT_THAT(message, HasSubstr(input.file));
  EXPECT_THAT(message, HasSubstr("value 11 at [5, 1] is outside [0, 11)"));
  // Also when used, for arrays that are too large to look at beforehand.
  std::tie(code, message) = failure([&] { input.rows(open(), 2); });
  EXPECT_EQ(code, Exit::BadModel);
  EXPECT_THAT(message, HasSubstr("at [5, 1]"));
  ids.ignored = 11;
  EXPECT_NO_THROW(open().checkValues(0));
  ids.lower = 1;
  EXPECT_THAT(failure([&] { open().checkValues(0); }).second,
              HasSubstr("value 0 at [0, 0]"));
  ids.lower = -2, ids.ignored = INT64_MIN, ids.upper = 12;
  EXPECT_NO_THROW(open().checkValues(0));
}

/// An index of any width is looked at, and of an array that is widened.
template <class T>
void expectChecked(const std::string &dtype, const std::string &descr,
                   const std::string &asked = "") {
  OneInput input(2, 1);
  plan::Input &ids = input.plan.inputs[0];
  ids.dtype = asked.empty() ? dtype : asked;
  ids.bytes = ids.bytes / 8 * plan::dtypeBytes(ids.dtype);
  ids.upper = 12;
  auto check = [&](T last) {
    writeArray(input.file, dictionary(descr, "(2, 2)"),
               raw(std::vector<T>{3, 0, 11, last}));
    return failure([&] {
      DataSource(input.plan, {{"ids", input.file}}, std::nullopt)
          .checkValues(0);
    });
  };
  EXPECT_EQ(check(11).first, Exit::Ok) << dtype;
  const auto [code, message] = check(12);
  EXPECT_EQ(code, Exit::BadModel) << dtype;
  EXPECT_THAT(message, HasSubstr("value 12 at [1, 1] is outside [0, 12)"));
}

TEST(DataSource, ChecksIntegersOfAllKinds) {
  expectChecked<int64_t>("int64", "<i8");
  expectChecked<int32_t>("int32", "<i4");
  expectChecked<int32_t>("int32", "<i4", "int64");
  expectChecked<int16_t>("int16", "<i2");
  expectChecked<int8_t>("int8", "|i1");
  expectChecked<uint8_t>("uint8", "|u1");
  expectChecked<uint16_t>("uint16", "<u2");
  expectChecked<uint32_t>("uint32", "<u4");
  expectChecked<uint64_t>("uint64", "<u8");
}

TEST(DataSource, SaysWhatNumbersBelowZeroMean) {
  OneInput input(2, 1);
  writeArray(input.file, dictionary("<i8", "(2, 2)"),
             raw(std::vector<int64_t>{3, 0, -2, 11}));
  plan::Input &ids = input.plan.inputs[0];
  auto open = [&] {
    return DataSource(input.plan, {{"ids", input.file}}, std::nullopt);
  };
  ids.upper = 12;
  // What is a label too counts from 0; so do labels.
  EXPECT_EQ(failure([&] { open().checkValues(0); }).second,
            input.file + ": value -2 at [1, 0] is outside [0, 12) of input "
                         "'ids'; the model looks up a row by each of them: "
                         "pad with an id it has, which pipec's --loss "
                         "KIND:ignore_index=ID keeps from counting");
  EXPECT_EQ(open().countsFromEnd(), "");
  ids.ignored = -100;
  EXPECT_THAT(failure([&] { open().checkValues(0); }).second,
              HasSubstr("; they count from 0, and -100 marks what is not to "
                        "count (--loss's ignore_index)"));
  // Rows of a table count from both ends.
  ids.ignored = INT64_MIN, ids.lower = -12;
  EXPECT_NO_THROW(open().checkValues(0));
  EXPECT_EQ(open().countsFromEnd(),
            input.file + ": value -2 at [1, 0] of input 'ids' counts from the "
                         "end, as in ONNX: it means 10; where it marks "
                         "padding, take an id that does");
  // But what marks labels is no row, although there is one from the end.
  input.plan.inputs.push_back(ids);
  input.plan.inputs[1].name = "labels";
  input.plan.inputs[1].ignored = -2;
  const auto [code, message] = failure([&] {
    DataSource(input.plan, {{"ids", input.file}, {"labels", input.file}},
               std::nullopt)
        .checkValues(0);
  });
  EXPECT_EQ(code, Exit::BadModel);
  EXPECT_EQ(message, input.file +
                         ": value -2 at [1, 0] of input 'ids' is how labels "
                         "say that they do not count; here the model looks up "
                         "a row by it: pad with an id it has");
  input.plan.inputs.pop_back();
  input.plan.inputs[0].upper = -1; // no such input
  EXPECT_EQ(open().countsFromEnd(), "");
}

TEST(DataSource, SaysWhichLengthIsWrong) {
  OneInput input(2, 1);
  writeArray(input.file, dictionary("<i4", "(4,)"),
             raw(std::vector<int32_t>{5, 0, -1, 2}));
  plan::Input &lengths = input.plan.inputs[0];
  lengths.name = "lengths", lengths.dtype = "int32";
  lengths.shape = {2}, lengths.bytes = 8, lengths.upper = 6;
  EXPECT_EQ(failure([&] {
              DataSource(input.plan, {{"lengths", input.file}}, std::nullopt)
                  .checkValues(0);
            }).second,
            input.file +
                ": value -1 at [2] is outside [0, 6) of input 'lengths'");
}

TEST(AtomicFile, TwoWritersDoNotMeet) {
  const std::string folder = freshFolder("writers"), path = folder + "/a.json";
  {
    AtomicFile first(path), second(path), never(path);
    first.file().write("the first one's, which is long");
    second.file().write("second");
    never.file().write("x");
    first.commit();
    EXPECT_EQ(readText(path), "the first one's, which is long");
    second.commit();
    EXPECT_EQ(readText(path), "second");
  }
  EXPECT_FALSE(anyHalfWritten(folder));
}

TEST(DataSource, SaysWhatItWants) {
  OneInput input(2, 1);
  auto open = [&] {
    DataSource(input.plan, {{"ids", input.file}}, std::nullopt);
  };
  writeArray(input.file, dictionary("<f4", "(4, 2)"),
             raw(std::vector<float>(8)));
  const std::string file = "\"" + input.file + "\"";
  const std::string load =
      "; convert it: numpy.save(" + file + ", numpy.load(" + file + ")";
  EXPECT_THAT(failure(open).second,
              HasSubstr("element type float32, input 'ids' takes int64" + load +
                        ".astype(\"int64\"))"));
  writeArray(input.file, dictionary("<i8", "(4, 3)"),
             raw(std::vector<int64_t>(12)));
  EXPECT_THAT(failure(open).second,
              HasSubstr("shape [4, 3], input 'ids' takes [samples, 2]; these "
                        "dimensions are fixed in the plan"));
  writeArray(input.file, dictionary("<i8", "(0, 2)"), "");
  EXPECT_THAT(failure(open).second,
              HasSubstr("shape [0, 2] has no samples, input 'ids' takes "
                        "[samples, 2], at least one"));
  writeArray(input.file, dictionary("<i8", "()"), raw(std::vector<int64_t>(1)));
  EXPECT_EQ(failure(open).first, Exit::BadModel);
  // Shapes that the same values can have.
  for (auto [shape, call] : {std::pair("(2,)", "[None])"),
                             std::pair("(4, 2, 1)", ".reshape(-1, 2))")}) {
    writeArray(input.file, dictionary("<i8", shape),
               raw(std::vector<int64_t>(8)));
    EXPECT_THAT(failure(open).second, HasSubstr(load + call));
  }
  input.plan.inputs[0].shape = {2};
  input.plan.inputs[0].upper = 5;
  writeArray(input.file, dictionary("<i8", "(4, 5)"),
             raw(std::vector<int64_t>(20)));
  EXPECT_THAT(failure(open).second,
              HasSubstr("takes [samples]" + load + ".argmax(1))"));
  input.plan.inputs[0].upper = -1;
  input.plan.inputs[0].shape = {2, 3, 4, 5};
  writeArray(input.file, dictionary("<i8", "(1, 4, 5, 3)"),
             raw(std::vector<int64_t>(60)));
  EXPECT_THAT(
      failure(open).second,
      HasSubstr("takes [samples, 3, 4, 5]" + load + ".transpose(0, 3, 1, 2))"));
  input.plan.inputs[0].shape = {2, 2};
  input.plan.inputs[0].batch_axis = -1;
  writeArray(input.file, dictionary("<i8", "(3, 2)"),
             raw(std::vector<int64_t>(6)));
  EXPECT_THAT(failure(open).second, HasSubstr("takes [2, 2]"));
  writeArray(input.file, dictionary("<i8", "(2, 2)"),
             raw(std::vector<int64_t>{0, 1, 2, 3}));
  const DataSource data(input.plan, {{"ids", input.file}}, std::nullopt);
  EXPECT_EQ(input.rows(data, 0), input.rows(data, 5));

  auto [code, message] = failure(
      [&] { DataSource(input.plan, {{"idz", input.file}}, std::nullopt); });
  EXPECT_EQ(code, Exit::Usage);
  EXPECT_THAT(message,
              HasSubstr("no such input (did you mean ids?); it has ids"));
  std::tie(code, message) =
      failure([&] { DataSource(input.plan, {}, std::nullopt); });
  EXPECT_EQ(code, Exit::Usage);
  EXPECT_THAT(message, HasSubstr("--data ids=FILE.npy"));
}

TEST(DataSource, WhatNoStageReadsNeedsNoArray) {
  OneInput input(2, 1);
  input.write(6);
  input.plan.inputs.push_back(input.plan.inputs[0]);
  input.plan.inputs[1].name = "unread";
  const DataSource data(input.plan, {{"ids", input.file}}, std::nullopt);
  EXPECT_EQ(data.samples(), 6);
  // One that is given is looked at all the same.
  const std::string other = freshFolder("unread") + "/b.npy";
  writeArray(other, dictionary("<i8", "(5, 2)"), raw(std::vector<int64_t>(10)));
  auto [code, message] = failure([&] {
    DataSource(input.plan, {{"ids", input.file}, {"unread", other}},
               std::nullopt);
  });
  EXPECT_EQ(code, Exit::BadModel);
  EXPECT_THAT(message, HasSubstr("5 samples"));
}

TEST(DataSource, WantsArraysOfEqualLength) {
  const std::string folder = freshFolder("lengths");
  writePlan(scenarioNamed("two"), folder);
  writeArray(folder + "/label.npy", dictionary("<i8", "(5,)"),
             raw(std::vector<int64_t>(5)));
  const Outcome run =
      runTool(folder, {"--steps", "1", "--transport", "inproc"});
  EXPECT_EQ(run.code, 65);
  EXPECT_THAT(run.errors, HasSubstr("5 samples"));
  EXPECT_THAT(run.errors, HasSubstr("label.npy"));
}

TEST(DataSource, AWrongLabelEndsTheRunBeforeItBegins) {
  for (const char *transport : {"inproc", "mpi"}) {
    const std::string folder = freshFolder("labels");
    writePlan(scenarioNamed("two"), folder);
    std::vector<int64_t> labels = sampleLabels();
    labels[20] = kWidth;
    writeArray(folder + "/label.npy", dictionary("<i8", "(23,)"), raw(labels));
    const Outcome run =
        runTool(folder, {"--steps", "1", "--transport", transport});
    EXPECT_EQ(run.code, 65);
    EXPECT_THAT(run.errors, HasSubstr("value 16 at [20]"));
    EXPECT_TRUE(run.losses.empty());
  }
}

TEST(LearningRate, FollowsItsKind) {
  EXPECT_EQ(learningRate("constant")(1000), 1);
  const auto warm = learningRate("constant:warmup=4");
  EXPECT_EQ(warm(0), 0.25);
  EXPECT_EQ(warm(3), 1);
  EXPECT_EQ(warm(4), 1);
  const auto linear = learningRate("linear:warmup=2,total=12,min=0.1");
  EXPECT_EQ(linear(0), 0.5);
  EXPECT_EQ(linear(2), 1);
  EXPECT_DOUBLE_EQ(linear(7), 0.55);
  EXPECT_DOUBLE_EQ(linear(12), 0.1);
  EXPECT_DOUBLE_EQ(linear(50), 0.1);
  const auto cosine = learningRate("cosine:total=8");
  EXPECT_EQ(cosine(0), 1);
  EXPECT_NEAR(cosine(2), 0.5 * (1 + std::sqrt(0.5)), 1e-15);
  EXPECT_NEAR(cosine(4), 0.5, 1e-15);
  EXPECT_NEAR(cosine(8), 0, 1e-15);
}

TEST(LearningRate, RefusesWhatItIsNot) {
  for (const char *text :
       {"", "step", "cosine", "cosine:warmup=5", "cosine:total=5,warmup=5",
        "linear:total=x", "linear:total=-1", "linear:total=", "linear:tot=4",
        "linear:total=5,min=2", "linear:total=nan", "constant:warmup"})
    EXPECT_EQ(failure([&] { learningRate(text); }).first, Exit::Usage) << text;
}

} // namespace
} // namespace pipec::test
