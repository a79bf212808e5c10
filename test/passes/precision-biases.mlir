// A product and its bias are rounded together where only rounded numbers of
// their sum are read, as libraries add biases; the bias's gradient is not.
// RUN: pipec-opt %s --nn-precision="type=bf16 biases=true" --cse | FileCheck %s
// RUN: pipec-opt %s --nn-precision=type=bf16 --cse | FileCheck %s --check-prefix=PLAIN
// RUN: pipec-opt %s --nn-precision="type=bf16 biases=true" --nn-split-uses --pipe-assign-stages --nn-differentiate --cse --canonicalize | FileCheck %s --check-prefix=GRADIENT

nn.parameter @w : tensor<8x8xf32> {role = "weight", file = 0 : i64, offset = 0 : i64, length = 256 : i64}
nn.parameter @b : tensor<8xf32> {role = "weight", file = 0 : i64, offset = 256 : i64, length = 32 : i64}
nn.parameter @c : tensor<8xf32> {role = "weight", file = 0 : i64, offset = 288 : i64, length = 32 : i64}

// CHECK-LABEL: func.func @main
// CHECK-DAG:  %[[B:.*]] = nn.weight @b
// CHECK-DAG:  %[[N:.*]] = nn.cast %[[B]] : (tensor<8xf32>) -> tensor<8xbf16>
// CHECK-DAG:  %[[F:.*]] = nn.cast %[[N]] : (tensor<8xbf16>) -> tensor<8xf32>
// CHECK-DAG:  %[[R:.*]] = nn.reshape %[[F]] : (tensor<8xf32>) -> tensor<1x8xf32>
// CHECK-DAG:  %[[D:.*]] = nn.broadcast %[[R]]
// CHECK-DAG:  %[[P:.*]] = nn.matmul %{{.*}}, %{{.*}} {wide} : (tensor<4x8xbf16>, tensor<8x8xbf16>) -> tensor<4x8xf32>
// CHECK:      %[[S:.*]] = nn.add %[[P]], %[[D]]
// CHECK-NEXT: %[[Y:.*]] = nn.cast %[[S]] : (tensor<4x8xf32>) -> tensor<4x8xbf16>
// The second sum's tanh reads it whole: its product is rounded.
// CHECK:      %[[T:.*]] = nn.transpose %[[Y]]
// CHECK:      nn.matmul %[[T]], %{{.*}} {transpose_a} : (tensor<8x4xbf16>, tensor<8x8xbf16>) -> tensor<4x8xbf16>
// PLAIN-NOT:  wide

// GRADIENT:     %[[G:.*]] = nn.reduce %{{.*}} {axes = array<i64: 0>, kind = "sum", pipe.phase = "backward"{{.*}}} : (tensor<4x8xf32>) -> tensor<1x8xf32>
// GRADIENT-NOT: tensor<8xf32>) -> tensor<8xbf16>
// GRADIENT:     pipe.accumulate %{{.*}} into @b
func.func @main(%x: tensor<4x8xf32>) -> tensor<f32> {
  %w = nn.weight @w : tensor<8x8xf32>
  %p = nn.matmul %x, %w : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %b = nn.weight @b : tensor<8xf32>
  %b1 = nn.reshape %b : (tensor<8xf32>) -> tensor<1x8xf32>
  %b2 = nn.broadcast %b1 : (tensor<1x8xf32>) -> tensor<4x8xf32>
  %h = nn.add %p, %b2 : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  %g = nn.transpose %h {permutation = array<i64: 1, 0>} : (tensor<4x8xf32>) -> tensor<8x4xf32>
  %q = nn.matmul %g, %w {transpose_a} : (tensor<8x4xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %c = nn.weight @c : tensor<8xf32>
  %c1 = nn.reshape %c : (tensor<8xf32>) -> tensor<1x8xf32>
  %c2 = nn.broadcast %c1 : (tensor<1x8xf32>) -> tensor<4x8xf32>
  %i = nn.add %q, %c2 : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  %t = nn.tanh %i : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %r = nn.reduce %t {kind = "sum", axes = array<i64: 0, 1>} : (tensor<4x8xf32>) -> tensor<1x1xf32>
  %l = nn.reshape %r : (tensor<1x1xf32>) -> tensor<f32>
  return %l : tensor<f32>
}
