// running = (1 - momentum) * running + momentum * batch statistic. A stage
// without weights has no update.
// RUN: pipec-opt %s --pipe-attach-optimizer | FileCheck %s

// CHECK-NOT: @update
// CHECK: func.func @track() attributes {pipe.task = "track"}
// CHECK: %[[OLD:.*]] = pipe.load "state"[64] : tensor<3xf32>
// CHECK: %[[X:.*]] = pipe.load "stats"[0] : tensor<3xf32>
// CHECK: nn.constant dense<7.500000e-01>
// CHECK: %[[A:.*]] = nn.mul %[[OLD]]
// CHECK: nn.constant dense<2.500000e-01>
// CHECK: %[[B:.*]] = nn.mul %[[X]]
// CHECK: %[[N:.*]] = nn.add %[[A]], %[[B]]
// CHECK: pipe.store %[[N]], "state"[64]
module {
  module @stage0 attributes {pipe.stage = 0 : i64,
      pipe.weights = [{parameter = "running_mean", region = "state", offset = 64 : i64, uses = []}],
      pipe.trackers = [{parameter = @running_mean, offset = 0 : i64, momentum = 0.25 : f64}]} {
    nn.parameter @running_mean : tensor<3xf32> {role = "state", file = 0 : i64, offset = 0 : i64, length = 12 : i64}
  }
}
