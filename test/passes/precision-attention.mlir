// Attention reads rounded queries, keys and values; its masks and row
// statistics stay f32, and so does what its gradients are weighed with.
// RUN: pipec-opt %s --nn-precision=type=bf16 --cse --canonicalize | FileCheck %s
// RUN: pipec-opt %s --nn-precision=type=bf16 --nn-split-uses --pipe-assign-stages --nn-differentiate --cse --canonicalize | FileCheck %s --check-prefix=GRADIENT

nn.parameter @w : tensor<8x8xf32> {role = "weight", file = 0 : i64, offset = 0 : i64, length = 256 : i64}

// CHECK-LABEL: func.func @main
// CHECK:      %[[Q:.*]] = nn.cast %{{.*}} : (tensor<8x8xf32>) -> tensor<8x8xbf16>
// CHECK:      nn.attention %{{.*}}, %{{.*}}, %{{.*}}, %arg1 {scale = 5.000000e-01 : f64} : (tensor<8x8xbf16>, tensor<8x8xbf16>, tensor<8x8xbf16>, tensor<8x8xf32>) -> (tensor<8x8xbf16>, tensor<8x1xf32>, tensor<8x1xf32>)
// CHECK-NEXT: nn.cast %{{.*}} : (tensor<8x8xbf16>) -> tensor<8x8xf32>

// The row sums of dy * y in f32; one op for the queries, one for keys and values.
// GRADIENT-LABEL: func.func @main
// GRADIENT: %[[Y:.*]], %[[TOPS:.*]], %[[SHARES:.*]] = nn.attention
// GRADIENT: %[[DY:.*]] = nn.cast %{{.*}} : (tensor<8x8xf32>) -> tensor<8x8xbf16>
// GRADIENT: %[[DELTA:.*]] = nn.reduce %{{.*}} {axes = array<i64: 1>, kind = "sum"{{.*}}} : (tensor<8x8xf32>) -> tensor<8x1xf32>
// GRADIENT: nn.attention_grad_query %{{.*}}, %{{.*}}, %{{.*}}, %[[DY]], %[[TOPS]], %[[SHARES]], %[[DELTA]], %arg1 {
// GRADIENT: nn.attention_grad_keys %{{.*}}, %{{.*}}, %{{.*}}, %[[DY]], %[[TOPS]], %[[SHARES]], %[[DELTA]], %arg1 {
func.func @main(%x: tensor<8x8xf32>, %m: tensor<8x8xf32>) -> tensor<f32> {
  %w = nn.weight @w : tensor<8x8xf32>
  %h = nn.matmul %x, %w : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %t = nn.tanh %h : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %y, %s, %n = nn.attention %h, %t, %x, %m {scale = 0.5 : f64} : (tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>) -> (tensor<8x8xf32>, tensor<8x1xf32>, tensor<8x1xf32>)
  %r = nn.reduce %y {kind = "sum", axes = array<i64: 0, 1>} : (tensor<8x8xf32>) -> tensor<1x1xf32>
  %l = nn.reshape %r : (tensor<1x1xf32>) -> tensor<f32>
  return %l : tensor<f32>
}
