// RUN: pipec-opt %s --nn-split-uses | FileCheck %s

nn.parameter @w : tensor<4x4xf32> {role = "weight", file = 0 : i64, offset = 0 : i64, length = 64 : i64}

// Two readers: each gets a chain of its own, next to it, down to the weight.
// CHECK-LABEL: func.func @main
// CHECK:      %[[W0:.*]] = nn.weight @w
// CHECK-NEXT: %[[T0:.*]] = nn.transpose %[[W0]]
// CHECK-NEXT: %[[A:.*]] = nn.matmul %{{.*}}, %[[T0]]
// CHECK-NEXT: %[[W1:.*]] = nn.weight @w
// CHECK-NEXT: %[[T1:.*]] = nn.transpose %[[W1]]
// CHECK-NEXT: %[[B:.*]] = nn.matmul %[[A]], %[[T1]]
func.func @main(%x: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %w = nn.weight @w : tensor<4x4xf32>
  %t = nn.transpose %w {permutation = array<i64: 1, 0>} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %a = nn.matmul %x, %t : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %b = nn.matmul %a, %t : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  return %b : tensor<2x4xf32>
}
