//===- Mutate.cpp - damage done to ONNX files -----------------------------===//
#include "test/fuzz/Mutate.h"

#include <cstdint>
#include <limits>

namespace proto = ::ONNX_NAMESPACE;

namespace pipec::fuzz {

std::string damageBytes(Random &random, std::string bytes) {
  if (bytes.empty())
    return bytes;
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

static int64_t awkward(Random &random) {
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
static std::string anyName(Random &random, const proto::GraphProto &g) {
  switch (below(random, 3)) {
  case 0:
    return g.input(0).name();
  case 1:
    if (g.initializer_size() > 0)
      return g.initializer(below(random, g.initializer_size())).name();
    return "";
  default: {
    const auto &node = g.node(below(random, g.node_size()));
    return node.output_size() > 0 ? node.output(0) : "";
  }
  }
}

static void changeNode(Random &random, proto::GraphProto &g) {
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

static void changeTensor(Random &random, proto::GraphProto &g) {
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

static void changeInput(Random &random, proto::GraphProto &g) {
  auto *type = g.mutable_input(0)->mutable_type()->mutable_tensor_type();
  switch (below(random, 3)) {
  case 0:
    type->set_elem_type(static_cast<int>(below(random, 20)));
    break;
  case 1:
    if (const int rank = type->shape().dim_size())
      type->mutable_shape()
          ->mutable_dim(below(random, rank))
          ->set_dim_value(awkward(random));
    break;
  default:
    type->mutable_shape()->add_dim()->set_dim_value(awkward(random));
  }
}

void changeFields(Random &random, proto::ModelProto &model) {
  proto::GraphProto &graph = *model.mutable_graph();
  if (graph.node_size() == 0 || graph.input_size() == 0)
    return;
  for (size_t times = 1 + below(random, 3); times > 0; --times)
    switch (below(random, 8)) {
    case 0:
      changeInput(random, graph);
      break;
    case 1:
    case 2:
      changeTensor(random, graph);
      break;
    default:
      changeNode(random, graph);
    }
}

} // namespace pipec::fuzz
