// The gradient of a loss, which needs no gradient from elsewhere, is computed by
// the forward pass where that keeps no more bytes: it is kept in place of what
// it is made from.
// RUN: pipec-opt %s --nn-choose-stash -split-input-file | FileCheck %s

// CHECK-LABEL: func.func @main
// CHECK: %[[Y:.*]] = nn.matmul
// CHECK: %[[D:.*]] = nn.sub %[[Y]], {{.*}} {pipe.phase = "early"
// CHECK: nn.matmul %{{.*}}, %[[D]] {pipe.phase = "backward"
func.func @main(%x: tensor<2x4xf32>, %w: tensor<4x4xf32>, %t: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %y = nn.matmul %x, %w : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %d = nn.sub %y, %t {pipe.phase = "backward"} : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
  %g = nn.matmul %x, %d {pipe.phase = "backward", transpose_a} : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<4x4xf32>
  return %y : tensor<2x4xf32>
}

// -----

// Something else reads %y in the backward pass: it is kept anyhow.
// CHECK-LABEL: func.func @main
// CHECK: nn.sub {{.*}} {pipe.phase = "backward"
func.func @main(%x: tensor<2x4xf32>, %w: tensor<4x4xf32>, %t: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %y = nn.matmul %x, %w : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %d = nn.sub %y, %t {pipe.phase = "backward"} : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
  %g = nn.matmul %x, %d {pipe.phase = "backward", transpose_a} : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<4x4xf32>
  %h = nn.matmul %y, %w {pipe.phase = "backward"} : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  return %y : tensor<2x4xf32>
}

// -----

// An earlier stage reads a part of it: gradients go back to it, and what the
// forward pass makes does not.
// CHECK-LABEL: func.func @main
// CHECK: nn.sub {{.*}} {pipe.phase = "backward"
func.func @main(%x: tensor<2x4xf32>, %w: tensor<4x4xf32>, %t: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %y = nn.matmul %x, %w {pipe.stage = 1 : i64} : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %d = nn.sub %y, %t {pipe.phase = "backward", pipe.stage = 1 : i64} : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
  %g = nn.matmul %x, %d {pipe.phase = "backward", pipe.stage = 1 : i64, transpose_a} : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<4x4xf32>
  %h = nn.matmul %x, %d {pipe.phase = "backward", pipe.stage = 0 : i64, transpose_a} : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<4x4xf32>
  return %y : tensor<2x4xf32>
}
