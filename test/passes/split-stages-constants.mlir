// A constant of the backward pass is made by every task that reads it: it is
// neither sent to other stages, whose it was until two equal ones became one,
// nor kept for the task of the weights' gradients.
// RUN: pipec-opt %s --pipe-split-stages --pipe-verify-stages | FileCheck %s
// RUN: pipec-opt %s --pipe-split-stages=split-backward --pipe-verify-stages | FileCheck %s --check-prefix=APART

nn.parameter @w : tensor<4xf32> {role = "weight", file = 0 : i64, offset = 0 : i64, length = 16 : i64}

// CHECK:      module @stage0
// CHECK:        func.func @backward()
// CHECK-NEXT:     nn.constant
// CHECK-NEXT:     pipe.recv 1 from 1
// CHECK-NEXT:     nn.mul
// CHECK-NEXT:     return
// CHECK:      module @stage1
// CHECK:        func.func @backward()
// CHECK-NEXT:     nn.constant
// CHECK:          pipe.send {{.*}} on 1 to 0
// CHECK-NOT:      pipe.send

// APART:      module @stage1
// APART-NOT:    "wstash"
// APART:        func.func @backward_input()
// APART:          nn.constant
// APART:        func.func @backward_weight()
// APART:          nn.constant
func.func @main(%x: tensor<4xf32> {nn.name = "x"}) -> tensor<4xf32> {
  %zero = nn.constant {pipe.phase = "backward", pipe.stage = 1 : i64} dense<0.0> : tensor<4xf32>
  %w = nn.weight @w {pipe.stage = 1 : i64} : tensor<4xf32>
  %a = nn.tanh %x {pipe.stage = 0 : i64} : (tensor<4xf32>) -> tensor<4xf32>
  %b = nn.mul %a, %w {pipe.stage = 1 : i64} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %db = nn.add %zero, %w {pipe.phase = "backward", pipe.stage = 1 : i64} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %dw = nn.mul %zero, %a {pipe.phase = "backward", pipe.stage = 1 : i64} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  pipe.accumulate %dw into @w use 0 {pipe.phase = "backward", pipe.stage = 1 : i64} : tensor<4xf32>
  %da = nn.mul %zero, %db {pipe.phase = "backward", pipe.stage = 0 : i64} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %b : tensor<4xf32>
}
