// A row reduction: shuffles within a warp for a short row; shared memory and a
// barrier between the warps of a long one.
// RUN: pipec-opt %s --cuda-kernels | FileCheck %s

// CHECK-LABEL: func.func @kernel0(
// CHECK-SAME: cuda.threads = 256
// CHECK-COUNT-5: nvvm.shfl.sync bfly
// CHECK-NOT: nvvm.barrier0
// CHECK-LABEL: func.func @kernel1(
// CHECK-SAME: cuda.threads = 512
// CHECK: scf.for
// CHECK-COUNT-5: nvvm.shfl.sync bfly
// CHECK: llvm.mlir.addressof @pipec_shared
// CHECK: nvvm.barrier0
// CHECK-COUNT-4: nvvm.shfl.sync bfly
func.func @forward() attributes {pipe.task = "forward"} {
  %x = pipe.load "in"[0] : tensor<16x256xf32>
  %s = nn.reduce %x {kind = "sum", axes = array<i64: 1>} : (tensor<16x256xf32>) -> tensor<16x1xf32>
  pipe.store %s, "out"[0] : tensor<16x1xf32>
  %y = pipe.load "in"[16384] : tensor<4x50000xf32>
  %m = nn.reduce %y {kind = "max", axes = array<i64: 1>} : (tensor<4x50000xf32>) -> tensor<4x1xf32>
  pipe.store %m, "out"[64] : tensor<4x1xf32>
  return
}
