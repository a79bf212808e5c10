// RUN: pipec-opt %s --canonicalize | FileCheck %s

// CHECK-LABEL: @reshape_to_itself
// CHECK-NEXT: return %arg0
func.func @reshape_to_itself(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = nn.reshape %x : (tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}

// CHECK-LABEL: @reshape_twice
// CHECK-NEXT: nn.reshape %arg0 : (tensor<4xf32>) -> tensor<1x4xf32>
// CHECK-NEXT: return
func.func @reshape_twice(%x: tensor<4xf32>) -> tensor<1x4xf32> {
  %y = nn.reshape %x : (tensor<4xf32>) -> tensor<2x2xf32>
  %z = nn.reshape %y : (tensor<2x2xf32>) -> tensor<1x4xf32>
  return %z : tensor<1x4xf32>
}

// CHECK-LABEL: @transpose_identity
// CHECK-NEXT: return %arg0
func.func @transpose_identity(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %y = nn.transpose %x {permutation = array<i64: 0, 1>} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return %y : tensor<2x3xf32>
}

// y.shape[i] = x.shape[p[i]], so two of them compose to inner[outer[i]].
// CHECK-LABEL: @transpose_twice
// CHECK-NEXT: nn.transpose %arg0 {permutation = array<i64: 0, 2, 1>} : (tensor<2x3x4xf32>) -> tensor<2x4x3xf32>
// CHECK-NEXT: return
func.func @transpose_twice(%x: tensor<2x3x4xf32>) -> tensor<2x4x3xf32> {
  %y = nn.transpose %x {permutation = array<i64: 1, 2, 0>} : (tensor<2x3x4xf32>) -> tensor<3x4x2xf32>
  %z = nn.transpose %y {permutation = array<i64: 2, 1, 0>} : (tensor<3x4x2xf32>) -> tensor<2x4x3xf32>
  return %z : tensor<2x4x3xf32>
}

// CHECK-LABEL: @transpose_back
// CHECK-NEXT: return %arg0
func.func @transpose_back(%x: tensor<2x3x4xf32>) -> tensor<2x3x4xf32> {
  %y = nn.transpose %x {permutation = array<i64: 1, 2, 0>} : (tensor<2x3x4xf32>) -> tensor<3x4x2xf32>
  %z = nn.transpose %y {permutation = array<i64: 2, 0, 1>} : (tensor<3x4x2xf32>) -> tensor<2x3x4xf32>
  return %z : tensor<2x3x4xf32>
}
