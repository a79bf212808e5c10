// RUN: pipec-opt %s --nn-differentiate -split-input-file -verify-diagnostics

// expected-error@+1 {{the loss depends on no trained weight; nothing would be trained}}
func.func @main(%x: tensor<f32>) -> tensor<f32> {
  return %x : tensor<f32>
}

// -----

nn.parameter @w : tensor<2x3xf32> {role = "weight", file = 0 : i64, offset = 0 : i64, length = 24 : i64}
func.func @main(%x: tensor<2x3xf32>) -> tensor<f32> {
  %w = nn.weight @w : tensor<2x3xf32>
  // expected-error@+1 {{nn.mod has no gradient, but a trained weight needs it; keep the weights before it fixed with --freeze}}
  %m = nn.mod %w, %x {fmod} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  %s = nn.reduce %m {kind = "sum", axes = array<i64: 0, 1>} : (tensor<2x3xf32>) -> tensor<1x1xf32>
  %l = nn.reshape %s : (tensor<1x1xf32>) -> tensor<f32>
  return %l : tensor<f32>
}
