// Weights that are read rounded come first, each in whole 128 bytes; behind all
// weights lie the copies, of half the size and at half the offset. Gradients
// have none.
// RUN: pipec-opt %s --pipe-plan-memory | FileCheck %s

// CHECK: module @stage0 attributes {
// CHECK-SAME: pipe.regions = {gradients = 320 : i64, stash = 192 : i64, weights = 448 : i64}
// CHECK-SAME: pipe.rounded = {bytes = 256 : i64, offset = 320 : i64}
// CHECK-SAME: {offset = 256 : i64, parameter = "v", region = "weights", uses = [array<i64: 0, 256>]}
// CHECK-SAME: {offset = 0 : i64, parameter = "w", region = "weights", uses = []}
// CHECK-SAME: {offset = 128 : i64, parameter = "u", region = "weights", uses = []}
module @stage0 attributes {pipe.stage = 0 : i64} {
  nn.parameter @v : tensor<5xf32> {role = "weight", file = 0 : i64, offset = 0 : i64, length = 20 : i64}
  nn.parameter @w : tensor<5xf32> {role = "weight", file = 0 : i64, offset = 20 : i64, length = 20 : i64}
  nn.parameter @u : tensor<20xf32> {role = "weight", file = 0 : i64, offset = 40 : i64, length = 80 : i64}
  func.func @forward() attributes {pipe.task = "forward"} {
    // CHECK: pipe.load "weights"[256] : tensor<5xf32>
    %v = nn.weight @v : tensor<5xf32>
    // CHECK: pipe.load "weights"[320] : tensor<5xbf16>
    %w = nn.weight @w : tensor<5xbf16>
    // CHECK: pipe.load "weights"[384] : tensor<20xbf16>
    %u = nn.weight @u : tensor<20xbf16>
    // CHECK: pipe.load "weights"[0] : tensor<5xf32>
    %f = nn.weight @w : tensor<5xf32>
    pipe.stash %w in "stash" 0 : tensor<5xbf16>
    pipe.stash %u in "stash" 1 : tensor<20xbf16>
    pipe.stash %f in "stash" 2 : tensor<5xf32>
    pipe.accumulate %v into @v use 0 : tensor<5xf32>
    return
  }
}
module @stage1 attributes {pipe.stage = 1 : i64} {
}
