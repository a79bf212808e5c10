// Where the classes are, and losses that read a model input or output.
// RUN: split-file %s %t
// RUN: pipec-opt %t/image.mlir --nn-attach-loss | FileCheck %s --check-prefix=IMAGE
// RUN: pipec-opt %t/text.mlir --nn-attach-loss=kind=next-token | FileCheck %s --check-prefix=TEXT
// RUN: pipec-opt %t/scalar.mlir --nn-attach-loss=kind=output | FileCheck %s --check-prefix=SCALAR

// Rank 4: axis 1.
//--- image.mlir
func.func @main(%x: tensor<2x3x5x6xf32>) -> tensor<2x3x5x6xf32> {
  return %x : tensor<2x3x5x6xf32>
}
// IMAGE: tensor<2x5x6xi64> {{{.*}}nn.name = "labels", nn.upper = 3
// IMAGE: nn.iota {axis = 1 : i64} : () -> tensor<2x3x5x6xi64>

// Position i predicts token i + 1; the last position is not counted.
//--- text.mlir
func.func @main(%ids: tensor<2x5xi32> {nn.name = "input_ids"}, %y: tensor<2x5x9xf32>)
    -> (tensor<2x5x9xf32> {nn.name = "logits"}) {
  return %y : tensor<2x5x9xf32>
}
// TEXT: @main(%[[IDS:.*]]: tensor<2x5xi32> {{.*}}, %{{.*}}: tensor<2x5x9xf32>)
// TEXT: %[[WIDE:.*]] = nn.cast %[[IDS]] : (tensor<2x5xi32>) -> tensor<2x5xi64>
// TEXT: %[[NEXT:.*]] = nn.slice %[[WIDE]] {starts = array<i64: 0, 1>
// TEXT: nn.pad %[[NEXT]] {high = array<i64: 0, 1>, {{.*}}value = -1.000000e+02

//--- scalar.mlir
func.func @main(%x: tensor<1x1xf32>) -> tensor<1x1xf32> {
  return %x : tensor<1x1xf32>
}
// SCALAR: nn.reshape {{.*}} -> tensor<f32>
