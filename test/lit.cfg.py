# How the .mlir and .test files under test/ run.
#
# A RUN line calls pipec-opt, pipec and pipec-run of this build and FileCheck,
# not and split-file of LLVM by their plain names. Further substitutions:
#   %models   test/models, the committed models
#   %python   the Python that runs the tests
import os

import lit.formats

config.name = "pipec"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mlir", ".test"]
config.excludes = ["Inputs", "models", "unit", "e2e"]
config.test_source_root = os.path.dirname(__file__)
config.test_exec_root = os.path.join(config.pipec_build, "test")

config.environment["PATH"] = os.pathsep.join(
    [config.pipec_bin, config.llvm_bin, os.environ["PATH"]])
config.environment["FILECHECK_OPTS"] = "-enable-var-scope"
# One thread a rank: tests share the machine.
config.environment["OMP_NUM_THREADS"] = "1"

config.substitutions += [
    ("%models", os.path.join(config.test_source_root, "models")),
    ("%python", config.python),
]
