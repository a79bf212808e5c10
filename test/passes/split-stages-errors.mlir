// RUN: pipec-opt %s --pipe-split-stages -verify-diagnostics

func.func @main(%x: tensor<f32>) -> tensor<f32> {
  // expected-error@+1 {{has no stage; run pipe-assign-stages first}}
  %y = nn.tanh %x : (tensor<f32>) -> tensor<f32>
  return %y : tensor<f32>
}
