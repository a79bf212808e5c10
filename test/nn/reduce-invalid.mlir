// RUN: pipec-opt %s -split-input-file -verify-diagnostics

func.func @kind(%x: tensor<2x3xf32>) {
  // expected-error@+1 {{has an unknown kind 'mean'}}
  %y = nn.reduce %x {kind = "mean", axes = array<i64: 0>} : (tensor<2x3xf32>) -> tensor<1x3xf32>
  return
}

// -----

func.func @axis(%x: tensor<2x3xf32>) {
  // expected-error@+2 {{axis out of range}}
  // expected-error@+1 {{failed to infer returned types}}
  %y = nn.reduce %x {kind = "sum", axes = array<i64: 2>} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @order(%x: tensor<2x3xf32>) {
  // expected-error@+1 {{needs ascending axes}}
  %y = nn.reduce %x {kind = "sum", axes = array<i64: 1, 0>} : (tensor<2x3xf32>) -> tensor<1x1xf32>
  return
}

// -----

func.func @twice(%x: tensor<2x3xf32>) {
  // expected-error@+1 {{needs ascending axes}}
  %y = nn.reduce %x {kind = "sum", axes = array<i64: 1, 1>} : (tensor<2x3xf32>) -> tensor<2x1xf32>
  return
}
