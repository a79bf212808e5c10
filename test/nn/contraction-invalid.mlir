// RUN: pipec-opt %s -split-input-file -verify-diagnostics

func.func @matmul_rank(%a: tensor<2x3xf32>, %b: tensor<3xf32>) {
  // expected-error@+2 {{needs two operands of equal rank, at least 2}}
  // expected-error@+1 {{failed to infer returned types}}
  %y = nn.matmul %a, %b : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @matmul_shape(%a: tensor<2x3xf32>, %b: tensor<2x3xf32>) {
  // expected-error@+2 {{cannot multiply 'tensor<2x3xf32>' and 'tensor<2x3xf32>'}}
  // expected-error@+1 {{failed to infer returned types}}
  %y = nn.matmul %a, %b : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @matmul_type(%a: tensor<2x3xf32>, %b: tensor<3x2xf64>) {
  // expected-error@+1 {{needs floating-point operands of one type}}
  %y = nn.matmul %a, %b : (tensor<2x3xf32>, tensor<3x2xf64>) -> tensor<2x2xf32>
  return
}

// -----

func.func @matmul_result(%a: tensor<2x3xf32>, %b: tensor<3x2xf32>) {
  // expected-error@+2 {{inferred type(s) 'tensor<2x2xf32>' are incompatible with return type(s) of operation 'tensor<3x3xf32>'}}
  // expected-error@+1 {{failed to infer returned types}}
  %y = nn.matmul %a, %b : (tensor<2x3xf32>, tensor<3x2xf32>) -> tensor<3x3xf32>
  return
}

// -----

func.func @conv_rank(%x: tensor<1x3x8x8xf32>, %w: tensor<4x3x3xf32>) {
  // expected-error@+2 {{needs operands of equal rank and one attribute entry a spatial dimension}}
  // expected-error@+1 {{failed to infer returned types}}
  %y = nn.conv %x, %w {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, pads_low = array<i64: 0, 0>, pads_high = array<i64: 0, 0>, groups = 1 : i64} : (tensor<1x3x8x8xf32>, tensor<4x3x3xf32>) -> tensor<1x4x6x6xf32>
  return
}

// -----

func.func @conv_groups(%x: tensor<1x3x8xf32>, %w: tensor<4x3x3xf32>) {
  // expected-error@+2 {{channels of 'tensor<1x3x8xf32>' and 'tensor<4x3x3xf32>' do not fit in 2 groups}}
  // expected-error@+1 {{failed to infer returned types}}
  %y = nn.conv %x, %w {strides = array<i64: 1>, dilations = array<i64: 1>, pads_low = array<i64: 0>, pads_high = array<i64: 0>, groups = 2 : i64} : (tensor<1x3x8xf32>, tensor<4x3x3xf32>) -> tensor<1x4x6xf32>
  return
}

// -----

func.func @conv_window(%x: tensor<1x3x4xf32>, %w: tensor<4x3x3xf32>) {
  // expected-error@+2 {{window is larger than the padded input}}
  // expected-error@+1 {{failed to infer returned types}}
  %y = nn.conv %x, %w {strides = array<i64: 1>, dilations = array<i64: 2>, pads_low = array<i64: 0>, pads_high = array<i64: 0>, groups = 1 : i64} : (tensor<1x3x4xf32>, tensor<4x3x3xf32>) -> tensor<1x4x1xf32>
  return
}

// -----

func.func @conv_type(%x: tensor<1x3x4xi32>, %w: tensor<4x3x3xi32>) {
  // expected-error@+1 {{needs floating-point operands of one type}}
  %y = nn.conv %x, %w {strides = array<i64: 1>, dilations = array<i64: 1>, pads_low = array<i64: 0>, pads_high = array<i64: 0>, groups = 1 : i64} : (tensor<1x3x4xi32>, tensor<4x3x3xi32>) -> tensor<1x4x2xi32>
  return
}
