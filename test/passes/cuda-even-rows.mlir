// Matrices of a product lie in the workspace with rows of whole 16 bytes, and
// kernels walk them so; what is loaded and stored elsewhere stays dense.
// RUN: pipec-opt %s --cuda-kernels | FileCheck %s

// The rounded factor, dense where it is loaded.
// CHECK-LABEL: func.func @kernel0(
// CHECK: %[[ROW:.*]] = arith.constant 67 : i64
// CHECK: llvm.getelementptr %arg0[%{{.*}}] : (!llvm.ptr, i64) -> !llvm.ptr, f32
// CHECK: %[[PITCH:.*]] = arith.constant 72 : i64
// CHECK: arith.muli %{{.*}}, %[[PITCH]] : i64
// CHECK: llvm.getelementptr %arg1[%{{.*}}] : (!llvm.ptr, i64) -> !llvm.ptr, i16
// The product, by rows.
// CHECK-LABEL: func.func @kernel1(
// CHECK: arith.constant 72 : i64

// m, n, k and how far rows are apart: 32, 67 ("C"), 64 ("@"); 64, 67, 67 and,
// where there are gaps, which are columns as well: 32, 72 ("H"), 64; 64, 72, 72.
// CHECK: @descriptor1("{{.*}} \00\00\00\00\00\00\00C\00\00\00\00\00\00\00@\00\00\00\00\00\00\00@\00\00\00\00\00\00\00C\00\00\00\00\00\00\00C\00
// CHECK: @descriptor0("{{.*}} \00\00\00\00\00\00\00H\00\00\00\00\00\00\00@\00\00\00\00\00\00\00@\00\00\00\00\00\00\00H\00\00\00\00\00\00\00H\00
// CHECK: func.func @pipec_forward({{.*}}cuda.workspace = 13824 : i64
// CHECK: func.func @pipec_stored({{.*}}cuda.workspace = 0 : i64
func.func @forward() attributes {pipe.task = "forward"} {
  %x = pipe.load "in"[0] : tensor<32x64xbf16>
  %w = pipe.load "weights"[0] : tensor<64x67xf32>
  %n = nn.cast %w : (tensor<64x67xf32>) -> tensor<64x67xbf16>
  %p = nn.matmul %x, %n : (tensor<32x64xbf16>, tensor<64x67xbf16>) -> tensor<32x67xbf16>
  %e = nn.exp %p : (tensor<32x67xbf16>) -> tensor<32x67xbf16>
  %m = nn.reduce %e {kind = "sum", axes = array<i64: 1>} : (tensor<32x67xbf16>) -> tensor<32x1xbf16>
  pipe.store %m, "out"[0] : tensor<32x1xbf16>
  return
}
func.func @stored() attributes {pipe.task = "stored"} {
  %x = pipe.load "in"[0] : tensor<32x64xf32>
  %w = pipe.load "weights"[0] : tensor<64x67xf32>
  %p = nn.matmul %x, %w : (tensor<32x64xf32>, tensor<64x67xf32>) -> tensor<32x67xf32>
  pipe.store %p, "out"[0] : tensor<32x67xf32>
  return
}
