// RUN: pipec-opt %s -split-input-file -verify-diagnostics

func.func @broadcast(%x: tensor<2x3xf32>) {
  // expected-error@+1 {{cannot repeat 'tensor<2x3xf32>' to 'tensor<4x3xf32>'}}
  %y = nn.broadcast %x : (tensor<2x3xf32>) -> tensor<4x3xf32>
  return
}

// -----

func.func @reshape(%x: tensor<2x3xf32>) {
  // expected-error@+1 {{cannot turn 'tensor<2x3xf32>' into 'tensor<5xf32>'}}
  %y = nn.reshape %x : (tensor<2x3xf32>) -> tensor<5xf32>
  return
}

// -----

func.func @transpose_rank(%x: tensor<2x3xf32>) {
  // expected-error@+2 {{permutation of another rank than x}}
  // expected-error@+1 {{failed to infer returned types}}
  %y = nn.transpose %x {permutation = array<i64: 0>} : (tensor<2x3xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @transpose_range(%x: tensor<2x3xf32>) {
  // expected-error@+1 {{permutation out of range}}
  %y = nn.transpose %x {permutation = array<i64: 0, 2>} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @transpose_twice(%x: tensor<3x3xf32>) {
  // expected-error@+1 {{repeats a dimension in its permutation}}
  %y = nn.transpose %x {permutation = array<i64: 1, 1>} : (tensor<3x3xf32>) -> tensor<3x3xf32>
  return
}

// -----

func.func @slice_rank(%x: tensor<4x4xf32>) {
  // expected-error@+1 {{needs one start and stride a dimension}}
  %y = nn.slice %x {starts = array<i64: 0>, strides = array<i64: 1>} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  return
}

// -----

func.func @slice_end(%x: tensor<4xf32>) {
  // expected-error@+1 {{leaves dimension 0 of 'tensor<4xf32>'}}
  %y = nn.slice %x {starts = array<i64: 1>, strides = array<i64: 2>} : (tensor<4xf32>) -> tensor<3xf32>
  return
}

// -----

func.func @slice_stride(%x: tensor<4xf32>) {
  // expected-error@+1 {{leaves dimension 0 of 'tensor<4xf32>'}}
  %y = nn.slice %x {starts = array<i64: 0>, strides = array<i64: 0>} : (tensor<4xf32>) -> tensor<3xf32>
  return
}

// -----

func.func @pad_rank(%x: tensor<4xf32>) {
  // expected-error@+2 {{needs three amounts a dimension}}
  // expected-error@+1 {{failed to infer returned types}}
  %y = nn.pad %x {low = array<i64: 0, 0>, high = array<i64: 0>, interior = array<i64: 0>} : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @pad_negative(%x: tensor<4xf32>) {
  // expected-error@+1 {{has a negative amount}}
  %y = nn.pad %x {low = array<i64: -1>, high = array<i64: 0>, interior = array<i64: 0>} : (tensor<4xf32>) -> tensor<3xf32>
  return
}

// -----

func.func @concat_axis(%x: tensor<4xf32>) {
  // expected-error@+2 {{axis out of range}}
  // expected-error@+1 {{failed to infer returned types}}
  %y = nn.concat %x {axis = 1 : i64} : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @concat_empty() {
  // expected-error@+2 {{needs an input}}
  // expected-error@+1 {{failed to infer returned types}}
  %y = nn.concat {axis = 0 : i64} : () -> tensor<4xf32>
  return
}

// -----

func.func @concat_rank(%x: tensor<4xf32>, %z: tensor<4x1xf32>) {
  // expected-error@+1 {{joins tensors of different rank or type}}
  %y = nn.concat %x, %z {axis = 0 : i64} : (tensor<4xf32>, tensor<4x1xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @concat_shape(%x: tensor<4x2xf32>, %z: tensor<4x3xf32>) {
  // expected-error@+1 {{joins tensors of different shape}}
  %y = nn.concat %x, %z {axis = 0 : i64} : (tensor<4x2xf32>, tensor<4x3xf32>) -> tensor<8x2xf32>
  return
}
