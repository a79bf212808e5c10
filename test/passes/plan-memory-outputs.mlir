// Outputs of a stage lie beside each other in a region of their own.
// RUN: pipec-opt %s --pipe-plan-memory | FileCheck %s

// CHECK: module @stage0 attributes {
// CHECK-SAME: pipe.outputs = [{batch_axis = 0 : i64, offset = 0 : i64, output = "y", type = tensor<5xf32>}, {batch_axis = -1 : i64, offset = 64 : i64, output = "z", type = tensor<5xf32>}]
// CHECK-SAME: pipe.regions = {in = 64 : i64, outputs = 128 : i64}
module {
module @stage0 attributes {pipe.stage = 0 : i64} {
  func.func @forward() attributes {pipe.task = "forward"} {
    %x = pipe.input "x" : tensor<5xf32>
    %y = nn.exp %x : (tensor<5xf32>) -> tensor<5xf32>
    // CHECK: pipe.store %{{.*}}, "outputs"[0] : tensor<5xf32>
    pipe.output %y as "y" : tensor<5xf32>
    // CHECK: pipe.store %{{.*}}, "outputs"[64] : tensor<5xf32>
    pipe.output %x as "z" {batch_axis = -1 : i64} : tensor<5xf32>
    return
  }
}
}
