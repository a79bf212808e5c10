// RUN: pipec-opt %s --pipe-split-stages --pipe-verify-stages | FileCheck %s
// RUN: pipec-opt %s --pipe-split-stages=split-backward --pipe-verify-stages | FileCheck %s --check-prefix=APART

nn.parameter @w : tensor<4x4xf32> {role = "weight", file = 0 : i64, offset = 0 : i64, length = 64 : i64}

// %a goes straight to both stages that read it, an input is asked for where it
// is read, and a value that the backward task reads is kept once.
// CHECK:      module @stage0 attributes {pipe.stage = 0 : i64}
// CHECK-NEXT:   func.func @forward() attributes {pipe.task = "forward"}
// CHECK-NEXT:     %[[X:.*]] = pipe.input "x"
// CHECK-NEXT:     %[[A:.*]] = nn.tanh %[[X]]
// CHECK-NEXT:     pipe.send %[[A]] on 0 to 1
// CHECK-NEXT:     pipe.send %[[A]] on 1 to 2
// CHECK:      module @stage1
// CHECK-NEXT:   nn.parameter @w
// CHECK-NEXT:   func.func @forward()
// CHECK-NEXT:     %[[A1:.*]] = pipe.recv 0 from 0
// CHECK-NEXT:     %[[W:.*]] = nn.weight @w
// CHECK-NEXT:     %[[B:.*]] = nn.matmul %[[A1]], %[[W]]
// CHECK-NEXT:     pipe.send %[[B]] on 2 to 2
// CHECK:        func.func @backward()
// CHECK-NEXT:     %[[DB:.*]] = pipe.recv 3 from 2
// CHECK-NEXT:     nn.weight @w
// CHECK-NEXT:     nn.matmul
// CHECK-NEXT:     %[[A2:.*]] = pipe.recv 0 from 0
// CHECK-NEXT:     %[[DW:.*]] = nn.matmul %[[A2]], %[[DB]]
// CHECK-NEXT:     pipe.accumulate %[[DW]] into @w use 0
// CHECK:      module @stage2
// CHECK:          pipe.stash %{{.*}} in "stash" 0
// CHECK-NEXT:     pipe.loss
// CHECK:          pipe.unstash "stash" 0

// What another stage waits for is a task of its own.
// APART: module @stage1
// APART-NOT: @backward()
// APART: func.func @backward_weight()
// APART: pipe.accumulate
// APART: module @stage2
// APART: func.func @backward_input()
// APART: pipe.send
func.func @main(%x: tensor<4x4xf32> {nn.name = "x"}) -> tensor<f32> {
  %a = nn.tanh %x {pipe.stage = 0 : i64} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %w = nn.weight @w {pipe.stage = 1 : i64} : tensor<4x4xf32>
  %b = nn.matmul %a, %w {pipe.stage = 1 : i64} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %c = nn.add %a, %b {pipe.stage = 2 : i64} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %e = nn.exp %c {pipe.stage = 2 : i64} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %s = nn.reduce %e {kind = "sum", axes = array<i64: 0, 1>, pipe.stage = 2 : i64} : (tensor<4x4xf32>) -> tensor<1x1xf32>
  %l = nn.reshape %s {pipe.stage = 2 : i64} : (tensor<1x1xf32>) -> tensor<f32>
  %dc = nn.mul %e, %e {pipe.phase = "backward", pipe.stage = 2 : i64} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %da = nn.matmul %dc, %w {pipe.phase = "backward", pipe.stage = 1 : i64} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %dw = nn.matmul %a, %dc {transpose_a, pipe.phase = "backward", pipe.stage = 1 : i64} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  pipe.accumulate %dw into @w use 0 {pipe.phase = "backward", pipe.stage = 1 : i64} : tensor<4x4xf32>
  return %l : tensor<f32>
}
