#!/usr/bin/env python3
"""Families of models as PyTorch's exporters write them, trained by pipec and by PyTorch: docs/families.md.

    zoo.py --run [--only REGEX] [--exports torchscript-17,dynamo-18] [--ranks 1,3]
                   exports each family, trains it in PyTorch and with pipec on each number of ranks, compares the
                   losses and the number of trained elements; adds the results to families.json
    zoo.py --write docs/families.md from families.json
    zoo.py --list  the families
    --keep DIR     keeps model.onnx and the arrays of each case, and reads PyTorch's losses from there again

Needs torch, torchvision, transformers, onnx, onnxscript, numpy (PyPI) and build/bin (or PIPEC_BIN). A case matches when
every loss of 4 steps is within 1e-4 of PyTorch's, relatively, and every number of ranks gives the same bits.
"""
import argparse
import collections
import copy
import json
import logging
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import warnings

os.environ.setdefault("OMP_NUM_THREADS", "1")
warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)
HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
FACTS, TABLE = HERE / "families.json", ROOT / "docs" / "families.md"
BIN = pathlib.Path(os.environ.get("PIPEC_BIN", ROOT / "build" / "bin"))
EXPORTS = "torchscript-13,torchscript-17,torchscript-20,dynamo-18,dynamo-20,dynamo-22,dynamo-23"
STEPS = 4
# Files that train otherwise than the model though as many elements train.
FOLDED = {("funnel", "dynamo"): "the exporter folds biases times the scale of the scores: the scaled biases train",
          ("funnel", "torchscript"): "the exporter folds biases times the scale of the scores: the scaled biases train",
          ("contrastive", "dynamo"): "the exporter folds exp(temperature): the scale trains, not its logarithm",
          ("clip", "dynamo"): "the exporter folds exp(logit_scale): the scale trains, not its logarithm",
          ("partial-convolution", "dynamo"): "the exporter folds the masked kernel: what the mask hid trains",
          ("partial-convolution", "torchscript"): "the exporter folds the masked kernel: what the mask hid trains",
          ("actor-critic", "dynamo"): "the exporter folds exp(spread): the spread trains, not its logarithm",
          ("discriminator", "dynamo"): "the exporter folds weights times their scales: the products train",
          ("discriminator", "torchscript"): "the exporter folds weights times their scales: the products train"}


# ------------------------------------------------------------------------------------------- PyTorch

def positional(case, rows):
    import torch
    return tuple(torch.from_numpy(array[rows]) for array in case.inputs.values())


def symbolic(case, exporter):
    """Per input the names of its symbolic axes."""
    names = ("batch", *case.dynamic)
    return {name: {axis: label for axis, label in enumerate(names[:array.ndim])} for name, array in case.inputs.items()}


def export(case, exporter, opset, path, static):
    import torch
    example, names = positional(case, slice(0, case.batch if static else 3)), list(case.inputs)
    outputs = ["logits"] + [f"present.{i}" for i in range(case.outputs - 1)]
    model, axes = copy.deepcopy(case.model).eval(), None if static else symbolic(case, exporter)
    model = torch.jit.script(model) if case.script else model
    if exporter == "dynamo":
        keep = {"optimize": False} if case.has_batch_norm else {}
        torch.onnx.export(model, example, str(path), dynamo=True, opset_version=opset, input_names=names,
                          output_names=outputs, dynamic_shapes=(tuple(axes.values()) if axes else None), verbose=False,
                          external_data=False, **keep)
        return
    keep = dict(training=torch.onnx.TrainingMode.PRESERVE, do_constant_folding=False) if case.has_batch_norm else {}
    if axes and case.loss != "output":
        axes = {**axes, "logits": {0: "batch"}}
    torch.onnx.export(model, example, str(path), dynamo=False, opset_version=opset, input_names=names,
                      output_names=outputs, dynamic_axes=axes, **keep)


def quietly(function, *arguments):
    """A failing exporter prints its whole graph, from C++."""
    sys.stdout.flush()
    kept, nowhere = [os.dup(1), os.dup(2)], os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1), os.dup2(nowhere, 2)
        function(*arguments)
    finally:
        sys.stdout.flush()
        for number, file in enumerate(kept, 1):
            os.dup2(file, number)
            os.close(file)
        os.close(nowhere)


def loss_of(case, logits, batch):
    import torch.nn.functional as F
    if case.loss == "output":
        return logits
    if case.loss == "next-token":
        return F.cross_entropy(logits[:, :-1].flatten(0, 1), batch["input_ids"][:, 1:].flatten())
    label = next(iter(case.labels))
    if case.loss == "mse":
        return F.mse_loss(logits, batch[label])
    if case.loss == "bce":
        return F.binary_cross_entropy_with_logits(logits, batch[label])
    if logits.dim() == 4:
        return F.cross_entropy(logits, batch[label])
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), batch[label].reshape(-1))


def reference(case):
    """The loss of every step, and how many elements train."""
    import numpy as np
    import torch
    model = copy.deepcopy(case.model).train()
    settings = dict(item.split("=") for item in case.optimizer.split(":")[1].split(","))
    optimizer = torch.optim.SGD(model.parameters(), lr=float(settings["lr"]), momentum=float(settings.get("momentum", 0)))
    losses, count = [], len(next(iter(case.inputs.values())))
    for step in range(STEPS):
        optimizer.zero_grad()
        total = 0.0
        for k in range(case.microbatches):
            rows = ((step * case.microbatches + k) * case.batch + np.arange(case.batch)) % count
            batch = {name: torch.from_numpy(array[rows]) for name, array in {**case.inputs, **case.labels}.items()}
            out = model(*(batch[name] for name in case.inputs))
            loss = loss_of(case, out[0] if isinstance(out, tuple) else out, batch)
            (loss / case.microbatches).backward()
            total += loss.item()
        optimizer.step()
        losses.append(total / case.microbatches)
    return {"losses": losses, "elements": sum(p.numel() for p in model.parameters() if p.grad is not None)}


# ------------------------------------------------------------------------------------------- pipec

def file_differs(case, path, static):
    """Whether onnxruntime computes other logits from the file than PyTorch from the model."""
    import onnxruntime
    import torch
    try:
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    except Exception: # no valid file
        return True
    with torch.no_grad():
        want = copy.deepcopy(case.model).eval()(*positional(case, slice(0, case.batch)))
    want = (want[0] if isinstance(want, tuple) else want).numpy()
    feeds = {value.name: case.inputs[value.name][:case.batch] for value in session.get_inputs()}
    got = session.run(None, feeds)[0]
    return abs(got - want).max() > 1e-4 * max(1, abs(want).max())


def call(program, *words):
    process = subprocess.run([str(BIN / program), *map(str, words)], capture_output=True, text=True, timeout=300,
                             stdin=subprocess.DEVNULL)
    lines = [line for line in process.stderr.splitlines() if line.strip()]
    problem = f"{program} exits with {process.returncode}: " + " / ".join(lines[:4]) if process.returncode else ""
    return problem, process.stdout


def train(case, model, folder, ranks, static):
    """(problem, losses, trained elements)."""
    import onnx
    names = {value.name for value in onnx.load(model, load_external_data=False).graph.input}
    words = [] if static else ["--dim", f"batch={case.batch}"]
    for axis, name in enumerate(() if static else case.dynamic, 1):
        words += ["--dim", f"{name}={next(iter(case.inputs.values())).shape[axis]}"]
    for label, array in case.labels.items():
        names.add(label)
    loss = case.loss + (":label=" + next(iter(case.labels)) if case.labels else "")
    problem, _ = call("pipec", model, "--cpus", ranks, "--stages", ranks, "--strategy", "1f1b", *words,
                        "--microbatches", case.microbatches, "--loss", loss, "--optimizer", case.optimizer, "--tie",
                        "auto", *case.flags, "-o", folder / "plan", "--quiet")
    if problem:
        return problem, [], 0
    data = [word for name in {**case.inputs, **case.labels} if name in names
            for word in ("--data", f"{name}={folder / name}.npy")]
    problem, _ = call("pipec-run", folder / "plan", *data, "--steps", STEPS, "--metrics", folder / "metrics.jsonl",
                      "--quiet", "--transport", "inproc")
    if problem:
        return problem, [], 0
    lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    weights = json.loads((folder / "plan" / "plan.json").read_text())["weights"]
    elements = sum(math.prod(weight["shape"]) for weight in weights if weight["role"] == "weight")
    return "", [line["loss"] for line in lines if "loss" in line], elements


def compare(case, want, model, folder, ranks, static):
    """An empty text, or what is wrong."""
    first = None
    for count in ranks:
        problem, losses, elements = train(case, model, folder, count, static)
        if problem:
            return problem
        if elements != want["elements"] and not first:
            print(f"  {model.name}: {elements} elements train, in PyTorch {want['elements']}")
        off = max(abs(a - b) / max(1e-3, abs(b)) for a, b in zip(losses, want["losses"]))
        if len(losses) == STEPS and not off <= case.tolerance and elements != want["elements"]:
            return f"other weights: {elements} elements train, in PyTorch {want['elements']}"
        if not off <= case.tolerance or len(losses) != STEPS:
            return f"{count} ranks: losses off by {off:.1e}: {losses} for {want['losses']}"
        first = first or losses
        if losses != first:
            return f"{count} ranks: other bits than {ranks[0]}"
    return ""


# ------------------------------------------------------------------------------------------- all of them

def run_one(name, exports, ranks, folder, facts, case, group):
    import numpy as np
    for key, array in {**case.inputs, **case.labels}.items():
        np.save(folder / f"{key}.npy", array)
    known = folder / "reference.json"
    if known.exists():
        want = json.loads(known.read_text())
    else:
        want = reference(case)
        known.write_text(json.dumps(want))
    row = facts.setdefault(name, {"group": group, "exports": {}})
    row["group"], row["change"] = group, want["losses"][-1] / want["losses"][0] - 1
    for which in exports:
        exporter, opset = which.split("-")
        model, static = folder / f"{which}.onnx", (folder / f"{which}.static").exists()
        problem = ""
        if not model.exists():
            try:
                quietly(export, case, exporter, int(opset), model, False)
            except Exception:
                try: # a batch size that the exporter cannot leave open
                    quietly(export, case, exporter, int(opset), model, True)
                    static = True
                    (folder / f"{which}.static").touch()
                except Exception as error:
                    text = f"{type(error).__name__}: {error}".strip()
                    problem = "no export: " + " ".join(text.split())[:160]
        if not problem and file_differs(case, model, static):
            problem = "no export: the file computes something else than the model"
        if not problem:
            try:
                problem = compare(case, want, model, folder, ranks, static)
            except subprocess.TimeoutExpired as late:
                problem = f"{late.cmd[0]} does not end"
        if problem and (name, exporter) in FOLDED:
            problem = "other weights: " + FOLDED[name, exporter]
        row["exports"][which] = problem or "matches"
        print(f"{name:28} {which:15} {problem or 'matches'}", flush=True)


def families():
    import case as cases
    import hub, language, modules, other, sequences, soups, tables, vision, wild # noqa: F401, they fill FAMILIES
    return cases.FAMILIES


def run_all(options):
    for name, (group, make) in families().items():
        if not re.search(options.only, name):
            continue
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(options.keep or temporary) / name
            folder.mkdir(parents=True, exist_ok=True)
            try:
                import torch
                torch.manual_seed(0)
                case = make()
                facts = json.loads(FACTS.read_text()) if FACTS.exists() else {}
                run_one(name, options.exports.split(","), [int(r) for r in options.ranks.split(",")], folder, facts, case,
                        group)
            except Exception as error:
                print(f"{name:28} cannot be made: {type(error).__name__}: {error}", flush=True)
                continue
            known = json.loads(FACTS.read_text()) if FACTS.exists() else {}  # other runs add to it
            FACTS.write_text(json.dumps({**known, name: facts[name]}, indent=0, sort_keys=True) + "\n")
    return 0


def cell(text):
    if text is None:
        return ""
    if text.startswith(("no export", "other weights")):
        return text.split(":")[0]
    return "✓" if text == "matches" else "✗"


def table():
    import elsewhere
    facts = json.loads(FACTS.read_text())
    exports = [which for which in EXPORTS.split(",") if any(which in row["exports"] for row in facts.values())]
    counts = collections.Counter(cell(row["exports"].get(which)) for row in facts.values() for which in exports)
    lines = ["# Families of models", "",
             "Written by `test/bench/zoo/zoo.py --write` from its last runs: small models with random weights, exported by",
             "PyTorch's two exporters and trained for four steps with `--tie auto`. ✓: every loss is within 1e-4 of PyTorch's, and one and",
             "three ranks give the same bits. *no export*: PyTorch's exporter gives up, or writes a file that computes something",
             "else than the model (by onnxruntime). *other weights*: the exporter folded weights into tensors of another",
             "shape (positions of every sample, biases of every pair of positions); they train as they stand in the file.",
             f"{counts['✓']} exported models match, {counts['other weights']} train other weights, {counts['✗']} differ; empty:",
             "not tried.", "",
             "| group | family | " + " | ".join(exports) + " |", "|---|---|" + "---|" * len(exports)]
    notes = []
    for name, row in sorted(facts.items(), key=lambda item: (item[1]["group"], item[0])):
        lines.append(f"| {row['group']} | {name} | " + " | ".join(
            cell(row["exports"].get(which)) for which in exports) + " |")
        notes += [f"* {name}, {which}: {text}" for which, text in row["exports"].items() if cell(text) in ("✗", "other weights")]
    return "\n".join(lines + [""] * bool(notes) + notes) + "\n" + elsewhere.table()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    mode = parser.add_mutually_exclusive_group(required=True)
    for name in ("run", "write", "list"):
        mode.add_argument("--" + name, action="store_true")
    parser.add_argument("--only", default="", metavar="REGEX")
    parser.add_argument("--exports", default=EXPORTS)
    parser.add_argument("--ranks", default="1,3")
    parser.add_argument("--keep", metavar="DIR")
    options = parser.parse_args()
    if options.write:
        TABLE.write_text(table())
        return 0
    if options.list:
        for name, (group, _) in families().items():
            print(f"{group:24} {name}")
        return 0
    return run_all(options)


if __name__ == "__main__":
    sys.exit(main())
