// A stage has what it receives without keeping it: nothing is repeated there.
// The same where one stage alone is to compute again.
// RUN: pipec-opt %s --nn-choose-stash=mode=full | FileCheck %s
// RUN: pipec-opt %s --nn-choose-stash="mode=none again=1" | FileCheck %s
// RUN: pipec-opt %s --nn-choose-stash="mode=none again=0" | FileCheck %s --check-prefix=OTHER

// CHECK: %[[A:.*]] = nn.exp
// CHECK: %[[B:.*]] = nn.tanh %[[A]]
// CHECK-NEXT: %[[B2:.*]] = nn.tanh %[[A]] {pipe.phase = "backward", pipe.stage = 1 : i64}
// CHECK-NEXT: nn.matmul %[[A]], %[[B2]]
func.func @main(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %a = nn.exp %x {pipe.stage = 0 : i64} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %b = nn.tanh %a {pipe.stage = 1 : i64} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %d = nn.matmul %a, %b {pipe.phase = "backward", pipe.stage = 1 : i64} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  return %b : tensor<4x4xf32>
}

// OTHER: %[[B:.*]] = nn.tanh
// OTHER-NEXT: nn.matmul %{{.*}}, %[[B]]
