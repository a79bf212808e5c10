//===- pipec-import.cpp - the importer alone, for tests -------------------===//
//
// pipec-import MODEL.onnx [--dim NAME=N] [--constant NAME=FILE.npy]
//   [--freeze RE] [--train-only RE] [--bn train|inference] [--tie] [--untie]
//   [--forward-only]
//   [--json]             diagnostics as JSON
//   [--locations]        print locations
//   [--report]           the import report instead of the module
//   [--data NAME=FILE.npy]  evaluate @main on the first rows of these arrays
//   and
//                        print, per output, a JSON line of statistics
//   [--output NAME=FILE.npy] write an output of that evaluation
//
//===----------------------------------------------------------------------===//
#include "compiler/onnx/Import.h"
#include "compiler/onnx/Literals.h"
#include "compiler/onnx/Npy.h"
#include "dialects/nn/eval/Evaluate.h"
#include "test/unit/onnx/Parameters.h"

#include <cmath>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

using namespace mlir;
using namespace pipec;

namespace {
struct Arguments {
  std::string model;
  onnx::ImportOptions options;
  std::map<std::string, std::string> data, outputs;
  bool json = false, report = false, locations = false;
};
} // namespace

static std::pair<std::string, std::string> split(const std::string &text) {
  const size_t at = text.find('=');
  if (at == std::string::npos)
    throw Failure(Exit::Usage, "expected NAME=VALUE, got '" + text + "'");
  return {text.substr(0, at), text.substr(at + 1)};
}

static Arguments parse(int argc, char **argv) {
  Arguments a;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    const auto value = [&]() -> std::string {
      if (++i >= argc)
        throw Failure(Exit::Usage, flag + " needs a value");
      return argv[i];
    };
    if (flag == "--dim") {
      const auto [name, size] = split(value());
      a.options.dims[name] = std::stoll(size);
    } else if (flag == "--constant") {
      a.options.constants.push_back(split(value()));
    } else if (flag == "--freeze") {
      a.options.freeze.push_back(value());
    } else if (flag == "--train-only") {
      a.options.trainOnly.push_back(value());
    } else if (flag == "--bn") {
      a.options.batchNorm = value() == "inference" ? onnx::BatchNorm::Inference
                                                   : onnx::BatchNorm::Written;
    } else if (flag == "--untie") {
      a.options.untie = true;
    } else if (flag == "--tie") {
      a.options.tie = true;
    } else if (flag == "--forward-only") {
      a.options.forwardOnly = true;
    } else if (flag == "--json") {
      a.json = true;
    } else if (flag == "--locations") {
      a.locations = true;
    } else if (flag == "--report") {
      a.report = true;
    } else if (flag == "--data") {
      a.data.insert(split(value()));
    } else if (flag == "--output") {
      a.outputs.insert(split(value()));
    } else if (flag.rfind("--", 0) == 0) {
      throw Failure(Exit::Usage, "unknown option " + flag);
    } else {
      a.model = flag;
    }
  }
  return a;
}

static nlohmann::ordered_json reportJson(const onnx::ImportReport &r) {
  nlohmann::ordered_json j;
  j["opset"] = r.opset;
  j["ir_version"] = r.irVersion;
  j["producer"] = r.producer;
  j["nodes"] = r.nodes;
  for (const auto &[key, list] :
       {std::pair("inputs", &r.inputs), std::pair("outputs", &r.outputs)}) {
    j[key] = nlohmann::ordered_json::array();
    for (const onnx::InputReport &io : *list)
      j[key].push_back(
          {{"name", io.name}, {"type", io.type}, {"batch_axis", io.batchAxis}});
  }
  for (const char *key : {"trainable", "frozen", "reasons"})
    j[key] = nlohmann::ordered_json::array();
  for (const onnx::TensorReport &t : r.tensors) {
    if (!t.floating)
      continue;
    j[t.trains ? "trainable" : "frozen"].push_back(t.name);
    j["reasons"].push_back({{"name", t.name},
                            {"reason", t.reason},
                            {"uses", t.uses},
                            {"elements", t.elements}});
  }
  j["trained_elements"] = r.trainedElements();
  j["notes"] = r.notes;
  return j;
}

//===----------------------------------------------------------------------===//
// Evaluation
//===----------------------------------------------------------------------===//

/// An array of `type`: the first rows of the file.
static nn::Literal firstRows(MLIRContext *context, const std::string &path,
                             RankedTensorType type) {
  onnx::Model files;
  onnx::TensorData array = onnx::readNpy(path);
  if (!array.problem.empty())
    throw Failure(Exit::NoInput, path + ": " + array.problem);
  const int64_t width = onnx::byteWidth(array.type);
  array.dims.assign(type.getShape().begin(), type.getShape().end());
  array.bytes.resize(type.getNumElements() * width);
  array.length = static_cast<int64_t>(array.bytes.size());
  return onnx::readLiteral(context, files, array);
}

static nlohmann::ordered_json statistics(const nn::Literal &v) {
  double sum = 0, square = 0;
  const std::vector<double> values = v.doubles();
  for (const double x : values) {
    sum += x;
    square += x * x;
  }
  nlohmann::ordered_json j;
  j["shape"] = std::vector<int64_t>(v.getShape().begin(), v.getShape().end());
  j["l2"] = std::sqrt(square);
  j["mean"] = sum / static_cast<double>(std::max<size_t>(1, values.size()));
  j["first4"] = std::vector<double>(
      values.begin(), values.begin() + std::min<size_t>(4, values.size()));
  return j;
}

static void writeNpy(const std::string &path, const nn::Literal &v) {
  const Type t = v.getElementType();
  std::string descr = "<f4";
  if (!v.isFloat())
    descr = t.isInteger(1) ? "|b1" : t.isUnsignedInteger() ? "<u" : "<i";
  const unsigned width = std::max(8u, t.getIntOrFloatBitWidth()) / 8;
  if (descr.size() == 2)
    descr = (width == 1 ? "|" : "<") + descr.substr(1) + std::to_string(width);
  else if (v.isFloat())
    descr = "<f" + std::to_string(width == 8 ? 8 : t.isF16() ? 2 : 4);
  std::string shape;
  for (const int64_t size : v.getShape())
    shape += std::to_string(size) + ",";
  std::string header = "{'descr': '" + descr +
                       "', 'fortran_order': False, 'shape': (" + shape + "), }";
  header += std::string(64 - (header.size() + 11) % 64, ' ') + "\n";
  std::ofstream out(path, std::ios::binary);
  const auto length = static_cast<uint16_t>(header.size());
  out.write("\x93NUMPY\x01\x00", 8);
  out.write(reinterpret_cast<const char *>(&length), 2);
  out << header;
  if (t.isBF16()) {
    for (const double d : v.doubles()) {
      const auto f = static_cast<float>(d);
      out.write(reinterpret_cast<const char *>(&f), sizeof f);
    }
    return;
  }
  out << onnx::rawBytes(v.toAttr());
}

static int run(ModuleOp module, const Arguments &a) {
  MLIRContext *context = module.getContext();
  auto main = module.lookupSymbol<func::FuncOp>("main");
  const std::map<std::string, nn::Literal> parameters =
      test::readParameters(module, a.model);
  std::vector<nn::Literal> inputs;
  for (unsigned i = 0; i < main.getNumArguments(); ++i) {
    const std::string name =
        main.getArgAttrOfType<StringAttr>(i, "nn.name").str();
    const auto path = a.data.find(name);
    if (path == a.data.end())
      throw Failure(Exit::Usage, "no --data for input " + name);
    inputs.push_back(
        firstRows(context, path->second,
                  cast<RankedTensorType>(main.getArgumentTypes()[i])));
  }
  std::string why;
  const auto result = nn::evaluate(
      main, inputs, [&](StringRef name) { return parameters.at(name.str()); },
      {}, why);
  if (failed(result))
    throw Failure(Exit::Internal, why);
  for (auto [i, value] : llvm::enumerate(result->outputs)) {
    const std::string name =
        main.getResultAttrOfType<StringAttr>(i, "nn.name").str();
    nlohmann::ordered_json j = statistics(value);
    j["name"] = name;
    std::cout << j.dump() << "\n";
    if (const auto path = a.outputs.find(name); path != a.outputs.end())
      writeNpy(path->second, value);
  }
  return 0;
}

int main(int argc, char **argv) {
  try {
    const Arguments a = parse(argc, argv);
    MLIRContext context(MLIRContext::Threading::DISABLED);
    Diagnostics diagnostics;
    onnx::ImportReport report;
    auto module =
        onnx::importModel(a.model, a.options, context, diagnostics, report);
    const std::string name = a.model.substr(a.model.rfind('/') + 1);
    if (!module || a.json) {
      (module ? std::cout : std::cerr)
          << (a.json ? diagnostics.json(name) : diagnostics.text(name));
      if (!module)
        return static_cast<int>(diagnostics.exitCode());
    }
    if (a.report)
      std::cout << reportJson(report).dump(
                       1, ' ', false,
                       nlohmann::ordered_json::error_handler_t::replace)
                << "\n";
    else if (!a.data.empty() || !a.outputs.empty())
      return run(*module, a);
    else if (!a.json)
      module->print(llvm::outs(),
                    OpPrintingFlags().enableDebugInfo(a.locations));
    return 0;
  } catch (const Failure &failure) {
    std::cerr << "error: " << failure.what() << "\n";
    return static_cast<int>(failure.code);
  }
}
