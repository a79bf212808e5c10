//===- Ops.cpp - every nn op against its meaning --------------------------===//
#include "test/unit/target/StageRunner.h"

#include <gtest/gtest.h>

using namespace pipec::test;

namespace {
std::string tensor(const std::string &shape, const std::string &element) {
  return "tensor<" + (shape.empty() ? "" : shape + "x") + element + ">";
}
const char *const kShapes[] = {"", "1", "7", "64", "3x130", "2x3x5x33"};
} // namespace

//===----------------------------------------------------------------------===//
// Elementwise
//===----------------------------------------------------------------------===//

struct UnaryCase {
  const char *op, *elements;
  /// A function into the op's domain, of %0.
  const char *prepare = "";
};

class Unary : public testing::TestWithParam<UnaryCase> {};

TEST_P(Unary, MatchesReference) {
  UnaryCase param = GetParam();
  for (std::string element : {"f32", "f64", "i32", "i64", "i1"}) {
    if (!strstr(param.elements, element.c_str()))
      continue;
    for (const char *shape : kShapes) {
      std::string type = tensor(shape, element);
      std::string arrow = " : (" + type + ") -> " + type + "\n";
      std::string input = "%0";
      std::string body;
      if (*param.prepare) {
        body = std::string("%p = nn.") + param.prepare + " %0" + arrow;
        input = "%p";
      }
      body += std::string("%y = nn.") + param.op + " " + input + arrow;
      checkStage(stageText({type}, body, {{"%y", type}}),
                 element == "f64" ? 1e-15 : 1e-6);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Ops, Unary,
    testing::Values(
        UnaryCase{"neg", "f32 f64 i32 i64"},
        UnaryCase{"abs", "f32 f64 i32 i64"}, UnaryCase{"exp", "f32 f64"},
        UnaryCase{"log", "f32 f64", "abs"},
        UnaryCase{"log1p", "f32 f64", "abs"},
        UnaryCase{"sqrt", "f32 f64", "abs"},
        UnaryCase{"rsqrt", "f32 f64", "abs"},
        UnaryCase{"reciprocal", "f32 f64"}, UnaryCase{"tanh", "f32 f64"},
        UnaryCase{"erf", "f32 f64"}, UnaryCase{"sigmoid", "f32 f64"},
        UnaryCase{"relu", "f32 f64 i32"}, UnaryCase{"sin", "f32 f64"},
        UnaryCase{"cos", "f32 f64"}, UnaryCase{"floor", "f32 f64"},
        UnaryCase{"ceil", "f32 f64"}, UnaryCase{"round", "f32 f64"},
        UnaryCase{"sign", "f32 f64 i32"}, UnaryCase{"not", "i1"},
        UnaryCase{"stop_gradient", "f32 i64"}),
    [](const auto &info) { return std::string(info.param.op); });

class Binary : public testing::TestWithParam<UnaryCase> {};

TEST_P(Binary, MatchesReference) {
  UnaryCase param = GetParam();
  for (std::string element : {"f32", "f64", "i32", "i64", "i1"}) {
    if (!strstr(param.elements, element.c_str()))
      continue;
    for (const char *shape : kShapes) {
      std::string type = tensor(shape, element);
      std::string attribute;
      std::string body, left = "%0";
      if (*param.prepare) {
        if (param.prepare[0] == '{') {
          attribute = param.prepare;
        } else {
          body = std::string("%p = nn.") + param.prepare + " %0 : (" + type +
                 ") -> " + type + "\n";
          left = "%p";
        }
      }
      body += std::string("%y = nn.") + param.op + " " + left + ", %1 " +
              attribute + " : (" + type + ", " + type + ") -> " + type + "\n";
      checkStage(stageText({type, type}, body, {{"%y", type}}),
                 element == "f64" ? 1e-15 : 1e-6);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, Binary,
                         testing::Values(UnaryCase{"add", "f32 f64 i32 i64"},
                                         UnaryCase{"sub", "f32 f64 i32 i64"},
                                         UnaryCase{"mul", "f32 f64 i32 i64"},
                                         UnaryCase{"div", "f32 f64"},
                                         UnaryCase{"pow", "f32 f64", "abs"},
                                         UnaryCase{"max", "f32 f64 i32 i64"},
                                         UnaryCase{"min", "f32 f64 i32 i64"},
                                         UnaryCase{"mod", "f32 f64", "{fmod}"},
                                         UnaryCase{"and", "i1 i32 i64"},
                                         UnaryCase{"or", "i1 i32 i64"},
                                         UnaryCase{"xor", "i1 i32 i64"}),
                         [](const auto &info) {
                           return std::string(info.param.op);
                         });
