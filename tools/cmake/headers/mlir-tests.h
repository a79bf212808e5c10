// For unit tests of what knows MLIR.
#pragma once
#include "tools/cmake/headers/mlir.h"
#include "tools/cmake/headers/tests.h"

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
