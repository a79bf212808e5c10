//===- OnnxPatchTest.cpp - new weights for an ONNX file -------------------===//
#include "runtime/OnnxPatch.h"
#include "runtime/WireFormat.h"
#include "support/Failure.h"
#include "test/unit/runtime/RunTool.h"
#include "test/unit/runtime/TestModel.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pipec::test {
namespace {

namespace fs = std::filesystem;

std::string field(uint32_t number, const std::string &payload) {
  std::string out;
  wire::putBytes(out, number, payload);
  return out;
}
std::string field(uint32_t number, uint64_t value) {
  std::string out;
  wire::putTag(out, number, 0);
  wire::putVarint(out, value);
  return out;
}

std::string bytesOf(const std::vector<float> &values) {
  return {reinterpret_cast<const char *>(values.data()), values.size() * 4};
}

std::string tensor(const std::string &name, uint64_t type,
                   const std::vector<uint64_t> &dims, const std::string &data) {
  std::string message;
  for (uint64_t dim : dims)
    message += field(1, dim);
  return message + field(2, type) + field(8, name) + data;
}

std::string entry(const std::string &key, const std::string &value) {
  return field(13, field(1, key) + field(2, value));
}

std::string external(const std::string &location, int64_t offset,
                     int64_t length) {
  return entry("location", location) + entry("offset", std::to_string(offset)) +
         entry("length", std::to_string(length)) + field(14, uint64_t(1));
}

/// A model: some fields around the graph, nodes between the initializers.
std::string model(const std::vector<std::string> &tensors,
                  const std::string &more = "") {
  const std::string node = field(1, field(4, std::string("Relu")));
  std::string graph = node;
  for (const std::string &tensor : tensors)
    graph += field(5, tensor) + node;
  graph += more + field(2, std::string("graph"));
  return field(1, uint64_t(9)) + field(2, std::string("maker")) +
         field(7, graph) + field(8, std::string("opset"));
}

/// What a reader sees of a written tensor.
struct Seen {
  std::vector<uint64_t> dims;
  uint64_t type = 0;
  std::string raw, location;
  int64_t offset = 0, length = 0;
  bool external = false, otherData = false;
};

std::map<std::string, Seen> readTensors(const std::string &path,
                                        std::string *rest = nullptr) {
  std::map<std::string, Seen> result;
  const wire::MappedFile file(path);
  wire::forEach(file.bytes(), path, [&](const wire::Field &top) {
    if (top.number != 7) {
      if (rest)
        *rest += top.whole.text();
      return;
    }
    wire::forEach(top.payload, path, [&](const wire::Field &inner) {
      if (inner.number != 5) {
        if (rest)
          *rest += inner.whole.text();
        return;
      }
      Seen seen;
      std::string name;
      wire::forEach(inner.payload, path, [&](const wire::Field &f) {
        if (f.number == 1)
          wire::forEachVarint(f, path,
                              [&](uint64_t d) { seen.dims.push_back(d); });
        if (f.number == 2)
          seen.type = f.value;
        if (f.number == 8)
          name = f.payload.text();
        if (f.number == 9)
          seen.raw = f.payload.text();
        if (f.number == 4 || f.number == 10)
          seen.otherData = true;
        if (f.number == 14)
          seen.external = f.value == 1;
        if (f.number == 13) {
          std::string key, value;
          wire::forEach(f.payload, path, [&](const wire::Field &part) {
            (part.number == 1 ? key : value) = part.payload.text();
          });
          if (key == "location")
            seen.location = value;
          if (key == "offset")
            seen.offset = std::stoll(value);
          if (key == "length")
            seen.length = std::stoll(value);
        }
      });
      result[name] = seen;
    });
  });
  return result;
}

NewValues values(const std::vector<float> &floats) {
  NewValues result;
  result.dtype = "float32";
  result.bytes = static_cast<int64_t>(floats.size()) * 4;
  result.give = [floats](const auto &sink) {
    // In two pieces, as from another rank.
    const auto half = floats.size() / 2;
    sink(reinterpret_cast<const char *>(floats.data()),
         static_cast<int64_t>(half) * 4);
    sink(reinterpret_cast<const char *>(floats.data() + half),
         static_cast<int64_t>(floats.size() - half) * 4);
  };
  return result;
}

void write(const std::string &path, const std::string &text) {
  std::ofstream(path, std::ios::binary) << text;
}

Exit failureOf(const std::string &source, const std::string &target,
               const std::map<std::string, NewValues> &replaced,
               std::string *message = nullptr) {
  try {
    patchOnnx(source, target, replaced);
  } catch (const Failure &failure) {
    if (message)
      *message = failure.what();
    return failure.code;
  }
  return Exit::Ok;
}

TEST(OnnxPatch, ReplacesEveryWayOfHoldingFloats) {
  const std::string folder = freshFolder("onnx");
  const std::vector<float> old = {1, 2, 3, 4}, fresh = {5, 6, 7, 8.5f};
  std::string unpacked;
  for (float value : old) {
    wire::putTag(unpacked, 4, 5);
    unpacked.append(reinterpret_cast<const char *>(&value), 4);
  }
  write(folder + "/m.onnx",
        model({tensor("raw", 1, {2, 2}, field(9, bytesOf(old))),
               tensor("packed", 1, {4}, field(4, bytesOf(old))),
               tensor("unpacked", 1, {4}, unpacked),
               tensor("kept", 1, {4}, field(4, bytesOf(old)))}));
  patchOnnx(folder + "/m.onnx", folder + "/t.onnx",
            {{"raw", values(fresh)},
             {"packed", values(fresh)},
             {"unpacked", values(fresh)}});
  std::string restBefore, restAfter;
  const auto before = readTensors(folder + "/m.onnx", &restBefore);
  const auto after = readTensors(folder + "/t.onnx", &restAfter);
  EXPECT_EQ(restBefore, restAfter);
  ASSERT_EQ(after.size(), 4u);
  for (const char *name : {"raw", "packed", "unpacked"}) {
    EXPECT_EQ(after.at(name).raw, bytesOf(fresh)) << name;
    EXPECT_EQ(after.at(name).dims, before.at(name).dims);
    EXPECT_FALSE(after.at(name).otherData);
  }
  EXPECT_TRUE(after.at("kept").otherData);
  EXPECT_FALSE(fs::exists(folder + "/t.onnx.data"));
  EXPECT_FALSE(anyHalfWritten(folder));
}

TEST(OnnxPatch, WithoutChangesTheModelIsTheSame) {
  const std::string folder = freshFolder("onnx");
  write(folder + "/m.onnx",
        model({tensor("a", 1, {1}, field(9, bytesOf({1})))}));
  patchOnnx(folder + "/m.onnx", folder + "/t.onnx", {});
  EXPECT_EQ(readText(folder + "/m.onnx"), readText(folder + "/t.onnx"));
}

TEST(OnnxPatch, ConvertsToTheTypeOfTheModel) {
  const std::string folder = freshFolder("onnx");
  std::vector<float> given = {0,       -0.0f,
                              1,       -2.5f,
                              65504,   65520,
                              1e30f,   1e-30f,
                              6e-8f,   2.9e-8f,
                              3.1e-8f, 6.1e-5f,
                              0.1f,    std::numeric_limits<float>::infinity()};
  uint32_t bits = 12345;
  for (int i = 0; i < 20000; ++i) {
    bits = bits * 1664525 + 1013904223;
    float value;
    std::memcpy(&value, &bits, 4);
    if (value == value)
      given.push_back(value);
  }
  const uint64_t n = given.size();
  write(folder + "/m.onnx",
        model({tensor("half", 10, {n}, field(9, std::string(2 * n, 0))),
               tensor("bfloat", 16, {n}, field(9, std::string(2 * n, 0))),
               tensor("double", 11, {n}, field(9, std::string(8 * n, 0)))}));
  patchOnnx(folder + "/m.onnx", folder + "/t.onnx",
            {{"half", values(given)},
             {"bfloat", values(given)},
             {"double", values(given)}});
  const auto after = readTensors(folder + "/t.onnx");
  for (size_t i = 0; i < given.size(); ++i) {
    const auto half = static_cast<_Float16>(given[i]);
    ASSERT_EQ(std::memcmp(&half, after.at("half").raw.data() + 2 * i, 2), 0)
        << given[i];
    const auto wide = static_cast<double>(given[i]);
    ASSERT_EQ(std::memcmp(&wide, after.at("double").raw.data() + 8 * i, 8), 0);
    // bfloat16: the nearest of the two neighbours, ties to even.
    uint16_t stored;
    std::memcpy(&stored, after.at("bfloat").raw.data() + 2 * i, 2);
    uint32_t whole;
    std::memcpy(&whole, &given[i], 4);
    const uint32_t low = whole & 0xffff, down = whole >> 16;
    const bool up = low > 0x8000 || (low == 0x8000 && (down & 1));
    ASSERT_EQ(stored, static_cast<uint16_t>(down + up)) << given[i];
  }
}

TEST(OnnxPatch, GivesExternalTensorsAFileOfTheirOwn) {
  const std::string folder = freshFolder("onnx");
  fs::create_directories(folder + "/out");
  const std::vector<float> a = {1, 2, 3}, b = {4, 5}, fresh = {7, 8, 9};
  const std::string data = std::string(10, 'x') + bytesOf(a) + bytesOf(b);
  write(folder + "/w.bin", data);
  write(folder + "/m.onnx",
        model({tensor("a", 1, {3}, external("w.bin", 10, 12)),
               tensor("b", 1, {2}, external("w.bin", 22, 8)),
               tensor("c", 1, {1}, field(9, bytesOf({1})))},
              // A weight in a Constant node becomes an initializer.
              field(1,
                    field(2, std::string("k")) +
                        field(4, std::string("Constant")) +
                        field(5, field(5, tensor("", 1, {2},
                                                 external("w.bin", 22, 8)))))));
  const std::vector<float> ofConstant = {10, 11};
  patchOnnx(folder + "/m.onnx", folder + "/out/t.onnx",
            {{"a", values(fresh)}, {"k", values(ofConstant)}});
  const auto after = readTensors(folder + "/out/t.onnx");
  const std::string moved = readText(folder + "/out/t.onnx.data");
  for (const char *name : {"a", "b", "k"}) {
    const Seen &seen = after.at(name);
    EXPECT_TRUE(seen.external);
    EXPECT_EQ(seen.location, "t.onnx.data");
    EXPECT_EQ(moved.substr(seen.offset, seen.length),
              bytesOf(name[0] == 'a'   ? fresh
                      : name[0] == 'b' ? b
                                       : ofConstant));
  }
  EXPECT_FALSE(after.at("c").external);
  EXPECT_EQ(readText(folder + "/w.bin"), data);
}

TEST(OnnxPatch, RefusesExternalDataOutsideTheFolder) {
  const std::string folder = freshFolder("onnx");
  fs::create_directories(folder + "/model");
  write(folder + "/secret", std::string(64, 's'));
  fs::create_symlink(folder + "/secret", folder + "/model/link");
  for (const std::string &location :
       {std::string("../secret"), folder + "/secret", std::string("link"),
        std::string("")}) {
    write(folder + "/model/m.onnx",
          model({tensor("a", 1, {3}, external(location, 0, 12))}));
    EXPECT_EQ(failureOf(folder + "/model/m.onnx", folder + "/t.onnx", {}),
              Exit::BadModel)
        << location;
    EXPECT_FALSE(fs::exists(folder + "/t.onnx"));
    EXPECT_FALSE(fs::exists(folder + "/t.onnx.data"));
  }
  write(folder + "/model/short", "abc");
  write(folder + "/model/m.onnx",
        model({tensor("a", 1, {3}, external("short", 0, 12))}));
  EXPECT_EQ(failureOf(folder + "/model/m.onnx", folder + "/t.onnx", {}),
            Exit::BadModel);
  write(folder + "/model/m.onnx",
        model({tensor("a", 1, {3}, external("none", 0, 12))}));
  EXPECT_EQ(failureOf(folder + "/model/m.onnx", folder + "/t.onnx", {}),
            Exit::NoInput);
}

TEST(OnnxPatch, NamesWhatDoesNotFit) {
  const std::string folder = freshFolder("onnx");
  write(folder + "/m.onnx",
        model({tensor("a", 1, {3}, field(9, bytesOf({1, 2, 3}))),
               tensor("n", 7, {1}, field(9, std::string(8, 0)))}));
  std::string message;
  EXPECT_EQ(failureOf(folder + "/m.onnx", folder + "/t.onnx",
                      {{"missing", values({1})}}, &message),
            Exit::BadModel);
  EXPECT_THAT(message, testing::HasSubstr("'missing'"));
  EXPECT_EQ(failureOf(folder + "/m.onnx", folder + "/t.onnx",
                      {{"a", values({1, 2})}}, &message),
            Exit::BadModel);
  EXPECT_THAT(message, testing::HasSubstr("another shape"));
  EXPECT_EQ(failureOf(folder + "/m.onnx", folder + "/t.onnx",
                      {{"n", values({1, 2})}}, &message),
            Exit::BadModel);
  EXPECT_THAT(message, testing::HasSubstr("int64"));
  EXPECT_EQ(failureOf(folder + "/m.onnx", "/proc/nowhere/t.onnx", {}),
            Exit::CannotWrite);
}

TEST(OnnxPatch, SurvivesDamagedModels) {
  const std::string folder = freshFolder("onnx");
  const std::string good =
      model({tensor("a", 1, {3}, field(9, bytesOf({1, 2, 3}))),
             tensor("b", 1, {1u << 30, 1u << 30, 1u << 30}, "")});
  uint32_t random = 1;
  for (int round = 0; round < 500; ++round) {
    std::string text = good;
    random = random * 1664525 + 1013904223;
    if (round % 2)
      text.resize(random % text.size());
    if (!text.empty())
      text[random / 7 % text.size()] = static_cast<char>(random >> 20);
    write(folder + "/m.onnx", text);
    const Exit code = failureOf(folder + "/m.onnx", folder + "/t.onnx", {});
    EXPECT_TRUE(code == Exit::Ok || code == Exit::BadModel ||
                code == Exit::NoInput);
  }
}

} // namespace
} // namespace pipec::test
