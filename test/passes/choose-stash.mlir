// What the backward pass gets from kept values by cheap ops is not kept itself.
// RUN: pipec-opt %s --nn-choose-stash -split-input-file | FileCheck %s --check-prefix=SELECTIVE
// RUN: pipec-opt %s --nn-choose-stash=mode=none -split-input-file | FileCheck %s --check-prefix=NONE
// RUN: pipec-opt %s --nn-choose-stash=mode=full -split-input-file | FileCheck %s --check-prefix=FULL

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

// Fusion makes that free with `none` as well.
// NONE: nn.tanh
// NONE-NEXT: %[[T:.*]] = nn.tanh {{.*}}pipe.phase = "backward"
// NONE-NEXT: nn.mul %{{.*}}, %[[T]]

// With full re-materialization the contraction is repeated as well.
// FULL: nn.tanh
// FULL-NEXT: %[[H:.*]] = nn.matmul {{.*}}pipe.phase = "backward"
// FULL-NEXT: %[[T:.*]] = nn.tanh %[[H]] {pipe.phase = "backward"
// FULL-NEXT: nn.mul %{{.*}}, %[[T]]

// -----

// What a contraction reads would be written to memory again: `none` keeps it,
// and what it is a view of rather than the view.
func.func @main(%x: tensor<4x4xf32>, %w: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %h = nn.matmul %x, %w : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %t = nn.tanh %h : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %r = nn.transpose %t {permutation = array<i64: 1, 0>} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %d = nn.matmul %x, %r {pipe.phase = "backward"} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  return %t : tensor<4x4xf32>
}

// SELECTIVE: %[[T:.*]] = nn.tanh {{.*}}pipe.phase = "backward"
// SELECTIVE-NEXT: nn.transpose %[[T]] {{.*}}pipe.phase = "backward"

// NONE: %[[T:.*]] = nn.tanh
// NONE-NOT: nn.tanh
// NONE: %[[R:.*]] = nn.transpose %[[T]] {{.*}}pipe.phase = "backward"
// NONE-NEXT: nn.matmul %{{.*}}, %[[R]]

// FULL: nn.tanh {{.*}}pipe.phase = "backward"

// -----

// A row's distance from its mean stands for the row, which others have in
// memory: that is kept instead, with the mean.
func.func @main(%x: tensor<2x64xf32>, %w: tensor<64x64xf32>) -> tensor<2x64xf32> {
  %a = nn.matmul %x, %w : (tensor<2x64xf32>, tensor<64x64xf32>) -> tensor<2x64xf32>
  %b = nn.matmul %a, %w : (tensor<2x64xf32>, tensor<64x64xf32>) -> tensor<2x64xf32>
  %s = nn.add %a, %b : (tensor<2x64xf32>, tensor<2x64xf32>) -> tensor<2x64xf32>
  %m = nn.reduce %s {axes = array<i64: 1>, kind = "sum"} : (tensor<2x64xf32>) -> tensor<2x1xf32>
  %c = nn.broadcast %m : (tensor<2x1xf32>) -> tensor<2x64xf32>
  %v = nn.sub %s, %c : (tensor<2x64xf32>, tensor<2x64xf32>) -> tensor<2x64xf32>
  %d = nn.mul %x, %v {pipe.phase = "backward"} : (tensor<2x64xf32>, tensor<2x64xf32>) -> tensor<2x64xf32>
  return %v : tensor<2x64xf32>
}

// SELECTIVE: %[[S:.*]] = nn.add
// SELECTIVE-NEXT: %[[M:.*]] = nn.reduce %[[S]]
// SELECTIVE: %[[C:.*]] = nn.broadcast %[[M]] {{.*}}pipe.phase = "backward"
// SELECTIVE-NEXT: %[[V:.*]] = nn.sub %[[S]], %[[C]] {pipe.phase = "backward"
// SELECTIVE-NEXT: nn.mul %{{.*}}, %[[V]]
