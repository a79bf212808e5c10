//===- HostileTest.cpp - damaged models give reports, never crashes -------===//
//
// Mutations of the committed models, in their bytes and in their fields. Every
// one must import or give a report with the code of a bad model. The fuzzer
// (test/fuzz) goes on from there under sanitizers.
//
//===----------------------------------------------------------------------===//
#include "Support.h"
#include "test/fuzz/Mutate.h"

#include <onnx/onnx_pb.h>
#include <random>

using namespace pipec;
using namespace pipec::onnx;
using namespace pipec::onnx::test;

namespace proto = ::ONNX_NAMESPACE;
using fuzz::Random;

namespace {

void expectHandled(const std::string &bytes, const std::string &what) {
  ImportOptions options;
  options.dims["batch"] = 4;
  Imported result(bytes, modelsFolder(), options);
  if (result.module)
    return;
  const Exit code = result.diagnostics.exitCode();
  EXPECT_TRUE(code == Exit::BadModel || code == Exit::NoInput ||
              code == Exit::Usage)
      << what << ": " << result.text();
}

class Hostile : public testing::TestWithParam<const char *> {
protected:
  std::string bytes =
      readFile(modelsFolder() + "/" + GetParam() + "/model.onnx");
  /// Larger models take longer to import: fewer mutations of them.
  int rounds = std::max(20, static_cast<int>(6'000'000 / bytes.size()));
};

} // namespace

TEST_P(Hostile, DamagedBytes) {
  Random random(1);
  for (int i = 0; i < rounds; ++i)
    expectHandled(fuzz::damageBytes(random, bytes),
                  "round " + std::to_string(i));
}

TEST_P(Hostile, EveryTruncation) {
  const size_t step = std::max<size_t>(1, bytes.size() / 200);
  for (size_t length = 0; length < bytes.size(); length += step)
    expectHandled(bytes.substr(0, length), "first " + std::to_string(length));
}

TEST_P(Hostile, ChangedFields) {
  proto::ModelProto original;
  ASSERT_TRUE(original.ParseFromString(bytes));
  Random random(2);
  for (int i = 0; i < rounds; ++i) {
    proto::ModelProto m = original;
    fuzz::changeFields(random, m);
    expectHandled(m.SerializeAsString(), "round " + std::to_string(i));
  }
}

INSTANTIATE_TEST_SUITE_P(Committed, Hostile,
                         testing::Values("mlp", "mlp-external", "cnn",
                                         "cnn-dynamo", "gpt"),
                         [](const auto &info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(Hostile, RandomBytes) {
  Random random(3);
  for (int i = 0; i < 2000; ++i) {
    std::string bytes(fuzz::below(random, 300), '\0');
    for (char &c : bytes)
      c = static_cast<char>(random());
    expectHandled(bytes, "round " + std::to_string(i));
  }
}
