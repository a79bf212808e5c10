// Row kernels need no softmax, cumsum or sum of padded parts of their own.
// RUN: pipec-opt %s --fusion-expand | FileCheck %s

// The maximum first, so that no exponential overflows; one reciprocal a row.
// CHECK-LABEL: @softmax
// CHECK: %[[M:.*]] = nn.reduce %{{.*}} {axes = array<i64: 1>, kind = "max"}
// CHECK: %[[E:.*]] = nn.exp
// CHECK: %[[S:.*]] = nn.reduce %[[E]] {axes = array<i64: 1>, kind = "sum"}
// CHECK: nn.reciprocal %[[S]]
// CHECK-NOT: nn.softmax
func.func @softmax(%x: tensor<2x8xf32>) -> tensor<2x8xf32> {
  %y = nn.softmax %x {axis = 1 : i64} : (tensor<2x8xf32>) -> tensor<2x8xf32>
  return %y : tensor<2x8xf32>
}

// Four places: shifted by one, then by two.
// CHECK-LABEL: @cumsum
// CHECK: nn.pad %{{.*}} low = array<i64: 0, 1>
// CHECK: nn.pad %{{.*}} low = array<i64: 0, 2>
// CHECK-NOT: nn.pad
func.func @cumsum(%x: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %y = nn.cumsum %x {axis = 1 : i64} : (tensor<2x4xf32>) -> tensor<2x4xf32>
  return %y : tensor<2x4xf32>
}

// The gradient of a split is a concat again.
// CHECK-LABEL: @parts
// CHECK-NEXT: nn.concat %{{.*}}, %{{.*}} {axis = 1 : i64}
// CHECK-NEXT: return
func.func @parts(%a: tensor<2x3xf32>, %b: tensor<2x5xf32>) -> tensor<2x8xf32> {
  %p = nn.pad %a {low = array<i64: 0, 0>, high = array<i64: 0, 5>, interior = array<i64: 0, 0>} : (tensor<2x3xf32>) -> tensor<2x8xf32>
  %q = nn.pad %b {low = array<i64: 0, 3>, high = array<i64: 0, 0>, interior = array<i64: 0, 0>} : (tensor<2x5xf32>) -> tensor<2x8xf32>
  %y = nn.add %p, %q : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x8xf32>
  return %y : tensor<2x8xf32>
}

// Parts that overlap stay a sum.
// CHECK-LABEL: @overlapping
// CHECK: nn.add
func.func @overlapping(%a: tensor<2x4xf32>, %b: tensor<2x5xf32>) -> tensor<2x8xf32> {
  %p = nn.pad %a {low = array<i64: 0, 0>, high = array<i64: 0, 4>, interior = array<i64: 0, 0>} : (tensor<2x4xf32>) -> tensor<2x8xf32>
  %q = nn.pad %b {low = array<i64: 0, 3>, high = array<i64: 0, 0>, interior = array<i64: 0, 0>} : (tensor<2x5xf32>) -> tensor<2x8xf32>
  %y = nn.add %p, %q : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x8xf32>
  return %y : tensor<2x8xf32>
}
