// Rows that 16 bytes do not divide: whole accesses, and a lane each of what is
// left.
// RUN: pipec-opt %s --cuda-kernels | FileCheck %s

// 11 points a row: 8 of 8 lanes and 3 of one.
// CHECK-LABEL: func.func @kernel0(
// CHECK: %[[ALL:.*]] = arith.constant 11 : i64
// CHECK: %[[IN:.*]] = arith.remui %{{.*}}, %[[ALL]] : i64
// CHECK: arith.cmpi ult, %[[IN]], %{{.*}} : i64
// CHECK-NEXT: scf.if
// CHECK:   llvm.load {{.*}} {alignment = 16 : i64} : !llvm.ptr -> vector<8xi16>
// CHECK:   llvm.store {{.*}} {alignment = 16 : i64} : vector<8xi16>
// CHECK: arith.cmpi uge, %[[IN]], %{{.*}} : i64
// CHECK-NEXT: scf.if
// CHECK:   llvm.load {{.*}} {alignment = 2 : i64} : !llvm.ptr -> i16
// CHECK:   llvm.store {{.*}} {alignment = 2 : i64} : i16
// CHECK: return

// A long sum: the lane of the tail is added to the first of its thread's four.
// CHECK-LABEL: func.func @kernel1(
// CHECK: %[[SUM:.*]] = scf.for {{.*}} -> (vector<4xf32>)
// CHECK:   llvm.load {{.*}} : !llvm.ptr -> f32
// CHECK: %[[ONE:.*]] = arith.constant 1 : i32
// CHECK: arith.cmpi ult, %{{.*}}, %[[ONE]] : i32
// CHECK: scf.if {{.*}} -> (vector<4xf32>)
// CHECK:   vector.extract %[[SUM]][0] : f32 from vector<4xf32>
// CHECK:   vector.insert %{{.*}}, %[[SUM]] [0] : f32 into vector<4xf32>
// CHECK: } else {
// CHECK:   scf.yield %[[SUM]] : vector<4xf32>
// CHECK: shfl.sync
// CHECK: return
func.func @forward() attributes {pipe.task = "forward"} {
  %x = pipe.load "stash"[0] pitch 72 : tensor<32x67xbf16>
  %e = nn.relu %x : (tensor<32x67xbf16>) -> tensor<32x67xbf16>
  pipe.store %e, "stash"[4608] pitch 72 : tensor<32x67xbf16>
  %y = pipe.load "in"[0] : tensor<4x4101xf32>
  %m = nn.reduce %y {kind = "sum", axes = array<i64: 1>} : (tensor<4x4101xf32>) -> tensor<4x1xf32>
  pipe.store %m, "out"[0] : tensor<4x1xf32>
  return
}
