// PyTorch's arithmetic over all weights of the stage in one flat update.
// RUN: pipec-opt %s --pipe-attach-optimizer="kind=sgd settings=lr=0.5" | FileCheck %s --check-prefix=SGD
// RUN: pipec-opt %s --pipe-attach-optimizer="kind=sgd settings=momentum=0.5,nesterov=true" | FileCheck %s --check-prefix=NESTEROV
// RUN: pipec-opt %s --pipe-attach-optimizer="kind=adamw settings=weight_decay=0.5" | FileCheck %s --check-prefix=ADAMW

module {
  module @stage0 attributes {pipe.stage = 0 : i64,
      pipe.regions = {gradients = 128 : i64, weights = 128 : i64}} {
  }
}

// No momentum: no optimizer state.
// SGD: pipe.optimizer = []
// SGD: func.func @update() attributes {pipe.task = "update"}
// SGD: %[[W:.*]] = pipe.load "weights"[0] : tensor<32xf32>
// SGD: pipe.scalar "grad_scale"
// SGD: %[[G0:.*]] = pipe.load "gradients"[0]
// SGD: %[[G:.*]] = nn.mul %[[G0]]
// SGD: %[[F:.*]] = pipe.scalar "lr_factor"
// SGD: %[[LR:.*]] = nn.constant dense<5.000000e-01> : tensor<f64>
// SGD: nn.mul %[[F]], %[[LR]]
// SGD: %[[STEP:.*]] = nn.mul %{{.*}}, %[[G]]
// SGD: %[[N:.*]] = nn.sub %[[W]], %[[STEP]]
// SGD: pipe.store %[[N]], "new_weights"[0]

// NESTEROV: pipe.optimizer = [{name = "momentum_buffer", offset = 0 : i64}]
// NESTEROV: %[[G:.*]] = nn.mul %{{.*}}
// NESTEROV: %[[OLD:.*]] = pipe.load "optimizer"[0]
// NESTEROV: %[[B:.*]] = nn.add %{{.*}}, %[[G]]
// NESTEROV: %[[MB:.*]] = nn.mul %[[B]]
// NESTEROV: nn.add %[[G]], %[[MB]]
// NESTEROV: pipe.store %[[B]], "optimizer"[0]

// ADAMW: pipe.optimizer = [{name = "exp_avg", offset = 0 : i64}, {name = "exp_avg_sq", offset = 128 : i64}]
// ADAMW: pipe.regions = {{.*}}optimizer = 256 : i64
// ADAMW: pipe.load "optimizer"[0]
// ADAMW: pipe.load "optimizer"[128]
// ADAMW: pipe.scalar "update"
// ADAMW: nn.pow
// ADAMW: pipe.store %{{.*}}, "optimizer"[0]
// ADAMW: pipe.store %{{.*}}, "optimizer"[128]
