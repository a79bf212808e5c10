// Weights that are read rounded lie behind others, each in whole 128 bytes, and
// behind them the copies, of half the size. Gradients have none. For GPUs copies
// of matrices with uneven rows have gaps.
// RUN: pipec-opt %s --pipe-plan-memory | FileCheck %s
// RUN: pipec-opt %s --pipe-plan-memory=even-rows | FileCheck %s --check-prefix=EVEN

// CHECK: module @stage0 attributes {
// CHECK-SAME: pipe.regions = {gradients = 4608 : i64, stash = 4416 : i64, weights = 6848 : i64}
// CHECK-SAME: pipe.rounded = [{offset = 128 : i64, pitch = 1120 : i64, row = 1120 : i64, rows = 1 : i64, to = 4608 : i64}]
// CHECK-SAME: {offset = 0 : i64, parameter = "v", region = "weights", uses = [array<i64: 0, 0>]}
// CHECK-SAME: {offset = 128 : i64, parameter = "w", region = "weights", uses = []}
// CHECK-SAME: {offset = 4480 : i64, parameter = "u", region = "weights", uses = []}
// EVEN: module @stage0
// EVEN-SAME: pipe.regions = {gradients = 4544 : i64, stash = 4416 : i64, weights = 6912 : i64}
// EVEN-SAME: pipe.rounded = [{offset = 128 : i64, pitch = 32 : i64, row = 32 : i64, rows = 1 : i64, to = 4544 : i64},
// EVEN-SAME: {offset = 256 : i64, pitch = 72 : i64, row = 67 : i64, rows = 16 : i64, to = 4608 : i64}]
module @stage0 attributes {pipe.stage = 0 : i64} {
  nn.parameter @v : tensor<5xf32> {role = "weight", file = 0 : i64, offset = 0 : i64, length = 20 : i64}
  nn.parameter @w : tensor<16x67xf32> {role = "weight", file = 0 : i64, offset = 20 : i64, length = 4288 : i64}
  nn.parameter @u : tensor<20xf32> {role = "weight", file = 0 : i64, offset = 4308 : i64, length = 80 : i64}
  func.func @forward() attributes {pipe.task = "forward"} {
    // CHECK: pipe.load "weights"[0] : tensor<5xf32>
    %v = nn.weight @v : tensor<5xf32>
    // CHECK: pipe.load "weights"[4608] : tensor<16x67xbf16>
    // EVEN: pipe.load "weights"[4608] pitch 72 : tensor<16x67xbf16>
    %w = nn.weight @w : tensor<16x67xbf16>
    // CHECK: pipe.load "weights"[6784] : tensor<20xbf16>
    // EVEN: pipe.load "weights"[4544] : tensor<20xbf16>
    %u = nn.weight @u : tensor<20xbf16>
    // CHECK: pipe.load "weights"[128] : tensor<16x67xf32>
    // EVEN: pipe.load "weights"[256] : tensor<16x67xf32>
    %f = nn.weight @w : tensor<16x67xf32>
    %y = nn.matmul %w, %w {transpose_b} : (tensor<16x67xbf16>, tensor<16x67xbf16>) -> tensor<16x16xbf16>
    pipe.stash %u in "stash" 0 : tensor<20xbf16>
    pipe.stash %v in "stash" 1 : tensor<5xf32>
    pipe.stash %f in "stash" 2 : tensor<16x67xf32>
    pipe.accumulate %v into @v use 0 : tensor<5xf32>
    return
  }
}
module @stage1 attributes {pipe.stage = 1 : i64} {
}
