// GPUs multiply and convolve bf16 as it is, so nothing is cast; gradients of
// convolutions' weights are widened.
// RUN: pipec-opt %s --cuda-kernels | FileCheck %s

// CHECK: module @device
// CHECK: module @host
// CHECK: func.func @pipec_product
// CHECK-COUNT-1: llvm.call
// CHECK-NOT: llvm.call
// CHECK: func.func @pipec_convolution
// CHECK-COUNT-1: llvm.call
// CHECK-NOT: llvm.call
// CHECK: func.func @pipec_gradient
// CHECK-COUNT-4: llvm.call
// CHECK-NOT: llvm.call
func.func @product() attributes {pipe.task = "product"} {
  %x = pipe.load "in"[0] : tensor<64x64xbf16>
  %w = nn.matmul %x, %x {transpose_a, wide} : (tensor<64x64xbf16>, tensor<64x64xbf16>) -> tensor<64x64xf32>
  pipe.store %w, "out"[0] : tensor<64x64xf32>
  return
}
func.func @convolution() attributes {pipe.task = "convolution"} {
  %x = pipe.load "in"[0] : tensor<1x4x8x8xbf16>
  %w = pipe.load "in"[1024] : tensor<4x4x1x1xbf16>
  %y = nn.conv %x, %w {dilations = array<i64: 1, 1>, groups = 1 : i64, pads_high = array<i64: 0, 0>, pads_low = array<i64: 0, 0>, strides = array<i64: 1, 1>} : (tensor<1x4x8x8xbf16>, tensor<4x4x1x1xbf16>) -> tensor<1x4x8x8xbf16>
  pipe.store %y, "out"[0] : tensor<1x4x8x8xbf16>
  return
}
func.func @gradient() attributes {pipe.task = "gradient"} {
  %x = pipe.load "in"[0] : tensor<1x4x8x8xbf16>
  %y = pipe.load "in"[1024] : tensor<1x4x8x8xbf16>
  %w = nn.conv_grad_weight %x, %y {dilations = array<i64: 1, 1>, groups = 1 : i64, pads_high = array<i64: 0, 0>, pads_low = array<i64: 0, 0>, strides = array<i64: 1, 1>} : (tensor<1x4x8x8xbf16>, tensor<1x4x8x8xbf16>) -> tensor<4x4x1x1xbf16>
  pipe.store %w, "out"[0] : tensor<4x4x1x1xbf16>
  return
}
