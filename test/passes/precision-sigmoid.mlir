// y / 2 * (1 + tanh(u)) of rounded numbers is y sigmoid(2u), however it is
// written: half of the operations, and nothing cancels where u is far below 0.
// RUN: pipec-opt %s --nn-precision=type=bf16 --canonicalize -split-input-file | FileCheck %s

// CHECK-LABEL: func.func @main
// CHECK-DAG: %[[H:.*]] = nn.cast %{{.*}} : (tensor<2x4xbf16>) -> tensor<2x4xf32>
// CHECK-DAG: %[[C:.*]] = nn.constant dense<1.500000e+00>
// CHECK: %[[U:.*]] = nn.mul %[[H]], %[[C]]
// CHECK: %[[S:.*]] = nn.sigmoid %[[U]] {nn.rough}
// CHECK: nn.mul %[[H]], %[[S]]
// CHECK-NOT: nn.tanh
func.func @main(%x: tensor<2x4xf32>, %w: tensor<4x4xf32>) -> tensor<2x4xf32> {
  %h = nn.matmul %x, %w : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %k = nn.constant dense<0.75> : tensor<2x4xf32>
  %half = nn.constant dense<0.5> : tensor<2x4xf32>
  %one = nn.constant dense<1.0> : tensor<2x4xf32>
  %u = nn.mul %h, %k : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
  %t = nn.tanh %u : (tensor<2x4xf32>) -> tensor<2x4xf32>
  %p = nn.add %one, %t : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
  %y = nn.mul %h, %half : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
  %g = nn.mul %y, %p : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
  return %g : tensor<2x4xf32>
}

// -----

// The half behind the product; u is no product with a number.
// CHECK-LABEL: func.func @main
// CHECK: %[[H:.*]] = nn.cast %{{.*}} : (tensor<2x4xbf16>) -> tensor<2x4xf32>
// CHECK: %[[U:.*]] = nn.add %[[H]], %[[H]]
// CHECK: %[[S:.*]] = nn.sigmoid %[[U]] {nn.rough}
// CHECK: nn.mul %[[H]], %[[S]]
// CHECK-NOT: nn.mul
func.func @main(%x: tensor<2x4xf32>, %w: tensor<4x4xf32>) -> tensor<2x4xf32> {
  %h = nn.matmul %x, %w : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %half = nn.constant dense<0.5> : tensor<2x4xf32>
  %one = nn.constant dense<1.0> : tensor<2x4xf32>
  %t = nn.tanh %h : (tensor<2x4xf32>) -> tensor<2x4xf32>
  %p = nn.add %t, %one : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
  %y = nn.mul %p, %h : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
  %g = nn.mul %half, %y : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
  return %g : tensor<2x4xf32>
}

// -----

// Nothing halves it; a tanh that something else reads stays.
// CHECK-LABEL: func.func @main
// CHECK: %[[S:.*]] = nn.sigmoid
// CHECK: nn.add %[[S]], %[[S]]
// CHECK: nn.tanh
func.func @main(%x: tensor<2x4xf32>, %w: tensor<4x4xf32>) -> (tensor<2x4xf32>, tensor<2x4xf32>, tensor<2x4xf32>) {
  %h = nn.matmul %x, %w : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %one = nn.constant dense<1.0> : tensor<2x4xf32>
  %t = nn.tanh %h : (tensor<2x4xf32>) -> tensor<2x4xf32>
  %p = nn.add %t, %one : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
  %n = nn.neg %h : (tensor<2x4xf32>) -> tensor<2x4xf32>
  %m = nn.mul %n, %h : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
  %s = nn.tanh %m : (tensor<2x4xf32>) -> tensor<2x4xf32>
  %q = nn.add %s, %one : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
  return %p, %q, %s : tensor<2x4xf32>, tensor<2x4xf32>, tensor<2x4xf32>
}
