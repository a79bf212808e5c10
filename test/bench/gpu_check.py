#!/usr/bin/env python3
"""What tools/gpu-check.sh does: makes plans for GPUs, and runs them where there is one.

Usage: gpu_check.py pack TARGET SOURCE BUILD [GOLDENS]
       gpu_check.py run TARGET [OUT] [--standin] [--minutes 9] [--only PHASE ...]

`run` goes through phases, each with a share of the time; what one has not come to is done at the end or listed as left
out. None stops another. Exit 1 where something is wrong.
  first     every model on one rank, in fp32 and bf16, and one on two and four: losses beside PyTorch's, the same bits
            with and without graphs, peak memory beside the predicted one
  times     GPT-2 124M (12 layers, width 768, T = 1024) on one rank and on two that share the device, with and without
            graphs, and ResNet-50, with the share of the device's peak that they reach (MFU), beside PyTorch eager and
            compiled with the same shapes; of each a trace, a profile and the time of every kernel and library call
  sanitizer compute-sanitizer, where there is one: memcheck, then racecheck
  oracles   replicas and pipedream beside the sequential oracle
  rest      the other strategies: the bits of one rank
What fails is run again in other ways (without graphs, from PTX, launches one at a time ...), and it is said which of them
work; the first that does is that of all later runs, so that they have more to say. The libraries' logs go to OUT/logs.
All of it goes to stdout and, after every step, to OUT/results.json; OUT/machine.txt says what the machine is. At the end
all of OUT is in OUT.tar.gz as well.
GOLDENS has more models, each in a folder with golden.json as in test/models.
With --standin the libraries of test/standin take the GPU's place, and only small models have times.
"""
import argparse
import array
import concurrent.futures
import datetime
import hashlib
import json
import math
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import time
import traceback

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
STANDIN_WEIGHTS = 1 << 20  # a larger model takes a stand-in hours
IMAGES = 32  # ResNet-50: a microbatch
# FLOPs of a step: six for each weight of a product and each token, attention's own; three passes over 4.09 GMACs.
TOKEN_FLOPS = 6 * (12 * 12 * 768 ** 2 + 50257 * 768) + 12 * 12 * 768 * LENGTH
IMAGE_FLOPS = 3 * 2 * 4.09e9
# What the host's part of a stage is compiled for: it runs on another machine than this one.
HOST = "x86-64-v3"
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
    """An array of `rows` sequences of tokens, as .npy."""
    generator = random.Random(2)
    length = GPT2["length"]
    tokens = [[generator.randrange(GPT2["vocabulary"]) for _ in range(length)] for _ in range(rows)]
    header = str({"descr": "<i8", "fortran_order": False, "shape": (rows, length)}).ljust(117) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() +
                     array.array("q", sum(tokens, [])).tobytes())


# Packing.


def pack(target, source, build, more):
    sys.path.insert(0, str(source / "test/e2e"))
    os.environ["PIPEC_BIN"] = str(build / "bin")
    import large_models
    from pipeline import Golden
    jobs, oracles = [], []
    folders = sorted(path.parent for path in more.glob("*/golden.json")) if more else []
    for golden in map(Golden, [*MODELS, *folders]):
        name, run = golden.folder.name, golden.runs[0]
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
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        done = list(pool.map(lambda job: compile_plan(*job[1]), jobs))
    cases = [case for (case, _), is_done in zip(jobs, done) if is_done]
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
    share_equal_files(target)
    version = subprocess.run(["git", "-C", source, "describe", "--always", "--dirty"], capture_output=True, text=True)
    (target / "cases.json").write_text(json.dumps({"build": version.stdout.strip(), "cases": cases, "oracles": oracles,
                                                   "times": times}, indent=1))


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


def compile_plan(build, plan, model, ranks, strategy, words):
    start = time.monotonic()
    process = subprocess.run([build / "bin/pipec", model, *map(str, words), "--gpus", "1x%d" % ranks, "--strategy",
                              strategy, "--target-cpu", HOST, "--quiet", "-o", plan, *dump(plan)],
                             capture_output=True, text=True)
    if process.returncode:
        print("not packed: %s: %s" % (plan.name, process.stderr.strip()), file=sys.stderr)
        return False
    emulate = os.environ.get("PIPEC_EMULATE")
    if emulate:
        ir = pathlib.Path(str(plan) + ".ir")
        subprocess.run([emulate, sorted(ir.glob("*.mlir"))[-1], plan.parent / "code"], check=True)
        shutil.rmtree(ir)
    shutil.rmtree(plan / "evaluation", ignore_errors=True)
    if sys.stderr.isatty():
        print("packed %s in %.1f s" % (plan.name, time.monotonic() - start), file=sys.stderr)
    return True


def dump(plan):
    """PIPEC_EMULATE (emulate-stages) makes the kernels that the stand-in needs."""
    return ["--dump-ir", str(plan) + ".ir"] if os.environ.get("PIPEC_EMULATE") else []


# Running.

# Phases, and their shares of the time.
SANITIZED = ("gpt-1-1f1b-bf16", "cnn-1-1f1b-fp32", "gpt-1-1f1b-fp32")
PHASES = {"first": 0.3, "times": 0.45, "sanitizer": 0.1, "oracles": 0.05, "rest": 0.1}
NO_EPILOGUES = {"PIPEC_EPILOGUES": "off"}
# Other ways to run what has failed: name, words, environment, and what it means when that works.
WAYS = (("--graphs off", ["--graphs", "off"], {}, "recording a step is at fault: docs/gpu.md, 'capture'"),
        ("CUDA_FORCE_PTX_JIT=1", [], {"CUDA_FORCE_PTX_JIT": "1"}, "the machine code is: docs/gpu.md, 'first load'"),
        ("CUDA_MODULE_LOADING=EAGER", [], {"CUDA_MODULE_LOADING": "EAGER"}, "lazy loading is: docs/gpu.md"),
        ("CUDA_LAUNCH_BLOCKING=1", ["--graphs", "off"], {"CUDA_LAUNCH_BLOCKING": "1"},
         "the order of streams is: an event is missing"),
        ("PIPEC_EPILOGUES=off", [], NO_EPILOGUES, "the biases that cuBLASLt adds are: docs/gpu.md, 'Running'"),
        ("NVIDIA_TF32_OVERRIDE=0", [], {"NVIDIA_TF32_OVERRIDE": "0"}, "TF32 is: docs/gpu.md, 'Running'"))
# Every library's log of a run that fails.
LOGS = {"CUBLASLT_LOG_LEVEL": "5", "CUBLASLT_LOG_FILE": "%s-cublaslt.log", "CUDNN_LOGLEVEL_DBG": "3",
        "CUDNN_LOGDEST_DBG": "%s-cudnn.log", "NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": "%s-nccl-%%p.log"}
MOST_DIAGNOSES = 3
# What is asked of the machine once.
QUESTIONS = (["nvidia-smi", "-q"], ["nvidia-smi", "topo", "-m"], ["nvidia-smi"], ["uname", "-a"], ["lscpu"],
             ["free", "-g"], ["nvcc", "--version"], ["sh", "-c", "which compute-sanitizer nsys ncu ptxas cuobjdump mpirun"],
             ["sh", "-c", "ldconfig -p | grep -E 'cuda|cublas|cudnn|nccl'"],
             ["sh", "-c", "for d in $(echo $GPU_CHECK_LIBRARIES | tr : ' '); do ls -d $d/lib*.so*; done"],
             ["python3", "-c", "import torch; print(torch.__version__, torch.version.cuda, torch.cuda.nccl.version(), "
                               "torch.backends.cudnn.version(), torch.cuda.get_device_properties(0))"])


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
        self.begun = time.monotonic()
        self.until = self.end = self.begun + 60 * minutes
        self.wrong, self.results = [], {}
        self.way = ((), {})  # more words and environment of all runs, since those without have failed
        self.runs = self.diagnoses = 0
        self.diagnosed = set()  # what was wrong
        self.logs = out / "logs"
        # What pipec-run alone needs: other programs of this machine have their own.
        folders = [self.standin, self.target / "lib", *map(os.environ.get, ("GPU_CHECK_LIBRARIES", "LD_LIBRARY_PATH"))]
        self.libraries = ":".join(str(folder) for folder in folders if folder)
        self.program = self.starting()

    def starting(self):
        """The words that start pipec-run: a system that is older than its C library gets that one, too."""
        program, loader = self.target / "bin/pipec-run", self.target / "libc/ld-linux-x86-64.so.2"
        try:
            environment = dict(os.environ, LD_LIBRARY_PATH=self.libraries)
            process = subprocess.run([program, "--help"], capture_output=True, env=environment)
            if process.returncode == 0 or not loader.exists():
                return [program]
        except OSError:
            pass
        return [loader, "--library-path", "%s:%s" % (loader.parent, self.libraries), program]

    def say(self, text):
        print(text, flush=True)

    def expect(self, condition, text):
        if not condition:
            self.wrong.append(text)
            self.say("WRONG: " + text)

    def left(self):
        return self.until - time.monotonic()

    def step(self, what, work, *arguments, needs=20):
        """Does one thing; what goes wrong with it goes no further. False when there is no time for it."""
        if self.left() < needs:
            return False
        start = time.monotonic()
        try:
            work(*arguments)
        except Exception:
            self.expect(False, "%s: %s" % (what, traceback.format_exc().strip()[-1500:]))
        self.results.setdefault("seconds", {})[what] = round(time.monotonic() - start, 1)
        self.save()
        return True

    def save(self):
        """After every step: whatever ends this, what is known stays."""
        self.results["wrong"] = self.wrong
        part = self.out / "results.part"
        part.write_text(json.dumps(self.results, indent=1) + "\n")
        part.rename(self.out / "results.json")

    def machine(self):
        """All that tells this machine from another."""
        with open(self.out / "machine.txt", "w") as file:
            for question in QUESTIONS:
                try:
                    answer = subprocess.run(question, capture_output=True, text=True, timeout=40)
                    text = answer.stdout + answer.stderr
                except (OSError, subprocess.TimeoutExpired) as error:
                    text = str(error)
                file.write("$ %s\n%s\n" % (" ".join(question), text))

    def diagnose(self, plan, inputs, data, steps, words, good):
        """Which other ways of the same run are good, and the libraries' logs of it. `good`: of losses. True when the
        first of them has become that of all runs."""
        why = self.wrong[-1].partition(": ")[2]
        if why in self.diagnosed or self.diagnoses >= MOST_DIAGNOSES or self.left() < 60:
            return
        self.diagnosed.add(why)
        self.diagnoses += 1
        self.logs.mkdir(exist_ok=True)
        stem = str(self.logs / ("%d-%s" % (self.diagnoses, plan.name)))
        environment = {key: value % stem if "%" in value else value for key, value in LOGS.items()}
        self.quietly(plan, inputs, data, min(2, steps), words, environment, stem + ".txt")
        found = {}
        way = None
        for name, more, environment, meaning in WAYS:
            if self.left() < 40:
                break
            losses = self.quietly(plan, inputs, data, steps, [*words, *more], environment, "%s-%s.txt" % (
                stem, name.replace(" ", "-")))
            found[name] = bool(losses) and good(losses)
            self.say("    with %s it is %s" % (name, "right: " + meaning if found[name] else "wrong, too"))
            if found[name] and self.way == ((), {}):
                way = way or (more, environment)
        self.results.setdefault("diagnoses", {})[plan.name] = found
        if way:
            self.way = way
            self.results["way"] = self.way
            self.say("    so are all runs from here on")
        return bool(way)

    def quietly(self, plan, inputs, data, steps, words, environment, log):
        """The losses of a run whose failure is no news; what it says goes to a file."""
        before, self.wrong, say, self.say = self.wrong, [], self.say, lambda text: None
        try:
            done = self.run(plan, inputs, data, steps, *words, environment=environment, limit=40)
            pathlib.Path(log).write_text("\n".join(self.wrong) or "runs\n")
            return done and done[0]
        finally:
            self.wrong, self.say = before, say

    def run(self, plan, inputs, data, steps, *words, before=(), limit=90, environment=None):
        """(losses, seconds of each step, summary), or None after a failure."""
        self.runs += 1
        name = plan.name if plan.parent.name == "plans" else "%s-%s" % (plan.parent.name, plan.name)
        metrics = self.out / ("metrics-%d.jsonl" % self.runs)
        flags = [word for name in inputs for word in ("--data", "%s=%s" % (name, data / (name + ".npy")))]
        more, settings = self.way
        if more[:1] == ["--graphs"] and "--graphs" in words:
            more = []
        command = [*before, *self.program, plan, *flags, "--steps", steps, "--metrics", metrics,
                   "--quiet", *words, *more]
        environment = {**os.environ, "LD_LIBRARY_PATH": self.libraries, **settings, **(environment or {})}
        if self.standin:
            environment["PIPEC_STANDIN_CODE"] = str(plan.parent / "code")
            environment["PIPEC_STANDIN_DEVICES"] = "1"
        try:
            process = subprocess.run([str(word) for word in command], capture_output=True, text=True, env=environment,
                                     timeout=max(5, min(limit, self.left())))
        except subprocess.TimeoutExpired:
            self.expect(False, "%s: did not end" % name)
            return None
        if process.returncode:
            self.expect(False, "%s: exit %d: %s" % (name, process.returncode,
                                                    (process.stderr + process.stdout).strip()[-1500:]))
            return None
        lines = [json.loads(line) for line in metrics.read_text().splitlines()]
        metrics.unlink()
        return ([line["loss"] for line in lines if "loss" in line],
                [line["seconds"] for line in lines if "loss" in line], lines[-1]["summary"])

    def losses(self, case, references):
        plan, data = self.target / "plans" / case["name"], self.target / "data" / case["model"]
        arguments = plan, case["inputs"], data, case["steps"]

        def distance(losses):
            return max(abs(got - want) / max(1e-6, abs(want)) if math.isfinite(got) else math.inf
                       for got, want in zip(losses, case["losses"]))

        def good(losses):
            return len(losses) == len(case["losses"]) and distance(losses) <= case["bound"]
        done = self.run(*arguments, *case["words"])
        if not done:
            if self.diagnose(*arguments, case["words"], good):
                self.losses(case, references)
            return
        losses, _, summary = done
        worst = distance(losses)
        self.results.setdefault("losses", {})[case["name"]] = {"worst": worst, "ranks": summary["ranks"],
                                                               "first": losses[:3]}
        self.expect(good(losses), "%s: a loss is %.2g from PyTorch's" % (case["name"], worst))
        if not good(losses):
            self.diagnose(*arguments, case["words"], good)
        reference = references.setdefault(case["like"], losses)
        self.expect(losses == reference, "%s: other bits than the first of its kind: %r, %r" % (
            case["name"], losses, reference))
        for rank in summary["ranks"]:
            self.expect(rank["peak_bytes"] == rank["predicted_peak_bytes"], case["name"] + ": peak is not the predicted")
        again = self.recorded() and self.run(*arguments, *case["words"], "--graphs", "off")
        if again:
            self.expect(again[0] == losses, case["name"] + ": other bits without graphs")
        if case["model"] == "gpt" and case["ranks"] == 1:
            self.biases(case, arguments, losses, good)
        self.say("%-28s worst loss %.2g from PyTorch's" % (case["name"], worst))

    def recorded(self):
        """Whether steps are recorded as graphs."""
        return self.way[0][:1] != ["--graphs"]

    def biases(self, case, arguments, losses, good):
        """Of a run in which no library adds biases: the same bits in f32, where the algorithms are the same."""
        done = self.run(*arguments, *case["words"], environment=NO_EPILOGUES)
        if done:
            same = done[0] == losses
            self.results["losses"][case["name"]]["biases apart"] = "same bits" if same else done[0][:3]
            self.expect(same if case["name"].endswith("fp32") else good(done[0]), case["name"] + ": others without "
                        "epilogues: %r, %r" % (done[0], losses))

    def sanitizer_program(self):
        """The machine's, else the one that was packed, else None. Of a stand-in only one that was put there."""
        packed = map(str, sorted(self.target.glob("sanitizer/nvidia/*/bin/compute-sanitizer")))
        others = () if self.standin else ("/usr/local/cuda/bin/compute-sanitizer", *packed)
        found = map(shutil.which, ("compute-sanitizer", *others))
        return next(filter(None, found), None)

    def sanitizer(self, case, tools):
        program = self.sanitizer_program()
        if not program:
            return self.say("no compute-sanitizer here")
        for tool in tools:
            name = "%s of %s" % (tool, case["name"])
            log = self.out / ("sanitizer-%s-%s.txt" % (tool, case["name"]))
            done = self.run(self.target / "plans" / case["name"], case["inputs"], self.target / "data" / case["model"],
                            2, "--graphs", "off", "--timeout", 600, limit=min(120, self.left() / 2),
                            before=[program, "--tool", tool, "--log-file", log, "--error-exitcode", "99"])
            self.results.setdefault("sanitizer", {})[name] = bool(done)
            self.say("compute-sanitizer, %s: %s" % (name, "clean" if done else "see " + log.name))

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
            inputs = ["input_ids"]
            write_tokens(folder / "input_ids.npy", 64)
        else:
            inputs = ["input", "labels"]
            write_images(folder, 4 * IMAGES)
        items, flops = (SIZE * COUNT * LENGTH, TOKEN_FLOPS) if gpt2 else (IMAGES * COUNT, IMAGE_FLOPS)
        for precision in dict.fromkeys(precision for precision, _ in plans):
            ranks = [number for known, number in plans if known == precision]
            self.times_of(model, precision, ranks, inputs, items, flops)
            self.save()
            for compiled in (False, True):
                name = "%s %s PyTorch %s" % (model, precision, "compile" if compiled else "eager")
                step = self.left() > 60 and self.torch(model, precision, compiled)
                if step:
                    self.row(name, step, items, flops, precision)
        (folder / "weights.bin").unlink()

    def times_of(self, model, precision, plans, inputs, items, flops):
        """Of the plans of one precision, which are for so many ranks."""
        folder, gpt2, seconds = self.target / model, model == "gpt2", {}
        choices = ("on", "off") if self.recorded() else ("off",)
        for ranks in plans:
            for graphs in choices:
                plan = folder / ("%s-%d" % (precision, ranks))
                done = self.left() > 30 and self.run(plan, inputs, folder, STEPS, "--graphs", graphs)
                if not done:
                    continue
                stem = self.out / ("%s-%s-%d" % (model, precision, ranks))
                if graphs == choices[0]:
                    self.run(plan, inputs, folder, 4, "--graphs", graphs, "--trace", str(stem) + "-trace.json",
                             "--profile-out", str(stem) + "-profile.json")
                if graphs == "off":
                    stem.mkdir(exist_ok=True)
                    self.run(plan, inputs, folder, 4, "--graphs", "off", environment={"PIPEC_CALL_TIMES": str(stem)})
                name = "%s %s pipec, %d ranks, graphs %s" % (model, precision, ranks, graphs)
                seconds[name] = statistics.median(done[1][3:])
                self.row(name, seconds[name], items, flops, precision)
                if gpt2 and ranks == 1 and graphs == choices[0]:
                    apart = self.left() > 30 and self.run(plan, inputs, folder, STEPS, "--graphs", graphs,
                                                          environment=NO_EPILOGUES)
                    if apart:
                        self.row(name + ", no epilogues", statistics.median(apart[1][3:]), items, flops, precision)
                self.say("    predicted %.4f s; peak %s of %s predicted, beside it %s" % (
                    done[2]["predicted_step_s"], *([rank.get(key, 0) for rank in done[2]["ranks"]] for key in (
                        "peak_bytes", "predicted_peak_bytes", "overhead_bytes"))))
            alone = seconds.get("%s %s pipec, 1 ranks, graphs %s" % (model, precision, choices[0]))
            both = seconds.get("%s %s pipec, %d ranks, graphs %s" % (model, precision, ranks, choices[0]))
            if ranks > 1 and alone and both:
                bubble = json.loads((plan / "plan.json").read_text())["predicted"]["bubble"]
                self.say("    %d ranks on one device take %.3f of the time of one; wanted: 1.02 and a bubble of %.3f" % (
                    ranks, both / alone, bubble))

    def row(self, name, seconds, items, flops, precision):
        """A step's rate, and its share of what the device's products can do."""
        rate = items / seconds
        peak = next((peaks[precision == "bf16"] for key, peaks in PEAKS.items() if key in self.results["device"]), None)
        self.results.setdefault("times", {})[name] = {"step_s": seconds, "per_s": rate,
                                                      "mfu": rate * flops / peak if peak else None}
        self.say("%-40s %8.4f s %10.0f /s%s" % (name, seconds, rate,
                                                "  MFU %.1f %%" % (100 * rate * flops / peak) if peak else ""))

    def torch(self, model, precision, compiled):
        """Seconds of a step of the same model; None without PyTorch. A process of its own: it may die, and keeps memory."""
        how = {"model": model, "shape": GPT2, "size": SIZE if model == "gpt2" else IMAGES, "count": COUNT,
               "precision": precision, "compiled": compiled, "seconds": self.left(),
               "device": "cpu" if self.standin else "cuda"}
        try:
            process = subprocess.run([sys.executable, self.target / "gpu_torch.py", json.dumps(how)], capture_output=True,
                                     text=True, timeout=self.left())
            if process.returncode == 0:
                seconds = json.loads(process.stdout.splitlines()[-1])
                if seconds:
                    return seconds
            why = (process.stderr.strip() or "it ended with %d" % process.returncode).splitlines()[-1]
            if process.returncode == 0:
                why = "no time for its steps"
        except subprocess.TimeoutExpired:
            why = "it took too long"
        self.results.setdefault("torch", {})["%s %s %s" % (model, precision, compiled)] = why
        return self.say("PyTorch: " + why)

    def all(self, only=None):
        packed = json.loads((self.target / "cases.json").read_text())
        self.results["date"] = datetime.date.today().isoformat()
        self.results["device"] = "stand-in" if self.standin else device_name()
        self.say(self.results["device"])
        self.results["build"] = packed.get("build")
        self.step("machine", self.machine)
        references = {}

        def is_first(case):
            return case["ranks"] == 1 or case["name"] in ("gpt-2-1f1b-fp32", "gpt-4-1f1b-fp32")
        work = {phase: [] for phase in PHASES}
        for case in packed["cases"]:
            work["first" if is_first(case) else "rest"].append((case["name"], self.losses, case, references))
        work["times"] = [("times of " + model["model"], self.times, model["model"], model["weights"], model["plans"])
                         for model in packed["times"] if not self.standin or model["weights"] <= STANDIN_WEIGHTS]
        # That with most kinds of kernels both ways, the others for wild addresses.
        checked = sorted((case for case in packed["cases"] if case["ranks"] == 1),
                         key=lambda case: SANITIZED.index(case["name"]) if case["name"] in SANITIZED else len(SANITIZED))
        work["sanitizer"] = [("sanitizer of " + case["name"], self.sanitizer, case, ("memcheck", "racecheck")[:1 + (not i)])
                             for i, case in enumerate(checked[:len(SANITIZED)])]
        work["oracles"] = [(case["name"], self.oracle, case) for case in packed["oracles"]]
        left, over = [], 0
        chosen = {phase: share for phase, share in PHASES.items() if not only or phase in only}
        for phase, share in chosen.items():
            over += share / sum(chosen.values())
            self.until = self.begun + over * (self.end - self.begun)
            left += [item for item in work[phase] if not self.step(*item)]
        self.until = self.end
        left = [item for item in left if not self.step(*item)]
        self.results["left out"] = [item[0] for item in left]
        for item in left:
            self.say("left out, there was no time: " + item[0])
        self.save()
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
    running.add_argument("--only", nargs="+", choices=list(PHASES), help="these phases, which share the time")
    options = parser.parse_args()
    if options.command == "pack":
        return pack(options.target, options.source, options.build, options.goldens)
    out = options.out or options.target / "out"
    out.mkdir(parents=True, exist_ok=True)
    code = Check(options.target, out, options.standin, options.minutes).all(options.only)
    shutil.make_archive(str(out), "gztar", out)
    return code


if __name__ == "__main__":
    sys.exit(main())
