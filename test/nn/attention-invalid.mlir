// RUN: pipec-opt %s --split-input-file --verify-diagnostics
// What attention does not take.

func.func @main(%q: tensor<2x3x4xf32>, %k: tensor<2x5x6xf32>) {
  // expected-error @+1 {{'nn.attention' op cannot attend with 'tensor<2x3x4xf32>' to 'tensor<2x5x6xf32>' and 'tensor<2x5x6xf32>'}}
  %y, %s, %n = nn.attention %q, %k, %k {scale = 1.0 : f64} : (tensor<2x3x4xf32>, tensor<2x5x6xf32>, tensor<2x5x6xf32>) -> (tensor<2x3x4xf32>, tensor<2x3x1xf32>, tensor<2x3x1xf32>)
  return
}

// -----

func.func @main(%q: tensor<2x3x4xf32>, %k: tensor<2x5x4xf32>) {
  // expected-error @+1 {{'nn.attention' op is causal over different positions}}
  %y, %s, %n = nn.attention %q, %k, %k {causal, scale = 1.0 : f64} : (tensor<2x3x4xf32>, tensor<2x5x4xf32>, tensor<2x5x4xf32>) -> (tensor<2x3x4xf32>, tensor<2x3x1xf32>, tensor<2x3x1xf32>)
  return
}

// -----

func.func @main(%q: tensor<2x3x4xf32>, %b: tensor<1x3x3xf32>) {
  // expected-error @+1 {{'nn.attention' op expected a bias of 'tensor<2x3x3xf32>', got 'tensor<1x3x3xf32>'}}
  %y, %s, %n = nn.attention %q, %q, %q, %b {scale = 1.0 : f64} : (tensor<2x3x4xf32>, tensor<2x3x4xf32>, tensor<2x3x4xf32>, tensor<1x3x3xf32>) -> (tensor<2x3x4xf32>, tensor<2x3x1xf32>, tensor<2x3x1xf32>)
  return
}

// -----

func.func @main(%q: tensor<2x3x4xf32>) {
  // expected-error @+1 {{'nn.attention' op replaces scores by a bias that it has not}}
  %y, %s, %n = nn.attention %q, %q, %q {replaces, scale = 1.0 : f64} : (tensor<2x3x4xf32>, tensor<2x3x4xf32>, tensor<2x3x4xf32>) -> (tensor<2x3x4xf32>, tensor<2x3x1xf32>, tensor<2x3x1xf32>)
  return
}
