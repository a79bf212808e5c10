// Products of f16 are exact in f32; those of bf16 have kernels, which do not round their sums.
// RUN: pipec-opt %s --pass-pipeline='builtin.module(func.func(fusion-widen-contractions))' | FileCheck %s

// CHECK-LABEL: func.func @f16
// CHECK:      %[[A:.*]] = nn.cast %{{.*}} : (tensor<4x8xf16>) -> tensor<4x8xf32>
// CHECK-NEXT: %[[B:.*]] = nn.cast %{{.*}} : (tensor<8x2xf16>) -> tensor<8x2xf32>
// CHECK-NEXT: %[[Y:.*]] = nn.matmul %[[A]], %[[B]] : (tensor<4x8xf32>, tensor<8x2xf32>) -> tensor<4x2xf32>
// CHECK-NEXT: nn.cast %[[Y]] : (tensor<4x2xf32>) -> tensor<4x2xf16>
func.func @f16(%a: tensor<4x8xf16>, %b: tensor<8x2xf16>) -> tensor<4x2xf16> {
  %y = nn.matmul %a, %b : (tensor<4x8xf16>, tensor<8x2xf16>) -> tensor<4x2xf16>
  return %y : tensor<4x2xf16>
}

// CHECK-LABEL: func.func @bf16
// CHECK-NEXT: %[[S:.*]] = nn.matmul %arg0, %arg1 {wide} : (tensor<4x8xbf16>, tensor<8x2xbf16>) -> tensor<4x2xf32>
// CHECK-NEXT: %[[Y:.*]] = nn.cast %[[S]] : (tensor<4x2xf32>) -> tensor<4x2xbf16>
// CHECK-NEXT: %[[W:.*]] = nn.matmul %arg0, %arg1 {wide}
// CHECK-NEXT: return %[[Y]], %[[W]]
func.func @bf16(%a: tensor<4x8xbf16>, %b: tensor<8x2xbf16>) -> (tensor<4x2xbf16>, tensor<4x2xf32>) {
  %y = nn.matmul %a, %b : (tensor<4x8xbf16>, tensor<8x2xbf16>) -> tensor<4x2xbf16>
  %w = nn.matmul %a, %b {wide} : (tensor<4x8xbf16>, tensor<8x2xbf16>) -> tensor<4x2xf32>
  return %y, %w : tensor<4x2xbf16>, tensor<4x2xf32>
}
