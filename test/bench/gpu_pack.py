#!/usr/bin/env python3
"""What tools/gpu-check.sh carries to a machine with a GPU: plans, data, and what is to come of them.

Usage: gpu_pack.py TARGET SOURCE BUILD [GOLDENS]

TARGET gets plans/ (each small model on some numbers of ranks, in both precisions), data/, the models of gpu_timed.py with
their plans but without their weights, and cases.json, which says what each plan is compared with. Where BUILD has
test/bin/emulate-stages and test/standin, sums/ has what every kernel and library call of a model's first step gives under
emulation (PIPEC_CALL_SUMS): a device whose losses are wrong finds the first call that differs.
GOLDENS has more models, each in a folder with golden.json as in test/models.
With PIPEC_EMULATE=BUILD/test/bin/emulate-stages in the environment the kernels of all plans are emulated, for
gpu_check.py --standin.
"""
import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import gpu_sums
import gpu_timed
from gpu_runs import BOUNDS
from gpu_timed import COUNT, SIZE, write_weights

MODELS = ("mlp", "cnn", "gpt", "unet", "translator")
# (ranks, strategy): the first of a model and precision is what the others are compared with.
CASES = ((1, "1f1b"), (2, "1f1b"), (2, "gpipe"), (2, "zb-h1"), (2, "interleaved-1f1b"), (4, "1f1b"), (4, "gpipe"))
# This model in fp32 on two ranks: every other strategy that ends a step with its updates. Some add up in an order of their
# own: replicas, copies of the model, pieces of sequences.
EVERY, APART = "gpt", ("dp", "gems", "chimera", "dualpipe", "seq1f1b")
# Left free, the last two would be replicas.
MORE_WORDS = {"seq1f1b": ["--slices", 2], "naive": ["--stages", 2], "gpipe-recompute": ["--stages", 2]}
# What is compared with the oracle's bits: (ranks, stages, strategy, microbatches of a step or None for the model's own).
ORACLE = (("mlp", 2, 1, "1f1b", None), ("mlp", 4, 2, "1f1b", None), ("gpt", 2, 2, "pipedream", 1))
# What the host's part of a stage is compiled for: it runs on another machine than this one.
HOST = "x86-64-v3"
# Programs that the machine needs beside plans: nothing else of this tree is there.
CARRIED = ("gpu_check.py", "gpu_runs.py", "gpu_ways.py", "gpu_sums.py", "gpu_timed.py", "gpu_torch.py", "gpu_nccl.py")


def pack(target, source, build, more):
    sys.path.insert(0, str(source / "test/e2e"))
    os.environ["PIPEC_BIN"] = str(build / "bin")
    import large_models
    from pipeline import Golden
    for name in CARRIED:
        shutil.copy(source / "test/bench" / name, target)
    jobs, oracles = [], []
    folders = sorted(path.parent for path in more.glob("*/golden.json")) if more else []
    for golden in map(Golden, [*MODELS, *folders]):
        name, run = golden.folder.name, golden.runs[0]
        if golden.folder in folders and name in MODELS:
            name += "-golden"
        folder = target / "data" / name
        folder.mkdir(parents=True, exist_ok=True)
        for input_name, file in golden.data.items():
            shutil.copy(file, folder / (input_name + ".npy"))
        own = max(abs(a - b) / max(1e-6, abs(b)) for a, b in zip(run["losses_f32"], run["losses_f64"]))
        for precision, key in (("fp32", "losses_f64"), ("bf16", "losses_bf16")):
            # Attention of products as well: when the kernels of its own are wrong, that is known.
            for ranks, strategy, attention in ([(*case, "auto") for case in CASES] + [(1, "1f1b", "plain")] * (name == "gpt")
                                               if key in run else ()):
                suffix = precision + ("" if attention == "auto" else "-" + attention)
                case = {"name": "%s-%d-%s-%s" % (name, ranks, strategy, suffix), "model": name, "ranks": ranks,
                        "like": name + suffix, "steps": golden.steps, "inputs": list(golden.data),
                        "words": list(golden.run_args), "losses": run[key], "bound": max(BOUNDS[precision], 3 * own)}
                words = ["--stages", ranks * (2 if strategy.startswith("inter") else 1), "--precision", precision,
                         "--attention", attention]
                jobs.append((case, (build, target / "plans" / case["name"], golden.model, ranks, strategy,
                                    [*golden.arguments(run["optimizer"]), *words, "--self-contained"])))
        if name == EVERY:
            jobs += [(case, (build, target / "plans" / case["name"], golden.model, 2, strategy,
                             [*golden.arguments(run["optimizer"]), *MORE_WORDS.get(strategy, ()), "--self-contained"]))
                     for strategy, case in every_strategy(build, golden, run, max(BOUNDS["fp32"], 3 * own))]
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        kernels = Kernels(build, target, folder)
        done = list(pool.map(lambda job: compile_plan(*job[1], kernels if is_summed(job[0]) else None), jobs))
        cases = [case for (case, _), is_done in zip(jobs, done) if is_done]
        pack_sums(target, build, filter(is_summed, cases), kernels)
    for name, ranks, stages, strategy, microbatches in ORACLE:
        golden = Golden(name)
        words = golden.arguments(golden.runs[0]["optimizer"])
        if microbatches:
            words[words.index("--microbatches") + 1] = str(microbatches)
        case = "%s-%d-%d-%s-oracle" % (name, ranks, stages, strategy)
        if compile_plan(build, target / "plans" / case, golden.model, ranks, strategy,
                        [*words, "--stages", stages, "--self-contained"]):
            oracles.append({"name": case, "model": name, "steps": golden.steps, "inputs": list(golden.data),
                            "words": list(golden.run_args)})
    gpt2 = ["--dim", "batch=%d" % SIZE, "--loss", "next-token", "--optimizer", "adamw:lr=1e-4"]
    resnet = ["--dim", "batch=%d" % gpu_timed.IMAGES, "--loss", "cross-entropy", "--optimizer", "sgd:lr=1e-4,momentum=0.9"]
    times = pack_times(target / "gpt2", build, large_models.gpt3(**gpu_timed.GPT2), gpt2, (1, 2))
    if gpu_timed.IMAGES:
        times += pack_times(target / "resnet", build, large_models.resnet50(), resnet, (1,))
    share_equal_files(target)
    version = subprocess.run(["git", "-C", source, "describe", "--always", "--dirty"], capture_output=True, text=True)
    (target / "cases.json").write_text(json.dumps({"build": version.stdout.strip(), "cases": cases, "oracles": oracles,
                                                   "times": times}, indent=1))


def every_strategy(build, golden, run, bound):
    """(strategy, case) of those that CASES has not."""
    listed = subprocess.run([build / "bin/pipec", "list", "strategies"], capture_output=True, text=True, check=True).stdout
    name, known = golden.folder.name, {strategy for _, strategy in CASES}
    for row in map(str.split, listed.splitlines()[1:]):
        strategy, is_synchronous = row[0], row[5] == "yes"
        if row[1] != "-" and is_synchronous and strategy not in known:
            yield strategy, {"name": "%s-2-%s-every" % (name, strategy), "model": name, "ranks": 2,
                             "like": name + (strategy if strategy in APART else "fp32"), "steps": golden.steps,
                             "inputs": list(golden.data), "words": list(golden.run_args), "losses": run["losses_f64"],
                             "bound": bound}


def pack_times(folder, build, model, words, ranks):
    """Plans whose weights are made where they run: the folder, weights, and name, precision and ranks of each."""
    model.save(folder)
    elements = (folder / "weights.bin").stat().st_size // 4
    write_weights(folder, elements)
    plans = [(precision, number) for precision in reversed(BOUNDS) for number in ranks
             if compile_plan(build, folder / ("%s-%d" % (precision, number)), folder / "model.onnx", number, "1f1b",
                             [*words, "--microbatches", COUNT, "--stages", number, "--precision", precision])]
    (folder / "weights.bin").unlink()
    return [{"model": folder.name, "weights": elements, "plans": plans}]


def share_equal_files(folder):
    """Plans of a model have its weights and most of its stages in common: an archive has each once."""
    known = {}
    for path in sorted(folder.glob("**/*")):
        if path.is_file() and not path.is_symlink():
            first = known.setdefault(hashlib.sha256(path.read_bytes()).digest(), path)
            if first != path and os.access(first, os.X_OK) == os.access(path, os.X_OK):
                path.unlink()
                path.hardlink_to(first)


def compile_plan(build, plan, model, ranks, strategy, words, kernels=None):
    """Whether there is a plan, and emulated `kernels` of it; with PIPEC_EMULATE they are carried, beside the plan."""
    start = time.monotonic()
    emulate = os.environ.get("PIPEC_EMULATE")
    code = plan.parent / "code"
    if not emulate and kernels and kernels.emulate:
        emulate, code = kernels.emulate, kernels.code
    ir = pathlib.Path(str(plan) + ".ir")
    process = subprocess.run([build / "bin/pipec", model, *map(str, words), "--gpus", "1x%d" % ranks, "--strategy",
                              strategy, "--target-cpu", HOST, "--quiet", "-o", plan,
                              *(["--dump-ir", ir] if emulate else [])], capture_output=True, text=True)
    if process.returncode:
        print("not packed: %s: %s" % (plan.name, process.stderr.strip()), file=sys.stderr)
        return False
    if emulate:
        subprocess.run([emulate, sorted(ir.glob("*.mlir"))[-1], code], check=True)
        shutil.rmtree(ir)
    shutil.rmtree(plan / "evaluation", ignore_errors=True)
    if sys.stderr.isatty():
        print("packed %s in %.1f s" % (plan.name, time.monotonic() - start), file=sys.stderr)
    return True


# The sums of a model's calls.


class Kernels:
    """Where emulated kernels lie, and what makes them: None where that was not built."""

    def __init__(self, build, target, folder):
        given, own = os.environ.get("PIPEC_EMULATE"), build / "test/bin/emulate-stages"
        self.standin = build / "test/standin"
        self.emulate = given or (own if own.exists() and self.standin.exists() else None)
        self.code = target / "plans/code" if given else pathlib.Path(folder, "code")


def is_summed(case):
    return case["ranks"] == 1


def pack_sums(target, build, cases, kernels):
    """sums/NAME.jsonl of each case that emulated kernels run."""
    if not kernels.emulate:
        return print("packed without sums of calls: no emulate-stages in " + str(build), file=sys.stderr)
    (target / "sums").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for case in cases:
            file = pathlib.Path(folder, case["name"])
            data = target / "data" / case["model"]
            environment = dict(os.environ, OMP_NUM_THREADS="1", LD_LIBRARY_PATH=str(kernels.standin),
                               PIPEC_STANDIN_CODE=str(kernels.code), PIPEC_CALL_SUMS=str(file))
            process = subprocess.run([build / "bin/pipec-run", target / "plans" / case["name"], "--steps", "1", "--quiet",
                                      "--graphs", "off", *case["words"],
                                      *(word for name in case["inputs"] for word in (
                                          "--data", "%s=%s" % (name, data / (name + ".npy"))))],
                                     capture_output=True, text=True, env=environment)
            rows = gpu_sums.read(file)
            if process.returncode or not rows:
                print("packed without the sums of %s: %s" % (case["name"], process.stderr.strip() or "no sums"),
                      file=sys.stderr)
            else:
                gpu_sums.write(target / "sums" / (case["name"] + ".jsonl"), rows)
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("target", "source", "build"):
        parser.add_argument(name, type=lambda path: pathlib.Path(path).resolve())
    parser.add_argument("goldens", nargs="?", type=lambda path: pathlib.Path(path).resolve())
    options = parser.parse_args()
    pack(options.target, options.source, options.build, options.goldens)


if __name__ == "__main__":
    main()
