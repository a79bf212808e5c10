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

// Of parts that were widened to be added, too; who rounds the sum reads what it
// was before.
// CHECK-LABEL: @narrowParts
// CHECK-NEXT: %[[C:.*]] = nn.concat %{{.*}}, %{{.*}} {axis = 1 : i64} : {{.*}} -> tensor<2x8xbf16>
// CHECK-NEXT: %[[W:.*]] = nn.cast %[[C]]
// CHECK-NEXT: %[[S:.*]] = nn.reduce %[[W]]
// CHECK-NEXT: %[[V:.*]] = nn.reshape %[[C]]
// CHECK-NEXT: return %[[S]], %[[V]]
func.func @narrowParts(%a: tensor<2x3xbf16>, %b: tensor<2x5xbf16>) -> (tensor<1x8xf32>, tensor<16xbf16>) {
  %p = nn.pad %a {low = array<i64: 0, 0>, high = array<i64: 0, 5>, interior = array<i64: 0, 0>} : (tensor<2x3xbf16>) -> tensor<2x8xbf16>
  %q = nn.pad %b {low = array<i64: 0, 3>, high = array<i64: 0, 0>, interior = array<i64: 0, 0>} : (tensor<2x5xbf16>) -> tensor<2x8xbf16>
  %pw = nn.cast %p : (tensor<2x8xbf16>) -> tensor<2x8xf32>
  %qw = nn.cast %q : (tensor<2x8xbf16>) -> tensor<2x8xf32>
  %y = nn.add %pw, %qw : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x8xf32>
  %s = nn.reduce %y {axes = array<i64: 0>, kind = "sum"} : (tensor<2x8xf32>) -> tensor<1x8xf32>
  %v = nn.reshape %y : (tensor<2x8xf32>) -> tensor<16xf32>
  %n = nn.cast %v : (tensor<16xf32>) -> tensor<16xbf16>
  return %s, %n : tensor<1x8xf32>, tensor<16xbf16>
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
