// Equal kernels are there once; ops in a row are one kernel.
// RUN: pipec-opt %s --cpu-kernels | FileCheck %s
// RUN: pipec-opt %s --cpu-kernels=fuse=false | FileCheck %s --check-prefix=SINGLE

// CHECK: func.func @pipec_forward(%{{.*}}: !llvm.ptr) attributes {cpu.workspace = 0 : i64}
// CHECK: constant @[[K:kernel[0-9]+]]
// CHECK: call @pipec_parallel
// CHECK: constant @[[K]]
// CHECK: call @pipec_parallel
// CHECK-NOT: call @pipec_parallel
// CHECK: func.func private @[[K]]
// CHECK: scf.for
// CHECK: arith.mulf
// CHECK: arith.addf
// CHECK-NOT: func.func private @kernel

// Alone, each op has its kernel, and the products between them a place in the workspace.
// SINGLE: cpu.workspace = 2{{[0-9]+}} : i64
// SINGLE-COUNT-4: call @pipec_parallel
func.func @forward() attributes {pipe.task = "forward"} {
  %x = pipe.load "in"[0] : tensor<64xf32>
  %m = nn.mul %x, %x : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  %a = nn.add %m, %x : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  pipe.store %a, "out"[0] : tensor<64xf32>
  %y = pipe.load "in"[256] : tensor<64xf32>
  %n = nn.mul %y, %y : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  %b = nn.add %n, %y : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  pipe.store %b, "out"[256] : tensor<64xf32>
  return
}
