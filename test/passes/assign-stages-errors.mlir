// RUN: split-file %s %t
// RUN: pipec-opt %t/end.mlir --pipe-assign-stages=cuts=2 -verify-diagnostics
// RUN: pipec-opt %t/order.mlir --pipe-assign-stages=cuts=1,1 -verify-diagnostics

//--- end.mlir
// expected-error@+1 {{stage boundary 2 is not inside the model's chain of 2 nodes after 0}}
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %a = nn.tanh %x : (tensor<4xf32>) -> tensor<4xf32>
  %b = nn.tanh %a : (tensor<4xf32>) -> tensor<4xf32>
  return %b : tensor<4xf32>
}
//--- order.mlir
// expected-error@+1 {{stage boundary 1 is not inside the model's chain of 2 nodes after 1}}
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %a = nn.tanh %x : (tensor<4xf32>) -> tensor<4xf32>
  %b = nn.tanh %a : (tensor<4xf32>) -> tensor<4xf32>
  return %b : tensor<4xf32>
}
