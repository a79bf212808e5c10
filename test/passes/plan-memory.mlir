// Messages, kept values, weights and gradients become loads and stores at
// places that do not overlap and are multiples of 64 bytes.
// A value that no node names is called after what reads it.
// RUN: pipec-opt %s --pipe-plan-memory | FileCheck %s

// CHECK: module attributes {pipe.edges = [
// CHECK-SAME: {backward = false, bytes = 20 : i64, from = 0 : i64, from_offset = 0 : i64, from_region = "out", id = 0 : i64, to = 1 : i64, to_offset = 0 : i64, to_region = "in", value = "reader"}
// CHECK-SAME: {backward = true, bytes = 20 : i64, from = 1 : i64, from_offset = 0 : i64, from_region = "grad_out", id = 1 : i64, to = 0 : i64, to_offset = 0 : i64, to_region = "grad_in", value = "nn.exp"}

// CHECK: module @stage0 attributes {
// CHECK-SAME: pipe.inputs = [{input = "x", offset = 0 : i64}]
// CHECK-SAME: pipe.regions = {constants = 64 : i64, grad_in = 64 : i64, gradients = 192 : i64, in = 64 : i64, out = 64 : i64, stash = 64 : i64, weights = 128 : i64}
// CHECK-SAME: {offset = 0 : i64, parameter = "v", region = "weights", uses = [array<i64: 0, 0>]}
// CHECK-SAME: {offset = 64 : i64, parameter = "w", region = "weights", uses = [array<i64: 0, 64>, array<i64: 1, 128>]}
// CHECK-SAME: {offset = 0 : i64, parameter = "c", region = "constants", uses = []}
module @stage0 attributes {pipe.stage = 0 : i64} {
  nn.parameter @v : tensor<5xf32> {role = "weight", file = 0 : i64, offset = 0 : i64, length = 20 : i64}
  nn.parameter @w : tensor<5xf32> {role = "weight", file = 0 : i64, offset = 20 : i64, length = 20 : i64}
  nn.parameter @c : tensor<5xf32> {role = "frozen", file = 0 : i64, offset = 40 : i64, length = 20 : i64}
  func.func @forward() attributes {pipe.task = "forward"} {
    // CHECK: %[[X:.*]] = pipe.load "in"[0] : tensor<5xf32>
    %x = pipe.input "x" : tensor<5xf32>
    // CHECK: pipe.load "weights"[64] : tensor<5xf32>
    %w = nn.weight @w : tensor<5xf32>
    // CHECK: pipe.load "constants"[0] : tensor<5xf32>
    %c = nn.weight @c : tensor<5xf32>
    %p = nn.mul %w, %c : (tensor<5xf32>, tensor<5xf32>) -> tensor<5xf32>
    %y = nn.mul %x, %p : (tensor<5xf32>, tensor<5xf32>) -> tensor<5xf32>
    // CHECK: pipe.store %{{.*}}, "out"[0] : tensor<5xf32>
    pipe.send %y on 0 to 1 : tensor<5xf32> loc("reader")
    // CHECK: pipe.store %{{.*}}, "stash"[0] : tensor<5xf32>
    pipe.stash %p in "stash" 0 : tensor<5xf32>
    return
  }
  func.func @backward() attributes {pipe.task = "backward"} {
    // CHECK: %[[D:.*]] = pipe.load "grad_in"[0] : tensor<5xf32>
    %d = pipe.recv 1 from 1 : tensor<5xf32>
    // CHECK: pipe.load "stash"[0] : tensor<5xf32>
    %p = pipe.unstash "stash" 0 : tensor<5xf32>
    // CHECK: pipe.store %[[D]], "gradients"[128] accumulate
    pipe.accumulate %d into @w use 1 : tensor<5xf32>
    // CHECK: pipe.store %[[D]], "gradients"[64] accumulate
    pipe.accumulate %d into @w use 0 : tensor<5xf32>
    // CHECK: pipe.store %{{.*}}, "gradients"[0] accumulate
    pipe.accumulate %p into @v use 0 : tensor<5xf32>
    return
  }
}
module @stage1 attributes {pipe.stage = 1 : i64} {
  func.func @forward() attributes {pipe.task = "forward"} {
    %y = pipe.recv 0 from 0 : tensor<5xf32>
    return
  }
  func.func @backward() attributes {pipe.task = "backward"} {
    %y = pipe.recv 0 from 0 : tensor<5xf32>
    %d = nn.exp %y : (tensor<5xf32>) -> tensor<5xf32>
    pipe.send %d on 1 to 0 : tensor<5xf32>
    return
  }
}
