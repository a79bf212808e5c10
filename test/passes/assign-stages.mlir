// A cut is a position in the chain of nodes that depend on an input; weights
// and constants follow their readers.
// RUN: pipec-opt %s --pipe-assign-stages=cuts=1,3 | FileCheck %s
// RUN: pipec-opt %s --pipe-assign-stages | FileCheck %s --check-prefix=ONE

nn.parameter @w : tensor<4xf32> {role = "weight", file = 0 : i64, offset = 0 : i64, length = 16 : i64}

// CHECK-LABEL: func.func @main
// CHECK: nn.weight @w {pipe.stage = 1 : i64}
// CHECK: nn.tanh %{{.*}} {pipe.stage = 0 : i64}
// CHECK: nn.mul %{{.*}} {pipe.stage = 1 : i64}
// CHECK: nn.exp %{{.*}} {pipe.stage = 1 : i64}
// CHECK: nn.constant {pipe.stage = 2 : i64}
// CHECK: nn.sub %{{.*}} {pipe.stage = 2 : i64}

// ONE-COUNT-6: pipe.stage = 0 : i64
// ONE-NOT: pipe.stage
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %w = nn.weight @w : tensor<4xf32>
  %a = nn.tanh %x : (tensor<4xf32>) -> tensor<4xf32>
  %b = nn.mul %a, %w : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %c = nn.exp %b : (tensor<4xf32>) -> tensor<4xf32>
  %k = nn.constant dense<1.0> : tensor<4xf32>
  %d = nn.sub %c, %k : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %d : tensor<4xf32>
}
