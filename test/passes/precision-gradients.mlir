// Gradients of weights leave their products in f32; those of activations are
// rounded, and added in f32.
// RUN: pipec-opt %s --nn-differentiate | FileCheck %s

nn.parameter @w : tensor<8x8xf32> {role = "weight", file = 0 : i64, offset = 0 : i64, length = 256 : i64}

// CHECK: %[[D:.*]] = nn.matmul {{.*}} {pipe.phase = "backward", transpose_a, wide} : (tensor<4x8xbf16>, tensor<4x8xbf16>) -> tensor<8x8xf32>
// CHECK: pipe.accumulate %[[D]] into @w use 0
func.func @main(%x: tensor<4x8xf32>) -> tensor<f32> {
  %w = nn.weight @w : tensor<8x8xf32>
  %a = nn.cast %x : (tensor<4x8xf32>) -> tensor<4x8xbf16>
  %b = nn.cast %w : (tensor<8x8xf32>) -> tensor<8x8xbf16>
  %y = nn.matmul %a, %b : (tensor<4x8xbf16>, tensor<8x8xbf16>) -> tensor<4x8xbf16>
  %f = nn.cast %y : (tensor<4x8xbf16>) -> tensor<4x8xf32>
  %s = nn.reduce %f {kind = "sum", axes = array<i64: 0, 1>} : (tensor<4x8xf32>) -> tensor<1x1xf32>
  %l = nn.reshape %s : (tensor<1x1xf32>) -> tensor<f32>
  return %l : tensor<f32>
}
