//===- ModelsTest.cpp - the committed models against PyTorch's numbers ----===//
#include "Support.h"
#include "compiler/onnx/Trainable.h"

#include <cmath>

using namespace mlir;
using namespace pipec;
using namespace pipec::onnx;
using namespace pipec::onnx::test;

namespace {

class Models : public testing::TestWithParam<const char *> {
protected:
  Models()
      : folder(modelsFolder() + "/" + GetParam()),
        golden(nlohmann::json::parse(readFile(folder + "/golden.json"))) {
    options.dims["batch"] = golden["B"];
  }
  std::string path() const { return folder + "/model.onnx"; }

  /// The tensors of the parameters of a module.
  std::map<std::string, nn::Literal> parameters(ModuleOp module) {
    Diagnostics ignored;
    const auto model = readModel(path(), ignored);
    std::map<std::string, nn::Literal> out;
    for (auto p : module.getOps<nn::ParameterOp>()) {
      if (const auto value = p.getValue()) {
        out[p.getSymName().str()] =
            nn::Literal::fromAttr(cast<DenseElementsAttr>(*value));
        continue;
      }
      TensorData t;
      t.file = static_cast<int>(*p.getFile());
      t.offset = static_cast<int64_t>(*p.getOffset());
      t.length = static_cast<int64_t>(*p.getLength());
      t.type = ElementType::Float;
      t.dims.assign(p.getTensorType().getShape().begin(),
                    p.getTensorType().getShape().end());
      out[p.getSymName().str()] = readLiteral(module.getContext(), *model, t);
    }
    return out;
  }

  /// Rows (first + i) mod N of an array, as a tensor of `type`.
  nn::Literal rows(MLIRContext *context, const std::string &name,
                   RankedTensorType type, int64_t first) {
    const TensorData array = readNpy(folder + "/" + name + ".npy");
    EXPECT_EQ(array.problem, "");
    const int64_t n = array.dims[0],
                  width = static_cast<int64_t>(array.bytes.size()) / n;
    TensorData t = array;
    t.dims.assign(type.getShape().begin(), type.getShape().end());
    t.bytes.clear();
    for (int64_t i = 0; i < t.dims[0]; ++i)
      t.bytes += array.bytes.substr((first + i) % n * width, width);
    t.length = static_cast<int64_t>(t.bytes.size());
    return readLiteral(context, Model(), t);
  }

  /// The outputs of @main for the rows from `first` on.
  SmallVector<nn::Literal> run(ModuleOp module, int64_t first) {
    auto main = module.lookupSymbol<func::FuncOp>("main");
    const auto tensors = parameters(module);
    std::vector<nn::Literal> inputs;
    for (unsigned i = 0; i < main.getNumArguments(); ++i)
      inputs.push_back(
          rows(module.getContext(),
               main.getArgAttrOfType<StringAttr>(i, "nn.name").str(),
               cast<RankedTensorType>(main.getArgumentTypes()[i]), first));
    std::string why;
    const auto result = nn::evaluate(
        main, inputs, [&](StringRef name) { return tensors.at(name.str()); },
        {}, why);
    EXPECT_TRUE(succeeded(result)) << why;
    return result->outputs;
  }

  std::string folder;
  nlohmann::json golden;
  ImportOptions options;
};

std::vector<std::string> strings(const nlohmann::json &list) {
  return list.get<std::vector<std::string>>();
}

/// Mean cross-entropy of rows of logits.
double crossEntropy(const std::vector<double> &logits,
                    const std::vector<int64_t> &labels) {
  const size_t classes = logits.size() / labels.size();
  double sum = 0;
  for (size_t row = 0; row < labels.size(); ++row) {
    const double *x = &logits[row * classes];
    double largest = x[0], total = 0;
    for (size_t i = 1; i < classes; ++i)
      largest = std::max(largest, x[i]);
    for (size_t i = 0; i < classes; ++i)
      total += std::exp(x[i] - largest);
    sum += std::log(total) + largest - x[labels[row]];
  }
  return sum / static_cast<double>(labels.size());
}

} // namespace

TEST_P(Models, ClassifyTheirTensors) {
  Imported result(path(), options);
  ASSERT_TRUE(result.module) << result.text();
  std::vector<std::string> trained, frozen;
  for (const TensorReport &t : result.report.tensors)
    if (t.floating)
      (t.trains ? trained : frozen).push_back(t.name);
  EXPECT_EQ(trained, strings(golden["trainable"]));
  EXPECT_EQ(frozen, strings(golden["frozen"]));
  EXPECT_EQ(result.report.opset, golden["opset"]);
  EXPECT_EQ(result.report.inputs[0].batchAxis, 0);
}

/// The rule by structure alone says what the exporter's metadata says, but for
/// tensors of one element: a scale of attention looks like a parameter.
TEST_P(Models, ClassifyTheirTensorsWithoutMetadata) {
  Diagnostics diagnostics;
  auto model = readModel(path(), diagnostics);
  ASSERT_TRUE(model);
  model->graph.metadata.clear();
  for (ValueInfo &info : model->graph.valueInfo)
    info.metadata.clear();
  const auto classes = classify(*model, options, diagnostics);
  std::vector<std::string> trained;
  for (size_t i = 0; i < classes.size(); ++i)
    if (classes[i].role == Role::Weight &&
        model->graph.initializers[i].elements() > 1)
      trained.push_back(model->graph.initializers[i].name);
  EXPECT_EQ(trained, strings(golden["trainable"]));
}

TEST_P(Models, ComputeTheLogitsOfPyTorch) {
  options.batchNorm = BatchNorm::Inference;
  Imported result(path(), options);
  ASSERT_TRUE(result.module) << result.text();
  const auto outputs = run(*result.module, 0);
  const auto &expected = golden["logits"]["inference_of_first_microbatch"];
  const std::vector<double> values = outputs[0].doubles();
  double square = 0, sum = 0;
  for (const double v : values) {
    square += v * v;
    sum += v;
  }
  EXPECT_EQ(outputs[0].getShape().vec(),
            expected["shape"].get<std::vector<int64_t>>());
  EXPECT_NEAR(std::sqrt(square), expected["l2"], 1e-5 * double(expected["l2"]));
  EXPECT_NEAR(sum / double(values.size()), expected["mean"], 1e-5);
  for (int i = 0; i < 4; ++i)
    EXPECT_NEAR(values[i], expected["first4"][i], 1e-5);
}

/// The loss of the first step, with batch norms as in training.
TEST_P(Models, ComputeTheFirstLossOfPyTorch) {
  Imported result(path(), options);
  ASSERT_TRUE(result.module) << result.text();
  const int64_t batch = golden["B"], microbatches = golden["M"];
  double loss = 0;
  for (int64_t k = 0; k < microbatches; ++k) {
    const nn::Literal logits = run(*result.module, k * batch)[0];
    std::vector<double> values = logits.doubles();
    std::vector<int64_t> labels;
    if (golden["data"].contains("labels")) {
      labels = rows(&result.context, "labels",
                    RankedTensorType::get(
                        {batch}, IntegerType::get(&result.context, 64)),
                    k * batch)
                   .integers();
    } else { // next token: logits [b, t, v] without the last, ids without the
             // first
      const int64_t length = logits.getShape()[1], words = logits.getShape()[2];
      const auto ids =
          rows(&result.context, "input_ids",
               RankedTensorType::get({batch, length},
                                     IntegerType::get(&result.context, 64)),
               k * batch)
              .integers();
      std::vector<double> kept;
      for (int64_t b = 0; b < batch; ++b)
        for (int64_t t = 0; t + 1 < length; ++t) {
          labels.push_back(ids[b * length + t + 1]);
          const auto row = values.begin() + (b * length + t) * words;
          kept.insert(kept.end(), row, row + words);
        }
      values = kept;
    }
    loss += crossEntropy(values, labels) / static_cast<double>(microbatches);
  }
  const double expected = golden["runs"][0]["losses_f64"][0];
  EXPECT_NEAR(loss, expected, 2e-6 * expected);
}

TEST_P(Models, ImportTheSameWayTwice) {
  const auto print = [&] {
    Imported result(path(), options);
    std::string text;
    llvm::raw_string_ostream out(text);
    result.module->print(out, OpPrintingFlags().enableDebugInfo());
    return text;
  };
  EXPECT_EQ(print(), print());
}

INSTANTIATE_TEST_SUITE_P(Committed, Models,
                         testing::Values("mlp", "mlp-external", "cnn",
                                         "cnn-dynamo", "gpt"),
                         [](const auto &info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });
