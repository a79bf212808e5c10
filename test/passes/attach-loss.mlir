// Every kind of loss on the logits it is meant for.
// RUN: pipec-opt %s --nn-attach-loss=kind=mse | FileCheck %s --check-prefix=MSE
// RUN: pipec-opt %s --nn-attach-loss="kind=mse label=goal logits=z" | FileCheck %s --check-prefix=NAMED
// RUN: pipec-opt %s --nn-attach-loss=kind=bce | FileCheck %s --check-prefix=BCE
// RUN: pipec-opt %s --nn-attach-loss="kind=cross-entropy ignore-index=7" | FileCheck %s --check-prefix=CE
// RUN: pipec-opt %s --nn-attach-loss="kind=mse per-sample=each" | FileCheck %s --check-prefix=EACH
// RUN: pipec-opt %s --nn-attach-loss="kind=cross-entropy per-sample=each" | FileCheck %s --check-prefix=COUNTED

func.func @main(%x: tensor<2x4xf32> {nn.name = "x"})
    -> (tensor<2x4xf32> {nn.name = "y"}, tensor<2x4xf32> {nn.name = "z"}) {
  %y = nn.tanh %x : (tensor<2x4xf32>) -> tensor<2x4xf32>
  %z = nn.exp %x : (tensor<2x4xf32>) -> tensor<2x4xf32>
  return %y, %z : tensor<2x4xf32>, tensor<2x4xf32>
}

// The outputs give way to the loss, and what only they needed disappears.
// MSE: func.func @main(%[[X:.*]]: tensor<2x4xf32> {nn.name = "x"}, %[[T:.*]]: tensor<2x4xf32> {nn.batch_axis = 0 : i64, nn.name = "targets"}) -> (tensor<f32> {nn.name = "loss"})
// MSE-NOT: nn.exp
// MSE: %[[Y:.*]] = nn.tanh %[[X]]
// MSE: %[[D:.*]] = nn.sub %[[Y]], %[[T]]
// MSE: %[[S:.*]] = nn.mul %[[D]], %[[D]]
// MSE: nn.reduce %[[S]] {{.*}}kind = "sum"
// MSE: nn.constant dense<8.000000e+00>
// MSE: %[[L:.*]] = nn.div
// MSE: return %[[L]] : tensor<f32>

// NAMED: nn.name = "goal"
// NAMED-NOT: nn.tanh
// NAMED: nn.exp

// max(x, 0) - x t + log(1 + exp(-|x|))
// BCE: %[[Y:.*]] = nn.tanh
// BCE: nn.abs %[[Y]]
// BCE: %[[TAIL:.*]] = nn.log1p
// BCE-DAG: %[[R:.*]] = nn.relu %[[Y]]
// BCE-DAG: %[[XT:.*]] = nn.mul %[[Y]], %{{.*}}
// BCE: %[[HEAD:.*]] = nn.sub %[[R]], %[[XT]]
// BCE: nn.add %[[HEAD]], %[[TAIL]]

// The label input says which values it may have.
// CE: tensor<2xi64> {nn.batch_axis = 0 : i64, nn.ignored = 7 : i64, nn.name = "labels", nn.upper = 4 : i64}
// CE: nn.stop_gradient
// CE: nn.reduce {{.*}}axes = array<i64: 1>, kind = "max"
// CE: nn.iota {axis = 1 : i64}
// CE: nn.constant dense<7>
// CE: nn.compare {{.*}}predicate = "ne"

// Sums and counts of samples instead of the loss; of mse every number counts.
// EACH: func.func @main({{.*}}"targets"}) {
// EACH: %[[TERMS:.*]] = nn.mul
// EACH: %[[SUMS:.*]] = nn.reduce %[[TERMS]] {axes = array<i64: 1>, kind = "sum"}
// EACH: %[[COUNTS:.*]] = nn.constant dense<4.000000e+00> : tensor<2x1xf32>
// EACH: %[[BOTH:.*]] = nn.concat %[[SUMS]], %[[COUNTS]] {axis = 1 : i64}
// EACH: pipe.output %[[BOTH]] as "each" : tensor<2x2xf32>
// EACH: return
// COUNTED: nn.concat %{{.*}}, %{{.*}} {axis = 1 : i64}
// COUNTED: pipe.output
