#!/usr/bin/env python3
"""Writes test/onnx/gradient-cases.json: the node tests of ONNX that have floating-point inputs and outputs, in short.

Usage: gradient_cases.py      needs the Python package `onnx` (with NumPy) and build/bin (or PIPEC_BIN)

One entry a combination of attributes and shapes: the operator, its version, attributes, and inputs. Of an input that
trains the shape and the range of its values are kept, of any other its values. An input trains when pipec compiles the
node with it as a weight: scales, bounds and ratios must be known at compile time. e2e/gradients_test.py compares the
gradients of all entries with central differences.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx.backend.test.case.node import collect_testcases

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "test" / "e2e"))
from gradient_model import write # noqa: E402

BIN = pathlib.Path(os.environ.get("PIPEC_BIN", ROOT / "build" / "bin"))
CASES = ROOT / "test" / "onnx" / "gradient-cases.json"
KINDS = {"float32": "f", "float64": "f", "int64": "i64", "int32": "i32", "bool": "b", "uint8": "u8"}
LARGEST = 4096 # elements of an input


def attributes_of(node):
    """None when one is a graph or a tensor."""
    found = {}
    for attribute in node.attribute:
        value = onnx.helper.get_attribute_value(attribute)
        if isinstance(value, (onnx.GraphProto, onnx.TensorProto, onnx.SparseTensorProto, onnx.TypeProto)):
            return None
        plain = lambda x: x.decode() if isinstance(x, bytes) else x
        found[attribute.name] = [plain(x) for x in value] if isinstance(value, (list, tuple)) else plain(value)
    return found


def short(array, trains):
    kind, shape = KINDS[array.dtype.name], "x".join(map(str, array.shape))
    if trains:
        low, high = float(np.min(array)), float(np.max(array))
        return [kind, shape, round(low, 2), round(high, 2)]
    values = array.ravel().tolist()
    return [kind, shape, [round(v, 4) if kind == "f" and np.isfinite(v) else v for v in values]]


def entry_of(case, inputs, outputs, trains):
    node = case.model.graph.node[0]
    arrays = dict(zip((value.name for value in case.model.graph.input), inputs))
    return {"op": node.op_type, "opset": case.model.opset_import[0].version, "attributes": attributes_of(node),
            "inputs": [short(arrays[name], name in trains) if name else None for name in node.input],
            "outputs": [bool(name) for name in node.output]}


def which_compile(entries):
    """Whether pipec reads each as a model with trained inputs that reach an output."""
    with tempfile.TemporaryDirectory() as folder:
        files = [os.path.join(folder, "%d.onnx" % at) for at in range(len(entries))]
        for entry, path in zip(entries, files):
            write(entry, path)
        out = subprocess.run([str(BIN / "pipec-gradients"), *files], capture_output=True, text=True, check=True)
        return ["problem" not in json.loads(line) for line in out.stdout.splitlines()]


def candidates():
    """(name of the case, its entries): all inputs of floats train, or those with dimensions, or the first."""
    for case in collect_testcases(None):
        if any(opset.domain not in ("", "ai.onnx") for opset in case.model.opset_import) or len(case.data_sets) != 1:
            continue
        inputs, outputs = case.data_sets[0]
        graph = case.model.graph
        arrays = [*inputs, *outputs]
        if len(graph.node) != 1 or not all(isinstance(x, np.ndarray) and x.dtype.name in KINDS for x in arrays):
            continue
        by_name = dict(zip((value.name for value in graph.input), inputs))
        floats = [name for name, x in by_name.items() if x.dtype.kind == "f" and x.size and np.isfinite(x).all()]
        if any(x.dtype.kind == "f" and not np.isfinite(x).all() for x in outputs):
            continue # infinite sums have no slopes
        if not floats or not any(x.dtype.kind == "f" and x.size for x in outputs) \
                or attributes_of(graph.node[0]) is None or max(x.size for x in inputs) > LARGEST:
            continue
        choices = [floats, [name for name in floats if by_name[name].ndim], floats[:1]]
        yield case.name, [entry_of(case, inputs, outputs, trains) for trains in choices]


def entries():
    cases = list(candidates())
    compile = iter(which_compile([entry for _, choices in cases for entry in choices]))
    for name, choices in cases:
        good = [entry for entry in choices if next(compile)]
        if good:
            yield good[0]
        else:
            print(f"{name}: does not compile with a trained input", file=sys.stderr)


def main():
    found = {}
    for entry in entries():
        # A case is known by its attributes and shapes.
        same = json.dumps([entry["op"], entry["attributes"], [i and i[1] for i in entry["inputs"]], entry["outputs"]])
        found.setdefault(same, entry)
    lines = sorted(json.dumps(entry, separators=(",", ":")) for entry in found.values())
    CASES.write_text("[\n" + ",\n".join(lines) + "\n]\n")


if __name__ == "__main__":
    main()
