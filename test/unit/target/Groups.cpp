//===- Groups.cpp - groups of ops that train networks ---------------------===//
//
// Each function must become the stated number of kernels, mean what its ops
// mean, and give the same bytes as its ops one by one.
//
//===----------------------------------------------------------------------===//
#include "test/unit/target/StageRunner.h"

#include <gtest/gtest.h>
#include <regex>

using namespace pipec::test;

namespace {
/// Short forms, so that the functions below can be read:
///   name = op a b {attributes} : result-type
/// with operand types looked up.
class Text {
public:
  Text &load(const std::string &name, const std::string &region,
             const std::string &type) {
    int64_t &offset = offsets[region];
    text += "  %" + name + " = pipe.load \"" + region + "\" [" +
            std::to_string(offset) + "] : tensor<" + type + ">\n";
    types[name] = type;
    places[name] = offset;
    offset += 1 << 18;
    return *this;
  }
  Text &store(const std::string &name, const std::string &region,
              bool accumulate = false, int64_t at = -1) {
    int64_t &offset = offsets[region + ".out"];
    if (at < 0) {
      at = offset;
      offset += 1 << 18;
    }
    text += "  pipe.store %" + name + ", \"" + region + "\" [" +
            std::to_string(at) + "] " + (accumulate ? "accumulate " : "") +
            ": tensor<" + types[name] + ">\n";
    return *this;
  }
  Text &scalar(const std::string &name) {
    text += "  %" + name + " = pipe.scalar \"" + name + "\" : tensor<f64>\n";
    types[name] = "f64";
    return *this;
  }
  Text &op(const std::string &name, const std::string &op,
           const std::vector<std::string> &operands, std::string type = "",
           const std::string &attributes = "") {
    if (type.empty())
      type = types[operands[0]];
    text += "  %" + name + " = nn." + op;
    std::string separator = " ", from;
    for (const std::string &operand : operands) {
      text += separator + "%" + operand;
      from += (from.empty() ? "tensor<" : ", tensor<") + types[operand] + ">";
      separator = ", ";
    }
    text += " " + attributes + " : (" + from + ") -> tensor<" + type + ">\n";
    types[name] = type;
    return *this;
  }
  Text &constant(const std::string &name, const std::string &value,
                 const std::string &type) {
    text += "  %" + name + " = nn.constant dense<" + value + "> : tensor<" +
            type + ">\n";
    types[name] = type;
    return *this;
  }
  Text &reduce(const std::string &name, const std::string &kind,
               const std::string &x, const std::string &axes,
               const std::string &type) {
    return op(name, "reduce", {x}, type,
              "{kind = \"" + kind + "\", axes = array<i64: " + axes + ">}");
  }
  int64_t placeOf(const std::string &name) { return places[name]; }
  std::string stage(const std::string &task = "forward") const {
    return "func.func @f() attributes {pipe.task = \"" + task + "\"} {\n" +
           text + "  return\n}\n";
  }

private:
  std::string text;
  std::map<std::string, std::string> types;
  std::map<std::string, int64_t> places, offsets;
};

void expectKernels(const std::string &text, int kernels,
                   double tolerance = 2e-6, int64_t integerLimit = 7) {
  checkStage(text, tolerance, integerLimit);
  StageRunner runner(text);
  EXPECT_EQ(runner.code().kernelCount, kernels);
}
} // namespace

static Text layerNormForward(const std::string &rows, const std::string &c,
                             const std::string &count) {
  std::string full = rows + "x" + c + "xf32", row = rows + "x1xf32";
  Text t;
  t.load("a", "in", full).load("b", "in", full);
  t.load("gamma", "weights", c + "xf32").load("beta", "weights", c + "xf32");
  t.op("x", "add", {"a", "b"});
  t.reduce("sum", "sum", "x", "1", row);
  t.constant("inv", count, row).op("mean", "mul", {"sum", "inv"});
  t.op("meanB", "broadcast", {"mean"}, full);
  t.op("d", "sub", {"x", "meanB"}).op("d2", "mul", {"d", "d"});
  t.reduce("sum2", "sum", "d2", "1", row).op("var", "mul", {"sum2", "inv"});
  t.constant("eps", "1.0e-5", row).op("ve", "add", {"var", "eps"});
  t.op("rstd", "rsqrt", {"ve"}).op("rstdB", "broadcast", {"rstd"}, full);
  t.op("xhat", "mul", {"d", "rstdB"});
  t.op("g1", "reshape", {"gamma"}, "1x" + c + "xf32");
  t.op("gB", "broadcast", {"g1"}, full);
  t.op("b1", "reshape", {"beta"}, "1x" + c + "xf32");
  t.op("bB", "broadcast", {"b1"}, full);
  t.op("s", "mul", {"xhat", "gB"}).op("y", "add", {"s", "bB"});
  t.store("y", "out").store("x", "stash").store("mean", "stash");
  t.store("rstd", "stash");
  return t;
}

TEST(Groups, LayerNormForward) {
  expectKernels(layerNormForward("35", "768", "0.00130208337").stage(), 1);
  expectKernels(layerNormForward("3", "101", "0.00990099").stage(), 1);
}

TEST(Groups, LayerNormBackward) {
  for (std::string rows : {"5", "70", "128"}) {
    std::string c = "101", full = rows + "x" + c + "xf32",
                row = rows + "x1xf32";
    Text t;
    t.load("dy", "grad_in", full).load("x", "stash", full);
    t.load("mean", "stash", row).load("rstd", "stash", row);
    t.load("gamma", "weights", c + "xf32");
    t.op("meanB", "broadcast", {"mean"}, full);
    t.op("d", "sub", {"x", "meanB"}).op("rstdB", "broadcast", {"rstd"}, full);
    t.op("xhat", "mul", {"d", "rstdB"});
    t.op("g1", "reshape", {"gamma"}, "1x" + c + "xf32");
    t.op("gB", "broadcast", {"g1"}, full);
    t.op("dyg", "mul", {"dy", "gB"}).op("dygx", "mul", {"dyg", "xhat"});
    t.reduce("s1", "sum", "dyg", "1", row)
        .reduce("s2", "sum", "dygx", "1", row);
    t.constant("inv", "0.00990099", row);
    t.op("m1", "mul", {"s1", "inv"}).op("m2", "mul", {"s2", "inv"});
    t.op("m1B", "broadcast", {"m1"}, full).op("m2B", "broadcast", {"m2"}, full);
    t.op("e", "sub", {"dyg", "m1B"}).op("f", "mul", {"xhat", "m2B"});
    t.op("h", "sub", {"e", "f"}).op("dx", "mul", {"h", "rstdB"});
    t.op("dyx", "mul", {"dy", "xhat"});
    t.reduce("dgamma1", "sum", "dyx", "0", "1x" + c + "xf32");
    t.reduce("dbeta1", "sum", "dy", "0", "1x" + c + "xf32");
    t.op("dgamma", "reshape", {"dgamma1"}, c + "xf32");
    t.op("dbeta", "reshape", {"dbeta1"}, c + "xf32");
    t.store("dx", "grad_out").store("dgamma", "gradients", true);
    t.store("dbeta", "gradients", true);
    // One for the rows, one that adds up partial columns, for both.
    expectKernels(t.stage("backward"), 2, 5e-6);
  }
}

static void gelu(Text &t, const std::string &shape) {
  // 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
  t.constant("three", "3.0", shape).op("x3", "pow", {"x", "three"});
  t.constant("c0", "0.044715", shape).op("t0", "mul", {"x3", "c0"});
  t.op("t1", "add", {"x", "t0"}).constant("c1", "0.7978845834732056", shape);
  t.op("t2", "mul", {"t1", "c1"}).op("t3", "tanh", {"t2"});
  t.constant("one", "1.0", shape).op("t4", "add", {"t3", "one"});
  t.constant("half", "0.5", shape).op("t5", "mul", {"x", "half"});
  t.op("y", "mul", {"t5", "t4"});
}

TEST(Groups, BiasGelu) {
  std::string full = "4x35x130xf32";
  Text t;
  t.load("m", "in", "140x130xf32").load("bias", "weights", "130xf32");
  t.op("m3", "reshape", {"m"}, full)
      .op("b1", "reshape", {"bias"}, "1x1x130xf32");
  t.op("bB", "broadcast", {"b1"}, full).op("x", "add", {"m3", "bB"});
  gelu(t, full);
  t.op("y2", "reshape", {"y"}, "140x130xf32").store("y2", "out");
  t.store("x", "stash");
  expectKernels(t.stage(), 1);
}

TEST(Groups, GeluBackwardAndBias) {
  std::string full = "140x130xf32";
  Text t;
  t.load("dy", "grad_in", full).load("x", "stash", full);
  gelu(t, full);
  // dy (0.5 (1 + t) + 0.5 x (1 - t^2) c1 (1 + 3 c0 x^2))
  t.op("a", "mul", {"t4", "half"}).op("tt", "mul", {"t3", "t3"});
  t.op("u", "sub", {"one", "tt"}).op("v", "mul", {"t5", "u"});
  t.op("x2", "mul", {"x", "x"}).constant("c2", "0.134145", full);
  t.op("w", "mul", {"x2", "c2"}).op("w1", "add", {"w", "one"});
  t.op("w2", "mul", {"w1", "c1"}).op("z", "mul", {"v", "w2"});
  t.op("g", "add", {"a", "z"}).op("dx", "mul", {"dy", "g"});
  t.reduce("db1", "sum", "dx", "0", "1x130xf32");
  t.op("db", "reshape", {"db1"}, "130xf32");
  t.store("dx", "out").store("db", "gradients", true);
  expectKernels(t.stage("backward"), 2, 5e-6);
}

TEST(Groups, CausalSoftmax) {
  for (std::string n : {"128", "33"}) {
    std::string full = "2x3x" + n + "x" + n + "xf32", mask = n + "x" + n;
    Text t;
    t.load("s", "in", full).load("dp", "grad_in", full);
    t.constant("scale", "0.125", full).op("a", "mul", {"s", "scale"});
    t.op("i", "iota", {}, mask + "xi32", "{axis = 0 : i64}");
    t.op("j", "iota", {}, mask + "xi32", "{axis = 1 : i64}");
    t.op("keep", "compare", {"i", "j"}, mask + "xi1", "{predicate = \"ge\"}");
    t.op("keep4", "reshape", {"keep"}, "1x1x" + mask + "xi1");
    t.op("keepB", "broadcast", {"keep4"}, "2x3x" + mask + "xi1");
    t.constant("low", "-3.40282347E+38", full);
    t.op("m", "select", {"keepB", "a", "low"}, full);
    t.op("p", "softmax", {"m"}).store("p", "stash");
    expectKernels(t.stage(), 2);
  }
}

TEST(Groups, SoftmaxBackward) {
  std::string full = "6x40x33xf32";
  Text t;
  t.load("p", "stash", full).load("dp", "grad_in", full);
  t.op("w", "mul", {"dp", "p"}).reduce("s", "sum", "w", "2", "6x40x1xf32");
  t.op("sB", "broadcast", {"s"}, full).op("c", "sub", {"dp", "sB"});
  t.op("g", "mul", {"p", "c"}).constant("scale", "0.125", full);
  t.op("ds", "mul", {"g", "scale"}).store("ds", "out");
  expectKernels(t.stage("backward"), 1);
}

TEST(Groups, CrossEntropy) {
  // Next token: logits [2, 5, 301] without the last position against labels.
  std::string full = "2x4x301xf32", row = "2x4x1xf32";
  Text t;
  t.load("all", "in", "2x5x301xf32").load("ids", "in", "2x5xi64");
  t.op("x", "slice", {"all"}, full,
       "{starts = array<i64: 0, 0, 0>, strides = array<i64: 1, 1, 1>}");
  t.op("label", "slice", {"ids"}, "2x4xi64",
       "{starts = array<i64: 0, 1>, strides = array<i64: 1, 1>}");
  t.reduce("max", "max", "x", "2", row).op("maxB", "broadcast", {"max"}, full);
  t.op("c", "sub", {"x", "maxB"}).op("e", "exp", {"c"});
  t.reduce("sum", "sum", "e", "2", row).op("lse", "log", {"sum"});
  t.op("lseB", "broadcast", {"lse"}, full).op("logp", "sub", {"c", "lseB"});
  t.op("i", "iota", {}, "2x4x301xi64", "{axis = 2 : i64}");
  t.op("l3", "reshape", {"label"}, "2x4x1xi64");
  t.op("lB", "broadcast", {"l3"}, "2x4x301xi64");
  t.op("hit", "compare", {"i", "lB"}, "2x4x301xi1", "{predicate = \"eq\"}");
  t.constant("zero", "0.0", full);
  t.op("picked", "select", {"hit", "logp", "zero"}, full);
  t.reduce("nll", "sum", "picked", "2", row);
  t.reduce("total", "sum", "nll", "0, 1", "1x1x1xf32");
  t.constant("n", "-0.125", "1x1x1xf32").op("mean", "mul", {"total", "n"});
  t.op("loss", "reshape", {"mean"}, "f32").store("loss", "loss");
  t.store("max", "stash").store("lse", "stash");
  // Backward: (exp(logp) - hit) / 8, padded to every position.
  t.op("prob", "exp", {"logp"}).op("one", "cast", {"hit"}, full);
  t.op("diff", "sub", {"prob", "one"}).constant("eighth", "0.125", full);
  t.op("dx", "mul", {"diff", "eighth"});
  t.op("dall", "pad", {"dx"}, "2x5x301xf32",
       "{low = array<i64: 0, 0, 0>, high = array<i64: 0, 1, 0>, interior = "
       "array<i64: 0, 0, 0>}");
  t.store("dall", "grad_out");
  expectKernels(t.stage(), 2, 2e-6, 301);
}

TEST(Groups, AdamW) {
  Text t;
  t.scalar("lr_factor").scalar("grad_scale").scalar("update");
  t.constant("lr0", "1.0e-3", "f64").op("lr", "mul", {"lr0", "lr_factor"});
  t.constant("b1d", "0.9", "f64").constant("b2d", "0.999", "f64");
  t.constant("oned", "1.0", "f64");
  t.op("p1", "pow", {"b1d", "update"}).op("p2", "pow", {"b2d", "update"});
  t.op("bc1", "sub", {"oned", "p1"}).op("bc2", "sub", {"oned", "p2"});
  t.op("step", "div", {"lr", "bc1"}).op("root", "sqrt", {"bc2"});
  for (std::string part : {"u", "v"}) {
    std::string type = part == "u" ? "40x64xf32" : "1000xf32";
    std::string ones = part == "u" ? "1x1xf32" : "1xf32";
    auto n = [&](const std::string &name) { return part + name; };
    auto spread = [&](const std::string &name, const std::string &from) {
      t.op(n(name + "f"), "cast", {from}, "f32");
      t.op(n(name + "r"), "reshape", {n(name + "f")}, ones);
      t.op(n(name), "broadcast", {n(name + "r")}, type);
    };
    t.load(n("w"), "weights", type).load(n("g0"), "gradients", type);
    t.load(n("m"), "optimizer", type).load(n("s"), "optimizer", type);
    spread("scale", "grad_scale");
    t.op(n("g"), "mul", {n("g0"), n("scale")});
    t.constant(n("b1"), "0.9", type).constant(n("b2"), "0.999", type);
    t.constant(n("a1"), "0.1", type).constant(n("a2"), "0.001", type);
    t.op(n("m1"), "mul", {n("m"), n("b1")})
        .op(n("m2"), "mul", {n("g"), n("a1")});
    t.op(n("mn"), "add", {n("m1"), n("m2")});
    t.op(n("gg"), "mul", {n("g"), n("g")});
    t.op(n("s1"), "mul", {n("s"), n("b2")})
        .op(n("s2"), "mul", {n("gg"), n("a2")});
    t.op(n("sn"), "add", {n("s1"), n("s2")});
    spread("root", "root");
    spread("step", "step");
    t.op(n("q"), "sqrt", {n("sn")}).op(n("q1"), "div", {n("q"), n("root")});
    t.constant(n("eps"), "1.0e-8", type)
        .op(n("q2"), "add", {n("q1"), n("eps")});
    t.op(n("d"), "div", {n("mn"), n("q2")})
        .op(n("d1"), "mul", {n("d"), n("step")});
    t.constant(n("decay"), "0.99999", type)
        .op(n("w1"), "mul", {n("w"), n("decay")});
    t.op(n("wn"), "sub", {n("w1"), n("d1")});
    t.store(n("wn"), "new_weights", false, t.placeOf(n("w")));
    t.store(n("mn"), "optimizer", false, t.placeOf(n("m")));
    t.store(n("sn"), "optimizer", false, t.placeOf(n("s")));
  }
  // Scalars, an update without and one with a tail.
  expectKernels(t.stage("update"), 3);
}

static void batchNorm(Text &t, const std::string &full, const std::string &one,
                      const std::string &inverse) {
  t.reduce("sum", "sum", "x", "0, 2, 3", one);
  t.constant("inv", inverse, one).op("mean", "mul", {"sum", "inv"});
  t.op("meanB", "broadcast", {"mean"}, full).op("d", "sub", {"x", "meanB"});
  t.op("d2", "mul", {"d", "d"}).reduce("sum2", "sum", "d2", "0, 2, 3", one);
  t.op("var", "mul", {"sum2", "inv"}).constant("eps", "1.0e-5", one);
  t.op("ve", "add", {"var", "eps"}).op("rstd", "rsqrt", {"ve"});
  t.op("rstdB", "broadcast", {"rstd"}, full).op("xhat", "mul", {"d", "rstdB"});
}

TEST(Groups, BatchNormForward) {
  for (auto [c, inverse] :
       {std::pair("6", "0.005102041"), std::pair("16", "0.005102041")}) {
    std::string full = std::string("4x") + c + "x7x7xf32";
    std::string one = std::string("1x") + c + "x1x1xf32";
    Text t;
    t.load("x", "in", full).load("gamma", "weights", std::string(c) + "xf32");
    t.load("beta", "weights", std::string(c) + "xf32");
    batchNorm(t, full, one, inverse);
    t.op("g1", "reshape", {"gamma"}, one).op("gB", "broadcast", {"g1"}, full);
    t.op("b1", "reshape", {"beta"}, one).op("bB", "broadcast", {"b1"}, full);
    t.op("s", "mul", {"xhat", "gB"}).op("z", "add", {"s", "bB"});
    t.op("y", "relu", {"z"}).store("y", "out");
    t.op("meanF", "reshape", {"mean"}, std::string(c) + "xf32");
    t.store("meanF", "stats").store("rstd", "stash");
    expectKernels(t.stage(), 1);
  }
}

TEST(Groups, BatchNormBackward) {
  std::string full = "4x6x7x7xf32", one = "1x6x1x1xf32";
  Text t;
  t.load("x", "stash", full)
      .load("y", "stash", full)
      .load("dy", "grad_in", full);
  t.load("mean", "stash", one).load("rstd", "stash", one);
  t.load("gamma", "weights", "6xf32");
  t.constant("zero", "0.0", full);
  t.op("on", "compare", {"y", "zero"}, "4x6x7x7xi1", "{predicate = \"gt\"}");
  t.op("dz", "select", {"on", "dy", "zero"}, full);
  t.op("meanB", "broadcast", {"mean"}, full).op("d", "sub", {"x", "meanB"});
  t.op("rstdB", "broadcast", {"rstd"}, full).op("xhat", "mul", {"d", "rstdB"});
  t.op("zx", "mul", {"dz", "xhat"});
  t.reduce("dgamma", "sum", "zx", "0, 2, 3", one);
  t.reduce("dbeta", "sum", "dz", "0, 2, 3", one);
  t.constant("inv", "0.005102041", one);
  t.op("m1", "mul", {"dbeta", "inv"}).op("m2", "mul", {"dgamma", "inv"});
  t.op("m1B", "broadcast", {"m1"}, full).op("m2B", "broadcast", {"m2"}, full);
  t.op("e", "sub", {"dz", "m1B"}).op("f", "mul", {"xhat", "m2B"});
  t.op("h", "sub", {"e", "f"}).op("g1", "reshape", {"gamma"}, one);
  t.op("gr", "mul", {"g1", "rstd"}).op("grB", "broadcast", {"gr"}, full);
  t.op("dx", "mul", {"h", "grB"}).store("dx", "grad_out");
  t.op("dg", "reshape", {"dgamma"}, "6xf32")
      .op("db", "reshape", {"dbeta"}, "6xf32");
  t.store("dg", "gradients", true).store("db", "gradients", true);
  expectKernels(t.stage("backward"), 1, 5e-6);
}

/// Weight gradients go straight to their accumulators.
TEST(Groups, LinearBackward) {
  Text t;
  t.load("x", "stash", "2x35x20xf32").load("dy", "grad_in", "2x35x30xf32");
  t.load("w", "weights", "20x30xf32").load("ids", "in", "2x35xi64");
  t.op("x2", "reshape", {"x"}, "70x20xf32")
      .op("d2", "reshape", {"dy"}, "70x30xf32");
  t.op("dw", "matmul", {"x2", "d2"}, "20x30xf32", "{transpose_a}");
  t.op("dwT", "transpose", {"dw"}, "30x20xf32",
       "{permutation = array<i64: 1, 0>}");
  t.op("dx2", "matmul", {"d2", "w"}, "70x20xf32", "{transpose_b}");
  t.op("dx", "reshape", {"dx2"}, "2x35x20xf32");
  t.reduce("db1", "sum", "d2", "0", "1x30xf32")
      .op("db", "reshape", {"db1"}, "30xf32");
  t.op("emb", "scatter_add", {"ids", "dx"}, "50x20xf32", "{axis = 0 : i64}");
  t.store("dwT", "gradients", true).store("db", "gradients", true);
  t.store("emb", "gradients", true).store("dx", "grad_out");
  expectKernels(t.stage("backward"), 2, 5e-6, 50);
  StageRunner runner(t.stage("backward"));
  EXPECT_LE(runner.code().tasks.front().workspaceBytes, 3 * 30 * 4 + 64);
}
