// What attention keeps for its gradient lies as its neighbours have it.
// RUN: pipec-opt %s --cuda-attention-stash -split-input-file | FileCheck %s

// Queries, keys and values are slices of one tensor: it is kept. The result is
// kept in the order in which a product reads it.
// CHECK-LABEL: func.func @forward
// CHECK: %[[X:.*]] = pipe.load "in"
// CHECK-DAG: pipe.store %[[X]], "stash"[0] : tensor<2x8x24xbf16>
// CHECK-DAG: %[[T:.*]] = nn.transpose %y
// CHECK-DAG: pipe.store %[[T]], "stash"[768] : tensor<2x8x2x4xbf16>
// CHECK-NOT: pipe.store
// CHECK-LABEL: func.func @backward
// CHECK-COUNT-3: pipe.load "stash"[0] : tensor<2x8x24xbf16>
// CHECK: %[[Y:.*]] = pipe.load "stash"[768] : tensor<2x8x2x4xbf16>
// CHECK: nn.transpose %[[Y]]
// CHECK: nn.attention_grad_query
module @stage0 attributes {pipe.stage = 0 : i64} {
  func.func @forward() attributes {pipe.task = "forward"} {
    %x = pipe.load "in"[0] : tensor<2x8x24xbf16>
    %0 = nn.slice %x {starts = array<i64: 0, 0, 0>, strides = array<i64: 1, 1, 1>} : (tensor<2x8x24xbf16>) -> tensor<2x8x8xbf16>
    %1 = nn.slice %x {starts = array<i64: 0, 0, 8>, strides = array<i64: 1, 1, 1>} : (tensor<2x8x24xbf16>) -> tensor<2x8x8xbf16>
    %2 = nn.slice %x {starts = array<i64: 0, 0, 16>, strides = array<i64: 1, 1, 1>} : (tensor<2x8x24xbf16>) -> tensor<2x8x8xbf16>
    %3 = nn.reshape %0 : (tensor<2x8x8xbf16>) -> tensor<2x8x2x4xbf16>
    %4 = nn.reshape %1 : (tensor<2x8x8xbf16>) -> tensor<2x8x2x4xbf16>
    %5 = nn.reshape %2 : (tensor<2x8x8xbf16>) -> tensor<2x8x2x4xbf16>
    %q = nn.transpose %3 {permutation = array<i64: 0, 2, 1, 3>} : (tensor<2x8x2x4xbf16>) -> tensor<2x2x8x4xbf16>
    %k = nn.transpose %4 {permutation = array<i64: 0, 2, 1, 3>} : (tensor<2x8x2x4xbf16>) -> tensor<2x2x8x4xbf16>
    %v = nn.transpose %5 {permutation = array<i64: 0, 2, 1, 3>} : (tensor<2x8x2x4xbf16>) -> tensor<2x2x8x4xbf16>
    pipe.store %q, "stash"[0] : tensor<2x2x8x4xbf16>
    pipe.store %k, "stash"[256] : tensor<2x2x8x4xbf16>
    pipe.store %v, "stash"[512] : tensor<2x2x8x4xbf16>
    %y, %tops, %shares = nn.attention %q, %k, %v {causal, scale = 0.5 : f64} : (tensor<2x2x8x4xbf16>, tensor<2x2x8x4xbf16>, tensor<2x2x8x4xbf16>) -> (tensor<2x2x8x4xbf16>, tensor<2x2x8x1xf32>, tensor<2x2x8x1xf32>)
    pipe.store %y, "stash"[768] : tensor<2x2x8x4xbf16>
    %t = nn.transpose %y {permutation = array<i64: 0, 2, 1, 3>} : (tensor<2x2x8x4xbf16>) -> tensor<2x8x2x4xbf16>
    %r = nn.reshape %t : (tensor<2x8x2x4xbf16>) -> tensor<16x8xbf16>
    %p = nn.matmul %r, %r {transpose_b} : (tensor<16x8xbf16>, tensor<16x8xbf16>) -> tensor<16x16xbf16>
    return
  }
  func.func @backward() attributes {pipe.task = "backward"} {
    %q = pipe.load "stash"[0] : tensor<2x2x8x4xbf16>
    %k = pipe.load "stash"[256] : tensor<2x2x8x4xbf16>
    %v = pipe.load "stash"[512] : tensor<2x2x8x4xbf16>
    %y = pipe.load "stash"[768] : tensor<2x2x8x4xbf16>
    %n = pipe.load "in"[0] : tensor<2x2x8x1xf32>
    %dq = nn.attention_grad_query %q, %k, %v, %y, %n, %n, %n {causal, scale = 0.5 : f64} : (tensor<2x2x8x4xbf16>, tensor<2x2x8x4xbf16>, tensor<2x2x8x4xbf16>, tensor<2x2x8x4xbf16>, tensor<2x2x8x1xf32>, tensor<2x2x8x1xf32>, tensor<2x2x8x1xf32>) -> tensor<2x2x8x4xbf16>
    pipe.store %dq, "out"[0] : tensor<2x2x8x4xbf16>
    return
  }
}

// -----

// Without the values the tensor would be more than what is kept, and what
// others read stays where it is.
// CHECK-LABEL: func.func @forward
// CHECK: pipe.store %{{.*}}, "stash"[0] : tensor<2x8x8xbf16>
// CHECK: pipe.store %{{.*}}, "stash"[256] : tensor<2x8x8xbf16>
// CHECK: pipe.store %{{.*}}, "stash"[512] : tensor<2x8xf32>
// CHECK: pipe.store %{{.*}}, "stash"[576] : tensor<2x8xf32>
func.func @forward() attributes {pipe.task = "forward"} {
  %x = pipe.load "in"[0] : tensor<2x8x24xbf16>
  %q = nn.slice %x {starts = array<i64: 0, 0, 0>, strides = array<i64: 1, 1, 1>} : (tensor<2x8x24xbf16>) -> tensor<2x8x8xbf16>
  %k = nn.slice %x {starts = array<i64: 0, 0, 8>, strides = array<i64: 1, 1, 1>} : (tensor<2x8x24xbf16>) -> tensor<2x8x8xbf16>
  pipe.store %q, "stash"[0] : tensor<2x8x8xbf16>
  pipe.store %k, "stash"[256] : tensor<2x8x8xbf16>
  %y = pipe.load "in"[1024] : tensor<2x16xf32>
  %a = nn.slice %y {starts = array<i64: 0, 0>, strides = array<i64: 1, 1>} : (tensor<2x16xf32>) -> tensor<2x8xf32>
  %b = nn.slice %y {starts = array<i64: 0, 8>, strides = array<i64: 1, 1>} : (tensor<2x16xf32>) -> tensor<2x8xf32>
  pipe.store %a, "stash"[512] : tensor<2x8xf32>
  pipe.store %b, "stash"[576] : tensor<2x8xf32>
  return
}
func.func @backward() attributes {pipe.task = "backward"} {
  %q = pipe.load "stash"[0] : tensor<2x8x8xbf16>
  %k = pipe.load "stash"[256] : tensor<2x8x8xbf16>
  %n = pipe.load "in"[0] : tensor<2x8x1xf32>
  %dq = nn.attention_grad_query %q, %k, %k, %q, %n, %n, %n {causal, scale = 0.5 : f64} : (tensor<2x8x8xbf16>, tensor<2x8x8xbf16>, tensor<2x8x8xbf16>, tensor<2x8x8xbf16>, tensor<2x8x1xf32>, tensor<2x8x1xf32>, tensor<2x8x1xf32>) -> tensor<2x8x8xbf16>
  pipe.store %dq, "out"[0] : tensor<2x8x8xbf16>
  %a = pipe.load "stash"[512] : tensor<2x8xf32>
  %b = pipe.load "stash"[576] : tensor<2x8xf32>
  %s = nn.add %a, %b : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x8xf32>
  pipe.store %s, "out"[256] : tensor<2x8xf32>
  return
}

// -----

// Slices side by side along one axis are not the tensor if another axis is cut
// in some.
// CHECK-LABEL: func.func @forward
// CHECK: pipe.store %{{.*}}, "stash"[0] : tensor<2x8x8xbf16>
// CHECK: pipe.store %{{.*}}, "stash"[256] : tensor<2x4x8xbf16>
// CHECK: pipe.store %{{.*}}, "stash"[384] : tensor<2x4x8xbf16>
func.func @forward() attributes {pipe.task = "forward"} {
  %x = pipe.load "in"[0] : tensor<2x8x24xbf16>
  %q = nn.slice %x {starts = array<i64: 0, 0, 0>, strides = array<i64: 1, 1, 1>} : (tensor<2x8x24xbf16>) -> tensor<2x8x8xbf16>
  %k = nn.slice %x {starts = array<i64: 0, 0, 8>, strides = array<i64: 1, 1, 1>} : (tensor<2x8x24xbf16>) -> tensor<2x4x8xbf16>
  %v = nn.slice %x {starts = array<i64: 0, 0, 16>, strides = array<i64: 1, 1, 1>} : (tensor<2x8x24xbf16>) -> tensor<2x4x8xbf16>
  pipe.store %q, "stash"[0] : tensor<2x8x8xbf16>
  pipe.store %k, "stash"[256] : tensor<2x4x8xbf16>
  pipe.store %v, "stash"[384] : tensor<2x4x8xbf16>
  return
}
func.func @backward() attributes {pipe.task = "backward"} {
  %q = pipe.load "stash"[0] : tensor<2x8x8xbf16>
  %k = pipe.load "stash"[256] : tensor<2x4x8xbf16>
  %v = pipe.load "stash"[384] : tensor<2x4x8xbf16>
  %n = pipe.load "in"[0] : tensor<2x8x1xf32>
  %dq = nn.attention_grad_query %q, %k, %v, %q, %n, %n, %n {scale = 0.5 : f64} : (tensor<2x8x8xbf16>, tensor<2x4x8xbf16>, tensor<2x4x8xbf16>, tensor<2x8x8xbf16>, tensor<2x8x1xf32>, tensor<2x8x1xf32>, tensor<2x8x1xf32>) -> tensor<2x8x8xbf16>
  pipe.store %dq, "out"[0] : tensor<2x8x8xbf16>
  return
}
