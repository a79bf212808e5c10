// A row that is too long for registers and read in two phases is fetched into
// shared memory, all of it at once, and read from there.
// RUN: pipec-opt %s --cuda-kernels | FileCheck %s

// CHECK-LABEL: func.func @kernel0(
// CHECK-SAME: cuda.least_blocks = 2 : i64, cuda.threads = 512 : i64
// CHECK: scf.for
// CHECK: nvvm.cp.async.shared.global {{.*}}, 16, cache = cg
// CHECK: nvvm.cp.async.wait.group 0
// CHECK: nvvm.barrier0
// CHECK: scf.for
// CHECK: llvm.load {{.*}} !llvm.ptr<3> -> vector<4xi16>
// CHECK: nvvm.shfl.sync bfly
// CHECK: scf.for
// CHECK: llvm.load {{.*}} !llvm.ptr<3> -> vector<4xi16>
// CHECK: llvm.store {{.*}} vector<4xi16>, !llvm.ptr
func.func @forward() attributes {pipe.task = "forward"} {
  %n = pipe.load "in"[0] : tensor<16x20008xbf16>
  %x = nn.cast %n : (tensor<16x20008xbf16>) -> tensor<16x20008xf32>
  %m = nn.reduce %x {kind = "max", axes = array<i64: 1>} : (tensor<16x20008xf32>) -> tensor<16x1xf32>
  %b = nn.broadcast %m : (tensor<16x1xf32>) -> tensor<16x20008xf32>
  %d = nn.sub %x, %b : (tensor<16x20008xf32>, tensor<16x20008xf32>) -> tensor<16x20008xf32>
  %y = nn.cast %d : (tensor<16x20008xf32>) -> tensor<16x20008xbf16>
  pipe.store %y, "out"[0] : tensor<16x20008xbf16>
  return
}
