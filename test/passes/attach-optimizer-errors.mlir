// RUN: not pipec-opt %s --pipe-attach-optimizer=kind=lamb 2>&1 | FileCheck %s --check-prefix=KIND
// RUN: not pipec-opt %s --pipe-attach-optimizer=settings=beta1=0.5 2>&1 | FileCheck %s --check-prefix=SETTING
// RUN: not pipec-opt %s --pipe-attach-optimizer=settings=lr=fast 2>&1 | FileCheck %s --check-prefix=NUMBER
// RUN: not pipec-opt %s --pipe-attach-optimizer=settings=lr=nan 2>&1 | FileCheck %s --check-prefix=NAN
// RUN: not pipec-opt %s --pipe-attach-optimizer=settings=lr=-1 2>&1 | FileCheck %s --check-prefix=RANGE
// RUN: not pipec-opt %s --pipe-attach-optimizer="kind=adam settings=beta1=1.5" 2>&1 | FileCheck %s --check-prefix=BETA
// RUN: not pipec-opt %s --pipe-attach-optimizer=settings=nesterov=5 2>&1 | FileCheck %s --check-prefix=FLAG
// RUN: not pipec-opt %s --pipe-attach-optimizer=settings=nesterov=yes 2>&1 | FileCheck %s --check-prefix=YES
// RUN: not pipec-opt %s --pipe-attach-optimizer=settings=nesterov=true 2>&1 | FileCheck %s --check-prefix=NESTEROV
// RUN: not pipec-opt %s --pipe-attach-optimizer=settings=momentum=1.5 2>&1 | FileCheck %s --check-prefix=MOMENTUM
// RUN: not pipec-opt %s --pipe-attach-optimizer=settings=lr=true 2>&1 | FileCheck %s --check-prefix=WORD
// RUN: not pipec-opt %s --pipe-attach-optimizer="settings=lr=0.1,lr=0.2" 2>&1 | FileCheck %s --check-prefix=TWICE

// KIND: error: unknown optimizer 'lamb'
// SETTING: error: optimizer 'sgd' has no setting 'beta1'; it has lr=0.01,momentum=0,weight_decay=0,nesterov=false
// NUMBER: error: setting lr of optimizer 'sgd' is not a finite number: 'fast'
// NAN: error: setting lr of optimizer 'sgd' is not a finite number: 'nan'
// RANGE: error: setting lr of optimizer 'sgd' must be at least 0, not -1
// BETA: error: setting beta1 of optimizer 'adam' must be at least 0 and below 1, not 1.5
// FLAG: error: setting nesterov of optimizer 'sgd' must be true or false, not 5
// YES: error: setting nesterov of optimizer 'sgd' must be true or false, not yes
// NESTEROV: error: nesterov of optimizer 'sgd' needs a momentum above 0
// MOMENTUM: error: setting momentum of optimizer 'sgd' must be at least 0 and below 1, not 1.5
// WORD: error: setting lr of optimizer 'sgd' is not a finite number: 'true'
// TWICE: error: setting lr of optimizer 'sgd' is given twice
module {
}
