#!/usr/bin/env python3
"""What tools/gpu-check.sh does: makes plans for GPUs, and runs them where there is one.

Usage: gpu_check.py pack TARGET SOURCE BUILD [GOLDENS]
       gpu_check.py run TARGET [OUT] [--standin] [--minutes 9]

`run` says first what is wrong (exit 1): losses of test/models beside PyTorch's, the same bits for every number of
ranks, strategy and with and without graphs, peak memory beside the predicted one, compute-sanitizer where there is
one. Then the times: GPT-2 124M (12 layers, width 768, T = 1024) in fp32 and bf16, one and two ranks on the device, with
and without graphs, beside PyTorch eager and compiled with the same shapes. All of it goes to stdout and OUT/results.json.
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
# How far losses may be from PyTorch's; in bf16 they part where a sum lies between two roundings.
BOUNDS = {"fp32": 1e-4, "bf16": 1e-3}
SIZE, COUNT, LENGTH = 4, 4, 1024  # GPT-2: microbatch, microbatches, positions
GPT2 = dict(layers=12, width=768, heads=12, length=LENGTH)


def gpt2_weights(path, count):
    """Numbers between 2^-6 and 2^-5 of either sign, the same bits everywhere: so that the digest in the plan is right."""
    generator = random.Random(1)
    with open(path, "wb") as file:
        while count > 0:
            part = min(count, 1 << 18)
            fractions = int.from_bytes(b"\xff\xff\x7f\x80" * part, "little")
            exponents = int.from_bytes(b"\x00\x00\x80\x3c" * part, "little")
            file.write((generator.getrandbits(32 * part) & fractions | exponents).to_bytes(4 * part, "little"))
            count -= part


def write_tokens(path, rows):
    """An array of `rows` sequences of tokens, as .npy; the same as lists."""
    generator = random.Random(2)
    tokens = [[generator.randrange(50257) for _ in range(LENGTH)] for _ in range(rows)]
    header = str({"descr": "<i8", "fortran_order": False, "shape": (rows, LENGTH)}).ljust(117) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() +
                     array.array("q", sum(tokens, [])).tobytes())
    return tokens


# Packing.


def pack(target, source, build, more):
    sys.path.insert(0, str(source / "test/e2e"))
    os.environ["PIPEC_BIN"] = str(build / "bin")
    import large_models
    from pipeline import Golden
    cases = []
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
    bench = target / "bench"
    large_models.gpt3(**GPT2).save(bench)
    words = ["--dim", "batch=%d" % SIZE, "--microbatches", COUNT, "--loss", "next-token", "--optimizer", "adamw:lr=1e-4"]
    elements = (bench / "weights.bin").stat().st_size // 4
    gpt2_weights(bench / "weights.bin", elements)
    times = [(precision, ranks) for precision in BOUNDS for ranks in (1, 2)
             if compile_plan(build, bench / ("gpt2-%s-%d" % (precision, ranks)), bench / "model.onnx", ranks, "1f1b",
                             [*words, "--stages", ranks, "--precision", precision])]
    (bench / "weights.bin").unlink()  # made anew where it is needed
    (target / "cases.json").write_text(json.dumps({"cases": cases, "times": times, "weights": elements}, indent=1))


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

    def run(self, plan, inputs, data, steps, *words, before=()):
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
                                     timeout=max(5, min(240, self.left())))
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
                        "--graphs", "off", before=[program, "--error-exitcode", "99"])
        self.say("compute-sanitizer: " + ("clean" if done else "see above"))

    def times(self, plans, elements):
        bench = self.target / "bench"
        gpt2_weights(bench / "weights.bin", elements)
        tokens = write_tokens(bench / "input_ids.npy", 64)
        rates = {}
        for precision, ranks in plans:
            for graphs in ("on", "off"):
                done = self.run(bench / ("gpt2-%s-%d" % (precision, ranks)), ["input_ids"], bench, 12, "--graphs", graphs)
                if done:
                    step = statistics.median(done[1][3:])
                    rates["pipec %s, %d ranks, graphs %s" % (precision, ranks, graphs)] = self.rate(step)
                    self.say("predicted step %.4f s, measured %.4f s" % (done[2]["predicted_step_s"], step))
        for precision in reversed(BOUNDS):
            for mode in ("eager", "compile"):
                if self.left() > 60:
                    step = self.torch(mode, precision, tokens)
                    if step:
                        rates["PyTorch %s %s" % (precision, mode)] = self.rate(step)
        for name, rate in rates.items():
            self.say("%-32s %10.0f tokens/s" % (name, rate))
        self.results["gpt2_tokens_per_s"] = rates

    @staticmethod
    def rate(step):
        return SIZE * COUNT * LENGTH / step

    def torch(self, mode, precision, tokens):
        """Median seconds of a step of the same model, in bf16 by autocast; None without PyTorch."""
        try:
            import torch
            import transformers
        except ImportError:
            return self.say("no PyTorch here")
        torch.backends.cuda.matmul.allow_tf32 = False
        config = transformers.GPT2Config(n_positions=LENGTH, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
        model = transformers.GPT2LMHeadModel(config).cuda()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
        def loss_of(ids):
            with torch.autocast("cuda", torch.bfloat16, enabled=precision == "bf16"):
                return model(input_ids=ids, labels=ids, use_cache=False).loss
        if mode == "compile":
            loss_of = torch.compile(loss_of)
        rows = torch.tensor(tokens).cuda()
        seconds = []
        for step in range(12):
            if self.left() < 20:
                break
            torch.cuda.synchronize()
            start = time.perf_counter()
            for k in range(COUNT):
                at = (step * COUNT + k) * SIZE % len(rows)
                (loss_of(rows[at:at + SIZE]) / COUNT).backward()
            optimizer.step()
            optimizer.zero_grad()
            torch.cuda.synchronize()
            seconds.append(time.perf_counter() - start)
        return statistics.median(seconds[3:]) if len(seconds) > 5 else None

    def all(self):
        packed = json.loads((self.target / "cases.json").read_text())
        self.results["date"] = datetime.date.today().isoformat()
        self.results["device"] = "stand-in" if self.standin else subprocess.run(
            ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"],
            capture_output=True, text=True).stdout.strip()
        self.say(self.results["device"])
        references = {}
        for case in packed["cases"]:
            if self.left() > 60:
                self.losses(case, references)
        if packed["cases"]:
            self.sanitizer(packed["cases"][1])
        if not self.standin and self.left() > 60:
            self.times(packed["times"], packed["weights"])
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
