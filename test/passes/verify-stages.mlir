// RUN: pipec-opt %s --pipe-verify-stages -split-input-file -verify-diagnostics

module {
  module @stage0 attributes {pipe.stage = 0 : i64} {
    func.func @forward() {
      // expected-error@+1 {{edge 3 is received but not sent}}
      %x = pipe.recv 3 from 1 : tensor<f32>
      // expected-error@+1 {{edge 4 is sent but not received}}
      pipe.send %x on 4 to 1 : tensor<f32>
      return
    }
  }
}

// -----

module {
  module @stage0 attributes {pipe.stage = 0 : i64} {
    func.func @forward() {
      %x = pipe.input "x" : tensor<f32>
      pipe.send %x on 0 to 1 : tensor<f32>
      // expected-error@+1 {{edge 0 is sent twice}}
      pipe.send %x on 0 to 1 : tensor<f32>
      return
    }
  }
  module @stage1 attributes {pipe.stage = 1 : i64} {
    func.func @forward() {
      %x = pipe.recv 0 from 0 : tensor<f32>
      return
    }
  }
}

// -----

module {
  module @stage0 attributes {pipe.stage = 0 : i64} {
    func.func @forward() {
      %x = pipe.input "x" : tensor<f32>
      pipe.send %x on 0 to 1 : tensor<f32>
      return
    }
  }
  module @stage1 attributes {pipe.stage = 1 : i64} {
    func.func @forward() {
      // expected-error@+1 {{edge 0 has ends that do not agree on type or stages}}
      %x = pipe.recv 0 from 0 : tensor<f64>
      // expected-error@+1 {{edge 1 runs against the pipeline}}
      pipe.send %x on 1 to 0 : tensor<f64>
      return
    }
  }
  module @other attributes {pipe.stage = 0 : i64} {
    func.func @backward() {
      %x = pipe.recv 1 from 1 : tensor<f64>
      return
    }
  }
}

// -----

module {
  module @stage0 attributes {pipe.stage = 0 : i64} {
    func.func @forward() {
      %x = pipe.input "x" : tensor<f32>
      pipe.stash %x in "stash" 0 : tensor<f32>
      // expected-error@+1 {{stash 0 is written twice}}
      pipe.stash %x in "stash" 0 : tensor<f32>
      return
    }
    func.func @backward() {
      %x = pipe.unstash "stash" 0 : tensor<f32>
      // expected-error@+1 {{stash 0 is read but was not kept with this type}}
      %y = pipe.unstash "stash" 0 : tensor<f64>
      // expected-error@+1 {{wstash 0 is read but was not kept with this type}}
      %z = pipe.unstash "wstash" 0 : tensor<f32>
      return
    }
  }
}

// -----

module {
  module @stage0 attributes {pipe.stage = 0 : i64} {
    nn.parameter @w : tensor<f32> {role = "weight", value = dense<0.0> : tensor<f32>}
    func.func @backward() {
      %x = pipe.input "x" : tensor<f32>
      %y = pipe.input "y" : tensor<2xf32>
      pipe.accumulate %x into @w use 0 : tensor<f32>
      // expected-error@+1 {{use 0 of @w has two gradients}}
      pipe.accumulate %x into @w use 0 : tensor<f32>
      // expected-error@+1 {{gradient of another type than @w}}
      pipe.accumulate %y into @w use 1 : tensor<2xf32>
      return
    }
  }
}
