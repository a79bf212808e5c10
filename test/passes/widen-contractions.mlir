// A processor without bf16 multiplies in f32 what was rounded before.
// RUN: pipec-opt %s --pass-pipeline='builtin.module(func.func(cpu-widen-contractions))' | FileCheck %s

// CHECK-LABEL: func.func @f
// CHECK:      %[[A:.*]] = nn.cast %{{.*}} : (tensor<4x8xbf16>) -> tensor<4x8xf32>
// CHECK-NEXT: %[[B:.*]] = nn.cast %{{.*}} : (tensor<8x2xbf16>) -> tensor<8x2xf32>
// CHECK-NEXT: %[[Y:.*]] = nn.matmul %[[A]], %[[B]] : (tensor<4x8xf32>, tensor<8x2xf32>) -> tensor<4x2xf32>
// CHECK-NEXT: nn.cast %[[Y]] : (tensor<4x2xf32>) -> tensor<4x2xbf16>
// CHECK:      %[[W:.*]] = nn.matmul %{{.*}} : (tensor<4x8xf32>, tensor<8x2xf32>) -> tensor<4x2xf32>
// CHECK-NEXT: return %{{.*}}, %[[W]]
func.func @f(%a: tensor<4x8xbf16>, %b: tensor<8x2xbf16>) -> (tensor<4x2xbf16>, tensor<4x2xf32>) {
  %y = nn.matmul %a, %b : (tensor<4x8xbf16>, tensor<8x2xbf16>) -> tensor<4x2xbf16>
  %w = nn.matmul %a, %b {wide} : (tensor<4x8xbf16>, tensor<8x2xbf16>) -> tensor<4x2xf32>
  return %y, %w : tensor<4x2xbf16>, tensor<4x2xf32>
}
