// RUN: pipec-opt %s --verify-roundtrip | FileCheck %s

// CHECK-LABEL: func.func @task
func.func @task() attributes {pipe.task = "forward"} {
  // CHECK-NEXT: %[[X:.*]] = pipe.input "x" : tensor<4xf32>
  %x = pipe.input "x" : tensor<4xf32>
  // CHECK-NEXT: pipe.recv 0 from 1 : tensor<4xf32>
  %r = pipe.recv 0 from 1 : tensor<4xf32>
  // CHECK-NEXT: pipe.send %[[X]] on 2 to 3 : tensor<4xf32>
  pipe.send %x on 2 to 3 : tensor<4xf32>
  // CHECK-NEXT: pipe.stash %[[X]] in "stash" 0 : tensor<4xf32>
  pipe.stash %x in "stash" 0 : tensor<4xf32>
  // CHECK-NEXT: pipe.unstash "stash" 0 : tensor<4xf32>
  %u = pipe.unstash "stash" 0 : tensor<4xf32>
  // CHECK-NEXT: pipe.accumulate %[[X]] into @w use 1 : tensor<4xf32>
  pipe.accumulate %x into @w use 1 : tensor<4xf32>
  // CHECK-NEXT: pipe.load "in"[64] : tensor<4xf32>
  %l = pipe.load "in"[64] : tensor<4xf32>
  // CHECK-NEXT: pipe.store %[[X]], "gradients"[128] accumulate : tensor<4xf32>
  pipe.store %x, "gradients"[128] accumulate : tensor<4xf32>
  // CHECK-NEXT: pipe.load "stash"[0] pitch 72 : tensor<4x67xbf16>
  %k = pipe.load "stash"[0] pitch 72 : tensor<4x67xbf16>
  // CHECK-NEXT: pipe.store %{{.*}}, "stash"[64] pitch 80 accumulate : tensor<4x67xbf16>
  pipe.store %k, "stash"[64] pitch 80 accumulate : tensor<4x67xbf16>
  // CHECK-NEXT: pipe.output %[[X]] as "logits" : tensor<4xf32>
  pipe.output %x as "logits" : tensor<4xf32>
  // CHECK-NEXT: pipe.scalar "update" : tensor<f64>
  %s = pipe.scalar "update" : tensor<f64>
  // CHECK-NEXT: pipe.loss %{{.*}} : tensor<f64>
  pipe.loss %s : tensor<f64>
  return
}
// CHECK: pipe.rank 1 runs [1] order "1F0,1B0"
pipe.rank 1 runs [1] order "1F0,1B0"
