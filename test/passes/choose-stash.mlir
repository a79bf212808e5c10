// What the backward pass gets from kept values by cheap ops is not kept itself.
// RUN: pipec-opt %s --nn-choose-stash | FileCheck %s --check-prefix=SELECTIVE
// RUN: pipec-opt %s --nn-choose-stash=mode=none | FileCheck %s --check-prefix=NONE
// RUN: pipec-opt %s --nn-choose-stash=mode=full | FileCheck %s --check-prefix=FULL

func.func @main(%x: tensor<2x4xf32>, %w: tensor<4x4xf32>) -> tensor<2x4xf32> {
  %h = nn.matmul %x, %w : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %t = nn.tanh %h : (tensor<2x4xf32>) -> tensor<2x4xf32>
  %d = nn.mul %x, %t {pipe.phase = "backward"} : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
  return %t : tensor<2x4xf32>
}

// SELECTIVE: %[[H:.*]] = nn.matmul
// SELECTIVE: nn.tanh %[[H]] :
// SELECTIVE-NEXT: %[[T:.*]] = nn.tanh %[[H]] {pipe.phase = "backward"
// SELECTIVE-NEXT: nn.mul %{{.*}}, %[[T]]

// NONE: %[[T:.*]] = nn.tanh
// NONE-NEXT: nn.mul %{{.*}}, %[[T]]

// With full re-materialization the contraction is repeated as well.
// FULL: nn.tanh
// FULL-NEXT: %[[H:.*]] = nn.matmul {{.*}}pipe.phase = "backward"
// FULL-NEXT: %[[T:.*]] = nn.tanh %[[H]] {pipe.phase = "backward"
// FULL-NEXT: nn.mul %{{.*}}, %[[T]]
