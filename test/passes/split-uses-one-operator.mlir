// Readers that came from one model operator share a use.
// RUN: pipec-opt %s --nn-split-uses | FileCheck %s

nn.parameter @w : tensor<4x4xf32> {role = "weight", file = 0 : i64, offset = 0 : i64, length = 64 : i64}

// CHECK-LABEL: func.func @main
// CHECK: nn.weight @w
// CHECK-NOT: nn.weight @w
func.func @main(%x: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %w = nn.weight @w : tensor<4x4xf32>
  %a = nn.matmul %x, %w : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32> loc("lstm")
  %b = nn.matmul %a, %w : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32> loc("lstm")
  return %b : tensor<2x4xf32>
}
