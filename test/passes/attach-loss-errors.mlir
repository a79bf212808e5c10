// RUN: split-file %s %t
// RUN: pipec-opt %t/rank1.mlir --nn-attach-loss -verify-diagnostics
// RUN: pipec-opt %t/class.mlir --nn-attach-loss -verify-diagnostics
// RUN: pipec-opt %t/tokens.mlir --nn-attach-loss=kind=next-token -verify-diagnostics
// RUN: pipec-opt %t/kind.mlir --nn-attach-loss=kind=hinge -verify-diagnostics
// RUN: pipec-opt %t/label.mlir --nn-attach-loss=label=x -verify-diagnostics
// RUN: pipec-opt %t/floats.mlir --nn-attach-loss=label=x -verify-diagnostics
// RUN: pipec-opt %t/targets.mlir --nn-attach-loss="kind=mse label=x" -verify-diagnostics
// RUN: pipec-opt %t/counted.mlir --nn-attach-loss="kind=bce label=x" | FileCheck %s --check-prefix=COUNTED
// RUN: pipec-opt %t/narrow.mlir --nn-attach-loss=label=x | FileCheck %s --check-prefix=NARROW
// RUN: pipec-opt %t/scalar.mlir --nn-attach-loss=kind=output -verify-diagnostics
// RUN: pipec-opt %t/noids.mlir --nn-attach-loss=kind=next-token -verify-diagnostics
// RUN: pipec-opt %t/ids.mlir --nn-attach-loss=kind=next-token -verify-diagnostics
// RUN: pipec-opt %t/integers.mlir --nn-attach-loss -verify-diagnostics
// RUN: pipec-opt %t/name.mlir --nn-attach-loss=logits=scores -verify-diagnostics
// RUN: pipec-opt %t/weights.mlir --nn-attach-loss=class-weights=1,2 -verify-diagnostics
// RUN: pipec-opt %t/elsewhere.mlir --nn-attach-loss -verify-diagnostics
// RUN: pipec-opt %t/uncounted.mlir --nn-attach-loss -verify-diagnostics
// RUN: pipec-opt %t/rows.mlir --nn-attach-loss -verify-diagnostics
// RUN: pipec-opt %t/mean.mlir --nn-attach-loss=kind=mse -verify-diagnostics
// RUN: not pipec-opt %t/nomain.mlir --nn-attach-loss 2>&1 | FileCheck %s

//--- rank1.mlir
// expected-error@+1 {{cross-entropy needs logits with a class axis, not 'tensor<4xf32>'}}
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}
//--- class.mlir
// expected-error@+1 {{--loss cross-entropy of one class is always 0, and axis 1 of 'tensor<4x1xf32>' has one; take --loss bce for yes or no, --loss mse for numbers, or another output with --logits}}
func.func @main(%x: tensor<4x1xf32> {nn.batch_axis = 0 : i64}) -> tensor<4x1xf32> {
  return %x : tensor<4x1xf32>
}
//--- tokens.mlir
// expected-error@+1 {{--loss next-token of one class is always 0, and axis 2 of 'tensor<4x3x1xf32>' has one; take --loss bce}}
func.func @main(%ids: tensor<4x3xi64> {nn.name = "input_ids"}, %x: tensor<4x3x1xf32>) -> tensor<4x3x1xf32> {
  return %x : tensor<4x3x1xf32>
}
//--- kind.mlir
// expected-error@+1 {{unknown loss 'hinge'}}
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}
//--- label.mlir
// expected-error@+1 {{label 'x' has type 'tensor<2x4xf32>', the logits need one integer label for each of 'tensor<2x4xf32>'; give label=NAME of an input of that shape, or a new name, which the loss adds}}
func.func @main(%x: tensor<2x4xf32> {nn.name = "x"}) -> tensor<2x4xf32> {
  return %x : tensor<2x4xf32>
}
//--- floats.mlir
// expected-error@+1 {{label 'x' has type 'tensor<2xf32>', the logits need one integer label for each of 'tensor<2x4xf32>'; give label=NAME of an input of that shape, or a new name, which the loss adds}}
func.func @main(%x: tensor<2xf32> {nn.name = "x"}, %y: tensor<2x4xf32>) -> tensor<2x4xf32> {
  return %y : tensor<2x4xf32>
}
//--- targets.mlir
// expected-error@+1 {{label 'x' has type 'tensor<2xi64>', --loss mse needs a number for each of 'tensor<2x4xf32>'; give label=NAME of an input of that shape, or a new name, which the loss adds}}
func.func @main(%x: tensor<2xi64> {nn.name = "x"}, %y: tensor<2x4xf32>) -> tensor<2x4xf32> {
  return %y : tensor<2x4xf32>
}
//--- counted.mlir
// Integers of the right shape are targets, too.
// COUNTED: nn.cast %arg0 : (tensor<2x4xi64>) -> tensor<2x4xf32>
func.func @main(%x: tensor<2x4xi64> {nn.name = "x"}, %y: tensor<2x4xf32>) -> tensor<2x4xf32> {
  return %y : tensor<2x4xf32>
}
//--- narrow.mlir
// NARROW: nn.cast %arg0 : (tensor<2xi32>) -> tensor<2xi64>
func.func @main(%x: tensor<2xi32> {nn.name = "x"}, %y: tensor<2x4xf32>) -> tensor<2x4xf32> {
  return %y : tensor<2x4xf32>
}
//--- weights.mlir
// expected-error@+1 {{--loss has 2 class weights for 3 classes}}
func.func @main(%x: tensor<4x3xf32>) -> tensor<4x3xf32> {
  return %x : tensor<4x3xf32>
}
//--- scalar.mlir
// expected-error@+1 {{--loss output needs a scalar first output, not 'tensor<2xf32>'}}
func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  return %x : tensor<2xf32>
}
//--- noids.mlir
// expected-error@+1 {{--loss next-token needs an integer model input 'input_ids'; name another with label=}}
func.func @main(%x: tensor<2x3x4xf32>) -> tensor<2x3x4xf32> {
  return %x : tensor<2x3x4xf32>
}
//--- ids.mlir
// expected-error@+1 {{--loss next-token needs logits [batch, length, classes] and ids [batch, length], not 'tensor<2x3x4xf32>' and 'tensor<2x5xi64>'}}
func.func @main(%ids: tensor<2x5xi64> {nn.name = "input_ids"}, %x: tensor<2x3x4xf32>) -> tensor<2x3x4xf32> {
  return %x : tensor<2x3x4xf32>
}
//--- integers.mlir
// expected-error@+1 {{the model has no floating-point output for a loss}}
func.func @main(%x: tensor<4xi64>) -> tensor<4xi64> {
  return %x : tensor<4xi64>
}
//--- name.mlir
// expected-error@+1 {{the model has no output 'scores' for --logits}}
func.func @main(%x: tensor<4xf32>) -> (tensor<4xf32> {nn.name = "logits"}) {
  return %x : tensor<4xf32>
}
//--- elsewhere.mlir
// expected-error@+1 {{--loss cross-entropy needs an output whose axis 0 counts the 4 samples of a microbatch, not 'tensor<4x4xf32>' with the samples on axis 1; name another with --logits, or reshape it in the model}}
func.func @main(%x: tensor<4x4xf32> {nn.batch_axis = 0 : i64}) -> (tensor<4x4xf32> {nn.samples_on = 1 : i64}) {
  return %x : tensor<4x4xf32>
}
//--- uncounted.mlir
// expected-error@+1 {{--loss cross-entropy needs an output whose axis 0 counts the samples of a microbatch, not 'tensor<3x4xf32>' with the samples on axis 1}}
func.func @main(%x: tensor<3x4xf32>) -> (tensor<3x4xf32> {nn.samples_on = 1 : i64}) {
  return %x : tensor<3x4xf32>
}
//--- rows.mlir
// expected-error@+1 {{--loss cross-entropy needs an output whose axis 0 counts the 2 samples of a microbatch, not 'tensor<6x4xf32>'; name another with --logits, or reshape it in the model}}
func.func @main(%x: tensor<2x3x4xf32> {nn.batch_axis = 0 : i64}, %y: tensor<6x4xf32>) -> tensor<6x4xf32> {
  return %y : tensor<6x4xf32>
}
//--- mean.mlir
// expected-error@+1 {{--loss mse needs an output whose axis 0 counts the 2 samples of a microbatch, not 'tensor<f32>'; name another with --logits, or say --loss output if it is the loss}}
func.func @main(%x: tensor<2x3x4xf32> {nn.batch_axis = 0 : i64}, %y: tensor<f32>) -> tensor<f32> {
  return %y : tensor<f32>
}
//--- nomain.mlir
func.func @other() {
  return
}
// CHECK: error: has no function @main
