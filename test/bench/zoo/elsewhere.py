#!/usr/bin/env python3
"""Models of other exporters than PyTorch's, trained by pipec and compared with the losses their makers computed.

Usage: elsewhere.py FOLDER [--only REGEX]     a case in each folder of FOLDER, as keras_models.py and its like write
                                              them; the results go to elsewhere.json, for zoo.py --write
"""
import argparse
import json
import os
import pathlib
import re
import tempfile
from types import SimpleNamespace

ROWS, BATCH, MICROBATCHES, STEPS = 24, 4, 2, 4
HERE = pathlib.Path(__file__).resolve().parent
FACTS = HERE / "elsewhere.json"
# Files that train otherwise than the model.
FOLDED = {"keras-lstm": "ONNX's LSTM has a second bias, which trains too"}


def rows_of(step, microbatch):
    """The samples of a microbatch."""
    import numpy as np
    return ((step * MICROBATCHES + microbatch) * BATCH + np.arange(BATCH)) % ROWS


def save(folder, arrays, **facts):
    """What a maker leaves beside model.onnx: `of` is what computed the losses."""
    import numpy as np
    for name, array in arrays.items():
        np.save(f"{folder}/{name}.npy", array)
    pathlib.Path(folder, "case.json").write_text(json.dumps(facts, indent=1) + "\n")


def make_all(usage, models, prefix, make):
    """A maker's main: writes a case of every model that --only matches, make(name, folder), into a folder of its own."""
    parser = argparse.ArgumentParser(description=usage, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--only", default="", metavar="REGEX")
    options = parser.parse_args()
    for name in models:
        if not re.search(options.only, name):
            continue
        folder = os.path.join(options.folder, prefix + name.removeprefix(prefix))
        os.makedirs(folder, exist_ok=True)
        try:
            make(name, folder)
            print(f"{name}: made", flush=True)
        except Exception as error:
            print(f"{name}: no export: {type(error).__name__}: {' '.join(str(error).split())[:300]}", flush=True)


def check(folder, ranks):
    """An empty text, or what is wrong."""
    import numpy as np
    import onnx
    import zoo
    facts = json.loads((folder / "case.json").read_text())
    graph = onnx.load(folder / "model.onnx").graph
    flags = list(facts.get("flags", ()))
    for name in sorted({d.dim_param for i in graph.input for d in i.type.tensor_type.shape.dim if d.dim_param}):
        flags += ["--dim", f"{name}={BATCH}"]
    case = SimpleNamespace(inputs={n: np.load(folder / f"{n}.npy") for n in facts["inputs"]}, labels={}, batch=BATCH,
                           microbatches=MICROBATCHES, loss=facts["loss"], dynamic=(), flags=flags,
                           optimizer=f"sgd:lr={facts['rate']},momentum=0.9", tolerance=facts.get("tolerance", 1e-4))
    if facts["loss"] not in ("output", "next-token"):
        case.labels = {"labels": np.load(folder / "labels.npy")}
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        for array in {**case.inputs, **case.labels}:
            os.symlink((folder / f"{array}.npy").resolve(), work / f"{array}.npy")
        return zoo.compare(case, facts, folder / "model.onnx", work, ranks, True)


def table():
    """The part of docs/families.md that tells of these models."""
    rows = json.loads(FACTS.read_text())
    matching = sum(row["result"] == "matches" for row in rows.values())
    lines = ["", "## Other exporters", "",
             "Written from `test/bench/zoo/elsewhere.py`'s last run over the models that `keras_models.py`, `jax_models.py`,",
             "`paddle_models.py` and `script_models.py` beside it make: small networks as tf2onnx, Keras, jax2onnx, Paddle, spox,",
             "ndonnx, onnxscript and scripts write them, trained as above and held against the losses that their own framework",
             "computes (PyTorch's for scripts; *the file by onnx2torch*, where the exporter folded batch norms: PyTorch's losses",
             "of the file).",
             f"{matching} of {len(rows)} match.", "", "| exporter | model | losses of | |", "|---|---|---|---|"]
    for name, row in sorted(rows.items(), key=lambda item: (item[1]["exporter"], item[0])):
        result = "✓" if row["result"] == "matches" else row["result"]
        lines.append(f"| {row['exporter']} | {name.split('-', 1)[1]} | {row['of']} | {result} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--only", default="", metavar="REGEX")
    parser.add_argument("--ranks", default="1,3")
    options = parser.parse_args()
    known = json.loads(FACTS.read_text()) if FACTS.exists() else {}
    for path in sorted(options.folder.glob("*/case.json")):
        name, facts = path.parent.name, json.loads(path.read_text())
        if not re.search(options.only, name):
            continue
        problem = check(path.parent, [int(count) for count in options.ranks.split(",")])
        print(f"{name:32} {facts['exporter']:24} {problem or 'matches'}", flush=True)
        if problem and name in FOLDED:
            problem = "other weights: " + FOLDED[name]
        known[name] = {"exporter": facts["exporter"], "of": facts["of"], "result": problem or "matches"}
        FACTS.write_text(json.dumps(known, indent=0, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
