//===- ReaderTest.cpp - files: where tensors lie, and which are refused ---===//
#include "Support.h"

#include <cinttypes>
#include <onnx/onnx_pb.h>

using namespace pipec;
using namespace pipec::onnx;
using namespace pipec::onnx::test;
using testing::Test;

namespace proto = ::ONNX_NAMESPACE;

namespace {

void setInput(proto::ValueInfoProto *value, const std::string &name,
              std::vector<int64_t> dims, int type = proto::TensorProto::FLOAT) {
  value->set_name(name);
  auto *tensor = value->mutable_type()->mutable_tensor_type();
  tensor->set_elem_type(type);
  for (const int64_t dim : dims)
    tensor->mutable_shape()->add_dim()->set_dim_value(dim);
}

/// y = x + w for vectors of four floats; w is left to the test.
proto::ModelProto addModel() {
  proto::ModelProto m;
  m.set_ir_version(8);
  m.add_opset_import()->set_version(17);
  auto *graph = m.mutable_graph();
  graph->set_name("g");
  setInput(graph->add_input(), "x", {4});
  setInput(graph->add_output(), "y", {4});
  auto *node = graph->add_node();
  node->set_op_type("Add");
  node->add_input("x");
  node->add_input("w");
  node->add_output("y");
  return m;
}

proto::TensorProto *addTensor(proto::ModelProto &m, const std::string &name,
                              std::vector<int64_t> dims,
                              int type = proto::TensorProto::FLOAT) {
  auto *t = m.mutable_graph()->add_initializer();
  t->set_name(name);
  t->set_data_type(type);
  for (const int64_t dim : dims)
    t->add_dims(dim);
  return t;
}

std::string fourFloats() {
  const float values[] = {1, 2, 3, 4};
  return {reinterpret_cast<const char *>(values), sizeof values};
}

void setExternal(proto::TensorProto *t, const std::string &location,
                 const std::string &offset = "",
                 const std::string &length = "") {
  t->set_data_location(proto::TensorProto::EXTERNAL);
  const auto add = [&](const char *key, const std::string &value) {
    if (value.empty())
      return;
    auto *entry = t->add_external_data();
    entry->set_key(key);
    entry->set_value(value);
  };
  add("location", location);
  add("offset", offset);
  add("length", length);
}

/// Imports a model whose weight has external data in a folder of its own.
struct External : Test {
  External() { folder.write("model/w.bin", fourFloats() + fourFloats()); }
  void import(const std::string &location, const std::string &offset = "",
              const std::string &length = "") {
    proto::ModelProto m = addModel();
    setExternal(addTensor(m, "w", {4}), location, offset, length);
    folder.write("model/model.onnx", m.SerializeAsString());
    result = std::make_unique<Imported>(folder.file("model/model.onnx"));
  }
  void expectRefused(const std::string &why, Exit code = Exit::BadModel) {
    EXPECT_FALSE(result->module);
    EXPECT_NE(result->text().find(why), std::string::npos) << result->text();
    EXPECT_EQ(result->diagnostics.exitCode(), code);
  }
  TemporaryFolder folder;
  std::unique_ptr<Imported> result;
};

mlir::FailureOr<pipec::nn::ParameterOp> weightOf(Imported &result) {
  if (!result.module)
    return mlir::failure();
  for (auto p : result.module->getOps<pipec::nn::ParameterOp>())
    if (p.getSymName() == "w")
      return p;
  return mlir::failure();
}

} // namespace

//===----------------------------------------------------------------------===//
// Where the bytes of a tensor are
//===----------------------------------------------------------------------===//

TEST(TensorBytes, RawDataIsReferredTo) {
  proto::ModelProto m = addModel();
  addTensor(m, "w", {4})->set_raw_data(fourFloats());
  const std::string bytes = m.SerializeAsString();
  Imported result(bytes, "", {});
  auto w = weightOf(result);
  ASSERT_TRUE(succeeded(w)) << result.text();
  EXPECT_EQ(w->getFile(), 0);
  EXPECT_EQ(bytes.substr(*w->getOffset(), *w->getLength()), fourFloats());
}

TEST(TensorBytes, PackedFloatsAreReferredTo) {
  proto::ModelProto m = addModel();
  auto *t = addTensor(m, "w", {4});
  for (const float v : {1, 2, 3, 4})
    t->add_float_data(v);
  const std::string bytes = m.SerializeAsString();
  Imported result(bytes, "", {});
  auto w = weightOf(result);
  ASSERT_TRUE(succeeded(w)) << result.text();
  ASSERT_TRUE(w->getOffset());
  EXPECT_EQ(bytes.substr(*w->getOffset(), *w->getLength()), fourFloats());
}

TEST(TensorBytes, HalvesInIntegersAreCopied) {
  proto::ModelProto m = addModel();
  for (auto *value : {m.mutable_graph()->mutable_input(0),
                      m.mutable_graph()->mutable_output(0)})
    value->mutable_type()->mutable_tensor_type()->set_elem_type(
        proto::TensorProto::FLOAT16);
  auto *t = addTensor(m, "w", {4}, proto::TensorProto::FLOAT16);
  for (const int bits : {0x3c00, 0x4000, 0x4200, 0xc400}) // 1 2 3 -4
    t->add_int32_data(bits);
  Imported result(m.SerializeAsString(), "", {});
  auto w = weightOf(result);
  ASSERT_TRUE(succeeded(w)) << result.text();
  EXPECT_FALSE(w->getFile());
  ASSERT_TRUE(w->getValue());
  EXPECT_EQ(pipec::nn::Literal::fromAttr(
                mlir::cast<mlir::DenseElementsAttr>(*w->getValue()))
                .doubles(),
            (std::vector<double>{1, 2, 3, -4}));
}

TEST(TensorBytes, WrongLengthIsRefused) {
  proto::ModelProto m = addModel();
  addTensor(m, "w", {5})->set_raw_data(fourFloats());
  Imported result(m.SerializeAsString(), "", {});
  EXPECT_FALSE(result.module);
  EXPECT_NE(
      result.text().find("initializer 'w': it has 16 bytes, but its shape "
                         "and type need 20"),
      std::string::npos)
      << result.text();
}

TEST(TensorBytes, AbsurdDimensionsAreRefused) {
  for (const auto &dims : {std::vector<int64_t>{-1},
                           {int64_t(1) << 40, int64_t(1) << 40},
                           {int64_t(1) << 62, 4, 0}}) {
    proto::ModelProto m = addModel();
    addTensor(m, "w", dims)->set_raw_data(fourFloats());
    Imported result(m.SerializeAsString(), "", {});
    EXPECT_FALSE(result.module);
    EXPECT_NE(result.text().find("negative or absurdly large"),
              std::string::npos)
        << result.text();
  }
}

TEST(TensorBytes, UnknownTypesAreRefused) {
  proto::ModelProto m = addModel();
  addTensor(m, "w", {4}, /*FLOAT8E4M3FN*/ 17)->set_raw_data("abcd");
  Imported result(m.SerializeAsString(), "", {});
  EXPECT_FALSE(result.module);
  EXPECT_NE(result.text().find("its element type type 17 is not supported"),
            std::string::npos)
      << result.text();
}

//===----------------------------------------------------------------------===//
// External data
//===----------------------------------------------------------------------===//

TEST_F(External, IsReferredTo) {
  import("w.bin", "16", "16");
  auto w = weightOf(*result);
  ASSERT_TRUE(succeeded(w)) << result->text();
  EXPECT_EQ(w->getFile(), 1);
  EXPECT_EQ(w->getOffset(), 16);
  EXPECT_EQ(w->getLength(), 16);
}

TEST_F(External, LengthMayBeLeftOut) {
  import("w.bin");
  EXPECT_TRUE(result->module) << result->text();
}

/// What the kernel says of the mapping that holds an address: "rr" is of one
/// that nothing is read ahead of.
std::string mappingFlags(const void *address) {
  const auto wanted = reinterpret_cast<uintptr_t>(address);
  std::ifstream maps("/proc/self/smaps");
  std::string line;
  for (bool isHere = false; std::getline(maps, line);) {
    uintptr_t first = 0, last = 0;
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " ", &first,
                    &last) == 2)
      isHere = first <= wanted && wanted < last;
    else if (isHere && line.starts_with("VmFlags:"))
      return line + " ";
  }
  return "";
}

/// Of weights of many gigabytes a few elements are looked at: each look must
/// not bring megabytes, as a disk's readahead does.
TEST_F(External, IsNotReadAhead) {
  import("w.bin", "16", "16");
  Diagnostics diagnostics;
  const auto model = readModel(folder.file("model/model.onnx"), diagnostics);
  ASSERT_TRUE(model) << diagnostics.text("model.onnx");
  EXPECT_EQ(model->wholeOf(model->graph.initializers.at(0)), fourFloats());
  const std::string flags = mappingFlags(model->files.at(1).data);
  if (flags.empty())
    GTEST_SKIP() << "this kernel does not say how files are mapped";
  EXPECT_NE(flags.find(" rr "), std::string::npos) << flags;
}

TEST_F(External, MissingFile) {
  import("none.bin");
  expectRefused("initializer 'w': its external data file 'none.bin' cannot be "
                "read: No such file or directory",
                Exit::NoInput);
}

TEST_F(External, AbsolutePath) {
  import(folder.file("model/w.bin"));
  expectRefused("has the absolute path");
}

TEST_F(External, ParentFolder) {
  folder.write("w.bin", fourFloats());
  import("../w.bin");
  expectRefused("is outside of the model's folder");
  import("sub/../w.bin");
  expectRefused("is outside of the model's folder");
}

TEST_F(External, LinkOutOfTheFolder) {
  folder.write("outside/w.bin", fourFloats());
  std::filesystem::create_symlink("../outside/w.bin",
                                  folder.file("model/link.bin"));
  import("link.bin");
  expectRefused("is a link that leaves the model's folder");
  std::filesystem::create_directory_symlink("../outside",
                                            folder.file("model/out"));
  import("out/w.bin");
  expectRefused("is a link that leaves the model's folder");
}

TEST_F(External, LinkInsideTheFolder) {
  std::filesystem::create_symlink("w.bin", folder.file("model/link.bin"));
  import("link.bin", "0", "16");
  EXPECT_TRUE(result->module) << result->text();
}

TEST_F(External, RangesOutsideTheFile) {
  import("w.bin", "24", "16");
  expectRefused("its external data lies behind the end of 'w.bin', which has "
                "32 bytes and would need 40");
  import("w.bin", "-4", "16");
  expectRefused("bytes -4 + 16 of 'w.bin', which are no numbers");
  import("w.bin", "99999999999999999999", "16");
  expectRefused("bytes 99999999999999999999 + 16");
  import("w.bin", "0", "9223372036854775807");
  expectRefused("bytes 0 + 9223372036854775807");
}

TEST_F(External, FolderInsteadOfAFile) {
  std::filesystem::create_directory(folder.file("model/d"));
  import("d");
  expectRefused("cannot be read: it is a folder", Exit::NoInput);
}

TEST_F(External, NoName) {
  import("");
  expectRefused("its external data has no file name");
}

//===----------------------------------------------------------------------===//
// Files that are no models
//===----------------------------------------------------------------------===//

TEST(NoModel, Empty) {
  Imported result("", "", {});
  EXPECT_NE(result.text().find("the file is empty"), std::string::npos);
  EXPECT_EQ(result.diagnostics.exitCode(), Exit::BadModel);
}

TEST(NoModel, AFolder) {
  Imported result(std::filesystem::temp_directory_path().string());
  EXPECT_NE(result.text().find("it is a folder"), std::string::npos);
  EXPECT_EQ(result.diagnostics.exitCode(), Exit::NoInput);
}

TEST(NoModel, WithoutGraphOrVersion) {
  proto::ModelProto m;
  m.set_ir_version(8);
  Imported noGraph(m.SerializeAsString(), "", {});
  EXPECT_NE(noGraph.text().find("the model has no graph"), std::string::npos);
  m = addModel();
  m.clear_ir_version();
  Imported noVersion(m.SerializeAsString(), "", {});
  EXPECT_NE(noVersion.text().find("the model has no IR version"),
            std::string::npos);
  m = addModel();
  m.clear_opset_import();
  Imported noOpset(m.SerializeAsString(), "", {});
  EXPECT_NE(noOpset.text().find("names no version of the ONNX operators"),
            std::string::npos);
}

//===----------------------------------------------------------------------===//
// Metadata that the message classes do not know
//===----------------------------------------------------------------------===//

TEST(Metadata, OfValuesAndNodesIsRead) {
  Diagnostics diagnostics;
  const auto model = readModel(modelsFolder() + "/gpt/model.onnx", diagnostics);
  ASSERT_TRUE(model);
  EXPECT_TRUE(lookup(model->graph.metadata,
                     "pkg.torch.export.ExportedProgram.graph_signature"));
  int kinds = 0, traces = 0;
  for (const ValueInfo &info : model->graph.valueInfo)
    if (const std::string *kind = lookup(
            info.metadata, "pkg.torch.export.graph_signature.InputSpec.kind"))
      kinds += *kind == "PARAMETER";
  for (const Node &node : model->graph.nodes)
    traces += lookup(node.metadata, "pkg.torch.onnx.stack_trace") != nullptr;
  EXPECT_GT(kinds, 10);
  EXPECT_GT(traces, 50);
}
