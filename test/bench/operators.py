#!/usr/bin/env python3
"""docs/operators.md: what each ONNX operator does here, from ONNX's own node tests.

    operators.py --run        runs the node tests of one operator each, of the Python package `onnx`
                              (with NumPy), through pipec and pipec-run; writes operators.json
    operators.py --write      docs/operators.md from operators.json and `pipec list ops`
    operators.py --check      exit 1 when docs/operators.md is not what --write would write

PIPEC_BIN is the folder of the programs (default: build/bin). A case passes when compiled code
computes the expected arrays; it is refused when pipec names a reason and exits with 65. Gradients are
those that test/e2e/gradients_test.py compares with differences.
"""
import argparse
import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import textwrap

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
FACTS = HERE / "operators.json"
TABLE = ROOT / "docs" / "operators.md"
BIN = pathlib.Path(os.environ.get("PIPEC_BIN", ROOT / "build" / "bin"))
REFUSED = 65


def call(program, *words):
    return subprocess.run([str(BIN / program), *map(str, words)], capture_output=True, text=True,
                          timeout=120, stdin=subprocess.DEVNULL)


# Running the node tests.


def as_array(x):
    """Arrays as they are; also of NumPy's scalars, and of the tensors that some cases hold as ONNX has them."""
    import numpy as np
    import onnx
    if isinstance(x, onnx.TensorProto):
        return onnx.numpy_helper.to_array(x)
    return np.asarray(x) if isinstance(x, np.generic) else x


def cases():
    """(case, inputs, outputs) of the cases whose tensors NumPy and pipec both have."""
    import numpy as np
    from onnx.backend.test.case.node import collect_testcases
    types = {np.dtype(name) for name in ("float32", "float64", "float16", "int32", "int64", "uint8", "bool")}
    for case in collect_testcases(None):
        if any(opset.domain not in ("", "ai.onnx") for opset in case.model.opset_import):
            continue
        if len(case.data_sets) != 1:
            continue
        if "training_dropout" in case.name and "zero_ratio" not in case.name:
            continue # expects the numbers that NumPy draws
        inputs, outputs = ([as_array(x) for x in side] for side in case.data_sets[0])
        if all(isinstance(x, np.ndarray) and x.dtype in types for x in [*inputs, *outputs]):
            yield case, inputs, outputs


class Case:
    """A node test in a folder of its own."""

    def __init__(self, case, inputs, outputs, folder):
        import numpy as np
        import onnx
        self.case, self.inputs, self.outputs, self.folder = case, inputs, outputs, pathlib.Path(folder)
        self.model = self.folder / "model.onnx"
        onnx.save(case.model, self.model)
        self.names = [value.name for value in case.model.graph.input]
        for at, array in enumerate(inputs):
            np.save(self.folder / ("in%d.npy" % at), array)

    def constants(self, which):
        return [word for at in which
                for word in ("--constant", "%s=%s" % (self.names[at], self.folder / ("in%d.npy" % at)))]

    def forward(self):
        """passed, refused, or what went wrong. Inputs that carry shapes become constants."""
        every = range(len(self.inputs))
        small = [at for at in every if at and self.inputs[at].size <= 16]
        for fixed in [[]] + ([small] if small else []) + [list(every)]:
            process = call("pipec", self.model, "--cpus", 1, "--forward-only", *self.constants(fixed),
                           "--quiet", "-o", self.folder / "plan")
            if process.returncode != REFUSED:
                break
        self.fixed = fixed
        if process.returncode == REFUSED:
            return "refused"
        if process.returncode:
            return "compiler exits with %d" % process.returncode
        return self.run([at for at in every if at not in fixed])

    def run(self, data):
        import numpy as np
        names = [value.name for value in self.case.model.graph.output]
        words = [word for at in data
                 for word in ("--data", "%s=%s" % (self.names[at], self.folder / ("in%d.npy" % at)))]
        words += [word for at, name in enumerate(names)
                  for word in ("--output", "%s=%s" % (name, self.folder / ("out%d.npy" % at)))]
        process = call("pipec-run", self.folder / "plan", *words)
        if process.returncode:
            return "run exits with %d" % process.returncode
        for at, want in enumerate(self.outputs):
            got = np.load(self.folder / ("out%d.npy" % at))
            relative = 5e-3 if want.dtype == np.float16 else max(self.case.rtol, 1e-4)
            if got.shape != want.shape or got.dtype != want.dtype or not np.allclose(
                    got.astype(float), want.astype(float), rtol=relative,
                    atol=max(self.case.atol, 1e-5), equal_nan=True):
                return "output %d is wrong" % at
        return "passed"


def run_all(only):
    facts = collections.defaultdict(lambda: {"passed": 0, "refused": 0})
    if only:
        facts.update({name: fact for name, fact in json.loads(FACTS.read_text()).items() if name not in only})
    faults = 0
    for case, inputs, outputs in cases():
        operators = {node.op_type for node in case.model.graph.node}
        if len(operators) != 1 or (only and not operators <= set(only)):
            continue # the expansion of another operator
        with tempfile.TemporaryDirectory() as folder:
            test = Case(case, inputs, outputs, folder)
            result = test.forward()
        if result not in ("passed", "refused"):
            faults += 1
            print("%s: %s" % (case.name, result))
            continue
        facts[operators.pop()][result] += 1
    FACTS.write_text(json.dumps(facts, indent=0, sort_keys=True) + "\n")
    return 1 if faults else 0


# The table.


def table():
    process = call("pipec", "list", "ops", "--format", "json")
    process.check_returncode()
    facts = json.loads(FACTS.read_text())
    sys.path.insert(0, str(ROOT / "test" / "e2e"))
    import gradients_test
    slopes = collections.Counter(entry["op"] for entry in gradients_test.all_cases())
    lines = ["# ONNX operators", "",
             "Written by `test/bench/operators.py --write` from `pipec list ops` and a run of ONNX's own node tests.",
             "Forward: node tests of this operator that pass, of those there are for it with supported types (–: there",
             "are none); the rest is refused with a reason. Gradient: combinations of attributes and shapes whose gradients",
             "`e2e.gradients` compares with central differences in f64 (–: there is none, for the reason it gives there).",
             "", "| operator | forward | gradient | since | limits |", "|---|---|---|---|---|"]
    for row in json.loads(process.stdout):
        if row["domain"] != "ai.onnx":
            continue
        fact = facts.get(row["name"], {"passed": 0, "refused": 0})
        tests = fact["passed"] + fact["refused"]
        forward = "%d of %d" % (fact["passed"], tests) if tests else "–"
        gradient = slopes[row["name"]] or "–"
        lines.append("| %s | %s | %s | %s | %s |" % (row["name"], forward, gradient,
                                                  row["since"].replace(",", ", "), row["summary"]))
    rows = (ROOT / "compiler" / "onnx" / "OpTable.def").read_text()
    refused = re.findall(r'^ONNX_REFUSED\("(\w+)",\s*"([^"]*)",\s*"([^"]*)"\)', rows, re.M)
    lines += ["", "Refused, whatever their attributes:", ""]
    for row in refused:
        lines += textwrap.wrap("* %s: %s; %s" % row, 120, subsequent_indent="  ", break_on_hyphens=False)
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    mode = parser.add_mutually_exclusive_group(required=True)
    for name in ("run", "write", "check"):
        mode.add_argument("--" + name, action="store_true")
    parser.add_argument("--only", nargs="*", metavar="OPERATOR", help="with --run: these, the rest stays")
    options = parser.parse_args()
    if options.run:
        return run_all(options.only)
    text = table()
    if options.write:
        TABLE.write_text(text)
        return 0
    if text != TABLE.read_text():
        print("docs/operators.md is out of date: run test/bench/operators.py --write")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
