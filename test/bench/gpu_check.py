#!/usr/bin/env python3
"""What tools/gpu-check.sh does: makes plans for GPUs, and runs them where there is one.

Usage: gpu_check.py pack TARGET SOURCE BUILD [GOLDENS]
       gpu_check.py run TARGET [OUT] [--standin] [--minutes 9]

`run` says first what is wrong (exit 1): losses of test/models beside PyTorch's, the same bits for every number of
ranks, strategy and with and without graphs, replicas and pipedream beside the sequential oracle, peak memory beside the
predicted one, compute-sanitizer where there is one. Then the times, in fp32 and bf16: GPT-2 124M (12 layers, width 768,
T = 1024) on one rank and on two that share the device, with and without graphs, and ResNet-50, with the share of the
device's peak that they reach (MFU), beside PyTorch eager and compiled with the same shapes. All of it goes to stdout and
OUT/results.json.
GOLDENS has more models, each in a folder with golden.json as in test/models.
With --standin the libraries of test/standin take the GPU's place, and there are no times.
"""
import argparse
import array
import datetime
import json
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import time

MODELS = ("mlp", "cnn", "gpt", "unet", "translator")
# (ranks, strategy): the first of a model and precision is what the others are compared with.
CASES = ((1, "1f1b"), (2, "1f1b"), (2, "gpipe"), (2, "zb-h1"), (2, "interleaved-1f1b"), (4, "1f1b"), (4, "gpipe"))
# What is compared with the oracle's bits: (ranks, stages, strategy, microbatches of a step or None for the model's own).
ORACLE = (("mlp", 2, 1, "1f1b", None), ("mlp", 4, 2, "1f1b", None), ("gpt", 2, 2, "pipedream", 1))
# How far losses may be from PyTorch's; in bf16 they part where a sum lies between two roundings.
BOUNDS = {"fp32": 1e-4, "bf16": 1e-3}
SIZE, COUNT, LENGTH = 4, 4, 1024  # GPT-2: microbatch, microbatches, positions
GPT2 = dict(layers=12, width=768, heads=12, length=LENGTH, vocabulary=50257)
STEPS = 12
IMAGES = 32  # ResNet-50: a microbatch
# FLOPs of a step: six for each weight of a product and each token, attention's own; three passes over 4.09 GMACs.
TOKEN_FLOPS = 6 * (12 * 12 * 768 ** 2 + 50257 * 768) + 12 * 12 * 768 * LENGTH
IMAGE_FLOPS = 3 * 2 * 4.09e9
# Dense peaks, FLOP/s in fp32 and bf16, by what nvidia-smi calls the device.
PEAKS = {"H200": (67e12, 989.4e12), "H100": (67e12, 989.4e12), "A100": (19.5e12, 312e12)}


def write_numbers(file, count):
    """Numbers between 2^-6 and 2^-5 of either sign, the same bits everywhere: so that the digest in the plan is right."""
    generator = random.Random(1)
    while count > 0:
        part = min(count, 1 << 18)
        fractions = int.from_bytes(b"\xff\xff\x7f\x80" * part, "little")
        exponents = int.from_bytes(b"\x00\x00\x80\x3c" * part, "little")
        file.write((generator.getrandbits(32 * part) & fractions | exponents).to_bytes(4 * part, "little"))
        count -= part


def write_weights(folder, count):
    with open(folder / "weights.bin", "wb") as file:
        write_numbers(file, count)


def write_images(folder, rows):
    """Pictures of noise and labels for them, as .npy."""
    generator = random.Random(3)
    for name, kind, shape, data in (("input", "<f4", (rows, 3, 224, 224), None),
                                    ("labels", "<i8", (rows,), [generator.randrange(1000) for _ in range(rows)])):
        header = str({"descr": kind, "fortran_order": False, "shape": shape}).ljust(117) + "\n"
        (folder / (name + ".npy")).write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() +
                                               (array.array("q", data).tobytes() if data else b""))
    with open(folder / "input.npy", "r+b") as file:
        file.seek(128)
        write_numbers(file, rows * 3 * 224 * 224)


def write_tokens(path, rows):
    """An array of `rows` sequences of tokens, as .npy; the same as lists."""
    generator = random.Random(2)
    length = GPT2["length"]
    tokens = [[generator.randrange(GPT2["vocabulary"]) for _ in range(length)] for _ in range(rows)]
    header = str({"descr": "<i8", "fortran_order": False, "shape": (rows, length)}).ljust(117) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() +
                     array.array("q", sum(tokens, [])).tobytes())
    return tokens


# Packing.


def pack(target, source, build, more):
    sys.path.insert(0, str(source / "test/e2e"))
    os.environ["PIPEC_BIN"] = str(build / "bin")
    import large_models
    from pipeline import Golden
    cases, oracles = [], []
    folders = sorted(path.parent for path in more.glob("*/golden.json")) if more else []
    for golden in map(Golden, [*MODELS, *folders]):
        name, run = golden.folder.name, golden.runs[0]
        folder = target / "data" / name
        folder.mkdir(parents=True, exist_ok=True)
        for input_name, file in golden.data.items():
            shutil.copy(file, folder / (input_name + ".npy"))
        for precision, key in (("fp32", "losses_f64"), ("bf16", "losses_bf16")):
            first = None
            for ranks, strategy in CASES if key in run else ():
                case = "%s-%d-%s-%s" % (name, ranks, strategy, precision)
                words = ["--stages", ranks * (2 if strategy.startswith("inter") else 1), "--precision", precision]
                done = compile_plan(build, target / "plans" / case, golden.model, ranks, strategy,
                                    [*golden.arguments(run["optimizer"]), *words, "--self-contained"])
                if not done:
                    continue
                first = first or case
                own = max(abs(a - b) / max(1e-6, abs(b)) for a, b in zip(run["losses_f32"], run["losses_f64"]))
                cases.append({"name": case, "model": name, "ranks": ranks, "like": first, "steps": golden.steps,
                              "inputs": list(golden.data), "words": list(golden.run_args), "losses": run[key],
                              "bound": max(BOUNDS[precision], 3 * own)})
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
    resnet = ["--dim", "batch=%d" % IMAGES, "--loss", "cross-entropy", "--optimizer", "sgd:lr=1e-4,momentum=0.9"]
    times = pack_times(target / "gpt2", build, large_models.gpt3(**GPT2), gpt2, (1, 2))
    if IMAGES:
        times += pack_times(target / "resnet", build, large_models.resnet50(), resnet, (1,))
    (target / "cases.json").write_text(json.dumps({"cases": cases, "oracles": oracles, "times": times}, indent=1))


def pack_times(folder, build, model, words, ranks):
    """Plans whose weights are made where they run: the folder, weights, and name, precision and ranks of each."""
    model.save(folder)
    elements = (folder / "weights.bin").stat().st_size // 4
    write_weights(folder, elements)
    plans = [(precision, number) for precision in BOUNDS for number in ranks
             if compile_plan(build, folder / ("%s-%d" % (precision, number)), folder / "model.onnx", number, "1f1b",
                             [*words, "--microbatches", COUNT, "--stages", number, "--precision", precision])]
    (folder / "weights.bin").unlink()
    return [{"model": folder.name, "weights": elements, "plans": plans}]


def compile_plan(build, plan, model, ranks, strategy, words):
    process = subprocess.run([build / "bin/pipec", model, *map(str, words), "--gpus", "1x%d" % ranks, "--strategy",
                              strategy, "--quiet", "-o", plan, *dump(plan)], capture_output=True, text=True)
    if process.returncode:
        print("not packed: %s: %s" % (plan.name, process.stderr.strip()), file=sys.stderr)
        return False
    emulate = os.environ.get("PIPEC_EMULATE")
    if emulate:
        ir = pathlib.Path(str(plan) + ".ir")
        subprocess.run([emulate, sorted(ir.glob("*.mlir"))[-1], plan.parent / "code"], check=True)
        shutil.rmtree(ir)
    shutil.rmtree(plan / "evaluation", ignore_errors=True)
    return True


def dump(plan):
    """PIPEC_EMULATE (emulate-stages) makes the kernels that the stand-in needs."""
    return ["--dump-ir", str(plan) + ".ir"] if os.environ.get("PIPEC_EMULATE") else []


# Running.


def device_name():
    """What is known of the GPU: containers may have one without nvidia-smi."""
    try:
        return subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"],
                              capture_output=True, text=True).stdout.strip()
    except OSError:
        return "an unknown device (no nvidia-smi)"


class Check:
    def __init__(self, target, out, standin, minutes):
        self.target, self.out, self.standin = target, out, standin
        self.until = time.monotonic() + 60 * minutes
        self.wrong, self.results = [], {}
        self.runs = 0

    def say(self, text):
        print(text, flush=True)

    def expect(self, condition, text):
        if not condition:
            self.wrong.append(text)
            self.say("WRONG: " + text)

    def left(self):
        return self.until - time.monotonic()

    def run(self, plan, inputs, data, steps, *words, before=(), limit=90):
        """(losses, seconds of each step, summary), or None after a failure."""
        self.runs += 1
        metrics = self.out / ("metrics-%d.jsonl" % self.runs)
        flags = [word for name in inputs for word in ("--data", "%s=%s" % (name, data / (name + ".npy")))]
        command = [*before, self.target / "bin/pipec-run", plan, *flags, "--steps", steps, "--metrics", metrics,
                   "--quiet", *words]
        environment = dict(os.environ)
        if self.standin:
            environment["LD_LIBRARY_PATH"] = "%s:%s" % (self.standin, environment.get("LD_LIBRARY_PATH", ""))
            environment["PIPEC_STANDIN_CODE"] = str(plan.parent / "code")
            environment["PIPEC_STANDIN_DEVICES"] = "1"
        try:
            process = subprocess.run([str(word) for word in command], capture_output=True, text=True, env=environment,
                                     timeout=max(5, min(limit, self.left())))
        except subprocess.TimeoutExpired:
            self.expect(False, "%s did not end" % plan.name)
            return None
        if process.returncode:
            self.expect(False, "%s: exit %d: %s" % (plan.name, process.returncode,
                                                    (process.stderr + process.stdout).strip()[-1500:]))
            return None
        lines = [json.loads(line) for line in metrics.read_text().splitlines()]
        metrics.unlink()
        return ([line["loss"] for line in lines if "loss" in line],
                [line["seconds"] for line in lines if "loss" in line], lines[-1]["summary"])

    def losses(self, case, references):
        plan, data = self.target / "plans" / case["name"], self.target / "data" / case["model"]
        done = self.run(plan, case["inputs"], data, case["steps"], *case["words"])
        if not done:
            return
        losses, _, summary = done
        worst = max(abs(got - want) / max(1e-6, abs(want)) for got, want in zip(losses, case["losses"]))
        self.expect(worst <= case["bound"], "%s: a loss is %.2g from PyTorch's" % (case["name"], worst))
        reference = references.setdefault(case["like"], losses)
        self.expect(losses == reference, "%s: other bits than %s: %r, %r" % (case["name"], case["like"], losses, reference))
        for rank in summary["ranks"]:
            self.expect(rank["peak_bytes"] == rank["predicted_peak_bytes"], case["name"] + ": peak is not the predicted")
        again = self.run(plan, case["inputs"], data, case["steps"], *case["words"], "--graphs", "off")
        if again:
            self.expect(again[0] == losses, case["name"] + ": other bits without graphs")
        self.say("%-28s worst loss %.2g from PyTorch's" % (case["name"], worst))

    def sanitizer(self, case):
        program = shutil.which("compute-sanitizer") or shutil.which("/usr/local/cuda/bin/compute-sanitizer")
        if not program or self.standin:
            return self.say("no compute-sanitizer here")
        done = self.run(self.target / "plans" / case["name"], case["inputs"], self.target / "data" / case["model"], 2,
                        "--graphs", "off", before=[program, "--error-exitcode", "99"], limit=240)
        self.say("compute-sanitizer: " + ("clean" if done else "see above"))

    def oracle(self, case):
        """Replicas, and weights of several versions: the bits of a run without a pipeline."""
        plan, data = self.target / "plans" / case["name"], self.target / "data" / case["model"]
        runs = [self.run(plan, case["inputs"], data, case["steps"], *case["words"], *words) for words in ((), ("--oracle",))]
        if all(runs):
            self.expect(runs[0][0] == runs[1][0], "%s: other bits than the oracle: %r, %r" % (
                case["name"], runs[0][0], runs[1][0]))
            self.say("%-28s as the oracle" % case["name"])

    def times(self, model, elements, plans):
        folder = self.target / model
        write_weights(folder, elements)
        gpt2 = model == "gpt2"
        if gpt2:
            data, inputs = write_tokens(folder / "input_ids.npy", 64), ["input_ids"]
        else:
            data, inputs = write_images(folder, 4 * IMAGES), ["input", "labels"]
        items, flops = (SIZE * COUNT * LENGTH, TOKEN_FLOPS) if gpt2 else (IMAGES * COUNT, IMAGE_FLOPS)
        seconds = {}
        for precision, ranks in plans:
            for graphs in ("on", "off"):
                plan = folder / ("%s-%d" % (precision, ranks))
                done = self.left() > 30 and self.run(plan, inputs, folder, STEPS, "--graphs", graphs)
                if not done:
                    continue
                name = "%s %s pipec, %d ranks, graphs %s" % (model, precision, ranks, graphs)
                seconds[name] = statistics.median(done[1][3:])
                self.row(name, seconds[name], items, flops, precision)
                self.say("    predicted %.4f s; peak %s of %s predicted, beside it %s" % (
                    done[2]["predicted_step_s"], *([rank.get(key, 0) for rank in done[2]["ranks"]] for key in (
                        "peak_bytes", "predicted_peak_bytes", "overhead_bytes"))))
            alone = seconds.get("%s %s pipec, 1 ranks, graphs on" % (model, precision))
            both = seconds.get("%s %s pipec, %d ranks, graphs on" % (model, precision, ranks))
            if ranks > 1 and alone and both:
                bubble = json.loads((plan / "plan.json").read_text())["predicted"]["bubble"]
                self.say("    %d ranks on one device take %.3f of the time of one; wanted: 1.02 and a bubble of %.3f" % (
                    ranks, both / alone, bubble))
        for precision in reversed(BOUNDS):
            for compiled in (False, True):
                if self.left() > 60:
                    name = "%s %s PyTorch %s" % (model, precision, "compile" if compiled else "eager")
                    step = self.torch(data, precision, compiled)
                    if step:
                        seconds[name] = step
                        self.row(name, step, items, flops, precision)
        (folder / "weights.bin").unlink()

    def row(self, name, seconds, items, flops, precision):
        """A step's rate, and its share of what the device's products can do."""
        rate = items / seconds
        peak = next((peaks[precision == "bf16"] for key, peaks in PEAKS.items() if key in self.results["device"]), None)
        self.results.setdefault("times", {})[name] = {"step_s": seconds, "per_s": rate,
                                                      "mfu": rate * flops / peak if peak else None}
        self.say("%-40s %8.4f s %10.0f /s%s" % (name, seconds, rate,
                                                "  MFU %.1f %%" % (100 * rate * flops / peak) if peak else ""))

    def torch(self, tokens, precision, compiled):
        """Seconds of a step of the same model; None without PyTorch."""
        try:
            import gpu_torch
        except ImportError:
            return self.say("no PyTorch here")
        try:
            rest = (COUNT, precision, compiled, self.left)
            if tokens:
                return gpu_torch.gpt2_seconds(GPT2, tokens, SIZE, *rest)
            return gpu_torch.resnet_seconds(IMAGES, *rest)
        except Exception as error:  # its compiler may need what is not there
            return self.say("PyTorch: %s" % str(error).splitlines()[0])

    def all(self):
        packed = json.loads((self.target / "cases.json").read_text())
        self.results["date"] = datetime.date.today().isoformat()
        self.results["device"] = "stand-in" if self.standin else device_name()
        self.say(self.results["device"])
        references = {}
        for case in packed["cases"]:
            if self.left() > 60:
                self.losses(case, references)
        for case in packed["oracles"]:
            if self.left() > 60:
                self.oracle(case)
        if packed["cases"]:
            self.sanitizer(packed["cases"][1])
        for model in packed["times"]:
            if not self.standin and self.left() > 60:
                self.times(model["model"], model["weights"], model["plans"])
        self.results["wrong"] = self.wrong
        (self.out / "results.json").write_text(json.dumps(self.results, indent=1) + "\n")
        self.say("%d wrong" % len(self.wrong) if self.wrong else "all as promised")
        return 1 if self.wrong else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    packing = commands.add_parser("pack")
    for name in ("target", "source", "build"):
        packing.add_argument(name, type=lambda path: pathlib.Path(path).resolve())
    packing.add_argument("goldens", nargs="?", type=lambda path: pathlib.Path(path).resolve())
    running = commands.add_parser("run")
    running.add_argument("target", type=lambda path: pathlib.Path(path).resolve())
    running.add_argument("out", nargs="?", type=pathlib.Path)
    running.add_argument("--standin", type=pathlib.Path, help="the folder of the stand-ins, build/test/standin")
    running.add_argument("--minutes", type=float, default=9)
    options = parser.parse_args()
    if options.command == "pack":
        return pack(options.target, options.source, options.build, options.goldens)
    out = options.out or options.target / "out"
    out.mkdir(parents=True, exist_ok=True)
    return Check(options.target, out, options.standin, options.minutes).all()


if __name__ == "__main__":
    sys.exit(main())
