// Every form of op can be written and read back.
// RUN: pipec-opt %s --verify-roundtrip | FileCheck %s

// CHECK: nn.parameter @fc.weight : tensor<4x4xf32>
nn.parameter @fc.weight : tensor<4x4xf32> {role = "weight", file = 0 : i64, offset = 0 : i64, length = 64 : i64, reason = "read by a matrix product"}
nn.parameter @mean : tensor<4xf32> {role = "state", value = dense<0.0> : tensor<4xf32>}

// CHECK-LABEL: func.func @main
func.func @main(%x: tensor<2x4xf32>, %i: tensor<3xi64>, %m: tensor<1x2x6x6xf32>) -> tensor<2x4xf32> {
  // CHECK-NEXT: nn.weight @fc.weight : tensor<4x4xf32>
  %w = nn.weight @fc.weight : tensor<4x4xf32>
  // CHECK-NEXT: nn.matmul %{{.*}}, %{{.*}} {transpose_b}
  %y = nn.matmul %x, %w {transpose_b} : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  // CHECK-NEXT: nn.reduce %{{.*}} {axes = array<i64: 0>, kind = "sum"}
  %s = nn.reduce %y {kind = "sum", axes = array<i64: 0>} : (tensor<2x4xf32>) -> tensor<1x4xf32>
  %r = nn.reshape %s : (tensor<1x4xf32>) -> tensor<4xf32>
  // CHECK: nn.track %{{.*}} into @mean {momentum = 1.000000e-01 : f64} : tensor<4xf32>
  nn.track %r into @mean {momentum = 0.1 : f64} : tensor<4xf32>
  // CHECK-NEXT: nn.constant dense<1.000000e+00> : tensor<2x4xf32>
  %k = nn.constant dense<1.0> : tensor<2x4xf32>
  %c = nn.compare %y, %k {predicate = "lt"} : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xi1>
  %z = nn.select %c, %y, %k : (tensor<2x4xi1>, tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
  %g = nn.gather %w, %i {axis = 0 : i64} : (tensor<4x4xf32>, tensor<3xi64>) -> tensor<3x4xf32>
  %a = nn.scatter_add %i, %g {axis = 0 : i64} : (tensor<3xi64>, tensor<3x4xf32>) -> tensor<4x4xf32>
  %j = nn.concat %g, %a {axis = 0 : i64} : (tensor<3x4xf32>, tensor<4x4xf32>) -> tensor<7x4xf32>
  %l = nn.slice %j {starts = array<i64: 6, 0>, strides = array<i64: -2, 1>} : (tensor<7x4xf32>) -> tensor<3x4xf32>
  %p = nn.pad %l {low = array<i64: 1, 0>, high = array<i64: 0, 0>, interior = array<i64: 1, 0>} : (tensor<3x4xf32>) -> tensor<6x4xf32>
  // CHECK: %{{.*}}, %{{.*}} = nn.max_pool
  %q, %n = nn.max_pool %m {kernel = array<i64: 2, 2>, strides = array<i64: 2, 2>, dilations = array<i64: 1, 1>, pads_low = array<i64: 0, 0>, pads_high = array<i64: 0, 0>} : (tensor<1x2x6x6xf32>) -> (tensor<1x2x3x3xf32>, tensor<1x2x3x3xi32>)
  %v = nn.iota {axis = 0 : i64} : () -> tensor<4xi64>
  %seed = nn.counter "seed" : tensor<i64>
  %bits = nn.hash %v, %v : (tensor<4xi64>, tensor<4xi64>) -> tensor<4xi64>
  %u = nn.cumsum %x {axis = 1 : i64, reverse} : (tensor<2x4xf32>) -> tensor<2x4xf32>
  return %z : tensor<2x4xf32>
}
