// Each output becomes an op behind what makes it, so that it is placed with it;
// an input or a constant may be an output as well.
// RUN: pipec-opt %s --pipe-mark-outputs | FileCheck %s
// RUN: pipec-opt %s --pipe-mark-outputs=keep-results | FileCheck %s --check-prefix=KEEP

// CHECK: func.func @main(%[[X:.*]]: tensor<2x4xf32> {nn.name = "x"}) {
// CHECK-NEXT: pipe.output %[[X]] as "same" : tensor<2x4xf32>
// CHECK-NEXT: %[[H:.*]] = nn.tanh
// CHECK-NEXT: pipe.output %[[H]] as "h" {batch_axis = -1 : i64} : tensor<2x4xf32>
// CHECK-NEXT: nn.exp
// CHECK-NEXT: pipe.output %{{.*}} as "y" : tensor<2x4xf32>
// CHECK-NEXT: return{{$}}

// KEEP: pipe.output %{{.*}} as "y"
// KEEP-NEXT: return %{{.*}}, %{{.*}}, %{{.*}} :
func.func @main(%x: tensor<2x4xf32> {nn.name = "x"})
    -> (tensor<2x4xf32> {nn.name = "y", nn.batch_axis = 0 : i64}, tensor<2x4xf32> {nn.name = "h"},
        tensor<2x4xf32> {nn.name = "same", nn.batch_axis = 0 : i64}) {
  %h = nn.tanh %x : (tensor<2x4xf32>) -> tensor<2x4xf32>
  %y = nn.exp %h : (tensor<2x4xf32>) -> tensor<2x4xf32>
  return %y, %h, %x : tensor<2x4xf32>, tensor<2x4xf32>, tensor<2x4xf32>
}
