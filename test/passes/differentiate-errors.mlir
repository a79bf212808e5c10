// RUN: pipec-opt %s --nn-differentiate -split-input-file -verify-diagnostics

// expected-error@+1 {{the loss depends on no trained weight; take the loss of another output with --logits, or run the model as it is with --forward-only}}
func.func @main(%x: tensor<f32>) -> tensor<f32> {
  return %x : tensor<f32>
}

// -----

nn.parameter @w : tensor<f32> {role = "weight", file = 0 : i64, offset = 0 : i64, length = 4 : i64}
// expected-error@+1 {{the loss depends on no trained weight; take the loss of another output with --logits, or run the model as it is with --forward-only}}
func.func @main() -> tensor<f32> {
  %w = nn.weight @w : tensor<f32>
  %l = nn.floor %w : (tensor<f32>) -> tensor<f32>
  return %l : tensor<f32>
}

// -----

nn.parameter @w : tensor<1x1x2x2xf32> {role = "weight", file = 0 : i64, offset = 0 : i64, length = 16 : i64}
func.func @main(%i: tensor<1x1x2x2xi32>) -> tensor<f32> {
  %w = nn.weight @w : tensor<1x1x2x2xf32>
  // expected-error@+1 {{nn.max_pool_grad has no gradient, but a trained weight needs it; keep the weights before it fixed with --freeze}}
  %m = nn.max_pool_grad %w, %i {kernel = array<i64: 2, 2>, strides = array<i64: 2, 2>, dilations = array<i64: 1, 1>, pads_low = array<i64: 0, 0>, pads_high = array<i64: 0, 0>} : (tensor<1x1x2x2xf32>, tensor<1x1x2x2xi32>) -> tensor<1x1x4x4xf32>
  %s = nn.reduce %m {kind = "sum", axes = array<i64: 0, 1, 2, 3>} : (tensor<1x1x4x4xf32>) -> tensor<1x1x1x1xf32>
  %l = nn.reshape %s : (tensor<1x1x1x1xf32>) -> tensor<f32>
  return %l : tensor<f32>
}
