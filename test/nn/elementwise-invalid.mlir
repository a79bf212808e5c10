// RUN: pipec-opt %s -split-input-file -verify-diagnostics

func.func @dynamic(%x: tensor<?xf32>) {
  // expected-error@+1 {{operand #0 must be statically shaped tensor of any type values}}
  %y = nn.neg %x : (tensor<?xf32>) -> tensor<?xf32>
  return
}

// -----

func.func @shapes(%a: tensor<2xf32>, %b: tensor<3xf32>) {
  // expected-error@+1 {{requires the same type for all operands and results}}
  %y = nn.add %a, %b : (tensor<2xf32>, tensor<3xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @predicate(%a: tensor<2xf32>) {
  // expected-error@+1 {{has an unknown predicate 'less'}}
  %y = nn.compare %a, %a {predicate = "less"} : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xi1>
  return
}

// -----

func.func @condition(%c: tensor<1xi1>, %a: tensor<2xf32>) {
  // expected-error@+1 {{needs an i1 condition of the shape of its values}}
  %y = nn.select %c, %a, %a : (tensor<1xi1>, tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  return
}
