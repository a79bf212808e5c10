// A library may add a bias to a product where a kernel would do nothing else:
// one way for a library that does, one for others.
// RUN: pipec-opt %s --cuda-kernels | FileCheck %s

// The sum, through views, at its place; %[[ADDED]] says whether it is there.
// CHECK-LABEL: func.func @pipec_sum(
// CHECK:      %[[ADDED:.*]] = llvm.call %{{.*}}(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}) : !llvm.ptr, (!llvm.ptr, !llvm.ptr, !llvm.ptr, !llvm.ptr, !llvm.ptr, !llvm.ptr) -> i32
// CHECK:      %[[LEFT:.*]] = arith.cmpi eq, %[[ADDED]], %{{.*}} : i32
// CHECK-NEXT: scf.if %[[LEFT]] {
// CHECK:        llvm.call %{{.*}} : !llvm.ptr, (!llvm.ptr, !llvm.ptr, !llvm.ptr, !llvm.ptr, !llvm.ptr) -> ()
// CHECK:        llvm.call %{{.*}} : !llvm.ptr, (!llvm.ptr, i32, i64, i32, i32, !llvm.ptr, i32) -> ()
// CHECK-NEXT: }
// CHECK-NEXT: return
func.func @sum() attributes {pipe.task = "sum"} {
  %x = pipe.load "in"[0] : tensor<24x16xf32>
  %w = pipe.load "weights"[0] : tensor<16x32xf32>
  %p = nn.matmul %x, %w : (tensor<24x16xf32>, tensor<16x32xf32>) -> tensor<24x32xf32>
  %r = nn.reshape %p : (tensor<24x32xf32>) -> tensor<2x12x32xf32>
  %b = pipe.load "weights"[2048] : tensor<32xf32>
  %c = nn.reshape %b : (tensor<32xf32>) -> tensor<1x1x32xf32>
  %d = nn.broadcast %c : (tensor<1x1x32xf32>) -> tensor<2x12x32xf32>
  %s = nn.add %r, %d : (tensor<2x12x32xf32>, tensor<2x12x32xf32>) -> tensor<2x12x32xf32>
  pipe.store %s, "out"[0] : tensor<2x12x32xf32>
  return
}

// Of bf16, rounded once: who rounds the bias keeps it.
// CHECK-LABEL: func.func @pipec_narrow(
// CHECK:      %[[THREE:.*]] = arith.constant 3 : i32
// CHECK-NEXT: llvm.call %{{.*}}, %[[THREE]]) : !llvm.ptr, (!llvm.ptr, i32, i64, i32, i32, !llvm.ptr, i32) -> ()
// CHECK:      llvm.call %{{.*}} -> i32
// CHECK:      scf.if
func.func @narrow() attributes {pipe.task = "narrow"} {
  %x = pipe.load "in"[0] : tensor<24x16xbf16>
  %w = pipe.load "in"[1024] : tensor<16x32xbf16>
  %p = nn.matmul %x, %w {wide} : (tensor<24x16xbf16>, tensor<16x32xbf16>) -> tensor<24x32xf32>
  %b = pipe.load "weights"[2048] : tensor<32xf32>
  %n = nn.cast %b : (tensor<32xf32>) -> tensor<32xbf16>
  %f = nn.cast %n : (tensor<32xbf16>) -> tensor<32xf32>
  %c = nn.reshape %f : (tensor<32xf32>) -> tensor<1x32xf32>
  %d = nn.broadcast %c : (tensor<1x32xf32>) -> tensor<24x32xf32>
  %s = nn.add %p, %d : (tensor<24x32xf32>, tensor<24x32xf32>) -> tensor<24x32xf32>
  %y = nn.cast %s : (tensor<24x32xf32>) -> tensor<24x32xbf16>
  pipe.store %y, "out"[3072] : tensor<24x32xbf16>
  return
}

// Not where the kernel runs anyhow, where others read the product, where the
// bias is of rows, and where rounding twice is asked for.
// CHECK-LABEL: func.func @pipec_others(
// CHECK-NOT: -> i32
// CHECK-NOT: scf.if
// CHECK: return
func.func @others() attributes {pipe.task = "others"} {
  %x = pipe.load "in"[0] : tensor<24x16xf32>
  %w = pipe.load "weights"[0] : tensor<16x32xf32>
  %b = pipe.load "weights"[2048] : tensor<32xf32>
  %c = nn.reshape %b : (tensor<32xf32>) -> tensor<1x32xf32>
  %d = nn.broadcast %c : (tensor<1x32xf32>) -> tensor<24x32xf32>
  %p = nn.matmul %x, %w : (tensor<24x16xf32>, tensor<16x32xf32>) -> tensor<24x32xf32>
  %s = nn.add %p, %d : (tensor<24x32xf32>, tensor<24x32xf32>) -> tensor<24x32xf32>
  %t = nn.tanh %s : (tensor<24x32xf32>) -> tensor<24x32xf32>
  pipe.store %t, "out"[0] : tensor<24x32xf32>
  %x2 = pipe.load "in"[4096] : tensor<24x16xf32>
  %p2 = nn.matmul %x2, %w : (tensor<24x16xf32>, tensor<16x32xf32>) -> tensor<24x32xf32>
  %s2 = nn.add %p2, %d : (tensor<24x32xf32>, tensor<24x32xf32>) -> tensor<24x32xf32>
  pipe.store %p2, "out"[4096] : tensor<24x32xf32>
  pipe.store %s2, "out"[8192] : tensor<24x32xf32>
  %x3 = pipe.load "in"[8192] : tensor<24x16xf32>
  %p3 = nn.matmul %x3, %w : (tensor<24x16xf32>, tensor<16x32xf32>) -> tensor<24x32xf32>
  %r = pipe.load "weights"[4096] : tensor<24x1xf32>
  %q = nn.broadcast %r : (tensor<24x1xf32>) -> tensor<24x32xf32>
  %s3 = nn.add %p3, %q : (tensor<24x32xf32>, tensor<24x32xf32>) -> tensor<24x32xf32>
  pipe.store %s3, "out"[12288] : tensor<24x32xf32>
  %x4 = pipe.load "in"[12288] : tensor<24x16xbf16>
  %w4 = pipe.load "in"[16384] : tensor<16x32xbf16>
  %p4 = nn.matmul %x4, %w4 : (tensor<24x16xbf16>, tensor<16x32xbf16>) -> tensor<24x32xbf16>
  %f4 = nn.cast %p4 : (tensor<24x32xbf16>) -> tensor<24x32xf32>
  %s4 = nn.add %f4, %d : (tensor<24x32xf32>, tensor<24x32xf32>) -> tensor<24x32xf32>
  %y4 = nn.cast %s4 : (tensor<24x32xf32>) -> tensor<24x32xbf16>
  pipe.store %y4, "out"[16384] : tensor<24x32xbf16>
  return
}
