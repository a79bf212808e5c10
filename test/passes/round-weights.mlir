// Trained weights that tasks round to bf16 are read from a rounded copy, also
// behind views; vectors, what does not train, and what other types are wanted
// of, are rounded as before.
// RUN: pipec-opt %s --pipe-round-weights | FileCheck %s

module @stage0 attributes {pipe.stage = 0 : i64} {
  nn.parameter @w : tensor<16x67xf32> {role = "weight", file = 0 : i64, offset = 0 : i64, length = 4288 : i64}
  nn.parameter @b : tensor<67xf32> {role = "weight", file = 0 : i64, offset = 8384 : i64, length = 268 : i64}
  nn.parameter @k : tensor<3x3x4x8xf32> {role = "weight", file = 0 : i64, offset = 8652 : i64, length = 1152 : i64}
  nn.parameter @c : tensor<16x64xf32> {role = "frozen", file = 0 : i64, offset = 4288 : i64, length = 4096 : i64}
  // CHECK-LABEL: func.func @forward
  func.func @forward() attributes {pipe.task = "forward"} {
    %x = pipe.input "x" : tensor<4x16xbf16>
    // CHECK: %[[W:.*]] = nn.weight @w : tensor<16x67xbf16>
    // CHECK-NOT: nn.cast
    // CHECK: nn.matmul %{{.*}}, %[[W]]
    %w = nn.weight @w : tensor<16x67xf32>
    %r = nn.cast %w : (tensor<16x67xf32>) -> tensor<16x67xbf16>
    %y = nn.matmul %x, %r : (tensor<4x16xbf16>, tensor<16x67xbf16>) -> tensor<4x67xbf16>
    pipe.stash %y in "stash" 0 : tensor<4x67xbf16>
    // CHECK: %[[V:.*]] = nn.weight @w : tensor<16x67xbf16>
    // CHECK: %[[T:.*]] = nn.transpose %[[V]] {permutation = array<i64: 1, 0>} : (tensor<16x67xbf16>) -> tensor<67x16xbf16>
    // CHECK: nn.matmul %{{.*}}, %[[T]]
    %v = nn.weight @w : tensor<16x67xf32>
    %t = nn.transpose %v {permutation = array<i64: 1, 0>} : (tensor<16x67xf32>) -> tensor<67x16xf32>
    %q = nn.cast %t : (tensor<67x16xf32>) -> tensor<67x16xbf16>
    %z = nn.matmul %y, %q : (tensor<4x67xbf16>, tensor<67x16xbf16>) -> tensor<4x16xbf16>
    // CHECK: %[[C:.*]] = nn.weight @c : tensor<16x64xf32>
    // CHECK: nn.cast %[[C]]
    %c = nn.weight @c : tensor<16x64xf32>
    %d = nn.cast %c : (tensor<16x64xf32>) -> tensor<16x64xbf16>
    %u = nn.matmul %z, %d : (tensor<4x16xbf16>, tensor<16x64xbf16>) -> tensor<4x64xbf16>
    pipe.stash %u in "stash" 1 : tensor<4x64xbf16>
    // CHECK: %[[H:.*]] = nn.weight @w : tensor<16x67xf32>
    // CHECK: nn.cast %[[H]] : (tensor<16x67xf32>) -> tensor<16x67xf16>
    %a = nn.weight @w : tensor<16x67xf32>
    %h = nn.cast %a : (tensor<16x67xf32>) -> tensor<16x67xf16>
    pipe.stash %h in "stash" 2 : tensor<16x67xf16>
    // CHECK: %[[B:.*]] = nn.weight @b : tensor<67xf32>
    // CHECK: nn.cast %[[B]]
    %b = nn.weight @b : tensor<67xf32>
    %s = nn.cast %b : (tensor<67xf32>) -> tensor<67xbf16>
    pipe.stash %s in "stash" 3 : tensor<67xbf16>
    // Convolutions would copy what a view shows.
    // CHECK: %[[K:.*]] = nn.weight @k : tensor<3x3x4x8xf32>
    // CHECK: nn.transpose %[[K]]
    // CHECK: nn.cast
    %k = nn.weight @k : tensor<3x3x4x8xf32>
    %o = nn.transpose %k {permutation = array<i64: 3, 2, 0, 1>} : (tensor<3x3x4x8xf32>) -> tensor<8x4x3x3xf32>
    %n = nn.cast %o : (tensor<8x4x3x3xf32>) -> tensor<8x4x3x3xbf16>
    pipe.stash %n in "stash" 4 : tensor<8x4x3x3xbf16>
    return
  }
}
