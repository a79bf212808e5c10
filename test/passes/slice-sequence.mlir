// Every op is there once for each piece; attention reads the keys and values up
// to the piece's end, the mask shrinks, the loss adds the pieces' sums.
// RUN: pipec-opt %s --pipe-assign-stages=cuts=6 --nn-slice-sequence=slices=2 | FileCheck %s
// Copies of a weight are one use, in one accumulator on the first piece's stage.
// RUN: pipec-opt %s --pipe-assign-stages --nn-slice-sequence=slices=2 --nn-differentiate --pipe-split-stages --pipe-plan-memory | FileCheck %s --check-prefix=SPLIT
// One piece is the program itself.
// RUN: pipec-opt %s --pipe-assign-stages --nn-slice-sequence=slices=1 -o %t.one
// RUN: pipec-opt %s --pipe-assign-stages | diff - %t.one
// RUN: not pipec-opt %s --nn-slice-sequence=slices=2 2>&1 | FileCheck %s --check-prefix=STAGE
// RUN: not pipec-opt %s --pipe-assign-stages --nn-slice-sequence=slices=5 2>&1 | FileCheck %s --check-prefix=MANY
// STAGE: has no stage; run pipe-assign-stages first
// MANY: cannot cut 4 positions into 5 pieces

// CHECK: module attributes {pipe.slices = 2 : i64}
// CHECK-LABEL: func.func @main

// The piece of an input is sliced where it is read.
// CHECK: %[[W0:.*]] = nn.weight @w {pipe.stage = 0 : i64, pipe.use = 0 : i64}
// CHECK: %[[W1:.*]] = nn.weight @w {pipe.stage = 2 : i64, pipe.use = 0 : i64}
// CHECK: %[[I0:.*]] = nn.slice %arg0 {pipe.stage = 0 : i64, starts = array<i64: 0, 0>, {{.*}}} : (tensor<1x4xi64>) -> tensor<1x2xi64>
// CHECK: %[[X0:.*]] = nn.gather %[[W0]], %[[I0]]
// CHECK: %[[I1:.*]] = nn.slice %arg0 {pipe.stage = 2 : i64, starts = array<i64: 0, 2>, {{.*}}} : (tensor<1x4xi64>) -> tensor<1x2xi64>
// CHECK: %[[X1:.*]] = nn.gather %[[W1]], %[[I1]]
// Merged with the batch.
// CHECK: %[[R0:.*]] = nn.reshape %[[X0]] {pipe.stage = 0 : i64} : (tensor<1x2x2xf32>) -> tensor<2x2xf32>

// Keys: the first piece's own, the second's behind them.
// CHECK: nn.matmul %{{.*}}, %[[X0]] {pipe.stage = 0 : i64, transpose_b} : (tensor<1x2x2xf32>, tensor<1x2x2xf32>) -> tensor<1x2x2xf32>
// CHECK: nn.concat %[[X0]], %[[X1]] {axis = 1 : i64, pipe.joins, pipe.stage = 2 : i64}
// CHECK: nn.matmul %{{.*}}, %{{.*}} {pipe.stage = 2 : i64, transpose_b} : (tensor<1x2x2xf32>, tensor<1x4x2xf32>) -> tensor<1x2x4xf32>
// CHECK: nn.slice %{{.*}} {pipe.stage = 1 : i64, starts = array<i64: 0, 0>, {{.*}}} : (tensor<2x4xf32>) -> tensor<2x2xf32>
// CHECK: nn.slice %{{.*}} {pipe.stage = 3 : i64, starts = array<i64: 2, 0>, {{.*}}} : (tensor<4x4xf32>) -> tensor<2x4xf32>
// CHECK-NEXT: nn.reshape %{{.*}} : (tensor<2x4xf32>) -> tensor<1x2x4xf32>
// CHECK: nn.softmax %{{.*}} {pipe.stage = 1 : i64} : (tensor<1x2x2xf32>)
// CHECK: nn.softmax %{{.*}} {pipe.stage = 3 : i64} : (tensor<1x2x4xf32>)
// CHECK: %[[S0:.*]] = nn.reduce %{{.*}} {axes = array<i64: 0, 1, 2>, kind = "sum", pipe.stage = 1 : i64} : (tensor<1x2x2xf32>)
// CHECK: %[[S1:.*]] = nn.reduce %{{.*}} {axes = array<i64: 0, 1, 2>, kind = "sum", pipe.stage = 3 : i64} : (tensor<1x2x2xf32>)
// CHECK: %[[S:.*]] = nn.add %[[S0]], %[[S1]] {pipe.stage = 3 : i64}
// CHECK: %[[L:.*]] = nn.reshape %[[S]] {pipe.stage = 3 : i64}
// CHECK: return %[[L]]

// SPLIT: module @stage0 {{.*}}pipe.regions = {{.*}}gradients = 64 : i64{{.*}}weights = 64 : i64{{.*}}uses = [array<i64: 0, 0>]
// SPLIT: pipe.store %{{.*}}, "gradients"[0] accumulate
// SPLIT: module @stage1 {{.*}}pipe.weights = []
// SPLIT-NOT: pipe.use
// SPLIT: pipe.load "weights"[0]
// SPLIT: pipe.store %{{.*}}, "gradients"[0] accumulate
nn.parameter @w : tensor<5x2xf32> {role = "weight", file = 0 : i64, offset = 0 : i64, length = 40 : i64}
nn.parameter @mask : tensor<4x4xf32> {role = "constant", value = dense<[[0.0, -1.0e30, -1.0e30, -1.0e30], [0.0, 0.0, -1.0e30, -1.0e30], [0.0, 0.0, 0.0, -1.0e30], [0.0, 0.0, 0.0, 0.0]]> : tensor<4x4xf32>}
func.func @main(%ids: tensor<1x4xi64> {nn.name = "ids"}) -> tensor<f32> {
  %w = nn.weight @w : tensor<5x2xf32>
  %x = nn.gather %w, %ids {axis = 0 : i64} : (tensor<5x2xf32>, tensor<1x4xi64>) -> tensor<1x4x2xf32>
  %r = nn.reshape %x : (tensor<1x4x2xf32>) -> tensor<4x2xf32>
  %t = nn.tanh %r : (tensor<4x2xf32>) -> tensor<4x2xf32>
  %q = nn.reshape %t : (tensor<4x2xf32>) -> tensor<1x4x2xf32>
  %s = nn.matmul %q, %x {transpose_b} : (tensor<1x4x2xf32>, tensor<1x4x2xf32>) -> tensor<1x4x4xf32>
  %i = nn.exp %q : (tensor<1x4x2xf32>) -> tensor<1x4x2xf32>
  %m = nn.weight @mask : tensor<4x4xf32>
  %n = nn.reshape %m : (tensor<4x4xf32>) -> tensor<1x4x4xf32>
  %a = nn.add %s, %n : (tensor<1x4x4xf32>, tensor<1x4x4xf32>) -> tensor<1x4x4xf32>
  %p = nn.softmax %a : (tensor<1x4x4xf32>) -> tensor<1x4x4xf32>
  %c = nn.matmul %p, %i : (tensor<1x4x4xf32>, tensor<1x4x2xf32>) -> tensor<1x4x2xf32>
  %u = nn.reduce %c {kind = "sum", axes = array<i64: 0, 1, 2>} : (tensor<1x4x2xf32>) -> tensor<1x1x1xf32>
  %l = nn.reshape %u : (tensor<1x1x1xf32>) -> tensor<f32>
  return %l : tensor<f32>
}
