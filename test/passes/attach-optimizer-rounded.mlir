// What has rounded copies is updated by itself, and its new values are stored
// rounded, too: no task has to round a weight.
// RUN: pipec-opt %s --pipe-attach-optimizer="kind=sgd settings=momentum=0.5" | FileCheck %s

// CHECK: pipe.optimizer = [{name = "momentum_buffer", offset = 0 : i64}]
// CHECK-SAME: optimizer = 192 : i64
// CHECK: %[[W:.*]] = pipe.load "weights"[0] : tensor<32xf32>
// CHECK: pipe.load "gradients"[0] : tensor<32xf32>
// CHECK: pipe.load "optimizer"[0] : tensor<32xf32>
// CHECK: %[[N:.*]] = nn.sub %[[W]]
// CHECK: pipe.store %[[N]], "new_weights"[0] : tensor<32xf32>
// CHECK: %[[R:.*]] = nn.cast %[[N]] : (tensor<32xf32>) -> tensor<32xbf16>
// CHECK: pipe.store %[[R]], "new_weights"[192] : tensor<32xbf16>
// CHECK: pipe.load "weights"[128] : tensor<16xf32>
// CHECK: pipe.load "optimizer"[128] : tensor<16xf32>
// CHECK-NOT: bf16
// CHECK: pipe.store %{{.*}}, "new_weights"[128] : tensor<16xf32>
module {
  module @stage0 attributes {pipe.stage = 0 : i64, pipe.rounded = {bytes = 128 : i64, offset = 192 : i64},
      pipe.regions = {gradients = 192 : i64, weights = 256 : i64}} {
  }
}
