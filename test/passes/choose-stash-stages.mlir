// A stage has what it receives without keeping it: nothing is repeated there.
// RUN: pipec-opt %s --nn-choose-stash=mode=full | FileCheck %s

// CHECK: %[[A:.*]] = nn.exp
// CHECK: %[[B:.*]] = nn.tanh %[[A]]
// CHECK-NEXT: %[[B2:.*]] = nn.tanh %[[A]] {pipe.phase = "backward", pipe.stage = 1 : i64}
// CHECK-NEXT: nn.mul %[[A]], %[[B2]]
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %a = nn.exp %x {pipe.stage = 0 : i64} : (tensor<4xf32>) -> tensor<4xf32>
  %b = nn.tanh %a {pipe.stage = 1 : i64} : (tensor<4xf32>) -> tensor<4xf32>
  %d = nn.mul %a, %b {pipe.phase = "backward", pipe.stage = 1 : i64} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %b : tensor<4xf32>
}
