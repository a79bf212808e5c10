// The gradient starts with 1/microbatches, keeps the stage of the op it belongs
// to, and is handed over for each use of a weight.
// RUN: pipec-opt %s --nn-differentiate=microbatches=4 | FileCheck %s

nn.parameter @w : tensor<4xf32> {role = "weight", file = 0 : i64, offset = 0 : i64, length = 16 : i64}
nn.parameter @c : tensor<4xf32> {role = "frozen", file = 0 : i64, offset = 64 : i64, length = 16 : i64}

// CHECK-LABEL: func.func @main
// CHECK: %[[C:.*]] = nn.weight @c
// CHECK: %[[W0:.*]] = nn.weight @w
// CHECK: %[[A:.*]] = nn.mul
// CHECK: %[[W1:.*]] = nn.weight @w
// CHECK: %[[SEED:.*]] = nn.constant {pipe.phase = "backward", pipe.stage = 1 : i64} dense<2.500000e-01>
// CHECK: %[[DB:.*]] = nn.broadcast %{{.*}} {pipe.phase = "backward", pipe.stage = 1 : i64}
// CHECK: %[[DA:.*]] = nn.mul %[[DB]], %[[W1]] {{.*}}pipe.stage = 1
// CHECK: %[[DW1:.*]] = nn.mul %[[DB]], %[[A]] {{.*}}pipe.stage = 1
// CHECK: pipe.accumulate %[[DW1]] into @w use 1 {pipe.phase = "backward", pipe.stage = 1 : i64}
// CHECK: %[[DW0:.*]] = nn.mul %[[DA]], %[[C]] {pipe.phase = "backward", pipe.stage = 0 : i64}
// CHECK: pipe.accumulate %[[DW0]] into @w use 0 {pipe.phase = "backward", pipe.stage = 0 : i64}
// CHECK-NOT: @c
func.func @main(%x: tensor<4xf32>) -> tensor<f32> {
  %c = nn.weight @c {pipe.stage = 0 : i64} : tensor<4xf32>
  %w0 = nn.weight @w {pipe.stage = 0 : i64} : tensor<4xf32>
  %a = nn.mul %w0, %c {pipe.stage = 0 : i64} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %w1 = nn.weight @w {pipe.stage = 1 : i64} : tensor<4xf32>
  %b = nn.mul %a, %w1 {pipe.stage = 1 : i64} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %s = nn.reduce %b {kind = "sum", axes = array<i64: 0>, pipe.stage = 1 : i64} : (tensor<4xf32>) -> tensor<1xf32>
  %l = nn.reshape %s {pipe.stage = 1 : i64} : (tensor<1xf32>) -> tensor<f32>
  return %l : tensor<f32>
}
