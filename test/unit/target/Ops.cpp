//===- Ops.cpp - every nn op against its meaning --------------------------===//
#include "test/unit/target/StageRunner.h"

#include <gtest/gtest.h>

using namespace pipec::test;

namespace {
struct OpCase {
  const char *op, *elements;
  /// A function into the op's domain, of the first operand; or attributes.
  const char *prepare = "";
};

std::string tensor(const std::string &shape, const std::string &element) {
  return "tensor<" + (shape.empty() ? "" : shape + "x") + element + ">";
}

/// One stage with a task for every element type and shape.
void checkOp(const OpCase &param, int operands) {
  std::string stage;
  int tasks = 0;
  for (std::string element : {"f32", "f64", "i32", "i64", "i1"}) {
    if (!strstr(param.elements, element.c_str()))
      continue;
    for (const char *shape : {"", "1", "7", "64", "3x130", "2x3x5x33"}) {
      std::string type = tensor(shape, element), first = "%0", body, attributes;
      if (param.prepare[0] == '{') {
        attributes = param.prepare;
      } else if (*param.prepare) {
        first = "%p";
        body = std::string("%p = nn.") + param.prepare + " %0 : (" + type +
               ") -> " + type + "\n";
      }
      body += std::string("%y = nn.") + param.op + " " + first +
              (operands == 2 ? ", %1 " : " ") + attributes + " : (" + type +
              (operands == 2 ? ", " + type : "") + ") -> " + type + "\n";
      stage += stageText(std::vector<std::string>(operands, type), body,
                         {{"%y", type}}, tasks++);
    }
  }
  checkStage(stage, 1e-6);
}

class Unary : public testing::TestWithParam<OpCase> {};
class Binary : public testing::TestWithParam<OpCase> {};
std::string nameOf(const testing::TestParamInfo<OpCase> &info) {
  return info.param.op;
}
} // namespace

TEST_P(Unary, MatchesReference) { checkOp(GetParam(), 1); }
TEST_P(Binary, MatchesReference) { checkOp(GetParam(), 2); }

INSTANTIATE_TEST_SUITE_P(
    Ops, Unary,
    testing::Values(
        OpCase{"neg", "f32 f64 i32 i64"}, OpCase{"abs", "f32 f64 i32 i64"},
        OpCase{"exp", "f32 f64"}, OpCase{"log", "f32 f64", "abs"},
        OpCase{"log1p", "f32 f64", "abs"}, OpCase{"sqrt", "f32 f64", "abs"},
        OpCase{"rsqrt", "f32 f64", "abs"}, OpCase{"reciprocal", "f32 f64"},
        OpCase{"tanh", "f32 f64"}, OpCase{"erf", "f32 f64"},
        OpCase{"sigmoid", "f32 f64"}, OpCase{"relu", "f32 f64 i32"},
        OpCase{"sin", "f32 f64"}, OpCase{"cos", "f32 f64"},
        OpCase{"floor", "f32 f64"}, OpCase{"ceil", "f32 f64"},
        OpCase{"round", "f32 f64"}, OpCase{"sign", "f32 f64 i32"},
        OpCase{"not", "i1"}, OpCase{"stop_gradient", "f32 i64"}),
    nameOf);

INSTANTIATE_TEST_SUITE_P(
    Ops, Binary,
    testing::Values(
        OpCase{"add", "f32 f64 i32 i64"}, OpCase{"sub", "f32 f64 i32 i64"},
        OpCase{"mul", "f32 f64 i32 i64"}, OpCase{"div", "f32 f64"},
        OpCase{"pow", "f32 f64", "abs"}, OpCase{"max", "f32 f64 i32 i64"},
        OpCase{"min", "f32 f64 i32 i64"}, OpCase{"mod", "f32 f64", "{fmod}"},
        OpCase{"and", "i1 i32 i64"}, OpCase{"or", "i1 i32 i64"},
        OpCase{"xor", "i1 i32 i64"}, OpCase{"hash", "i64"}),
    nameOf);
