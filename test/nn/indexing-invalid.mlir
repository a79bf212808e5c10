// RUN: pipec-opt %s -split-input-file -verify-diagnostics

func.func @axis(%x: tensor<4x2xf32>, %i: tensor<3xi64>) {
  // expected-error@+2 {{axis out of range}}
  // expected-error@+1 {{failed to infer returned types}}
  %y = nn.gather %x, %i {axis = 2 : i64} : (tensor<4x2xf32>, tensor<3xi64>) -> tensor<4x3xf32>
  return
}

// -----

func.func @indices(%x: tensor<4x2xf32>, %i: tensor<3xf32>) {
  // expected-error@+1 {{needs integer indices}}
  %y = nn.gather %x, %i {axis = 0 : i64} : (tensor<4x2xf32>, tensor<3xf32>) -> tensor<3x2xf32>
  return
}

// -----

func.func @updates(%i: tensor<3xi64>, %u: tensor<2x2xf32>) {
  // expected-error@+1 {{updates do not have the shape of a gather of 'tensor<4x2xf32>'}}
  %y = nn.scatter_add %i, %u {axis = 0 : i64} : (tensor<3xi64>, tensor<2x2xf32>) -> tensor<4x2xf32>
  return
}
