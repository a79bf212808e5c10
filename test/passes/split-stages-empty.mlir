// A stage that only brings labels along has a backward task all the same.
// RUN: pipec-opt %s --pipe-split-stages --pipe-verify-stages | FileCheck %s
// RUN: pipec-opt %s --pipe-split-stages=split-backward --pipe-verify-stages | FileCheck %s --check-prefix=APART

// CHECK: module @stage1
// CHECK: func.func @forward()
// CHECK: func.func @backward() attributes {pipe.task = "backward"} {
// CHECK-NEXT: return
// CHECK: module @stage2

// APART: module @stage1
// APART: func.func @backward_input()
// APART-NEXT: return
// APART: func.func @backward_weight()
// APART-NEXT: return
// APART: module @stage2
func.func @main(%x: tensor<4xf32> {nn.name = "x"}, %t: tensor<2x2xf32> {nn.name = "t"}) -> tensor<4xf32> {
  %a = nn.tanh %x {pipe.stage = 0 : i64} : (tensor<4xf32>) -> tensor<4xf32>
  %b = nn.reshape %t {pipe.stage = 1 : i64} : (tensor<2x2xf32>) -> tensor<4xf32>
  %c = nn.mul %a, %b {pipe.stage = 2 : i64} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %d = nn.mul %b, %c {pipe.phase = "backward", pipe.stage = 2 : i64} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %e = nn.mul %d, %a {pipe.phase = "backward", pipe.stage = 0 : i64} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %c : tensor<4xf32>
}
