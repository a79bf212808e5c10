//===- GradientCases.cpp - ops whose gradients are checked ----------------===//
#include "GradientCases.h"

namespace {

void addUnary(std::vector<GradientCase> &cases) {
  struct Unary {
    const char *name;
    double low, high;
  };
  for (Unary u : {Unary{"neg", -2, 2},
                  {"abs", -2, 2},
                  {"exp", -2, 2},
                  {"log", 0.2, 3},
                  {"log1p", -0.7, 3},
                  {"sqrt", 0.2, 3},
                  {"rsqrt", 0.2, 3},
                  {"reciprocal", 0.3, 3},
                  {"tanh", -3, 3},
                  {"erf", -2, 2},
                  {"sigmoid", -4, 4},
                  {"relu", -2, 2},
                  {"sin", -3, 3},
                  {"cos", -3, 3}})
    cases.push_back({u.name,
                     {"3x5"},
                     "%y = nn." + std::string(u.name) +
                         " %0 : (tensor<3x5xf64>) -> tensor<3x5xf64>",
                     u.low,
                     u.high});
}

void addBinary(std::vector<GradientCase> &cases) {
  for (const char *name : {"add", "sub", "mul", "max", "min"})
    cases.push_back({name,
                     {"3x5", "3x5"},
                     "%y = nn." + std::string(name) +
                         " %0, %1 : (tensor<3x5xf64>, tensor<3x5xf64>) -> "
                         "tensor<3x5xf64>"});
  for (const char *name : {"div", "pow"})
    cases.push_back({name,
                     {"3x5", "3x5"},
                     "%y = nn." + std::string(name) +
                         " %0, %1 : (tensor<3x5xf64>, tensor<3x5xf64>) -> "
                         "tensor<3x5xf64>",
                     0.3,
                     2});
  cases.push_back({"mod",
                   {"3x5", "3x5"},
                   "%y = nn.mod %0, %1 {fmod} : (tensor<3x5xf64>, "
                   "tensor<3x5xf64>) -> tensor<3x5xf64>",
                   -3,
                   2});
  cases.push_back(
      {"same_operand_twice",
       {"4"},
       "%y = nn.mul %0, %0 : (tensor<4xf64>, tensor<4xf64>) -> tensor<4xf64>"});
  cases.push_back(
      {"select",
       {"4x2", "4x2"},
       "%z = nn.constant dense<0.0> : tensor<4x2xf64>\n"
       "%c = nn.compare %0, %z {predicate = \"gt\"} : (tensor<4x2xf64>, "
       "tensor<4x2xf64>) -> tensor<4x2xi1>\n"
       "%y = nn.select %c, %0, %1 : (tensor<4x2xi1>, tensor<4x2xf64>, "
       "tensor<4x2xf64>) -> tensor<4x2xf64>"});
}

void addShape(std::vector<GradientCase> &cases) {
  auto add = [&](const char *name, std::vector<std::string> shapes,
                 const char *body) { cases.push_back({name, shapes, body}); };
  add("broadcast", {"1x3x1"},
      "%y = nn.broadcast %0 : (tensor<1x3x1xf64>) -> tensor<2x3x4xf64>");
  add("reshape", {"2x6"},
      "%y = nn.reshape %0 : (tensor<2x6xf64>) -> tensor<3x4xf64>");
  add("transpose", {"2x3x4"},
      "%y = nn.transpose %0 {permutation = array<i64: 2, 0, 1>} : "
      "(tensor<2x3x4xf64>) -> tensor<4x2x3xf64>");
  add("slice", {"5x6"},
      "%y = nn.slice %0 {starts = array<i64: 1, 0>, strides = array<i64: 1, "
      "2>} : (tensor<5x6xf64>) -> tensor<3x3xf64>");
  add("slice_backwards", {"5x6"},
      "%y = nn.slice %0 {starts = array<i64: 4, 5>, strides = array<i64: -2, "
      "-1>} : (tensor<5x6xf64>) -> tensor<2x4xf64>");
  add("pad", {"2x3"},
      "%y = nn.pad %0 {low = array<i64: 1, 0>, high = array<i64: 0, 2>, "
      "interior = array<i64: 0, 1>, value = 0.5} : (tensor<2x3xf64>) -> "
      "tensor<3x7xf64>");
  add("reverse", {"2x3"},
      "%y = nn.reverse %0 {axes = array<i64: 1>} : (tensor<2x3xf64>) -> "
      "tensor<2x3xf64>");
  add("concat", {"2x3", "2x1"},
      "%y = nn.concat %0, %1 {axis = 1 : i64} : (tensor<2x3xf64>, "
      "tensor<2x1xf64>) -> tensor<2x4xf64>");
}

void addIndexing(std::vector<GradientCase> &cases) {
  auto add = [&](const char *name, std::vector<std::string> shapes,
                 const char *body) { cases.push_back({name, shapes, body}); };
  add("gather_repeated_and_negative", {"2x5x3"},
      "%i = nn.constant dense<[[1, 1], [-1, 0]]> : tensor<2x2xi64>\n"
      "%y = nn.gather %0, %i {axis = 1 : i64} : (tensor<2x5x3xf64>, "
      "tensor<2x2xi64>) -> tensor<2x2x2x3xf64>");
  add("scatter_add", {"3x2"},
      "%i = nn.constant dense<[0, 2, 0]> : tensor<3xi64>\n"
      "%y = nn.scatter_add %i, %0 {axis = 0 : i64} : (tensor<3xi64>, "
      "tensor<3x2xf64>) -> tensor<4x2xf64>");
  for (const char *flags :
       {"", ", exclusive", ", reverse", ", exclusive, reverse"})
    cases.push_back({"cumsum" + std::string(flags),
                     {"2x4"},
                     "%y = nn.cumsum %0 {axis = 1 : i64" + std::string(flags) +
                         "} : (tensor<2x4xf64>) -> tensor<2x4xf64>"});
}

void addReductions(std::vector<GradientCase> &cases) {
  for (const char *kind : {"sum", "max", "min", "prod"})
    cases.push_back({"reduce_" + std::string(kind),
                     {"2x3x4"},
                     "%y = nn.reduce %0 {axes = array<i64: 0, 2>, kind = \"" +
                         std::string(kind) +
                         "\"} : (tensor<2x3x4xf64>) -> tensor<1x3x1xf64>"});
  cases.push_back(
      {"softmax",
       {"3x5"},
       "%y = nn.softmax %0 : (tensor<3x5xf64>) -> tensor<3x5xf64>"});
}

void addContractions(std::vector<GradientCase> &cases) {
  struct Variant {
    const char *name, *a, *b, *flags;
  };
  for (Variant v : {Variant{"nn", "2x3x4", "2x4x5", ""},
                    {"tn", "2x4x3", "2x4x5", " {transpose_a}"},
                    {"nt", "2x3x4", "2x5x4", " {transpose_b}"},
                    {"tt", "2x4x3", "2x5x4", " {transpose_a, transpose_b}"}})
    cases.push_back({"matmul_" + std::string(v.name),
                     {v.a, v.b},
                     "%y = nn.matmul %0, %1" + std::string(v.flags) +
                         " : (tensor<" + v.a + "xf64>, tensor<" + v.b +
                         "xf64>) -> tensor<2x3x5xf64>"});
  auto conv = [&](const char *name, const char *x, const char *w, const char *y,
                  const char *attributes) {
    cases.push_back({name,
                     {x, w},
                     "%y = nn.conv %0, %1 {" + std::string(attributes) +
                         "} : (tensor<" + x + "xf64>, tensor<" + w +
                         "xf64>) -> tensor<" + y + "xf64>"});
  };
  conv("conv_strided_padded", "2x3x5x6", "4x3x3x2", "2x4x3x4",
       "strides = array<i64: 2, 2>, dilations = array<i64: 1, 1>, pads_low = "
       "array<i64: 1, 0>, pads_high = array<i64: 1, 2>, groups = 1 : i64");
  conv("conv_grouped_dilated", "1x4x7", "6x2x2", "1x6x5",
       "strides = array<i64: 1>, dilations = array<i64: 2>, pads_low = "
       "array<i64: 0>, pads_high = array<i64: 0>, groups = 2 : i64");
  conv("conv_depthwise", "2x3x4x4", "3x1x3x3", "2x3x2x2",
       "strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, pads_low = "
       "array<i64: 0, 0>, pads_high = array<i64: 0, 0>, groups = 3 : i64");
  cases.push_back(
      {"conv_transposed",
       {"2x4x3", "4x2x3"},
       "%y = nn.conv_grad_input %0, %1 {strides = array<i64: 2>, dilations = "
       "array<i64: 1>, pads_low = array<i64: 1>, pads_high = array<i64: 0>, "
       "groups = 1 : i64} : (tensor<2x4x3xf64>, tensor<4x2x3xf64>) -> "
       "tensor<2x2x6xf64>"});
}

void addPools(std::vector<GradientCase> &cases) {
  const std::string window =
      "kernel = array<i64: 3, 2>, strides = array<i64: 2, 1>, dilations = "
      "array<i64: 1, 1>, pads_low = array<i64: 1, 0>, pads_high = array<i64: "
      "1, 1>";
  cases.push_back({"max_pool",
                   {"2x2x5x4"},
                   "%y, %i = nn.max_pool %0 {" + window +
                       "} : (tensor<2x2x5x4xf64>) -> (tensor<2x2x3x4xf64>, "
                       "tensor<2x2x3x4xi32>)"});
  for (const char *count : {"", ", count_pad"})
    cases.push_back({"avg_pool" + std::string(count),
                     {"2x2x5x4"},
                     "%y = nn.avg_pool %0 {" + window + count +
                         "} : (tensor<2x2x5x4xf64>) -> tensor<2x2x3x4xf64>"});
}

/// Compositions, written out as the importer and nn-attach-loss write them.
void addCompositions(std::vector<GradientCase> &cases) {
  cases.push_back({"layer_norm", {"4x6", "6", "6"}, R"(
    %n = nn.constant dense<6.0> : tensor<4x1xf64>
    %e = nn.constant dense<1.0e-5> : tensor<4x1xf64>
    %s = nn.reduce %0 {axes = array<i64: 1>, kind = "sum"} : (tensor<4x6xf64>) -> tensor<4x1xf64>
    %m = nn.div %s, %n : (tensor<4x1xf64>, tensor<4x1xf64>) -> tensor<4x1xf64>
    %mb = nn.broadcast %m : (tensor<4x1xf64>) -> tensor<4x6xf64>
    %d = nn.sub %0, %mb : (tensor<4x6xf64>, tensor<4x6xf64>) -> tensor<4x6xf64>
    %q = nn.mul %d, %d : (tensor<4x6xf64>, tensor<4x6xf64>) -> tensor<4x6xf64>
    %qs = nn.reduce %q {axes = array<i64: 1>, kind = "sum"} : (tensor<4x6xf64>) -> tensor<4x1xf64>
    %v = nn.div %qs, %n : (tensor<4x1xf64>, tensor<4x1xf64>) -> tensor<4x1xf64>
    %ve = nn.add %v, %e : (tensor<4x1xf64>, tensor<4x1xf64>) -> tensor<4x1xf64>
    %r = nn.rsqrt %ve : (tensor<4x1xf64>) -> tensor<4x1xf64>
    %rb = nn.broadcast %r : (tensor<4x1xf64>) -> tensor<4x6xf64>
    %x = nn.mul %d, %rb : (tensor<4x6xf64>, tensor<4x6xf64>) -> tensor<4x6xf64>
    %w1 = nn.reshape %1 : (tensor<6xf64>) -> tensor<1x6xf64>
    %wb = nn.broadcast %w1 : (tensor<1x6xf64>) -> tensor<4x6xf64>
    %b1 = nn.reshape %2 : (tensor<6xf64>) -> tensor<1x6xf64>
    %bb = nn.broadcast %b1 : (tensor<1x6xf64>) -> tensor<4x6xf64>
    %xw = nn.mul %x, %wb : (tensor<4x6xf64>, tensor<4x6xf64>) -> tensor<4x6xf64>
    %y = nn.add %xw, %bb : (tensor<4x6xf64>, tensor<4x6xf64>) -> tensor<4x6xf64>)"});
  cases.push_back({"batch_norm", {"4x3x5", "3", "3"}, R"(
    %n = nn.constant dense<20.0> : tensor<1x3x1xf64>
    %e = nn.constant dense<1.0e-5> : tensor<1x3x1xf64>
    %s = nn.reduce %0 {axes = array<i64: 0, 2>, kind = "sum"} : (tensor<4x3x5xf64>) -> tensor<1x3x1xf64>
    %m = nn.div %s, %n : (tensor<1x3x1xf64>, tensor<1x3x1xf64>) -> tensor<1x3x1xf64>
    %mb = nn.broadcast %m : (tensor<1x3x1xf64>) -> tensor<4x3x5xf64>
    %d = nn.sub %0, %mb : (tensor<4x3x5xf64>, tensor<4x3x5xf64>) -> tensor<4x3x5xf64>
    %q = nn.mul %d, %d : (tensor<4x3x5xf64>, tensor<4x3x5xf64>) -> tensor<4x3x5xf64>
    %qs = nn.reduce %q {axes = array<i64: 0, 2>, kind = "sum"} : (tensor<4x3x5xf64>) -> tensor<1x3x1xf64>
    %v = nn.div %qs, %n : (tensor<1x3x1xf64>, tensor<1x3x1xf64>) -> tensor<1x3x1xf64>
    %ve = nn.add %v, %e : (tensor<1x3x1xf64>, tensor<1x3x1xf64>) -> tensor<1x3x1xf64>
    %r = nn.rsqrt %ve : (tensor<1x3x1xf64>) -> tensor<1x3x1xf64>
    %w1 = nn.reshape %1 : (tensor<3xf64>) -> tensor<1x3x1xf64>
    %rw = nn.mul %r, %w1 : (tensor<1x3x1xf64>, tensor<1x3x1xf64>) -> tensor<1x3x1xf64>
    %rb = nn.broadcast %rw : (tensor<1x3x1xf64>) -> tensor<4x3x5xf64>
    %x = nn.mul %d, %rb : (tensor<4x3x5xf64>, tensor<4x3x5xf64>) -> tensor<4x3x5xf64>
    %b1 = nn.reshape %2 : (tensor<3xf64>) -> tensor<1x3x1xf64>
    %bb = nn.broadcast %b1 : (tensor<1x3x1xf64>) -> tensor<4x3x5xf64>
    %y = nn.add %x, %bb : (tensor<4x3x5xf64>, tensor<4x3x5xf64>) -> tensor<4x3x5xf64>)"});
  cases.push_back({"gelu_tanh", {"3x5"}, R"(
    %half = nn.constant dense<0.5> : tensor<3x5xf64>
    %one = nn.constant dense<1.0> : tensor<3x5xf64>
    %a = nn.constant dense<0.044715> : tensor<3x5xf64>
    %c = nn.constant dense<0.79788456080286541> : tensor<3x5xf64>
    %x2 = nn.mul %0, %0 : (tensor<3x5xf64>, tensor<3x5xf64>) -> tensor<3x5xf64>
    %x3 = nn.mul %x2, %0 : (tensor<3x5xf64>, tensor<3x5xf64>) -> tensor<3x5xf64>
    %ax = nn.mul %x3, %a : (tensor<3x5xf64>, tensor<3x5xf64>) -> tensor<3x5xf64>
    %s = nn.add %0, %ax : (tensor<3x5xf64>, tensor<3x5xf64>) -> tensor<3x5xf64>
    %u = nn.mul %s, %c : (tensor<3x5xf64>, tensor<3x5xf64>) -> tensor<3x5xf64>
    %t = nn.tanh %u : (tensor<3x5xf64>) -> tensor<3x5xf64>
    %t1 = nn.add %t, %one : (tensor<3x5xf64>, tensor<3x5xf64>) -> tensor<3x5xf64>
    %h = nn.mul %0, %half : (tensor<3x5xf64>, tensor<3x5xf64>) -> tensor<3x5xf64>
    %y = nn.mul %h, %t1 : (tensor<3x5xf64>, tensor<3x5xf64>) -> tensor<3x5xf64>)"});
  // One op that computes its scores again; a bias, a triangle, other keys.
  cases.push_back({"attention", {"2x3x4", "2x3x4", "2x3x4"}, R"(
    %y, %s, %r = nn.attention %0, %1, %2 {scale = 0.5 : f64} : (tensor<2x3x4xf64>, tensor<2x3x4xf64>, tensor<2x3x4xf64>) -> (tensor<2x3x4xf64>, tensor<2x3x1xf64>, tensor<2x3x1xf64>))"});
  cases.push_back({"attention_causal", {"4x2", "4x2", "4x2"}, R"(
    %y, %s, %r = nn.attention %0, %1, %2 {causal, scale = 1.5 : f64} : (tensor<4x2xf64>, tensor<4x2xf64>, tensor<4x2xf64>) -> (tensor<4x2xf64>, tensor<4x1xf64>, tensor<4x1xf64>))"});
  cases.push_back({"attention_bias", {"2x3", "3x3", "3x3"}, R"(
    %b = nn.constant dense<[[0.5, -1.0, 0xFFF0000000000000], [0xFFF0000000000000, 0xFFF0000000000000, 0xFFF0000000000000]]> : tensor<2x3xf64>
    %y, %s, %r = nn.attention %0, %1, %2, %b {scale = 1.0 : f64, zero_rows} : (tensor<2x3xf64>, tensor<3x3xf64>, tensor<3x3xf64>, tensor<2x3xf64>) -> (tensor<2x3xf64>, tensor<2x1xf64>, tensor<2x1xf64>))"});
  // All of a row's scores replaced: equal weights, no gradient of the scores.
  cases.push_back({"attention_replaced", {"2x3", "3x3", "3x3"}, R"(
    %b = nn.constant dense<[[-3.4028234663852886e38, 0.0, 0.0], [-3.4028234663852886e38, -3.4028234663852886e38, 0xFFF0000000000000]]> : tensor<2x3xf64>
    %y, %s, %r = nn.attention %0, %1, %2, %b {scale = 1.0 : f64, replaces} : (tensor<2x3xf64>, tensor<3x3xf64>, tensor<3x3xf64>, tensor<2x3xf64>) -> (tensor<2x3xf64>, tensor<2x1xf64>, tensor<2x1xf64>))"});
  // -FLT_MAX where the mask is off: the gradient there is 0, never NaN.
  cases.push_back({"masked_softmax", {"3x4"}, R"(
    %k = nn.constant dense<[[true, true, false, false], [true, true, true, false], [true, true, true, true]]> : tensor<3x4xi1>
    %f = nn.constant dense<-3.4028234663852886e38> : tensor<3x4xf64>
    %x = nn.select %k, %0, %f : (tensor<3x4xi1>, tensor<3x4xf64>, tensor<3x4xf64>) -> tensor<3x4xf64>
    %y = nn.softmax %x : (tensor<3x4xf64>) -> tensor<3x4xf64>)"});
  // A row without any score: NaN in the softmax, zeros after the guard.
  cases.push_back({"guarded_softmax", {"3x4"}, R"(
    %k = nn.constant dense<[[true, true, false, false], [false, false, false, false], [true, true, true, true]]> : tensor<3x4xi1>
    %f = nn.constant dense<0xFFF0000000000000> : tensor<3x4xf64>
    %z = nn.constant dense<0.0> : tensor<3x4xf64>
    %x = nn.select %k, %0, %f : (tensor<3x4xi1>, tensor<3x4xf64>, tensor<3x4xf64>) -> tensor<3x4xf64>
    %s = nn.softmax %x : (tensor<3x4xf64>) -> tensor<3x4xf64>
    %n = nn.is_nan %s : (tensor<3x4xf64>) -> tensor<3x4xi1>
    %y = nn.select %n, %z, %s : (tensor<3x4xi1>, tensor<3x4xf64>, tensor<3x4xf64>) -> tensor<3x4xf64>)"});
}

} // namespace

std::vector<GradientCase> gradientCases() {
  std::vector<GradientCase> cases;
  addUnary(cases);
  addBinary(cases);
  addShape(cases);
  addIndexing(cases);
  addReductions(cases);
  addContractions(cases);
  addPools(cases);
  addCompositions(cases);
  return cases;
}
