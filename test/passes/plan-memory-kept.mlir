// A tensor that is both kept and sent is stored once, and sent from there.
// RUN: pipec-opt %s --pipe-plan-memory | FileCheck %s

// CHECK: from_region = "stash"
// CHECK: pipe.store %{{.*}}, "stash"[0]
// CHECK-NOT: pipe.store
module @stage0 attributes {pipe.stage = 0 : i64} {
  func.func @forward() attributes {pipe.task = "forward"} {
    %x = pipe.input "x" : tensor<5xf32>
    %y = nn.exp %x : (tensor<5xf32>) -> tensor<5xf32>
    pipe.send %y on 0 to 1 : tensor<5xf32>
    pipe.stash %y in "stash" 0 : tensor<5xf32>
    return
  }
}
module @stage1 attributes {pipe.stage = 1 : i64} {
  func.func @forward() attributes {pipe.task = "forward"} {
    %y = pipe.recv 0 from 0 : tensor<5xf32>
    return
  }
}
