// RUN: not pipec-opt %s --pipe-attach-optimizer=kind=lamb 2>&1 | FileCheck %s --check-prefix=KIND
// RUN: not pipec-opt %s --pipe-attach-optimizer=settings=beta1=0.5 2>&1 | FileCheck %s --check-prefix=SETTING
// RUN: not pipec-opt %s --pipe-attach-optimizer=settings=lr=fast 2>&1 | FileCheck %s --check-prefix=NUMBER
// RUN: not pipec-opt %s --pipe-attach-optimizer=settings=lr=nan 2>&1 | FileCheck %s --check-prefix=NAN

// KIND: error: unknown optimizer 'lamb'
// SETTING: error: optimizer 'sgd' has no setting 'beta1'; it has lr=0.01,momentum=0,weight_decay=0,nesterov=false
// NUMBER: error: setting lr of optimizer 'sgd' is not a finite number: 'fast'
// NAN: error: setting lr of optimizer 'sgd' is not a finite number: 'nan'
module {
}
