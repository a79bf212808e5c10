//===- StageText.cpp - stages of training networks, as text ---------------===//
#include "test/unit/target/StageText.h"

using namespace pipec::test;
using namespace pipec;
using std::string;

/// Bytes of a type such as 4x3xf32, rounded up to 64.
static int64_t bytesOf(const string &type) {
  int64_t count = 1;
  size_t at = 0;
  while (isdigit(type[at])) {
    size_t end = type.find('x', at);
    count *= std::stoll(type.substr(at, end - at));
    at = end + 1;
  }
  int64_t bits = std::stoll(type.substr(type.find_first_of("0123456789", at)));
  return (count * (bits < 8 ? 1 : bits / 8) + 63) / 64 * 64;
}

StageText &StageText::load(const string &name, const string &region,
                           const string &type) {
  int64_t &offset = offsets[region];
  text += "  %" + name + " = pipe.load \"" + region + "\" [" +
          std::to_string(offset) + "] : tensor<" + type + ">\n";
  types[name] = type;
  places[name] = offset;
  offset += bytesOf(type);
  return *this;
}

StageText &StageText::store(const string &name, const string &region,
                            bool accumulate, int64_t at) {
  int64_t &offset = offsets[region + " stored"];
  if (at < 0) {
    at = offset;
    offset += bytesOf(types[name]);
  }
  text += "  pipe.store %" + name + ", \"" + region + "\" [" +
          std::to_string(at) + "] " + (accumulate ? "accumulate " : "") +
          ": tensor<" + types[name] + ">\n";
  return *this;
}

StageText &StageText::scalar(const string &name) {
  text += "  %" + name + " = pipe.scalar \"" + name + "\" : tensor<f64>\n";
  types[name] = "f64";
  return *this;
}

StageText &StageText::op(const string &name, const string &op,
                         const std::vector<string> &operands, string type,
                         const string &attributes) {
  if (type.empty())
    type = types[operands[0]];
  text += "  %" + name + " = nn." + op;
  string separator = " ", from;
  for (const string &operand : operands) {
    text += separator + "%" + operand;
    from += (from.empty() ? "tensor<" : ", tensor<") + types[operand] + ">";
    separator = ", ";
  }
  text += " " + attributes + " : (" + from + ") -> tensor<" + type + ">\n";
  types[name] = type;
  return *this;
}

StageText &StageText::constant(const string &name, const string &value,
                               const string &type) {
  text += "  %" + name + " = nn.constant dense<" + value + "> : tensor<" +
          type + ">\n";
  types[name] = type;
  return *this;
}

StageText &StageText::reduce(const string &name, const string &kind,
                             const string &x, const string &axes,
                             const string &type) {
  return op(name, "reduce", {x}, type,
            "{kind = \"" + kind + "\", axes = array<i64: " + axes + ">}");
}

string StageText::stage(const string &task) const {
  return "func.func @f() attributes {pipe.task = \"" + task + "\"} {\n" + text +
         "  return\n}\n";
}

//===----------------------------------------------------------------------===//
// Layer norm
//===----------------------------------------------------------------------===//

StageText test::layerNormForward(const string &rows, const string &c,
                                 const string &inverse) {
  string full = rows + "x" + c + "xf32", row = rows + "x1xf32";
  StageText t;
  t.load("a", "in", full).load("b", "in", full);
  t.load("gamma", "weights", c + "xf32").load("beta", "weights", c + "xf32");
  t.op("x", "add", {"a", "b"});
  t.reduce("sum", "sum", "x", "1", row);
  t.constant("inv", inverse, row).op("mean", "mul", {"sum", "inv"});
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

StageText test::layerNormBackward(const string &rows, const string &c,
                                  const string &inverse, const string &before) {
  string full = rows + "x" + c + "xf32", row = rows + "x1xf32";
  StageText t;
  t.load("dy", "grad_in", full);
  t.load(before.empty() ? "x" : "z", "stash", full);
  if (!before.empty())
    t.op("x", before, {"z"});
  t.load("mean", "stash", row).load("rstd", "stash", row);
  t.load("gamma", "weights", c + "xf32");
  t.op("meanB", "broadcast", {"mean"}, full);
  t.op("d", "sub", {"x", "meanB"}).op("rstdB", "broadcast", {"rstd"}, full);
  t.op("xhat", "mul", {"d", "rstdB"});
  t.op("g1", "reshape", {"gamma"}, "1x" + c + "xf32");
  t.op("gB", "broadcast", {"g1"}, full);
  t.op("dyg", "mul", {"dy", "gB"}).op("dygx", "mul", {"dyg", "xhat"});
  t.reduce("s1", "sum", "dyg", "1", row).reduce("s2", "sum", "dygx", "1", row);
  t.constant("inv", inverse, row);
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
  return t;
}

//===----------------------------------------------------------------------===//
// GELU and softmax
//===----------------------------------------------------------------------===//

/// 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
void test::gelu(StageText &t, const string &shape) {
  t.constant("three", "3.0", shape).op("x3", "pow", {"x", "three"});
  t.constant("c0", "0.044715", shape).op("t0", "mul", {"x3", "c0"});
  t.op("t1", "add", {"x", "t0"}).constant("c1", "0.7978845834732056", shape);
  t.op("t2", "mul", {"t1", "c1"}).op("t3", "tanh", {"t2"});
  t.constant("one", "1.0", shape).op("t4", "add", {"t3", "one"});
  t.constant("half", "0.5", shape).op("t5", "mul", {"x", "half"});
  t.op("y", "mul", {"t5", "t4"});
}

/// dy (0.5 (1 + t) + 0.5 x (1 - t^2) c1 (1 + 3 c0 x^2)), t the tanh
void test::geluGradient(StageText &t, const string &shape) {
  t.op("a", "mul", {"t4", "half"}).op("tt", "mul", {"t3", "t3"});
  t.op("u", "sub", {"one", "tt"}).op("v", "mul", {"t5", "u"});
  t.op("x2", "mul", {"x", "x"}).constant("c2", "0.134145", shape);
  t.op("w", "mul", {"x2", "c2"}).op("w1", "add", {"w", "one"});
  t.op("w2", "mul", {"w1", "c1"}).op("z", "mul", {"v", "w2"});
  t.op("g", "add", {"a", "z"}).op("dx", "mul", {"dy", "g"});
}

void test::softmaxGradient(StageText &t, const string &full, const string &row,
                           const string &axis) {
  t.op("w", "mul", {"dp", "p"}).reduce("s", "sum", "w", axis, row);
  t.op("sB", "broadcast", {"s"}, full).op("c", "sub", {"dp", "sB"});
  t.op("g", "mul", {"p", "c"});
}

//===----------------------------------------------------------------------===//
// Cross-entropy
//===----------------------------------------------------------------------===//

StageText test::crossEntropy(const string &batch, int tokens,
                             const string &vocabulary, bool backward) {
  string n = std::to_string(tokens), less = std::to_string(tokens - 1);
  string rows = batch + "x" + less, full = rows + "x" + vocabulary;
  string all = batch + "x" + n + "x" + vocabulary + "xf32";
  StageText t;
  t.load("all", "in", all).load("ids", "in", batch + "x" + n + "xi64");
  t.op("x", "slice", {"all"}, full + "xf32",
       "{starts = array<i64: 0, 0, 0>, strides = array<i64: 1, 1, 1>}");
  t.op("label", "slice", {"ids"}, rows + "xi64",
       "{starts = array<i64: 0, 1>, strides = array<i64: 1, 1>}");
  t.reduce("max", "max", "x", "2", rows + "x1xf32");
  t.op("maxB", "broadcast", {"max"}, full + "xf32");
  t.op("c", "sub", {"x", "maxB"}).op("e", "exp", {"c"});
  t.reduce("sum", "sum", "e", "2", rows + "x1xf32").op("lse", "log", {"sum"});
  t.op("lseB", "broadcast", {"lse"}, full + "xf32");
  t.op("logp", "sub", {"c", "lseB"});
  t.op("i", "iota", {}, full + "xi64", "{axis = 2 : i64}");
  t.op("l3", "reshape", {"label"}, rows + "x1xi64");
  t.op("lB", "broadcast", {"l3"}, full + "xi64");
  t.op("hit", "compare", {"i", "lB"}, full + "xi1", "{predicate = \"eq\"}");
  t.constant("zero", "0.0", full + "xf32");
  t.op("picked", "select", {"hit", "logp", "zero"}, full + "xf32");
  t.reduce("nll", "sum", "picked", "2", rows + "x1xf32");
  t.reduce("total", "sum", "nll", "0, 1", "1x1x1xf32");
  t.constant("n", "-0.125", "1x1x1xf32").op("mean", "mul", {"total", "n"});
  t.op("loss", "reshape", {"mean"}, "f32").store("loss", "loss");
  t.store("max", "stash").store("lse", "stash");
  if (!backward)
    return t;
  // (exp(logp) - hit) / 8, padded to every position
  t.op("prob", "exp", {"logp"}).op("one", "cast", {"hit"}, full + "xf32");
  t.op("diff", "sub", {"prob", "one"})
      .constant("eighth", "0.125", full + "xf32");
  t.op("dx", "mul", {"diff", "eighth"});
  t.op("dall", "pad", {"dx"}, all,
       "{low = array<i64: 0, 0, 0>, high = array<i64: 0, 1, 0>, interior = "
       "array<i64: 0, 0, 0>}");
  t.store("dall", "grad_out");
  return t;
}

//===----------------------------------------------------------------------===//
// Batch norm
//===----------------------------------------------------------------------===//

StageText test::batchNormForward(const string &n, const string &c,
                                 const string &plane, const string &inverse) {
  string full = n + "x" + c + "x" + plane + "xf32", one = "1x" + c + "x1x1xf32";
  StageText t;
  t.load("x", "in", full).load("gamma", "weights", c + "xf32");
  t.load("beta", "weights", c + "xf32");
  t.reduce("sum", "sum", "x", "0, 2, 3", one);
  t.constant("inv", inverse, one).op("mean", "mul", {"sum", "inv"});
  t.op("meanB", "broadcast", {"mean"}, full).op("d", "sub", {"x", "meanB"});
  t.op("d2", "mul", {"d", "d"}).reduce("sum2", "sum", "d2", "0, 2, 3", one);
  t.op("var", "mul", {"sum2", "inv"}).constant("eps", "1.0e-5", one);
  t.op("ve", "add", {"var", "eps"}).op("rstd", "rsqrt", {"ve"});
  t.op("rstdB", "broadcast", {"rstd"}, full).op("xhat", "mul", {"d", "rstdB"});
  t.op("g1", "reshape", {"gamma"}, one).op("gB", "broadcast", {"g1"}, full);
  t.op("b1", "reshape", {"beta"}, one).op("bB", "broadcast", {"b1"}, full);
  t.op("s", "mul", {"xhat", "gB"}).op("z", "add", {"s", "bB"});
  t.op("y", "relu", {"z"}).store("y", "out");
  t.op("meanF", "reshape", {"mean"}, c + "xf32");
  t.store("meanF", "stats").store("rstd", "stash");
  return t;
}

StageText test::batchNormBackward(const string &n, const string &c,
                                  const string &plane, const string &inverse) {
  string dims = n + "x" + c + "x" + plane, full = dims + "xf32";
  string one = "1x" + c + "x1x1xf32";
  StageText t;
  t.load("x", "stash", full).load("y", "stash", full);
  t.load("dy", "grad_in", full);
  t.load("mean", "stash", one).load("rstd", "stash", one);
  t.load("gamma", "weights", c + "xf32").constant("zero", "0.0", full);
  t.op("on", "compare", {"y", "zero"}, dims + "xi1", "{predicate = \"gt\"}");
  t.op("dz", "select", {"on", "dy", "zero"}, full);
  t.op("meanB", "broadcast", {"mean"}, full).op("d", "sub", {"x", "meanB"});
  t.op("rstdB", "broadcast", {"rstd"}, full).op("xhat", "mul", {"d", "rstdB"});
  t.op("zx", "mul", {"dz", "xhat"});
  t.reduce("dgamma", "sum", "zx", "0, 2, 3", one);
  t.reduce("dbeta", "sum", "dz", "0, 2, 3", one);
  t.constant("inv", inverse, one);
  t.op("m1", "mul", {"dbeta", "inv"}).op("m2", "mul", {"dgamma", "inv"});
  t.op("m1B", "broadcast", {"m1"}, full).op("m2B", "broadcast", {"m2"}, full);
  t.op("e", "sub", {"dz", "m1B"}).op("f", "mul", {"xhat", "m2B"});
  t.op("h", "sub", {"e", "f"}).op("g1", "reshape", {"gamma"}, one);
  t.op("gr", "mul", {"g1", "rstd"}).op("grB", "broadcast", {"gr"}, full);
  t.op("dx", "mul", {"h", "grB"}).store("dx", "grad_out");
  t.op("dg", "reshape", {"dgamma"}, c + "xf32");
  t.op("db", "reshape", {"dbeta"}, c + "xf32");
  t.store("dg", "gradients", true).store("db", "gradients", true);
  return t;
}

//===----------------------------------------------------------------------===//
// AdamW
//===----------------------------------------------------------------------===//

void test::adamWScalars(StageText &t) {
  t.scalar("lr_factor").scalar("grad_scale").scalar("update");
  t.constant("lr0", "1.0e-3", "f64").op("lr", "mul", {"lr0", "lr_factor"});
  t.constant("b1d", "0.9", "f64").constant("b2d", "0.999", "f64");
  t.constant("oned", "1.0", "f64");
  t.op("p1", "pow", {"b1d", "update"}).op("p2", "pow", {"b2d", "update"});
  t.op("bc1", "sub", {"oned", "p1"}).op("bc2", "sub", {"oned", "p2"});
  t.op("step", "div", {"lr", "bc1"}).op("root", "sqrt", {"bc2"});
}

void test::adamWUpdate(StageText &t, const string &prefix, const string &type,
                       const string &ones) {
  auto n = [&](const string &name) { return prefix + name; };
  auto spread = [&](const string &name, const string &from) {
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
  t.op(n("m1"), "mul", {n("m"), n("b1")}).op(n("m2"), "mul", {n("g"), n("a1")});
  t.op(n("mn"), "add", {n("m1"), n("m2")});
  t.op(n("gg"), "mul", {n("g"), n("g")});
  t.op(n("s1"), "mul", {n("s"), n("b2")});
  t.op(n("s2"), "mul", {n("gg"), n("a2")});
  t.op(n("sn"), "add", {n("s1"), n("s2")});
  spread("root", "root");
  spread("step", "step");
  t.op(n("q"), "sqrt", {n("sn")}).op(n("q1"), "div", {n("q"), n("root")});
  t.constant(n("eps"), "1.0e-8", type).op(n("q2"), "add", {n("q1"), n("eps")});
  t.op(n("d"), "div", {n("mn"), n("q2")});
  t.op(n("d1"), "mul", {n("d"), n("step")});
  t.constant(n("decay"), "0.99999", type);
  t.op(n("w1"), "mul", {n("w"), n("decay")});
  t.op(n("wn"), "sub", {n("w1"), n("d1")});
  t.store(n("wn"), "new_weights", false, t.placeOf(n("w")));
  t.store(n("mn"), "optimizer", false, t.placeOf(n("m")));
  t.store(n("sn"), "optimizer", false, t.placeOf(n("s")));
}
