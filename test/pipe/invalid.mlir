// RUN: pipec-opt %s -split-input-file -verify-diagnostics

func.func @region() {
  // expected-error@+1 {{has an unknown region 'heap'}}
  %x = pipe.load "heap"[0] : tensor<4xf32>
  return
}

// -----

func.func @offset(%x: tensor<4xf32>) {
  // expected-error@+1 {{needs an offset that is a multiple of 64}}
  pipe.store %x, "out"[16] : tensor<4xf32>
  return
}

// -----

func.func @pitch() {
  // expected-error@+1 {{needs a pitch of at least a row of 'tensor<4x8xf32>', got 7}}
  %x = pipe.load "stash"[0] pitch 7 : tensor<4x8xf32>
  return
}

// -----

func.func @pitch_of_no_rows(%x: tensor<4xf32>) {
  // expected-error@+1 {{needs a pitch of at least a row of 'tensor<4xf32>', got 8}}
  pipe.store %x, "stash"[0] pitch 8 : tensor<4xf32>
  return
}

// -----

func.func @scalar_name() {
  // expected-error@+1 {{has an unknown name 'lr'}}
  %x = pipe.scalar "lr" : tensor<f64>
  return
}

// -----

func.func @scalar_type() {
  // expected-error@+1 {{is a tensor<f64>}}
  %x = pipe.scalar "lr_factor" : tensor<f32>
  return
}

// -----

func.func @counter_type() {
  // expected-error@+1 {{is a tensor<i64>}}
  %x = pipe.scalar "seed" : tensor<f64>
  return
}
