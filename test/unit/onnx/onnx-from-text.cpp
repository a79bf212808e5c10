//===- onnx-from-text.cpp - models for lit tests, from text ---------------===//
//
// onnx-from-text IN OUT.onnx: turns ONNX's textual syntax into a model file.
// Nothing is checked beyond the syntax: tests need wrong models too.
//
//===----------------------------------------------------------------------===//
#include <fstream>
#include <iostream>
#include <onnx/defs/parser.h>
#include <sstream>

int main(int argc, char **argv) {
  if (argc != 3) {
    std::cerr << "usage: onnx-from-text IN OUT.onnx\n";
    return 64;
  }
  std::ostringstream text;
  std::ifstream in(argv[1]);
  text << in.rdbuf();
  ONNX_NAMESPACE::ModelProto model;
  const auto status =
      ONNX_NAMESPACE::OnnxParser::Parse(model, text.str().c_str());
  if (!in || !status.IsOK()) {
    std::cerr << argv[1] << ": " << status.ErrorMessage() << "\n";
    return 65;
  }
  std::ofstream out(argv[2], std::ios::binary);
  return model.SerializeToOstream(&out) && out.flush() ? 0 : 73;
}
