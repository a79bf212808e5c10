// RUN: pipec-opt %s --pipe-assign-stages --nn-slice-sequence=slices=2 -split-input-file -verify-diagnostics
// Tokens see later ones: no mask, a mask that is too weak, one known at run time.
nn.parameter @w : tensor<5x2xf32> {role = "weight", file = 0 : i64, offset = 0 : i64, length = 40 : i64}
func.func @main(%ids: tensor<1x4xi64>) -> tensor<f32> {
  %w = nn.weight @w : tensor<5x2xf32>
  %x = nn.gather %w, %ids {axis = 0 : i64} : (tensor<5x2xf32>, tensor<1x4xi64>) -> tensor<1x4x2xf32>
  // expected-error@+1 {{reads the whole sequence to compute a piece of it, so that a token sees later ones; only language models whose mask hides later tokens (-inf, or at most -1e9) train in pieces of a sequence: take another strategy}}
  %s = nn.matmul %x, %x {transpose_b} : (tensor<1x4x2xf32>, tensor<1x4x2xf32>) -> tensor<1x4x4xf32>
  %p = nn.softmax %s : (tensor<1x4x4xf32>) -> tensor<1x4x4xf32>
  %c = nn.matmul %p, %x : (tensor<1x4x4xf32>, tensor<1x4x2xf32>) -> tensor<1x4x2xf32>
  %u = nn.reduce %c {kind = "sum", axes = array<i64: 0, 1, 2>} : (tensor<1x4x2xf32>) -> tensor<1x1x1xf32>
  %l = nn.reshape %u : (tensor<1x1x1xf32>) -> tensor<f32>
  return %l : tensor<f32>
}

// -----

nn.parameter @w : tensor<5x2xf32> {role = "weight", file = 0 : i64, offset = 0 : i64, length = 40 : i64}
func.func @main(%ids: tensor<1x4xi64>) -> tensor<f32> {
  %w = nn.weight @w : tensor<5x2xf32>
  %x = nn.gather %w, %ids {axis = 0 : i64} : (tensor<5x2xf32>, tensor<1x4xi64>) -> tensor<1x4x2xf32>
  // expected-error@+1 {{reads the whole sequence}}
  %s = nn.matmul %x, %x {transpose_b} : (tensor<1x4x2xf32>, tensor<1x4x2xf32>) -> tensor<1x4x4xf32>
  %m = nn.constant dense<[[[0.0, -9.0e8, -1.0e30, -1.0e30], [0.0, 0.0, -1.0e30, -9.0e8], [0.0, 0.0, 0.0, -1.0e30], [0.0, 0.0, 0.0, 0.0]]]> : tensor<1x4x4xf32>
  %a = nn.add %s, %m : (tensor<1x4x4xf32>, tensor<1x4x4xf32>) -> tensor<1x4x4xf32>
  %p = nn.softmax %a : (tensor<1x4x4xf32>) -> tensor<1x4x4xf32>
  %c = nn.matmul %p, %x : (tensor<1x4x4xf32>, tensor<1x4x2xf32>) -> tensor<1x4x2xf32>
  %u = nn.reduce %c {kind = "sum", axes = array<i64: 0, 1, 2>} : (tensor<1x4x2xf32>) -> tensor<1x1x1xf32>
  %l = nn.reshape %u : (tensor<1x1x1xf32>) -> tensor<f32>
  return %l : tensor<f32>
}

// -----

nn.parameter @w : tensor<5x2xf32> {role = "weight", file = 0 : i64, offset = 0 : i64, length = 40 : i64}
func.func @main(%ids: tensor<1x4xi64>, %m: tensor<1x4x4xf32>) -> tensor<f32> {
  %w = nn.weight @w : tensor<5x2xf32>
  %x = nn.gather %w, %ids {axis = 0 : i64} : (tensor<5x2xf32>, tensor<1x4xi64>) -> tensor<1x4x2xf32>
  // expected-error@+1 {{reads the whole sequence}}
  %s = nn.matmul %x, %x {transpose_b} : (tensor<1x4x2xf32>, tensor<1x4x2xf32>) -> tensor<1x4x4xf32>
  %a = nn.add %s, %m : (tensor<1x4x4xf32>, tensor<1x4x4xf32>) -> tensor<1x4x4xf32>
  %p = nn.softmax %a : (tensor<1x4x4xf32>) -> tensor<1x4x4xf32>
  %c = nn.matmul %p, %x : (tensor<1x4x4xf32>, tensor<1x4x2xf32>) -> tensor<1x4x2xf32>
  %u = nn.reduce %c {kind = "sum", axes = array<i64: 0, 1, 2>} : (tensor<1x4x2xf32>) -> tensor<1x1x1xf32>
  %l = nn.reshape %u : (tensor<1x1x1xf32>) -> tensor<f32>
  return %l : tensor<f32>
}

// -----

// Shifts positions.
nn.parameter @w : tensor<5x2xf32> {role = "weight", file = 0 : i64, offset = 0 : i64, length = 40 : i64}
func.func @main(%ids: tensor<1x5xi64>) -> tensor<f32> {
  %w = nn.weight @w : tensor<5x2xf32>
  %x = nn.gather %w, %ids {axis = 0 : i64} : (tensor<5x2xf32>, tensor<1x5xi64>) -> tensor<1x5x2xf32>
  // expected-error@+1 {{cannot compute a piece of a sequence alone; only language models}}
  %s = nn.slice %x {starts = array<i64: 0, 1, 0>, strides = array<i64: 1, 1, 1>} : (tensor<1x5x2xf32>) -> tensor<1x4x2xf32>
  %u = nn.reduce %s {kind = "sum", axes = array<i64: 0, 1, 2>} : (tensor<1x4x2xf32>) -> tensor<1x1x1xf32>
  %l = nn.reshape %u : (tensor<1x1x1xf32>) -> tensor<f32>
  return %l : tensor<f32>
}

// -----

// A classifier of the sum over tokens.
nn.parameter @w : tensor<5x2xf32> {role = "weight", file = 0 : i64, offset = 0 : i64, length = 40 : i64}
nn.parameter @v : tensor<2x1xf32> {role = "weight", file = 0 : i64, offset = 40 : i64, length = 8 : i64}
func.func @main(%ids: tensor<1x4xi64>) -> tensor<f32> {
  %w = nn.weight @w : tensor<5x2xf32>
  %x = nn.gather %w, %ids {axis = 0 : i64} : (tensor<5x2xf32>, tensor<1x4xi64>) -> tensor<1x4x2xf32>
  %u = nn.reduce %x {kind = "sum", axes = array<i64: 1>} : (tensor<1x4x2xf32>) -> tensor<1x1x2xf32>
  %f = nn.reshape %u : (tensor<1x1x2xf32>) -> tensor<1x2xf32>
  %v = nn.weight @v : tensor<2x1xf32>
  // expected-error@+1 {{needs a result of the whole sequence, which is not the loss's sum over its positions; only language models}}
  %y = nn.matmul %f, %v : (tensor<1x2xf32>, tensor<2x1xf32>) -> tensor<1x1xf32>
  %l = nn.reshape %y : (tensor<1x1xf32>) -> tensor<f32>
  return %l : tensor<f32>
}

// -----

nn.parameter @w : tensor<5x2xf32> {role = "weight", file = 0 : i64, offset = 0 : i64, length = 40 : i64}
nn.parameter @r : tensor<1x4x2xf32> {role = "state", file = 0 : i64, offset = 64 : i64, length = 32 : i64}
func.func @main(%ids: tensor<1x4xi64>) -> tensor<f32> {
  %w = nn.weight @w : tensor<5x2xf32>
  %x = nn.gather %w, %ids {axis = 0 : i64} : (tensor<5x2xf32>, tensor<1x4xi64>) -> tensor<1x4x2xf32>
  // expected-error@+1 {{nn.track takes statistics of whole sequences; only language models}}
  nn.track %x into @r {momentum = 0.1 : f64} : tensor<1x4x2xf32>
  %u = nn.reduce %x {kind = "sum", axes = array<i64: 0, 1, 2>} : (tensor<1x4x2xf32>) -> tensor<1x1x1xf32>
  %l = nn.reshape %u : (tensor<1x1x1xf32>) -> tensor<f32>
  return %l : tensor<f32>
}

// -----

nn.parameter @w : tensor<4x2xf32> {role = "weight", file = 0 : i64, offset = 0 : i64, length = 32 : i64}
func.func @main(%x: tensor<1x4xf32>) -> tensor<f32> {
  %w = nn.weight @w : tensor<4x2xf32>
  %y = nn.matmul %x, %w : (tensor<1x4xf32>, tensor<4x2xf32>) -> tensor<1x2xf32>
  %k = nn.slice %y {starts = array<i64: 0, 0>, strides = array<i64: 1, 1>} : (tensor<1x2xf32>) -> tensor<1x1xf32>
  // expected-error@+1 {{the loss is no sum over the positions of a sequence; pieces of sequences need logits [batch, length, classes]: take another --strategy than seq1f1b, without --slices}}
  %l = nn.reshape %k : (tensor<1x1xf32>) -> tensor<f32>
  return %l : tensor<f32>
}
