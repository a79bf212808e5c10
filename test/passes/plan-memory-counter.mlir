// The numbers of the run that an op reads come from the frame.
// RUN: pipec-opt %s --pipe-plan-memory | FileCheck %s

module {
module @stage0 attributes {pipe.stage = 0 : i64} {
  func.func @forward() attributes {pipe.task = "forward"} {
    // CHECK: %[[S:.*]] = pipe.scalar "seed" : tensor<i64>
    // CHECK: nn.hash %[[S]], %[[S]]
    %s = nn.counter "seed" : tensor<i64>
    %h = nn.hash %s, %s : (tensor<i64>, tensor<i64>) -> tensor<i64>
    pipe.send %h on 0 to 1 : tensor<i64>
    return
  }
}
}
