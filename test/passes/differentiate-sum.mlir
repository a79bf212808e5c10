// Contributions to one value are added in reverse program order: the last
// reader's first, whatever the partition.
// RUN: pipec-opt %s --nn-differentiate | FileCheck %s

nn.parameter @w : tensor<1xf32> {role = "weight", file = 0 : i64, offset = 0 : i64, length = 4 : i64}

// CHECK-LABEL: func.func @main
// CHECK: %[[E:.*]] = nn.exp
// CHECK: %[[T:.*]] = nn.tanh
// CHECK: %[[ADD:.*]] = nn.add %[[E]], %[[T]]
// CHECK: %[[SLOPE:.*]] = nn.sub {{.*}}pipe.phase
// CHECK: %[[DT:.*]] = nn.mul %{{.*}}, %[[SLOPE]] {{.*}}pipe.phase
// CHECK: %[[DE:.*]] = nn.mul %{{.*}}, %[[E]] {{.*}}pipe.phase
// CHECK: %[[SUM:.*]] = nn.add %[[DT]], %[[DE]] {{.*}}pipe.phase
// CHECK: pipe.accumulate %[[SUM]] into @w
func.func @main() -> tensor<f32> {
  %w = nn.weight @w : tensor<1xf32>
  %e = nn.exp %w : (tensor<1xf32>) -> tensor<1xf32>
  %t = nn.tanh %w : (tensor<1xf32>) -> tensor<1xf32>
  %a = nn.add %e, %t : (tensor<1xf32>, tensor<1xf32>) -> tensor<1xf32>
  %l = nn.reshape %a : (tensor<1xf32>) -> tensor<f32>
  return %l : tensor<f32>
}
