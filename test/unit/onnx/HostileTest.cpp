//===- HostileTest.cpp - damaged models give reports, never crashes -------===//
//
// Mutations of the committed models, in their bytes and in their fields. Every
// one must import or give a report with the code of a bad model; with
// PIPEC_SANITIZE also without a memory error.
//
//===----------------------------------------------------------------------===//
#include "Support.h"

#include <onnx/onnx_pb.h>
#include <random>

using namespace pipec;
using namespace pipec::onnx;
using namespace pipec::onnx::test;

namespace proto = ::ONNX_NAMESPACE;
using Random = std::mt19937;

namespace {

size_t below(Random &random, size_t n) { return n == 0 ? 0 : random() % n; }

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

std::string damaged(Random &random, std::string bytes) {
  for (size_t times = 1 + below(random, 4); times > 0; --times) {
    const size_t at = below(random, bytes.size());
    const size_t length = 1 + below(random, 16);
    switch (below(random, 5)) {
    case 0:
      bytes[at] = static_cast<char>(random());
      break;
    case 1:
      bytes[at] ^= static_cast<char>(1 << below(random, 8));
      break;
    case 2:
      bytes.erase(at, length);
      break;
    case 3:
      bytes.insert(at, bytes.substr(below(random, bytes.size()), length));
      break;
    default:
      bytes.resize(at + 1);
    }
  }
  return bytes;
}

int64_t awkward(Random &random) {
  static const int64_t values[] = {-1,
                                   0,
                                   1,
                                   2,
                                   3,
                                   7,
                                   -2,
                                   1000,
                                   int64_t(1) << 31,
                                   int64_t(1) << 40,
                                   std::numeric_limits<int64_t>::max(),
                                   std::numeric_limits<int64_t>::min()};
  return values[below(random, std::size(values))];
}

/// A random value of the graph.
std::string anyName(Random &random, const proto::GraphProto &g) {
  switch (below(random, 3)) {
  case 0:
    return g.input(0).name();
  case 1:
    if (g.initializer_size() > 0)
      return g.initializer(below(random, g.initializer_size())).name();
    return "";
  default:
    return g.node(below(random, g.node_size())).output(0);
  }
}

void changeNode(Random &random, proto::GraphProto &g) {
  static const char *const ops[] = {"Add",
                                    "MatMul",
                                    "Gemm",
                                    "Conv",
                                    "Reshape",
                                    "Slice",
                                    "Expand",
                                    "Gather",
                                    "GatherND",
                                    "Transpose",
                                    "Softmax",
                                    "Concat",
                                    "Split",
                                    "Pad",
                                    "MaxPool",
                                    "Resize",
                                    "LSTM",
                                    "Where",
                                    "ScatterND",
                                    "ReduceSum",
                                    "Squeeze",
                                    "OneHot",
                                    "TopK",
                                    "CumSum",
                                    "Range",
                                    "Attention",
                                    "Constant",
                                    "Einsum",
                                    "Tile",
                                    "BatchNormalization",
                                    "LayerNormalization",
                                    "ConvTranspose",
                                    "AveragePool",
                                    "SequenceAt"};
  auto *node = g.mutable_node(below(random, g.node_size()));
  switch (below(random, 5)) {
  case 0:
    node->set_op_type(ops[below(random, std::size(ops))]);
    break;
  case 1:
    if (node->input_size() > 0)
      node->set_input(below(random, node->input_size()), anyName(random, g));
    break;
  case 2:
    node->add_input(anyName(random, g));
    break;
  case 3:
    if (node->attribute_size() > 0) {
      auto *a = node->mutable_attribute(below(random, node->attribute_size()));
      a->set_i(awkward(random));
      if (a->ints_size() > 0)
        a->set_ints(below(random, a->ints_size()), awkward(random));
      else if (below(random, 2))
        a->add_ints(awkward(random));
    }
    break;
  default:
    if (node->attribute_size() > 0)
      node->mutable_attribute()->RemoveLast();
  }
}

void changeTensor(Random &random, proto::GraphProto &g) {
  if (g.initializer_size() == 0)
    return;
  auto *t = g.mutable_initializer(below(random, g.initializer_size()));
  switch (below(random, 4)) {
  case 0:
    if (t->dims_size() > 0)
      t->set_dims(below(random, t->dims_size()), awkward(random));
    break;
  case 1:
    t->set_data_type(static_cast<int>(below(random, 25)));
    break;
  case 2:
    // Shapes, axes and indices are small integer tensors: other numbers in
    // them.
    if (t->data_type() == proto::TensorProto::INT64 &&
        t->raw_data().size() >= 8) {
      const int64_t v = awkward(random);
      t->mutable_raw_data()->replace(
          8 * below(random, t->raw_data().size() / 8), 8,
          std::string(reinterpret_cast<const char *>(&v), 8));
    }
    break;
  default:
    t->add_dims(awkward(random));
  }
}

void changeInput(Random &random, proto::GraphProto &g) {
  auto *type = g.mutable_input(0)->mutable_type()->mutable_tensor_type();
  switch (below(random, 3)) {
  case 0:
    type->set_elem_type(static_cast<int>(below(random, 20)));
    break;
  case 1:
    type->mutable_shape()
        ->mutable_dim(below(random, type->shape().dim_size()))
        ->set_dim_value(awkward(random));
    break;
  default:
    type->mutable_shape()->add_dim()->set_dim_value(awkward(random));
  }
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
    expectHandled(damaged(random, bytes), "round " + std::to_string(i));
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
    for (size_t times = 1 + below(random, 3); times > 0; --times)
      switch (below(random, 8)) {
      case 0:
        changeInput(random, *m.mutable_graph());
        break;
      case 1:
      case 2:
        changeTensor(random, *m.mutable_graph());
        break;
      default:
        changeNode(random, *m.mutable_graph());
      }
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
    std::string bytes(below(random, 300), '\0');
    for (char &c : bytes)
      c = static_cast<char>(random());
    expectHandled(bytes, "round " + std::to_string(i));
  }
}
