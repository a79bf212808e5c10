// Sums of columns beside those of short rows: eight warps, or as many as have
// room, take a row each and leave it in shared memory, where all threads add the
// rows up in order. What a thread reads is under way before anything is written,
// and registers are bounded so that 512 threads run at a time.
// RUN: pipec-opt %s --cuda-kernels | FileCheck %s

// CHECK-LABEL: func.func @kernel0(
// CHECK-SAME: cuda.least_blocks = 2 : i64, cuda.threads = 256 : i64
// CHECK: scf.for
// CHECK-COUNT-5: nvvm.shfl.sync bfly
// CHECK: llvm.store {{.*}} vector<4xf32>, !llvm.ptr<3>
// CHECK: nvvm.barrier0
// CHECK-COUNT-8: llvm.load {{.*}} !llvm.ptr<3> -> vector<4xf32>
// CHECK: nvvm.barrier0
// CHECK-NEXT: scf.yield
// Many partial sums are read eight at a time.
// CHECK-LABEL: func.func @kernel1(
// CHECK-SAME: cuda.least_blocks = 1
// CHECK: scf.for
// CHECK-COUNT-8: llvm.load {{.*}} !llvm.ptr -> vector<4xf32>
// CHECK: scf.yield
func.func @forward() attributes {pipe.task = "forward"} {
  %x = pipe.load "in"[0] : tensor<16384x768xf32>
  %y = pipe.load "in"[50331648] : tensor<16384x768xf32>
  %p = nn.mul %x, %y : (tensor<16384x768xf32>, tensor<16384x768xf32>) -> tensor<16384x768xf32>
  %r = nn.reduce %p {kind = "sum", axes = array<i64: 1>} : (tensor<16384x768xf32>) -> tensor<16384x1xf32>
  %b = nn.broadcast %r : (tensor<16384x1xf32>) -> tensor<16384x768xf32>
  %d = nn.sub %p, %b : (tensor<16384x768xf32>, tensor<16384x768xf32>) -> tensor<16384x768xf32>
  %e = nn.mul %d, %x : (tensor<16384x768xf32>, tensor<16384x768xf32>) -> tensor<16384x768xf32>
  pipe.store %e, "out"[0] : tensor<16384x768xf32>
  %s = nn.reduce %d {kind = "sum", axes = array<i64: 0>} : (tensor<16384x768xf32>) -> tensor<1x768xf32>
  pipe.store %s, "gradients"[0] : tensor<1x768xf32>
  return
}

// A tanh that two phases read is computed in both, at each of the thread's six
// points: that takes less time than writing and reading it. Reads are looked for
// once in each value, not along each of 2^40 ways.
// CHECK-LABEL: func.func @kernel2(
// CHECK: scf.for
// CHECK-NOT: llvm.store {{.*}} vector<4xf32>, !llvm.ptr{{$}}
// CHECK-COUNT-6: math.copysign
// CHECK-COUNT-5: nvvm.shfl.sync bfly
// CHECK-COUNT-6: math.copysign
// CHECK: nvvm.barrier0
func.func @backward() attributes {pipe.task = "backward"} {
  %x = pipe.load "in"[0] : tensor<16384x768xf32>
  %y = pipe.load "in"[50331648] : tensor<16384x768xf32>
  %t = nn.tanh %x : (tensor<16384x768xf32>) -> tensor<16384x768xf32>
  %p = nn.mul %t, %y : (tensor<16384x768xf32>, tensor<16384x768xf32>) -> tensor<16384x768xf32>
  %r = nn.reduce %p {kind = "sum", axes = array<i64: 1>} : (tensor<16384x768xf32>) -> tensor<16384x1xf32>
  %b = nn.broadcast %r : (tensor<16384x1xf32>) -> tensor<16384x768xf32>
  %c0 = nn.sub %t, %b : (tensor<16384x768xf32>, tensor<16384x768xf32>) -> tensor<16384x768xf32>
  %c1 = nn.add %c0, %c0 : (tensor<16384x768xf32>, tensor<16384x768xf32>) -> tensor<16384x768xf32>
  %c2 = nn.add %c1, %c1 : (tensor<16384x768xf32>, tensor<16384x768xf32>) -> tensor<16384x768xf32>
  %c3 = nn.add %c2, %c2 : (tensor<16384x768xf32>, tensor<16384x768xf32>) -> tensor<16384x768xf32>
  %c4 = nn.add %c3, %c3 : (tensor<16384x768xf32>, tensor<16384x768xf32>) -> tensor<16384x768xf32>
  %c5 = nn.add %c4, %c4 : (tensor<16384x768xf32>, tensor<16384x768xf32>) -> tensor<16384x768xf32>
  %c6 = nn.add %c5, %c5 : (tensor<16384x768xf32>, tensor<16384x768xf32>) -> tensor<16384x768xf32>
  %c7 = nn.add %c6, %c6 : (tensor<16384x768xf32>, tensor<16384x768xf32>) -> tensor<16384x768xf32>
  %c8 = nn.add %c7, %c7 : (tensor<16384x768xf32>, tensor<16384x768xf32>) -> tensor<16384x768xf32>
  %c9 = nn.add %c8, %c8 : (tensor<16384x768xf32>, tensor<16384x768xf32>) -> tensor<16384x768xf32>
  %c10 = nn.add %c9, %c9 : (tensor<16384x768xf32>, tensor<16384x768xf32>) -> tensor<16384x768xf32>
  %c11 = nn.add %c10, %c10 : (tensor<16384x768xf32>, tensor<16384x768xf32>) -> tensor<16384x768xf32>
  %c12 = nn.add %c11, %c11 : (tensor<16384x768xf32>, tensor<16384x768xf32>) -> tensor<16384x768xf32>
  %c13 = nn.add %c12, %c12 : (tensor<16384x768xf32>, tensor<16384x768xf32>) -> tensor<16384x768xf32>
  %c14 = nn.add %c13, %c13 : (tensor<16384x768xf32>, tensor<16384x768xf32>) -> tensor<16384x768xf32>
  %c15 = nn.add %c14, %c14 : (tensor<16384x768xf32>, tensor<16384x768xf32>) -> tensor<16384x768xf32>
  %c16 = nn.add %c15, %c15 : (tensor<16384x768xf32>, tensor<16384x768xf32>) -> tensor<16384x768xf32>
  %c17 = nn.add %c16, %c16 : (tensor<16384x768xf32>, tensor<16384x768xf32>) -> tensor<16384x768xf32>
  %c18 = nn.add %c17, %c17 : (tensor<16384x768xf32>, tensor<16384x768xf32>) -> tensor<16384x768xf32>
  %c19 = nn.add %c18, %c18 : (tensor<16384x768xf32>, tensor<16384x768xf32>) -> tensor<16384x768xf32>
  %c20 = nn.add %c19, %c19 : (tensor<16384x768xf32>, tensor<16384x768xf32>) -> tensor<16384x768xf32>
  %c21 = nn.add %c20, %c20 : (tensor<16384x768xf32>, tensor<16384x768xf32>) -> tensor<16384x768xf32>
  %c22 = nn.add %c21, %c21 : (tensor<16384x768xf32>, tensor<16384x768xf32>) -> tensor<16384x768xf32>
  %c23 = nn.add %c22, %c22 : (tensor<16384x768xf32>, tensor<16384x768xf32>) -> tensor<16384x768xf32>
  %c24 = nn.add %c23, %c23 : (tensor<16384x768xf32>, tensor<16384x768xf32>) -> tensor<16384x768xf32>
  %c25 = nn.add %c24, %c24 : (tensor<16384x768xf32>, tensor<16384x768xf32>) -> tensor<16384x768xf32>
  %c26 = nn.add %c25, %c25 : (tensor<16384x768xf32>, tensor<16384x768xf32>) -> tensor<16384x768xf32>
  %c27 = nn.add %c26, %c26 : (tensor<16384x768xf32>, tensor<16384x768xf32>) -> tensor<16384x768xf32>
  %c28 = nn.add %c27, %c27 : (tensor<16384x768xf32>, tensor<16384x768xf32>) -> tensor<16384x768xf32>
  %c29 = nn.add %c28, %c28 : (tensor<16384x768xf32>, tensor<16384x768xf32>) -> tensor<16384x768xf32>
  %c30 = nn.add %c29, %c29 : (tensor<16384x768xf32>, tensor<16384x768xf32>) -> tensor<16384x768xf32>
  %c31 = nn.add %c30, %c30 : (tensor<16384x768xf32>, tensor<16384x768xf32>) -> tensor<16384x768xf32>
  %c32 = nn.add %c31, %c31 : (tensor<16384x768xf32>, tensor<16384x768xf32>) -> tensor<16384x768xf32>
  %c33 = nn.add %c32, %c32 : (tensor<16384x768xf32>, tensor<16384x768xf32>) -> tensor<16384x768xf32>
  %c34 = nn.add %c33, %c33 : (tensor<16384x768xf32>, tensor<16384x768xf32>) -> tensor<16384x768xf32>
  %c35 = nn.add %c34, %c34 : (tensor<16384x768xf32>, tensor<16384x768xf32>) -> tensor<16384x768xf32>
  %c36 = nn.add %c35, %c35 : (tensor<16384x768xf32>, tensor<16384x768xf32>) -> tensor<16384x768xf32>
  %c37 = nn.add %c36, %c36 : (tensor<16384x768xf32>, tensor<16384x768xf32>) -> tensor<16384x768xf32>
  %c38 = nn.add %c37, %c37 : (tensor<16384x768xf32>, tensor<16384x768xf32>) -> tensor<16384x768xf32>
  %c39 = nn.add %c38, %c38 : (tensor<16384x768xf32>, tensor<16384x768xf32>) -> tensor<16384x768xf32>
  %c40 = nn.add %c39, %c39 : (tensor<16384x768xf32>, tensor<16384x768xf32>) -> tensor<16384x768xf32>
  %e = nn.mul %c40, %y : (tensor<16384x768xf32>, tensor<16384x768xf32>) -> tensor<16384x768xf32>
  pipe.store %e, "out"[0] : tensor<16384x768xf32>
  %s = nn.reduce %c40 {kind = "sum", axes = array<i64: 0>} : (tensor<16384x768xf32>) -> tensor<1x768xf32>
  pipe.store %s, "gradients"[0] : tensor<1x768xf32>
  return
}
