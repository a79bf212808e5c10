// A kept tensor that its only reader would copy is kept in the reader's order.
// RUN: pipec-opt %s --fusion-stash -split-input-file | FileCheck %s

// CHECK: %[[T:.*]] = nn.transpose
// CHECK: %[[R:.*]] = nn.reshape %[[T]]
// CHECK: pipe.store %[[R]], "stash"[0] : tensor<32xf32>
func.func @forward() attributes {pipe.task = "forward"} {
  %x = pipe.load "in"[0] : tensor<4x8xf32>
  pipe.store %x, "stash"[0] : tensor<4x8xf32>
  return
}
// CHECK: %[[L:.*]] = pipe.load "stash"[0] : tensor<32xf32>
// CHECK-NEXT: pipe.store %[[L]], "out"[0]
func.func @backward() attributes {pipe.task = "backward"} {
  %x = pipe.load "stash"[0] : tensor<4x8xf32>
  %t = nn.transpose %x {permutation = array<i64: 1, 0>} : (tensor<4x8xf32>) -> tensor<8x4xf32>
  %r = nn.reshape %t : (tensor<8x4xf32>) -> tensor<32xf32>
  pipe.store %r, "out"[0] : tensor<32xf32>
  return
}

// -----

// Two readers that want different orders: stored as it is.
// CHECK: pipe.store %{{.*}}, "stash"[0] : tensor<4x8xf32>
func.func @forward() attributes {pipe.task = "forward"} {
  %x = pipe.load "in"[0] : tensor<4x8xf32>
  pipe.store %x, "stash"[0] : tensor<4x8xf32>
  return
}
func.func @backward() attributes {pipe.task = "backward"} {
  %x = pipe.load "stash"[0] : tensor<4x8xf32>
  %t = nn.transpose %x {permutation = array<i64: 1, 0>} : (tensor<4x8xf32>) -> tensor<8x4xf32>
  %r = nn.reshape %t : (tensor<8x4xf32>) -> tensor<32xf32>
  %e = nn.exp %x : (tensor<4x8xf32>) -> tensor<4x8xf32>
  pipe.store %r, "out"[0] : tensor<32xf32>
  pipe.store %e, "out"[128] : tensor<4x8xf32>
  return
}

// -----

// Another stage gets it, too, and reads it as it is.
// CHECK: pipe.store %{{.*}}, "stash"[0] : tensor<4x8xf32>
// CHECK: pipe.store %{{.*}}, "stash"[128] : tensor<32xf32>
module attributes {pipe.sent = [{region = "stash", offset = 0 : i64}]} {
  func.func @forward() attributes {pipe.task = "forward"} {
    %x = pipe.load "in"[0] : tensor<4x8xf32>
    pipe.store %x, "stash"[0] : tensor<4x8xf32>
    %y = pipe.load "in"[128] : tensor<4x8xf32>
    pipe.store %y, "stash"[128] : tensor<4x8xf32>
    return
  }
  func.func @backward() attributes {pipe.task = "backward"} {
    %x = pipe.load "stash"[0] : tensor<4x8xf32>
    %t = nn.transpose %x {permutation = array<i64: 1, 0>} : (tensor<4x8xf32>) -> tensor<8x4xf32>
    %r = nn.reshape %t : (tensor<8x4xf32>) -> tensor<32xf32>
    pipe.store %r, "out"[0] : tensor<32xf32>
    %y = pipe.load "stash"[128] : tensor<4x8xf32>
    %u = nn.transpose %y {permutation = array<i64: 1, 0>} : (tensor<4x8xf32>) -> tensor<8x4xf32>
    %s = nn.reshape %u : (tensor<8x4xf32>) -> tensor<32xf32>
    pipe.store %s, "out"[128] : tensor<32xf32>
    return
  }
}
