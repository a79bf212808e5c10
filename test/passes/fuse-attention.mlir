// However attention is spelled, it becomes one op; what reads the
// probabilities or trains the mask keeps them.
// RUN: pipec-opt %s --nn-fuse-attention --split-input-file | FileCheck %s

// The scale on both factors, a constant triangle, zeros for NaN; heads of 8.
// CHECK-LABEL: func.func @main
// CHECK:      %[[Y:.*]], %{{.*}}, %{{.*}} = nn.attention %arg0, %arg1, %arg2 {causal, scale = 2.500000e-01 : f64, zero_rows}
// CHECK-NEXT: return %[[Y]]
func.func @main(%q: tensor<2x4x3x8xf32>, %k: tensor<2x4x3x8xf32>, %v: tensor<2x4x3x8xf32>) -> tensor<2x4x3x8xf32> {
  %half = nn.constant dense<0.5> : tensor<2x4x3x8xf32>
  %a = nn.mul %q, %half : (tensor<2x4x3x8xf32>, tensor<2x4x3x8xf32>) -> tensor<2x4x3x8xf32>
  %b = nn.mul %half, %k : (tensor<2x4x3x8xf32>, tensor<2x4x3x8xf32>) -> tensor<2x4x3x8xf32>
  %s = nn.matmul %a, %b {transpose_b} : (tensor<2x4x3x8xf32>, tensor<2x4x3x8xf32>) -> tensor<2x4x3x3xf32>
  %m = nn.constant dense<[[[[0.0, -1.0e9, 0xFF800000], [0.0, 0.0, 0xFF800000], [0.0, 0.0, 0.0]]]]> : tensor<1x1x3x3xf32>
  %mask = nn.broadcast %m : (tensor<1x1x3x3xf32>) -> tensor<2x4x3x3xf32>
  %t = nn.add %s, %mask : (tensor<2x4x3x3xf32>, tensor<2x4x3x3xf32>) -> tensor<2x4x3x3xf32>
  %p = nn.softmax %t : (tensor<2x4x3x3xf32>) -> tensor<2x4x3x3xf32>
  %n = nn.is_nan %p : (tensor<2x4x3x3xf32>) -> tensor<2x4x3x3xi1>
  %zero = nn.constant dense<0.0> : tensor<2x4x3x3xf32>
  %w = nn.select %n, %zero, %p : (tensor<2x4x3x3xi1>, tensor<2x4x3x3xf32>, tensor<2x4x3x3xf32>) -> tensor<2x4x3x3xf32>
  %y = nn.matmul %w, %v : (tensor<2x4x3x3xf32>, tensor<2x4x3x8xf32>) -> tensor<2x4x3x8xf32>
  return %y : tensor<2x4x3x8xf32>
}

// -----

// Keys already turned, a quotient of the scores, a triangle of positions that
// selects, and a mask that hides known at run time: all in one place.
// CHECK-LABEL: func.func @main
// CHECK:      %[[H:.*]] = nn.select %arg3
// CHECK:      %[[K:.*]] = nn.transpose %arg1 {permutation = array<i64: 0, 2, 1>}
// CHECK:      %[[M:.*]] = nn.broadcast %[[H]] : (tensor<2x1x3xf32>) -> tensor<2x3x3xf32>
// CHECK:      nn.attention %arg0, %[[K]], %arg2, %[[M]] {causal, scale = 5.000000e-01 : f64}
// CHECK-NOT:  nn.matmul
func.func @main(%q: tensor<2x3x4xf32>, %k: tensor<2x4x3xf32>, %v: tensor<2x3x4xf32>, %c: tensor<2x1x3xi1>) -> tensor<2x3x4xf32> {
  %zero = nn.constant dense<0.0> : tensor<2x1x3xf32>
  %none = nn.constant dense<0xFF800000> : tensor<2x1x3xf32>
  %m = nn.select %c, %zero, %none : (tensor<2x1x3xi1>, tensor<2x1x3xf32>, tensor<2x1x3xf32>) -> tensor<2x1x3xf32>
  %s = nn.matmul %q, %k : (tensor<2x3x4xf32>, tensor<2x4x3xf32>) -> tensor<2x3x3xf32>
  %two = nn.constant dense<2.0> : tensor<2x3x3xf32>
  %t = nn.div %s, %two : (tensor<2x3x3xf32>, tensor<2x3x3xf32>) -> tensor<2x3x3xf32>
  %i = nn.iota {axis = 1 : i64} : () -> tensor<2x3x3xi64>
  %j = nn.iota {axis = 2 : i64} : () -> tensor<2x3x3xi64>
  %seen = nn.compare %i, %j {predicate = "ge"} : (tensor<2x3x3xi64>, tensor<2x3x3xi64>) -> tensor<2x3x3xi1>
  %low = nn.constant dense<0xFF800000> : tensor<2x3x3xf32>
  %u = nn.select %seen, %t, %low : (tensor<2x3x3xi1>, tensor<2x3x3xf32>, tensor<2x3x3xf32>) -> tensor<2x3x3xf32>
  %mask = nn.broadcast %m : (tensor<2x1x3xf32>) -> tensor<2x3x3xf32>
  %w = nn.add %mask, %u : (tensor<2x3x3xf32>, tensor<2x3x3xf32>) -> tensor<2x3x3xf32>
  %p = nn.softmax %w : (tensor<2x3x3xf32>) -> tensor<2x3x3xf32>
  %y = nn.matmul %p, %v : (tensor<2x3x3xf32>, tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
  return %y : tensor<2x3x4xf32>
}

// -----

// A triangle that is finite stays a mask: a row whose first keys are hidden
// attends to those behind the query.
// CHECK-LABEL: func.func @main
// CHECK-DAG:  %[[L:.*]] = nn.constant dense<-3.40282347E+38> : tensor<2x3x3xf32>
// CHECK-DAG:  %[[T:.*]] = nn.select %{{.*}}, %{{.*}}, %[[L]]
// CHECK:      %[[B:.*]] = nn.add %[[T]], %{{.*}}
// CHECK:      nn.attention %arg0, %{{.*}}, %arg2, %[[B]] {replaces, scale = 5.000000e-01 : f64}
func.func @main(%q: tensor<2x3x4xf32>, %k: tensor<2x4x3xf32>, %v: tensor<2x3x4xf32>, %c: tensor<2x1x3xi1>) -> tensor<2x3x4xf32> {
  %zero = nn.constant dense<0.0> : tensor<2x1x3xf32>
  %none = nn.constant dense<0xFF800000> : tensor<2x1x3xf32>
  %m = nn.select %c, %zero, %none : (tensor<2x1x3xi1>, tensor<2x1x3xf32>, tensor<2x1x3xf32>) -> tensor<2x1x3xf32>
  %s = nn.matmul %q, %k : (tensor<2x3x4xf32>, tensor<2x4x3xf32>) -> tensor<2x3x3xf32>
  %two = nn.constant dense<2.0> : tensor<2x3x3xf32>
  %t = nn.div %s, %two : (tensor<2x3x3xf32>, tensor<2x3x3xf32>) -> tensor<2x3x3xf32>
  %i = nn.iota {axis = 1 : i64} : () -> tensor<2x3x3xi64>
  %j = nn.iota {axis = 2 : i64} : () -> tensor<2x3x3xi64>
  %seen = nn.compare %i, %j {predicate = "ge"} : (tensor<2x3x3xi64>, tensor<2x3x3xi64>) -> tensor<2x3x3xi1>
  %low = nn.constant dense<-1.0e9> : tensor<2x3x3xf32>
  %u = nn.select %seen, %t, %low : (tensor<2x3x3xi1>, tensor<2x3x3xf32>, tensor<2x3x3xf32>) -> tensor<2x3x3xf32>
  %mask = nn.broadcast %m : (tensor<2x1x3xf32>) -> tensor<2x3x3xf32>
  %w = nn.add %mask, %u : (tensor<2x3x3xf32>, tensor<2x3x3xf32>) -> tensor<2x3x3xf32>
  %p = nn.softmax %w : (tensor<2x3x3xf32>) -> tensor<2x3x3xf32>
  %y = nn.matmul %p, %v : (tensor<2x3x3xf32>, tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
  return %y : tensor<2x3x4xf32>
}

// -----

// Heads and batch as one dimension in the products, apart in the mask, which
// comes before the scale.
// CHECK-LABEL: func.func @main
// CHECK-DAG:  %[[Q:.*]] = nn.reshape %arg0 : (tensor<6x3x4xf32>) -> tensor<2x3x3x4xf32>
// CHECK-DAG:  %[[B:.*]] = nn.select %arg3, %{{.*}}, %{{.*}} : (tensor<2x1x1x3xi1>
// CHECK-DAG:  %[[D:.*]] = nn.broadcast %[[B]] : (tensor<2x1x1x3xf32>) -> tensor<2x3x3x3xf32>
// CHECK:      %[[Y:.*]], %{{.*}}, %{{.*}} = nn.attention %[[Q]], %{{.*}}, %{{.*}}, %[[D]] {scale = 2.500000e-01 : f64}
// CHECK-NEXT: nn.reshape %[[Y]] : (tensor<2x3x3x4xf32>) -> tensor<6x3x4xf32>
func.func @main(%q: tensor<6x3x4xf32>, %k: tensor<6x3x4xf32>, %v: tensor<6x3x4xf32>, %m: tensor<2x1x1x3xi1>) -> tensor<6x3x4xf32> {
  %s = nn.matmul %q, %k {transpose_b} : (tensor<6x3x4xf32>, tensor<6x3x4xf32>) -> tensor<6x3x3xf32>
  %r = nn.reshape %s : (tensor<6x3x3xf32>) -> tensor<2x3x3x3xf32>
  %mask = nn.broadcast %m : (tensor<2x1x1x3xi1>) -> tensor<2x3x3x3xi1>
  %low = nn.constant dense<0xFF800000> : tensor<2x3x3x3xf32>
  %u = nn.select %mask, %r, %low : (tensor<2x3x3x3xi1>, tensor<2x3x3x3xf32>, tensor<2x3x3x3xf32>) -> tensor<2x3x3x3xf32>
  %c = nn.constant dense<0.25> : tensor<2x3x3x3xf32>
  %t = nn.mul %u, %c : (tensor<2x3x3x3xf32>, tensor<2x3x3x3xf32>) -> tensor<2x3x3x3xf32>
  %p = nn.softmax %t : (tensor<2x3x3x3xf32>) -> tensor<2x3x3x3xf32>
  %x = nn.reshape %p : (tensor<2x3x3x3xf32>) -> tensor<6x3x3xf32>
  %y = nn.matmul %x, %v : (tensor<6x3x3xf32>, tensor<6x3x4xf32>) -> tensor<6x3x4xf32>
  return %y : tensor<6x3x4xf32>
}

// -----

// The probabilities are an output.
// CHECK-LABEL: func.func @main
// CHECK-NOT: nn.attention
func.func @main(%q: tensor<2x3x4xf32>, %k: tensor<2x3x4xf32>) -> (tensor<2x3x4xf32>, tensor<2x3x3xf32>) {
  %s = nn.matmul %q, %k {transpose_b} : (tensor<2x3x4xf32>, tensor<2x3x4xf32>) -> tensor<2x3x3xf32>
  %p = nn.softmax %s : (tensor<2x3x3xf32>) -> tensor<2x3x3xf32>
  %y = nn.matmul %p, %k : (tensor<2x3x3xf32>, tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
  return %y, %p : tensor<2x3x4xf32>, tensor<2x3x3xf32>
}

// -----

nn.parameter @bias : tensor<1x3x3xf32> {role = "weight", file = 0 : i64, offset = 0 : i64, length = 36 : i64}

// The numbers added to the scores train.
// CHECK-LABEL: func.func @main
// CHECK-NOT: nn.attention
func.func @main(%q: tensor<2x3x4xf32>, %k: tensor<2x3x4xf32>) -> tensor<2x3x4xf32> {
  %s = nn.matmul %q, %k {transpose_b} : (tensor<2x3x4xf32>, tensor<2x3x4xf32>) -> tensor<2x3x3xf32>
  %b = nn.weight @bias : tensor<1x3x3xf32>
  %c = nn.broadcast %b : (tensor<1x3x3xf32>) -> tensor<2x3x3xf32>
  %t = nn.add %s, %c : (tensor<2x3x3xf32>, tensor<2x3x3xf32>) -> tensor<2x3x3xf32>
  %p = nn.softmax %t : (tensor<2x3x3xf32>) -> tensor<2x3x3xf32>
  %y = nn.matmul %p, %k : (tensor<2x3x3xf32>, tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
  return %y : tensor<2x3x4xf32>
}

// -----

// Where a row may be masked as a whole all its weights are equal, and no
// gradient reaches its scores: any low number says so as the lowest does.
// CHECK-LABEL: func.func @main
// CHECK: %[[L:.*]] = nn.constant dense<-3.40282347E+38>
// CHECK: %[[B:.*]] = nn.select %arg2, %{{.*}}, %[[L]]
// CHECK: nn.attention %arg0, %arg1, %arg1, %[[B]] {replaces, scale
func.func @main(%q: tensor<2x3x4xf32>, %k: tensor<2x3x4xf32>, %m: tensor<2x3x3xi1>) -> tensor<2x3x4xf32> {
  %s = nn.matmul %q, %k {transpose_b} : (tensor<2x3x4xf32>, tensor<2x3x4xf32>) -> tensor<2x3x3xf32>
  %low = nn.constant dense<-1.0e9> : tensor<2x3x3xf32>
  %t = nn.select %m, %s, %low : (tensor<2x3x3xi1>, tensor<2x3x3xf32>, tensor<2x3x3xf32>) -> tensor<2x3x3xf32>
  %p = nn.softmax %t : (tensor<2x3x3xf32>) -> tensor<2x3x3xf32>
  %y = nn.matmul %p, %k : (tensor<2x3x3xf32>, tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
  return %y : tensor<2x3x4xf32>
}

// -----

// Numbers that are known at run time alone are added as they are: gradients go
// through them.
// CHECK-LABEL: func.func @main
// CHECK: nn.attention %arg0, %arg1, %arg1, %arg2 {scale
func.func @main(%q: tensor<2x3x4xf32>, %k: tensor<2x3x4xf32>, %m: tensor<2x3x3xf32>) -> tensor<2x3x4xf32> {
  %s = nn.matmul %q, %k {transpose_b} : (tensor<2x3x4xf32>, tensor<2x3x4xf32>) -> tensor<2x3x3xf32>
  %t = nn.add %s, %m : (tensor<2x3x3xf32>, tensor<2x3x3xf32>) -> tensor<2x3x3xf32>
  %p = nn.softmax %t : (tensor<2x3x3xf32>) -> tensor<2x3x3xf32>
  %y = nn.matmul %p, %k : (tensor<2x3x3xf32>, tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
  return %y : tensor<2x3x4xf32>
}

// -----

// Both kinds: which of a row's keys are masked the least, and which of them has
// a gradient, one bias could not say.
// CHECK-LABEL: func.func @main
// CHECK-NOT: nn.attention
func.func @main(%q: tensor<2x3x4xf32>, %k: tensor<2x3x4xf32>, %m: tensor<2x3x3xf32>, %c: tensor<2x3x3xi1>) -> tensor<2x3x4xf32> {
  %s = nn.matmul %q, %k {transpose_b} : (tensor<2x3x4xf32>, tensor<2x3x4xf32>) -> tensor<2x3x3xf32>
  %t = nn.add %s, %m : (tensor<2x3x3xf32>, tensor<2x3x3xf32>) -> tensor<2x3x3xf32>
  %low = nn.constant dense<-1.0e9> : tensor<2x3x3xf32>
  %u = nn.select %c, %t, %low : (tensor<2x3x3xi1>, tensor<2x3x3xf32>, tensor<2x3x3xf32>) -> tensor<2x3x3xf32>
  %p = nn.softmax %u : (tensor<2x3x3xf32>) -> tensor<2x3x3xf32>
  %y = nn.matmul %p, %k : (tensor<2x3x3xf32>, tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
  return %y : tensor<2x3x4xf32>
}

// -----

// Two numbers, which a row may have both of.
// CHECK-LABEL: func.func @main
// CHECK-NOT: nn.attention
func.func @main(%q: tensor<2x3x4xf32>, %k: tensor<2x3x4xf32>, %m: tensor<2x3x3xi1>, %c: tensor<2x3x3xi1>) -> tensor<2x3x4xf32> {
  %s = nn.matmul %q, %k {transpose_b} : (tensor<2x3x4xf32>, tensor<2x3x4xf32>) -> tensor<2x3x3xf32>
  %low = nn.constant dense<-1.0e9> : tensor<2x3x3xf32>
  %t = nn.select %m, %s, %low : (tensor<2x3x3xi1>, tensor<2x3x3xf32>, tensor<2x3x3xf32>) -> tensor<2x3x3xf32>
  %lower = nn.constant dense<-1.0e30> : tensor<2x3x3xf32>
  %u = nn.select %c, %t, %lower : (tensor<2x3x3xi1>, tensor<2x3x3xf32>, tensor<2x3x3xf32>) -> tensor<2x3x3xf32>
  %p = nn.softmax %u : (tensor<2x3x3xf32>) -> tensor<2x3x3xf32>
  %y = nn.matmul %p, %k : (tensor<2x3x3xf32>, tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
  return %y : tensor<2x3x4xf32>
}

// -----

// A known mask goes along.
// CHECK-LABEL: func.func @main
// CHECK: nn.attention
func.func @main(%q: tensor<2x2x4xf32>, %k: tensor<2x2x4xf32>) -> tensor<2x2x4xf32> {
  %s = nn.matmul %q, %k {transpose_b} : (tensor<2x2x4xf32>, tensor<2x2x4xf32>) -> tensor<2x2x2xf32>
  %m = nn.constant dense<[[[-1.0e9, 0.0], [-100.0, 1.0]]]> : tensor<1x2x2xf32>
  %b = nn.broadcast %m : (tensor<1x2x2xf32>) -> tensor<2x2x2xf32>
  %t = nn.add %s, %b : (tensor<2x2x2xf32>, tensor<2x2x2xf32>) -> tensor<2x2x2xf32>
  %p = nn.softmax %t : (tensor<2x2x2xf32>) -> tensor<2x2x2xf32>
  %y = nn.matmul %p, %k : (tensor<2x2x2xf32>, tensor<2x2x4xf32>) -> tensor<2x2x4xf32>
  return %y : tensor<2x2x4xf32>
}

// -----

// The second row of this one has none: nothing is known of it, and nothing
// needs to be.
// CHECK-LABEL: func.func @main
// CHECK: nn.attention %arg0, %arg1, %arg1, %{{.*}} {scale
func.func @main(%q: tensor<2x2x4xf32>, %k: tensor<2x2x4xf32>) -> tensor<2x2x4xf32> {
  %s = nn.matmul %q, %k {transpose_b} : (tensor<2x2x4xf32>, tensor<2x2x4xf32>) -> tensor<2x2x2xf32>
  %m = nn.constant dense<[[[-1.0e9, 0.0], [-1.0e9, -1.0e9]]]> : tensor<1x2x2xf32>
  %b = nn.broadcast %m : (tensor<1x2x2xf32>) -> tensor<2x2x2xf32>
  %t = nn.add %s, %b : (tensor<2x2x2xf32>, tensor<2x2x2xf32>) -> tensor<2x2x2xf32>
  %p = nn.softmax %t : (tensor<2x2x2xf32>) -> tensor<2x2x2xf32>
  %y = nn.matmul %p, %k : (tensor<2x2x2xf32>, tensor<2x2x4xf32>) -> tensor<2x2x4xf32>
  return %y : tensor<2x2x4xf32>
}

// -----

// A mask of one row that keeps all is no triangle.
// CHECK-LABEL: func.func @main
// CHECK: nn.attention %arg0, %arg1, %arg1, %{{.*}} {scale
func.func @main(%q: tensor<2x3x4xf32>, %k: tensor<2x3x4xf32>) -> tensor<2x3x4xf32> {
  %s = nn.matmul %q, %k {transpose_b} : (tensor<2x3x4xf32>, tensor<2x3x4xf32>) -> tensor<2x3x3xf32>
  %m = nn.constant dense<true> : tensor<1x1x1xi1>
  %c = nn.broadcast %m : (tensor<1x1x1xi1>) -> tensor<2x3x3xi1>
  %low = nn.constant dense<0xFF800000> : tensor<2x3x3xf32>
  %t = nn.select %c, %s, %low : (tensor<2x3x3xi1>, tensor<2x3x3xf32>, tensor<2x3x3xf32>) -> tensor<2x3x3xf32>
  %p = nn.softmax %t : (tensor<2x3x3xf32>) -> tensor<2x3x3xf32>
  %y = nn.matmul %p, %k : (tensor<2x3x3xf32>, tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
  return %y : tensor<2x3x4xf32>
}

// -----

// Heads that the kernels do not hold.
// CHECK-LABEL: func.func @main
// CHECK-NOT: nn.attention
func.func @main(%q: tensor<3x129xf32>, %k: tensor<3x129xf32>) -> tensor<3x129xf32> {
  %s = nn.matmul %q, %k {transpose_b} : (tensor<3x129xf32>, tensor<3x129xf32>) -> tensor<3x3xf32>
  %p = nn.softmax %s : (tensor<3x3xf32>) -> tensor<3x3xf32>
  %y = nn.matmul %p, %k : (tensor<3x3xf32>, tensor<3x129xf32>) -> tensor<3x129xf32>
  return %y : tensor<3x129xf32>
}

// -----

// Keys and values that pairs of heads share are read where they are: heads are
// [groups, heads of a group], and what repeats them is a view.
// CHECK-LABEL: func.func @main
// CHECK-DAG:  %[[K:.*]] = nn.broadcast %{{.*}} : (tensor<2x3x1x5x8xf32>) -> tensor<2x3x2x5x8xf32>
// CHECK-DAG:  %[[V:.*]] = nn.broadcast %{{.*}} : (tensor<2x3x1x5x8xf32>) -> tensor<2x3x2x5x8xf32>
// CHECK-DAG:  %[[Q:.*]] = nn.reshape %arg0 : (tensor<2x6x5x8xf32>) -> tensor<2x3x2x5x8xf32>
// CHECK-DAG:  %[[M:.*]] = nn.reshape %{{.*}} : (tensor<2x6x5x5xf32>) -> tensor<2x3x2x5x5xf32>
// CHECK:      %[[Y:.*]], %{{.*}}, %{{.*}} = nn.attention %[[Q]], %[[K]], %[[V]], %[[M]] {scale = 1.000000e+00 : f64} : (tensor<2x3x2x5x8xf32>, tensor<2x3x2x5x8xf32>, tensor<2x3x2x5x8xf32>, tensor<2x3x2x5x5xf32>)
// CHECK-NEXT: nn.reshape %[[Y]] : (tensor<2x3x2x5x8xf32>) -> tensor<2x6x5x8xf32>
func.func @main(%q: tensor<2x6x5x8xf32>, %k: tensor<2x3x5x8xf32>, %v: tensor<2x3x5x8xf32>, %m: tensor<2x1x5x5xf32>) -> tensor<2x6x5x8xf32> {
  %k1 = nn.reshape %k : (tensor<2x3x5x8xf32>) -> tensor<2x3x1x5x8xf32>
  %k2 = nn.broadcast %k1 : (tensor<2x3x1x5x8xf32>) -> tensor<2x3x2x5x8xf32>
  %k3 = nn.reshape %k2 : (tensor<2x3x2x5x8xf32>) -> tensor<2x6x5x8xf32>
  %k4 = nn.transpose %k3 {permutation = array<i64: 0, 1, 3, 2>} : (tensor<2x6x5x8xf32>) -> tensor<2x6x8x5xf32>
  %v1 = nn.reshape %v : (tensor<2x3x5x8xf32>) -> tensor<2x3x1x5x8xf32>
  %v2 = nn.broadcast %v1 : (tensor<2x3x1x5x8xf32>) -> tensor<2x3x2x5x8xf32>
  %v3 = nn.reshape %v2 : (tensor<2x3x2x5x8xf32>) -> tensor<2x6x5x8xf32>
  %s = nn.matmul %q, %k4 : (tensor<2x6x5x8xf32>, tensor<2x6x8x5xf32>) -> tensor<2x6x5x5xf32>
  %mask = nn.broadcast %m : (tensor<2x1x5x5xf32>) -> tensor<2x6x5x5xf32>
  %t = nn.add %s, %mask : (tensor<2x6x5x5xf32>, tensor<2x6x5x5xf32>) -> tensor<2x6x5x5xf32>
  %p = nn.softmax %t : (tensor<2x6x5x5xf32>) -> tensor<2x6x5x5xf32>
  %y = nn.matmul %p, %v3 : (tensor<2x6x5x5xf32>, tensor<2x6x5x8xf32>) -> tensor<2x6x5x8xf32>
  return %y : tensor<2x6x5x8xf32>
}

// -----

// As ONNX's Attention is imported: rows that the mask hides as a whole are 0,
// and their scores are replaced so that no gradient is NaN.
// CHECK-LABEL: func.func @main
// CHECK:      %[[M:.*]] = nn.broadcast %arg3
// CHECK:      %[[Y:.*]], %{{.*}}, %{{.*}} = nn.attention %arg0, %arg1, %arg2, %[[M]] {scale = 1.000000e+00 : f64, zero_rows}
// CHECK-NEXT: return %[[Y]]
func.func @main(%q: tensor<2x4x3x8xf32>, %k: tensor<2x4x5x8xf32>, %v: tensor<2x4x5x8xf32>, %m: tensor<2x1x3x5xf32>) -> tensor<2x4x3x8xf32> {
  %s = nn.matmul %q, %k {transpose_b} : (tensor<2x4x3x8xf32>, tensor<2x4x5x8xf32>) -> tensor<2x4x3x5xf32>
  %best = nn.reduce %m {axes = array<i64: 3>, kind = "max"} : (tensor<2x1x3x5xf32>) -> tensor<2x1x3x1xf32>
  %low = nn.constant dense<0xFF800000> : tensor<2x1x3x1xf32>
  %c = nn.compare %best, %low {predicate = "eq"} : (tensor<2x1x3x1xf32>, tensor<2x1x3x1xf32>) -> tensor<2x1x3x1xi1>
  %blocked = nn.broadcast %c : (tensor<2x1x3x1xi1>) -> tensor<2x4x3x5xi1>
  %mask = nn.broadcast %m : (tensor<2x1x3x5xf32>) -> tensor<2x4x3x5xf32>
  %t = nn.add %s, %mask : (tensor<2x4x3x5xf32>, tensor<2x4x3x5xf32>) -> tensor<2x4x3x5xf32>
  %zero = nn.constant dense<0.0> : tensor<2x4x3x5xf32>
  %u = nn.select %blocked, %zero, %t : (tensor<2x4x3x5xi1>, tensor<2x4x3x5xf32>, tensor<2x4x3x5xf32>) -> tensor<2x4x3x5xf32>
  %p = nn.softmax %u : (tensor<2x4x3x5xf32>) -> tensor<2x4x3x5xf32>
  %w = nn.select %blocked, %zero, %p : (tensor<2x4x3x5xi1>, tensor<2x4x3x5xf32>, tensor<2x4x3x5xf32>) -> tensor<2x4x3x5xf32>
  %y = nn.matmul %w, %v : (tensor<2x4x3x5xf32>, tensor<2x4x5x8xf32>) -> tensor<2x4x3x8xf32>
  return %y : tensor<2x4x3x8xf32>
}

// -----

// Rows that something else says are hidden keep their probabilities.
// CHECK-LABEL: func.func @main
// CHECK:      nn.softmax
// CHECK-NOT:  nn.attention
func.func @main(%q: tensor<2x3x8xf32>, %k: tensor<2x5x8xf32>, %v: tensor<2x5x8xf32>, %m: tensor<2x3x5xf32>, %blocked: tensor<2x3x5xi1>) -> tensor<2x3x8xf32> {
  %s = nn.matmul %q, %k {transpose_b} : (tensor<2x3x8xf32>, tensor<2x5x8xf32>) -> tensor<2x3x5xf32>
  %t = nn.add %s, %m : (tensor<2x3x5xf32>, tensor<2x3x5xf32>) -> tensor<2x3x5xf32>
  %zero = nn.constant dense<0.0> : tensor<2x3x5xf32>
  %u = nn.select %blocked, %zero, %t : (tensor<2x3x5xi1>, tensor<2x3x5xf32>, tensor<2x3x5xf32>) -> tensor<2x3x5xf32>
  %p = nn.softmax %u : (tensor<2x3x5xf32>) -> tensor<2x3x5xf32>
  %w = nn.select %blocked, %zero, %p : (tensor<2x3x5xi1>, tensor<2x3x5xf32>, tensor<2x3x5xf32>) -> tensor<2x3x5xf32>
  %y = nn.matmul %w, %v : (tensor<2x3x5xf32>, tensor<2x5x8xf32>) -> tensor<2x3x8xf32>
  return %y : tensor<2x3x8xf32>
}
