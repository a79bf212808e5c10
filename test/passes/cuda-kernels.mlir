// A stage becomes kernels for the device and host code that launches them;
// equal kernels are there once, and a product goes to the library.
// RUN: pipec-opt %s --cuda-kernels | FileCheck %s
// RUN: pipec-opt %s --cuda-kernels=fuse=false | FileCheck %s --check-prefix=SINGLE

// CHECK: module @device
// CHECK: func.func @kernel0(%[[X:.*]]: !llvm.ptr, %[[A:.*]]: !llvm.ptr) attributes {cuda.threads = 256 : i64}
// CHECK: nvvm.read.ptx.sreg.ctaid.x
// CHECK: nvvm.read.ptx.sreg.tid.x
// CHECK: llvm.load %{{.*}} {alignment = 16 : i64} : !llvm.ptr -> vector<4xf32>
// CHECK: arith.mulf
// CHECK: arith.addf
// CHECK: llvm.store %{{.*}} {alignment = 16 : i64} : vector<4xf32>, !llvm.ptr
// CHECK-NOT: func.func @kernel1

// CHECK: module @host
// CHECK: func.func @pipec_forward(%{{.*}}: !llvm.ptr) attributes {cuda.workspace = 0 : i64}
// CHECK-COUNT-3: llvm.call %{{.*}} : !llvm.ptr, (

// SINGLE: func.func @kernel1
// SINGLE: cuda.workspace = 16384 : i64
func.func @forward() attributes {pipe.task = "forward"} {
  %x = pipe.load "in"[0] : tensor<64x64xf32>
  %m = nn.mul %x, %x : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  %a = nn.add %m, %x : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  pipe.store %a, "out"[0] : tensor<64x64xf32>
  %y = pipe.load "in"[16384] : tensor<64x64xf32>
  %n = nn.mul %y, %y : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  %b = nn.add %n, %y : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  pipe.store %b, "out"[16384] : tensor<64x64xf32>
  %p = nn.matmul %x, %y : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  pipe.store %p, "out"[32768] : tensor<64x64xf32>
  return
}
