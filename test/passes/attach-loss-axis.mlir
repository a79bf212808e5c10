// Classes may be on axis 1 or on the last: the label's shape tells, --loss
// cross-entropy:axis= does, and where only a guess is left, it is said.
// RUN: split-file %s %t
// RUN: pipec-opt %t/label.mlir --nn-attach-loss=label=l | FileCheck %s --check-prefix=LABEL
// RUN: pipec-opt %t/image.mlir --nn-attach-loss=label=l | FileCheck %s --check-prefix=IMAGE
// RUN: pipec-opt %t/named.mlir --nn-attach-loss=class-axis=1 | FileCheck %s --check-prefix=NAMED
// RUN: pipec-opt %t/guess.mlir --nn-attach-loss -verify-diagnostics
// RUN: pipec-opt %t/square.mlir --nn-attach-loss=label=l -verify-diagnostics
// RUN: pipec-opt %t/product.mlir --nn-attach-loss -verify-diagnostics
// RUN: pipec-opt %t/neither.mlir --nn-attach-loss=label=l -verify-diagnostics
// RUN: pipec-opt %t/beyond.mlir --nn-attach-loss=class-axis=3 -verify-diagnostics

//--- label.mlir
// LABEL: nn.iota {axis = 1 : i64} : () -> tensor<2x5x7xi64>
// LABEL-NOT: remark
func.func @main(%y: tensor<2x5x7xf32>, %l: tensor<2x7xi64> {nn.name = "l"}) -> tensor<2x5x7xf32> {
  return %y : tensor<2x5x7xf32>
}
//--- image.mlir
// IMAGE: nn.iota {axis = 3 : i64} : () -> tensor<2x5x7x3xi64>
func.func @main(%y: tensor<2x5x7x3xf32>, %l: tensor<2x5x7xi64> {nn.name = "l"}) -> tensor<2x5x7x3xf32> {
  return %y : tensor<2x5x7x3xf32>
}
//--- named.mlir
// NAMED: tensor<2x7xi64> {{{.*}}nn.name = "labels", nn.upper = 5
// NAMED: nn.iota {axis = 1 : i64} : () -> tensor<2x5x7xi64>
func.func @main(%y: tensor<2x5x7xf32>) -> tensor<2x5x7xf32> {
  return %y : tensor<2x5x7xf32>
}
//--- guess.mlir
// expected-remark@+1 {{--loss cross-entropy takes axis 2 of 'tensor<2x5x7xf32>' for the classes; where they are on axis 1, say --loss cross-entropy:axis=1}}
func.func @main(%y: tensor<2x5x7xf32>) -> tensor<2x5x7xf32> {
  return %y : tensor<2x5x7xf32>
}
//--- square.mlir
// expected-remark@+1 {{takes axis 2 of 'tensor<2x7x7xf32>' for the classes}}
func.func @main(%y: tensor<2x7x7xf32>, %l: tensor<2x7xi64> {nn.name = "l"}) -> tensor<2x7x7xf32> {
  return %y : tensor<2x7x7xf32>
}
//--- product.mlir
// What a layer makes of its inputs are the classes.
module {
  nn.parameter @w : tensor<4x7xf32> {role = "weight", file = 0 : i64, offset = 0 : i64, length = 112 : i64}
  func.func @main(%x: tensor<2x5x4xf32>, %bias: tensor<2x5x7xf32>) -> tensor<2x5x7xf32> {
    %w = nn.weight @w : tensor<4x7xf32>
    %rows = nn.reshape %x : (tensor<2x5x4xf32>) -> tensor<10x4xf32>
    %p = nn.matmul %rows, %w : (tensor<10x4xf32>, tensor<4x7xf32>) -> tensor<10x7xf32>
    %q = nn.reshape %p : (tensor<10x7xf32>) -> tensor<2x5x7xf32>
    %y = nn.add %q, %bias : (tensor<2x5x7xf32>, tensor<2x5x7xf32>) -> tensor<2x5x7xf32>
    return %y : tensor<2x5x7xf32>
  }
}
//--- neither.mlir
// expected-error@+1 {{label 'l' has type 'tensor<2x6xi64>', the logits need one integer label for each of 'tensor<2x5x7xf32>', [2, 5] or [2, 7]; give label=NAME of an input of that shape, or a new name, which the loss adds}}
func.func @main(%y: tensor<2x5x7xf32>, %l: tensor<2x6xi64> {nn.name = "l"}) -> tensor<2x5x7xf32> {
  return %y : tensor<2x5x7xf32>
}
//--- beyond.mlir
// expected-error@+1 {{--loss cross-entropy:axis=3 is no axis of 'tensor<2x5x7xf32>'; its classes are on one from 1 to 2}}
func.func @main(%y: tensor<2x5x7xf32>) -> tensor<2x5x7xf32> {
  return %y : tensor<2x5x7xf32>
}
