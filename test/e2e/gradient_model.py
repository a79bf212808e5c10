"""A node of gradient-cases.json as a model without inputs: what trains becomes an initializer w0, w1, ..."""
import math
import pathlib

import onnx_writer as onnx

KINDS = {"f": onnx.FLOAT, "i64": onnx.INT64, "i32": onnx.INT32, "b": onnx.BOOL, "u8": onnx.UINT8}
GOLDEN = (math.sqrt(5) - 1) / 2


def spread(low, high, count, which):
    """Numbers between low and high without pattern, none at a bound; a constant gets small differences."""
    if high - low < 1e-3:
        low, high = low - 0.05, high + 0.05
    return [low + (high - low) * math.fmod(GOLDEN * (j + 1 + 17 * which), 1.0) for j in range(count)]


def write(entry, path):
    tensors, names, infos = [], [], []
    for at, given in enumerate(entry["inputs"]):
        if given is None:
            names.append("")
            continue
        if isinstance(given, int): # the same tensor as that input
            names.append(names[given])
            continue
        kind, shape = given[0], [int(size) for size in given[1].split("x")] if given[1] else []
        trains = len(given) == 4
        values = spread(given[2], given[3], math.prod(shape), at) if trains else given[2]
        names.append(("w%d" if trains else "c%d") % at)
        tensors.append(onnx.tensor(names[-1], KINDS[kind], shape, values))
        # What tells weights from constants wherever they stand.
        infos.append(onnx.value(names[-1], KINDS[kind], shape, {
            "pkg.torch.export.graph_signature.InputSpec.kind": "PARAMETER" if trains else "BUFFER"}))
    outputs = ["y%d" % at if there else "" for at, there in enumerate(entry["outputs"])]
    nodes = [onnx.node(entry["op"], names, outputs, "node", **entry["attributes"])]
    # Element type 0 and no shape: known from the node.
    graph_outputs = [onnx.field(1, name) for name in outputs if name]
    pathlib.Path(path).write_bytes(onnx.model(nodes, tensors, [], graph_outputs, entry["opset"], infos))
