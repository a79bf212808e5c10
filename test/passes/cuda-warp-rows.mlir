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
