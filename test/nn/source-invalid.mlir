// RUN: pipec-opt %s -split-input-file -verify-diagnostics

// expected-error@+1 {{needs a tensor type of static shape}}
nn.parameter @w : tensor<?xf32> {role = "weight", file = 0 : i64, offset = 0 : i64, length = 4 : i64}

// -----

// expected-error@+1 {{has an unknown role 'bias'}}
nn.parameter @w : tensor<1xf32> {role = "bias", file = 0 : i64, offset = 0 : i64, length = 4 : i64}

// -----

// expected-error@+1 {{needs either file, offset and length or a value}}
nn.parameter @w : tensor<1xf32> {role = "weight", file = 0 : i64, offset = 0 : i64}

// -----

// expected-error@+1 {{needs either file, offset and length or a value}}
nn.parameter @w : tensor<1xf32> {role = "weight", file = 0 : i64, offset = 0 : i64, length = 4 : i64, value = dense<0.0> : tensor<1xf32>}

// -----

func.func @unknown() {
  // expected-error@+1 {{names no nn.parameter: @w}}
  %w = nn.weight @w : tensor<1xf32>
  return
}

// -----

nn.parameter @w : tensor<1xf32> {role = "weight", value = dense<0.0> : tensor<1xf32>}
func.func @type() {
  // expected-error@+1 {{has type 'tensor<2xf32>' but the parameter has 'tensor<1xf32>'}}
  %w = nn.weight @w : tensor<2xf32>
  return
}

// -----

nn.parameter @c : tensor<1xf32> {role = "frozen", value = dense<0.0> : tensor<1xf32>}
func.func @rounded() {
  // expected-error@+1 {{has type 'tensor<1xbf16>' but the parameter has 'tensor<1xf32>'}}
  %w = nn.weight @c : tensor<1xbf16>
  return
}

// -----

nn.parameter @s : tensor<1xf32> {role = "state", value = dense<0.0> : tensor<1xf32>}
func.func @track(%x: tensor<2xf32>) {
  // expected-error@+1 {{has type 'tensor<2xf32>' but the parameter has 'tensor<1xf32>'}}
  nn.track %x into @s {momentum = 0.1 : f64} : tensor<2xf32>
  return
}

// -----

func.func @counter() {
  // expected-error@+1 {{has an unknown name 'epoch'}}
  %x = nn.counter "epoch" : tensor<i64>
  return
}

// -----

func.func @counter_type() {
  // expected-error@+1 {{is a tensor<i64>}}
  %x = nn.counter "step" : tensor<f64>
  return
}

// -----

func.func @hash(%x: tensor<2xi32>) {
  // expected-error@+1 {{needs i64 operands}}
  %y = nn.hash %x, %x : (tensor<2xi32>, tensor<2xi32>) -> tensor<2xi32>
  return
}
