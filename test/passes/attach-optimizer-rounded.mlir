// What has rounded copies is updated by itself, and its new values are stored
// rounded, too, with gaps where the copy has some: no task rounds a weight.
// RUN: pipec-opt %s --pipe-attach-optimizer="kind=sgd settings=momentum=0.5" | FileCheck %s

// CHECK: pipe.optimizer = [{name = "momentum_buffer", offset = 0 : i64}]
// CHECK-SAME: optimizer = 4608 : i64
// CHECK: pipe.load "weights"[0] : tensor<32xf32>
// CHECK: pipe.store %{{.*}}, "new_weights"[0] : tensor<32xf32>
// CHECK-NOT: bf16
// CHECK: %[[W:.*]] = pipe.load "weights"[128] : tensor<32xf32>
// CHECK: pipe.load "gradients"[128] : tensor<32xf32>
// CHECK: pipe.load "optimizer"[128] : tensor<32xf32>
// CHECK: %[[N:.*]] = nn.sub %[[W]]
// CHECK: pipe.store %[[N]], "new_weights"[128] : tensor<32xf32>
// CHECK: %[[R:.*]] = nn.cast %[[N]] : (tensor<32xf32>) -> tensor<32xbf16>
// CHECK: pipe.store %[[R]], "new_weights"[4608] : tensor<32xbf16>
// CHECK: pipe.load "weights"[256] : tensor<1072xf32>
// CHECK: pipe.store %[[M:.*]], "new_weights"[256] : tensor<1072xf32>
// CHECK: %[[V:.*]] = nn.reshape %[[M]] : (tensor<1072xf32>) -> tensor<16x67xf32>
// CHECK: %[[S:.*]] = nn.cast %[[V]] : (tensor<16x67xf32>) -> tensor<16x67xbf16>
// CHECK: pipe.store %[[S]], "new_weights"[4672] pitch 68 : tensor<16x67xbf16>
// What is left of the weights.
// CHECK: pipe.load "weights"[4544] : tensor<16xf32>
// CHECK: pipe.store %{{.*}}, "new_weights"[4544] : tensor<16xf32>
module {
  module @stage0 attributes {pipe.stage = 0 : i64,
      pipe.rounded = [{offset = 128 : i64, rows = 1 : i64, row = 32 : i64, to = 4608 : i64, pitch = 32 : i64},
                      {offset = 256 : i64, rows = 16 : i64, row = 67 : i64, to = 4672 : i64, pitch = 68 : i64}],
      pipe.regions = {gradients = 4608 : i64, weights = 6848 : i64}} {
  }
}
