// For GPUs matrices that products read or write are kept with rows of whole 16
// bytes, or of whole lines where they are long; but for what is sent from its
// place, for short and few rows, and for what is no matrix of a product.
// RUN: pipec-opt %s --pipe-plan-memory=even-rows | FileCheck %s
// RUN: pipec-opt %s --pipe-plan-memory=even-rows | pipec-opt | FileCheck %s
// RUN: pipec-opt %s --pipe-plan-memory | FileCheck %s --check-prefix=DENSE

// DENSE-NOT: pitch
// CHECK: module @stage0 attributes {{.*}}stash = 168320 : i64
module @stage0 attributes {pipe.stage = 0 : i64} {
  func.func @forward() attributes {pipe.task = "forward"} {
    %x = pipe.input "x" : tensor<32x16xf32>
    %u = nn.constant dense<1.0> : tensor<16x67xf32>
    %p = nn.matmul %x, %u : (tensor<32x16xf32>, tensor<16x67xf32>) -> tensor<32x67xf32>
    // CHECK: pipe.store %[[P:.*]], "stash"[0] pitch 68 : tensor<32x67xf32>
    pipe.stash %p in "stash" 0 : tensor<32x67xf32>
    // Through a view; what is read by a product.
    // CHECK: pipe.store %{{.*}}, "stash"[8704] pitch 72 : tensor<2x16x67xbf16>
    %r = nn.reshape %p : (tensor<32x67xf32>) -> tensor<2x16x67xf32>
    %n = nn.cast %r : (tensor<2x16x67xf32>) -> tensor<2x16x67xbf16>
    %t = nn.transpose %n {permutation = array<i64: 0, 2, 1>} : (tensor<2x16x67xbf16>) -> tensor<2x67x16xbf16>
    %q = nn.matmul %n, %t : (tensor<2x16x67xbf16>, tensor<2x67x16xbf16>) -> tensor<2x16x16xbf16>
    pipe.stash %n in "stash" 1 : tensor<2x16x67xbf16>
    // CHECK: pipe.store %{{.*}}, "stash"[13312] : tensor<2x16x16xbf16>
    pipe.stash %q in "stash" 2 : tensor<2x16x16xbf16>
    // CHECK: pipe.store %{{.*}}, "stash"[14336] : tensor<32x67xf32>
    %e = nn.exp %p : (tensor<32x67xf32>) -> tensor<32x67xf32>
    pipe.stash %e in "stash" 3 : tensor<32x67xf32>
    // CHECK: pipe.store %{{.*}}, "stash"[159744] : tensor<32x67xf32>
    %k = nn.matmul %x, %u : (tensor<32x16xf32>, tensor<16x67xf32>) -> tensor<32x67xf32>
    pipe.stash %k in "stash" 4 : tensor<32x67xf32>
    pipe.send %k on 0 to 1 : tensor<32x67xf32>
    // CHECK: pipe.store %{{.*}}, "stash"[22912] pitch 1056 : tensor<32x1027xf32>
    %v = nn.constant dense<1.0> : tensor<16x1027xf32>
    %l = nn.matmul %x, %v : (tensor<32x16xf32>, tensor<16x1027xf32>) -> tensor<32x1027xf32>
    pipe.stash %l in "stash" 5 : tensor<32x1027xf32>
    // CHECK: pipe.store %{{.*}}, "stash"[158080] : tensor<32x13xf32>
    %s = nn.constant dense<1.0> : tensor<16x13xf32>
    %m = nn.matmul %x, %s : (tensor<32x16xf32>, tensor<16x13xf32>) -> tensor<32x13xf32>
    pipe.stash %m in "stash" 6 : tensor<32x13xf32>
    return
  }
  func.func @backward() attributes {pipe.task = "backward"} {
    // CHECK: pipe.load "stash"[0] pitch 68 : tensor<32x67xf32>
    %p = pipe.unstash "stash" 0 : tensor<32x67xf32>
    return
  }
}
module @stage1 attributes {pipe.stage = 1 : i64} {
  func.func @forward() attributes {pipe.task = "forward"} {
    // CHECK: pipe.load "in"[0] : tensor<32x67xf32>
    %y = pipe.recv 0 from 0 : tensor<32x67xf32>
    return
  }
}

// What the backward pass alone multiplies, as a loss's gradient that the forward
// pass has computed.
// CHECK: module @stage2
module @stage2 attributes {pipe.stage = 2 : i64} {
  func.func @forward() attributes {pipe.task = "forward"} {
    %x = pipe.input "x" : tensor<32x67xf32>
    // CHECK: pipe.store %{{.*}}, "stash"[0] pitch 68 : tensor<32x67xf32>
    %e = nn.exp %x : (tensor<32x67xf32>) -> tensor<32x67xf32>
    pipe.stash %e in "stash" 0 : tensor<32x67xf32>
    return
  }
  func.func @backward() attributes {pipe.task = "backward"} {
    // CHECK: %[[E:.*]] = pipe.load "stash"[0] pitch 68 : tensor<32x67xf32>
    // CHECK: nn.matmul %[[E]], %[[E]]
    %e = pipe.unstash "stash" 0 : tensor<32x67xf32>
    %g = nn.matmul %e, %e {transpose_b} : (tensor<32x67xf32>, tensor<32x67xf32>) -> tensor<32x32xf32>
    pipe.stash %g in "wstash" 0 : tensor<32x32xf32>
    return
  }
}
