// What goes from one stage to another lies side by side at both ends, in
// whatever order it is made or read, and travels as one message.
// RUN: pipec-opt %s --pipe-plan-memory | FileCheck %s

// CHECK: pipe.edges = [
// CHECK-SAME: {backward = false, bytes = 84 : i64, from = 0 : i64, from_offset = 0 : i64, from_region = "out", id = 0 : i64, to = 1 : i64, to_offset = 0 : i64, to_region = "in", value = "nn.exp and 1 more"}
// CHECK-SAME: {backward = false, bytes = 20 : i64, from = 0 : i64, from_offset = 128 : i64, {{.*}}to = 2
// CHECK-SAME: {backward = true, bytes = 84 : i64, from = 1 : i64, from_offset = 0 : i64, from_region = "grad_out", id = 3 : i64, to = 0 : i64, to_offset = 0 : i64
// CHECK-SAME: ]
module @stage0 attributes {pipe.stage = 0 : i64} {
  func.func @forward() attributes {pipe.task = "forward"} {
    %x = pipe.input "x" : tensor<5xf32>
    %a = nn.exp %x : (tensor<5xf32>) -> tensor<5xf32>
    pipe.send %a on 0 to 1 : tensor<5xf32>
    %b = nn.exp %a : (tensor<5xf32>) -> tensor<5xf32>
    pipe.send %b on 1 to 2 : tensor<5xf32>
    %c = nn.exp %b : (tensor<5xf32>) -> tensor<5xf32>
    pipe.send %c on 2 to 1 : tensor<5xf32>
    return
  }
  func.func @backward() attributes {pipe.task = "backward"} {
    %d = pipe.recv 3 from 1 : tensor<5xf32>
    %e = pipe.recv 4 from 1 : tensor<5xf32>
    return
  }
}
module @stage1 attributes {pipe.stage = 1 : i64} {
  func.func @forward() attributes {pipe.task = "forward"} {
    // CHECK: @stage1
    // CHECK: pipe.load "in"[64]
    %c = pipe.recv 2 from 0 : tensor<5xf32>
    // CHECK: pipe.load "in"[0]
    %a = pipe.recv 0 from 0 : tensor<5xf32>
    %e = nn.exp %c : (tensor<5xf32>) -> tensor<5xf32>
    pipe.stash %e in "stash" 0 : tensor<5xf32>
    return
  }
  func.func @backward() attributes {pipe.task = "backward"} {
    %c = pipe.unstash "stash" 0 : tensor<5xf32>
    %e = nn.exp %c : (tensor<5xf32>) -> tensor<5xf32>
    // CHECK: pipe.store %{{.*}}, "grad_out"[64]
    pipe.send %e on 4 to 0 : tensor<5xf32>
    %d = nn.exp %e : (tensor<5xf32>) -> tensor<5xf32>
    // CHECK: pipe.store %{{.*}}, "grad_out"[0]
    pipe.send %d on 3 to 0 : tensor<5xf32>
    return
  }
}
module @stage2 attributes {pipe.stage = 2 : i64} {
  func.func @forward() attributes {pipe.task = "forward"} {
    %b = pipe.recv 1 from 0 : tensor<5xf32>
    return
  }
}
