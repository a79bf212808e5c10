// What GPU kernels cannot do is said at the op, not computed wrongly.
// RUN: pipec-opt %s --cuda-kernels --split-input-file --verify-diagnostics

// Rows are 32-bit numbers.
func.func @forward() attributes {pipe.task = "forward"} {
  %x = pipe.load "in"[0] : tensor<3000000000x8xf32>
  // expected-error@+1 {{is too large for a GPU kernel: 3000000000 rows of 2 points; use smaller microbatches}}
  %s = nn.reduce %x {kind = "sum", axes = array<i64: 1>} : (tensor<3000000000x8xf32>) -> tensor<3000000000x1xf32>
  pipe.store %s, "out"[0] : tensor<3000000000x1xf32>
  return
}

// -----

// A block for each index, too.
func.func @forward() attributes {pipe.task = "forward"} {
  %i = pipe.load "in"[0] : tensor<3000000000xi32>
  %x = pipe.load "in"[12000000000] : tensor<3000000000x8xf32>
  // expected-error@+1 {{is too large for a GPU kernel: 3000000000 rows of 2 points; use smaller microbatches}}
  %s = nn.scatter_add %i, %x {axis = 0} : (tensor<3000000000xi32>, tensor<3000000000x8xf32>) -> tensor<16x8xf32>
  pipe.store %s, "out"[0] : tensor<16x8xf32>
  return
}

// -----

// Gradients of rows are summed in f32 or f64.
func.func @forward() attributes {pipe.task = "forward"} {
  %i = pipe.load "in"[0] : tensor<4xi64>
  %x = pipe.load "in"[64] : tensor<4x8xf16>
  // expected-error@+1 {{the GPU kernels have no element type 'f16'}}
  %s = nn.scatter_add %i, %x {axis = 0} : (tensor<4xi64>, tensor<4x8xf16>) -> tensor<16x8xf16>
  pipe.store %s, "out"[0] : tensor<16x8xf16>
  return
}

// -----

func.func @forward() attributes {pipe.task = "forward"} {
  %i = pipe.load "in"[0] : tensor<4xi8>
  %x = pipe.load "in"[64] : tensor<16x8xf32>
  // expected-error@+1 {{has indices that are neither i32 nor i64}}
  %s = nn.gather %x, %i {axis = 0} : (tensor<16x8xf32>, tensor<4xi8>) -> tensor<4x8xf32>
  pipe.store %s, "out"[0] : tensor<4x8xf32>
  return
}

// -----

// What is rounded is not added to: it would be rounded again.
func.func @forward() attributes {pipe.task = "forward"} {
  %x = pipe.load "in"[0] : tensor<8x8xbf16>
  // expected-error@+1 {{a sum of products rounded to bf16 is not available on GPUs; use --cpus}}
  %y = nn.matmul %x, %x : (tensor<8x8xbf16>, tensor<8x8xbf16>) -> tensor<8x8xbf16>
  pipe.store %y, "gradients"[0] accumulate : tensor<8x8xbf16>
  return
}
