// cuDNN pads both ends of an axis alike: what differs is padded before.
// RUN: pipec-opt %s --pass-pipeline='builtin.module(func.func(cuda-even-padding))' | FileCheck %s

// CHECK-LABEL: func.func @alike
// CHECK-NOT: nn.pad
// CHECK-LABEL: func.func @forward
// CHECK: %[[P:.*]] = nn.pad %arg0 {high = array<i64: 0, 0, 1>, interior = array<i64: 0, 0, 0>, low = array<i64: 0, 0, 0>}
// CHECK: nn.conv %[[P]], %arg1 {{.*}}pads_high = array<i64: 0>, pads_low = array<i64: 0>
func.func @alike(%x: tensor<1x1x8xf32>, %w: tensor<1x1x3xf32>) -> tensor<1x1x8xf32> {
  %y = nn.conv %x, %w {dilations = array<i64: 1>, groups = 1 : i64, pads_high = array<i64: 1>, pads_low = array<i64: 1>, strides = array<i64: 1>} : (tensor<1x1x8xf32>, tensor<1x1x3xf32>) -> tensor<1x1x8xf32>
  return %y : tensor<1x1x8xf32>
}
func.func @forward(%x: tensor<1x1x8xf32>, %w: tensor<1x1x3xf32>) -> tensor<1x1x4xf32> {
  %y = nn.conv %x, %w {dilations = array<i64: 1>, groups = 1 : i64, pads_high = array<i64: 1>, pads_low = array<i64: 0>, strides = array<i64: 2>} : (tensor<1x1x8xf32>, tensor<1x1x3xf32>) -> tensor<1x1x4xf32>
  return %y : tensor<1x1x4xf32>
}
// CHECK-LABEL: func.func @gradient
// CHECK: %[[D:.*]] = nn.conv_grad_input %arg0, %arg1 {{.*}} -> tensor<1x1x9xf32>
// CHECK: %[[S:.*]] = nn.slice %[[D]] {starts = array<i64: 0, 0, 0>
// CHECK: return %[[S]] : tensor<1x1x8xf32>
func.func @gradient(%dy: tensor<1x1x4xf32>, %w: tensor<1x1x3xf32>) -> tensor<1x1x8xf32> {
  %dx = nn.conv_grad_input %dy, %w {dilations = array<i64: 1>, groups = 1 : i64, pads_high = array<i64: 1>, pads_low = array<i64: 0>, strides = array<i64: 2>} : (tensor<1x1x4xf32>, tensor<1x1x3xf32>) -> tensor<1x1x8xf32>
  return %dx : tensor<1x1x8xf32>
}
