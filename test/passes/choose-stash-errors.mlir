// RUN: pipec-opt %s --nn-choose-stash=mode=some -verify-diagnostics

// expected-error@+1 {{unknown recomputation mode 'some'}}
func.func @main() {
  return
}
