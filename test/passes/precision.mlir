// Products read rounded operands and round once; the rest stays f32.
// RUN: pipec-opt %s --nn-precision=type=bf16 --cse | FileCheck %s
// RUN: pipec-opt %s --nn-precision=type=fp32 | FileCheck %s --check-prefix=SAME
// RUN: not pipec-opt %s --nn-precision=type=fp8 2>&1 | FileCheck %s --check-prefix=UNKNOWN

nn.parameter @w : tensor<8x8xf32> {role = "weight", file = 0 : i64, offset = 0 : i64, length = 256 : i64}
nn.parameter @f : tensor<1x4xf32> {role = "frozen", file = 0 : i64, offset = 256 : i64, length = 16 : i64}

// UNKNOWN: unknown precision 'fp8'
// SAME-NOT: bf16

// CHECK-LABEL: func.func @main
// Angles of positions come from no weight that trains.
// CHECK:      nn.matmul %{{.*}} : (tensor<8x1xf32>, tensor<1x4xf32>) -> tensor<8x4xf32>
// What views show is rounded, and kept once for both readers.
// CHECK:      %[[H:.*]] = nn.tanh
// CHECK-NEXT: %[[R:.*]] = nn.cast %[[H]] : (tensor<8x8xf32>) -> tensor<8x8xbf16>
// CHECK-NEXT: %[[T:.*]] = nn.transpose %[[R]]
// CHECK:      %[[W:.*]] = nn.cast %{{.*}} : (tensor<8x8xf32>) -> tensor<8x8xbf16>
// CHECK-NEXT: %[[P:.*]] = nn.matmul %[[T]], %[[W]] : (tensor<8x8xbf16>, tensor<8x8xbf16>) -> tensor<8x8xbf16>
// A product that feeds a product is rounded once, not widened between.
// CHECK:      %[[Z:.*]] = nn.matmul %[[R]], %[[P]]
// What a rounded number is part of needs no more digits than that has.
// CHECK:      %[[C:.*]] = nn.cast %[[Z]]
// CHECK:      %[[S:.*]] = nn.sub %[[C]], %{{.*}}
// CHECK-NEXT: nn.exp %[[S]] {nn.rough}
// CHECK-NEXT: nn.exp %arg0 :
func.func @main(%x: tensor<8x8xf32>, %p: tensor<8x1xi64>) -> (tensor<8x8xf32>, tensor<8x4xf32>, tensor<8x8xf32>, tensor<8x8xf32>) {
  %0 = nn.cast %p : (tensor<8x1xi64>) -> tensor<8x1xf32>
  %f = nn.weight @f : tensor<1x4xf32>
  %angles = nn.matmul %0, %f : (tensor<8x1xf32>, tensor<1x4xf32>) -> tensor<8x4xf32>
  %h = nn.tanh %x : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %t = nn.transpose %h {permutation = array<i64: 1, 0>} : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %w = nn.weight @w : tensor<8x8xf32>
  %y = nn.matmul %t, %w : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %z = nn.matmul %h, %y : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %s = nn.sub %z, %x : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %e = nn.exp %s : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %f32 = nn.exp %x : (tensor<8x8xf32>) -> tensor<8x8xf32>
  return %z, %angles, %e, %f32 : tensor<8x8xf32>, tensor<8x4xf32>, tensor<8x8xf32>, tensor<8x8xf32>
}
