#!/usr/bin/env python3
"""What tools/gpu-check.sh does where there is a GPU: runs what gpu_pack.py has packed, and compares.

Usage: gpu_check.py TARGET [OUT] [--standin FOLDER] [--minutes 9] [--only PHASE ...] [--only-left RESULTS] [--bring FOLDER]

It goes through phases, each with a share of the time; what one has not come to is done at the end or listed as left out.
None stops another. Exit 1 where something is wrong.
  first     every model on one rank, in fp32 and bf16, and one on two and four: losses beside PyTorch's, the same bits
            with and without graphs, peak memory beside the predicted one
  nccl      NCCL's messages of a rank to itself, recorded as a graph as well (gpu_nccl.py); last of all, and only as a try,
            two processes on one device, which NCCL does not support
  times     GPT-2 124M (12 layers, width 768, T = 1024) on one rank and on two that share the device, with and without
            graphs, and ResNet-50, with the share of the device's peak that they reach (MFU), beside PyTorch eager and
            compiled with the same shapes; of each a trace, a profile and the time of every kernel and library call
  sanitizer compute-sanitizer, where there is one: memcheck, then racecheck of our own kernels
  oracles   replicas and pipedream beside the sequential oracle
  rest      the other strategies: the bits of one rank
What fails is run again as it was, with the libraries' logs on (OUT/logs) and in other ways (without graphs, from PTX, with
the host waiting for every call ...), and it is said which of them work; the first that does, where the usual way does not
even the second time, is that of all later runs, so that they have more to say. Of wrong numbers the first call that is not
as emulated is named.
All of it goes to stdout, in short, to OUT/log.txt and, after every step, to OUT/results.json; OUT/machine.txt says what the
machine is. After every phase all of OUT is in OUT.tar.gz as well, and with --bring that and the results lie in FOLDER.
--only-left takes what RESULTS, the results.json of another call, lists as left out: also of one that was ended from outside.
With --standin the libraries of test/standin take the GPU's place, and only small models have times.
"""
import argparse
import datetime
import json
import math
import os
import pathlib
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import gpu_timed
from gpu_runs import LATE, CutShort, finish
from gpu_timed import COUNT, IMAGE_FLOPS, LENGTH, SIZE, STEPS, TOKEN_FLOPS
from gpu_ways import NO_EPILOGUES, Ways

STANDIN_WEIGHTS = 1 << 20  # a larger model takes a stand-in hours
# Phases, their shares of the time, and how many of their steps run at a time where there are processors for it: those of
# small models, whose times nobody takes.
PHASES = {"first": (0.25, 8), "nccl": (0.05, 1), "times": (0.38, 1), "sanitizer": (0.2, 1), "oracles": (0.04, 8),
          "rest": (0.08, 8)}
PROCESSORS = 2  # of such a step
# The plain first, and of kernels those with most kinds of them.
SANITIZED = ("mlp-1-1f1b-fp32", "gpt-1-1f1b-bf16", "gpt-1-1f1b-fp32", "cnn-1-1f1b-fp32")
RACES = SANITIZED[1:3]
SANITIZER_LIMIT = 60  # the first time: one that is slow would take all of its phase
# Drivers answer the runtime's questions for functions that they do not have with errors, which are none of ours; library
# kernels have races that they mean.
SANITIZER_WORDS = {"memcheck": ["--report-api-errors", "no"],
                   "racecheck": ["--report-api-errors", "no", "--kernel-name", "regex=^(kernel[0-9]+|pipec_[a-z]+)$"]}
# What it says where it fails itself, as racecheck of versions before 13.5 does on Hopper, at cuBLASLt's first product of bf16.
SANITIZERS_OWN = {"Device not supported": ("it does not support this device", SANITIZER_WORDS),
                  "Internal Sanitizer Error": ("it fails itself and says nothing", ("racecheck",))}
# Dense peaks, FLOP/s in fp32 and bf16, by what nvidia-smi calls the device.
PEAKS = {"H200": (67e12, 989.4e12), "H100": (67e12, 989.4e12), "A100": (19.5e12, 312e12)}
# What is asked of the machine once.
QUESTIONS = (["nvidia-smi", "-q"], ["nvidia-smi", "topo", "-m"], ["nvidia-smi"], ["uname", "-a"], ["lscpu"],
             ["free", "-g"], ["nvcc", "--version"], ["sh", "-c", "which compute-sanitizer nsys ncu ptxas cuobjdump mpirun"],
             ["sh", "-c", "ldconfig -p | grep -E 'cuda|cublas|cudnn|nccl'"],
             ["sh", "-c", "for d in $(echo $GPU_CHECK_LIBRARIES | tr : ' '); do ls -d $d/lib*.so*; done"],
             ["python3", "-c", "import torch; print(torch.__version__, torch.version.cuda, torch.cuda.nccl.version(), "
                               "torch.backends.cudnn.version(), torch.cuda.get_device_properties(0))"])
# Done when all else is: the seconds that are kept for it, those that it needs, and those that it may take.
LAST, LAST_NEEDS, LAST_LIMIT = 45, 30, 40
TRY = "NCCL between two processes on one device"


def device_name():
    """What is known of the GPU: containers may have one without nvidia-smi."""
    try:
        return subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"],
                              capture_output=True, text=True, timeout=20).stdout.strip()
    except OSError:
        return "an unknown device (no nvidia-smi)"
    except subprocess.TimeoutExpired:
        return "an unknown device (nvidia-smi does not answer)"


class Check(Ways):
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

    # Numbers.

    def losses(self, case, references):
        name, way = case["name"], self.way
        arguments = self.target / "plans" / name, case["inputs"], self.target / "data" / case["model"], case["steps"]
        sums = self.target / "sums" / (name + ".jsonl")

        def distance(losses):
            return max(abs(got - want) / max(1e-6, abs(want)) if math.isfinite(got) else math.inf
                       for got, want in zip(losses, case["losses"]))

        def good(losses):
            return len(losses) == len(case["losses"]) and distance(losses) <= case["bound"]

        # Some ways mean other numbers.
        like = " ".join([case["like"], *way[1]])

        def right(losses):
            return good(losses) and losses == references.get(like, losses)
        losses, _, summary, fault = self.attempt(*arguments, *case["words"])
        if not fault:
            worst = distance(losses)
            self.note("losses", name, {"worst": worst, "ranks": summary["ranks"], "first": losses[:3]})
            if not good(losses):
                fault = "a loss is %.2g from PyTorch's" % worst
            else:
                with self.lock:
                    reference = references.setdefault(like, losses)
                if losses != reference:
                    fault = "other bits than the first of its kind: %r, %r" % (losses, reference)
        self.expect(not fault, "%s: %s" % (name, fault))
        if fault and self.diagnose(fault, arguments, case["words"], right, way, sums if sums.exists() else None):
            return self.losses(case, references)
        if losses is None:
            return None
        for rank in summary["ranks"]:
            self.expect(rank["peak_bytes"] == rank["predicted_peak_bytes"], name + ": peak is not the predicted")
        again = self.recorded() and self.run(*arguments, *case["words"], "--graphs", "off")
        if again:
            self.expect(again.losses == losses, name + ": other bits without graphs")
        if case["model"] == "gpt" and case["ranks"] == 1:
            self.biases(case, arguments, losses, good)
        return self.say("%-28s worst loss %.2g from PyTorch's%s" % (name, worst, self.code_of(summary)))

    @staticmethod
    def code_of(summary):
        """What a summary says of how it came about: nothing is wrong with another way, and all times are of it."""
        found = [", %s %s" % (key, summary[key]) for key in ("code", "biases_added", "biases_refused", "attention_by_cudnn", "products_tuned") if key in summary]
        return "".join(found)

    def recorded(self):
        """Whether steps are recorded as graphs."""
        return self.way[0][:1] != ["--graphs"]

    def biases(self, case, arguments, losses, good):
        """Of a run in which no library adds biases: the same bits in f32, where the algorithms are the same."""
        done = self.run(*arguments, *case["words"], environment=NO_EPILOGUES)
        if done:
            same = done.losses == losses
            self.note("losses", case["name"], "biases apart", "same bits" if same else done.losses[:3])
            self.expect(same if case["name"].endswith("fp32") else good(done.losses), case["name"] + ": others without "
                        "epilogues: %r, %r" % (done.losses, losses))

    def oracle(self, case):
        """Replicas, and weights of several versions: the bits of a run without a pipeline."""
        plan, data = self.target / "plans" / case["name"], self.target / "data" / case["model"]
        runs = [self.run(plan, case["inputs"], data, case["steps"], *case["words"], *words) for words in ((), ("--oracle",))]
        if all(runs):
            self.expect(runs[0].losses == runs[1].losses, "%s: other bits than the oracle: %r, %r" % (
                case["name"], runs[0].losses, runs[1].losses))
            self.say("%-28s as the oracle" % case["name"])

    # compute-sanitizer.

    def sanitizer_program(self):
        """The one that was packed, else the machine's, else None. Of a stand-in only one that was put there."""
        packed = map(str, sorted(self.target.glob("sanitizer/nvidia/*/bin/compute-sanitizer")))
        packed, others = ((), ()) if self.standin else (packed, ("/usr/local/cuda/bin/compute-sanitizer",))
        found = map(shutil.which, (*packed, "compute-sanitizer", *others))
        return next(filter(None, found), None)

    def sanitizer(self, tool, case):
        """What it finds is wrong. That it does not end says nothing but that it is slow: it is left out."""
        program, name = self.sanitizer_program(), "%s of %s" % (tool, case["name"])
        if not program:
            self.note("sanitizer", name, "no compute-sanitizer here")
            return self.say("no compute-sanitizer here")
        had = self.results.get("too slow", {}).get(name, 0)
        limit = min(2 * had or SANITIZER_LIMIT, self.left() - 1)
        if had and limit < 1.5 * had:
            raise CutShort(name + ": there is no more time than before")
        log = self.out / ("sanitizer-%s-%s.txt" % (tool, case["name"]))
        done = self.attempt(self.target / "plans" / case["name"], case["inputs"], self.target / "data" / case["model"],
                            2, "--graphs", "off", "--timeout", 600, limit=limit, before=[
                                program, "--tool", tool, "--log-file", log, "--error-exitcode", "99",
                                *SANITIZER_WORDS[tool]])
        if done.error and done.error.startswith(LATE):
            self.note("too slow", name, limit)
            raise CutShort("%s: %s" % (name, done.error))
        said = (log.read_text(errors="replace") if log.exists() else "") + (done.error or "")
        own = next((why for text, (why, tools) in SANITIZERS_OWN.items() if text in said and tool in tools), None)
        if done.error and own:
            self.note("sanitizer", name, own)
            return self.say("compute-sanitizer, %s: %s" % (name, own))
        self.note("sanitizer", name, done.error is None)
        self.expect(done.error is None, "%s: %s" % (name, done.error))
        return self.say("compute-sanitizer, %s: %s" % (name, "see " + log.name if done.error else "clean"))

    # Times.

    def prepare(self, model, elements):
        """Weights and data of a model: the folder, their names, what a step goes through and its FLOPs."""
        folder, gpt2 = self.target / model, model == "gpt2"
        inputs = ["input_ids"] if gpt2 else ["input", "labels"]
        if not (folder / "weights.bin").exists():
            gpu_timed.write_weights(folder, elements)
            if gpt2:
                gpu_timed.write_tokens(folder / "input_ids.npy", 64)
            else:
                gpu_timed.write_images(folder, 4 * gpu_timed.IMAGES)
        return (folder, inputs, *self.work_of(model))

    @staticmethod
    def work_of(model):
        return (SIZE * COUNT * LENGTH, TOKEN_FLOPS) if model == "gpt2" else (gpu_timed.IMAGES * COUNT, IMAGE_FLOPS)

    def steps_of_times(self, packed):
        """What is measured, that which all is compared with first: (needs, name, work, arguments) as step takes them."""
        models = [model for model in packed if not self.standin or model["weights"] <= STANDIN_WEIGHTS]
        items = []
        for precision in dict.fromkeys(precision for model in models for precision, _ in model["plans"]):
            for model in models:
                name, how = "%s %s" % (model["model"], precision), (model["model"], precision)
                ranks = [number for known, number in model["plans"] if known == precision]

                def add(needs, what, work, *arguments, name=name, how=how):
                    items.append((needs, "%s %s" % (name, what), work, *how, *arguments))
                for number in ranks[:1]:
                    add(30, "on %d, graphs" % number, self.time_of, model["weights"], number, "on")
                add(60, "PyTorch eager", self.time_of_torch, False)
                add(60, "PyTorch compiled", self.time_of_torch, True)
                for number in ranks[1:]:
                    add(30, "on %d, graphs" % number, self.time_of, model["weights"], number, "on")
                for number in ranks:
                    add(30, "on %d, no graphs" % number, self.time_of, model["weights"], number, "off")
                    add(30, "on %d, trace" % number, self.trace_of, model["weights"], number)
                    add(30, "on %d, calls" % number, self.calls_of, model["weights"], number)
                if model["model"] == "gpt2":
                    add(30, "on 1, no epilogues", self.time_of, model["weights"], ranks[0], "on", NO_EPILOGUES)
        return items

    def time_of(self, model, precision, weights, ranks, graphs, environment=None):
        """Of a plan for so many ranks. Where graphs fail all has been said with `graphs` off."""
        if graphs == "on" and not self.recorded():
            if not environment:
                return
            graphs = "off"
        folder, inputs, items, flops = self.prepare(model, weights)
        plan = folder / ("%s-%d" % (precision, ranks))
        done = self.run(plan, inputs, folder, STEPS, "--graphs", graphs, environment=environment)
        if not done:
            return
        seconds = statistics.median(done.seconds[3:])
        name = "%s %s pipec, %d ranks, graphs %s" % (model, precision, ranks, graphs)
        self.row(name + (", no epilogues" if environment else ""), seconds, items, flops, precision)
        self.say("    predicted %.4f s; peak %s of %s predicted, beside it %s%s" % (
            done.summary["predicted_step_s"], *([rank.get(key, 0) for rank in done.summary["ranks"]] for key in (
                "peak_bytes", "predicted_peak_bytes", "overhead_bytes")), self.code_of(done.summary)))
        if model != "gpt2":
            size = sum((folder / (input_ + ".npy")).stat().st_size for input_ in inputs) / 4
            self.say("    its batches come from the host, %.0f MB a microbatch; PyTorch's lie on the device" % (size / 1e6))
        alone = self.results["times"].get("%s %s pipec, 1 ranks, graphs %s" % (model, precision, graphs))
        if ranks > 1 and alone:
            bubble = json.loads((plan / "plan.json").read_text())["predicted"]["bubble"]
            self.say("    %d ranks on one device take %.3f of the time of one; wanted: 1.02 and a bubble of %.3f" % (
                ranks, seconds / alone["step_s"], bubble))

    def trace_of(self, model, precision, weights, ranks):
        folder, inputs, *_ = self.prepare(model, weights)
        stem = str(self.out / ("%s-%s-%d" % (model, precision, ranks)))
        self.run(folder / ("%s-%d" % (precision, ranks)), inputs, folder, 4, "--graphs", "on" if self.recorded() else "off",
                 "--trace", stem + "-trace.json", "--profile-out", stem + "-profile.json")

    def calls_of(self, model, precision, weights, ranks):
        folder, inputs, *_ = self.prepare(model, weights)
        calls = self.out / ("%s-%s-%d" % (model, precision, ranks))
        calls.mkdir(exist_ok=True)
        self.run(folder / ("%s-%d" % (precision, ranks)), inputs, folder, 4, "--graphs", "off",
                 environment={"PIPEC_CALL_TIMES": str(calls)})

    def row(self, name, seconds, items, flops, precision):
        """A step's rate, and its share of what the device's products can do."""
        rate = items / seconds
        peak = next((peaks[precision == "bf16"] for key, peaks in PEAKS.items() if key in self.results["device"]), None)
        self.note("times", name, {"step_s": seconds, "per_s": rate, "mfu": rate * flops / peak if peak else None})
        self.say("%-40s %8.4f s %10.0f /s%s" % (name, seconds, rate,
                                                "  MFU %.1f %%" % (100 * rate * flops / peak) if peak else ""))

    def time_of_torch(self, model, precision, compiled):
        step = self.torch(model, precision, compiled)
        if step:
            self.row("%s %s PyTorch %s" % (model, precision, "compile" if compiled else "eager"), step,
                     *self.work_of(model), precision)

    def torch(self, model, precision, compiled):
        """Seconds of a step of the same model; None without PyTorch. A process of its own: it may die, and keeps memory."""
        how = {"model": model, "shape": gpu_timed.GPT2, "size": SIZE if model == "gpt2" else gpu_timed.IMAGES,
               "count": COUNT, "precision": precision, "compiled": compiled, "seconds": self.left(),
               "device": "cpu" if self.standin else "cuda"}
        code, out, error = finish([sys.executable, self.target / "gpu_torch.py", json.dumps(how)], self.left())
        seconds = json.loads(out.splitlines()[-1]) if code == 0 else None
        if seconds:
            return seconds
        why = "no time for its steps" if code == 0 else "it took too long" if code is None else (
            error.strip() or "it ended with %d" % code).splitlines()[-1]
        self.note("torch", "%s %s %s" % (model, precision, compiled), why)
        return self.say("PyTorch: " + why)

    # NCCL.

    def nccl(self):
        """Its messages of a rank to itself: what one device can show of it for sure."""
        folders = [str(self.standin)] if self.standin else os.environ.get("GPU_CHECK_LIBRARIES", "").split(":")
        limit = min(60, self.left())
        code, out, error = finish([sys.executable, self.target / "gpu_nccl.py", *filter(None, folders)], limit)
        # Libraries may say something before and behind it.
        lines = [line for line in out.splitlines() if line.startswith("{")]
        said = json.loads(lines[-1]) if lines else {}
        self.note("nccl", said)
        if "left out" in said:
            return self.say("NCCL is left out: " + said["left out"])
        if code is None and not said and limit < 60:
            raise CutShort("NCCL with itself: " + error.strip()[-300:])
        ended = "it did not end in %d s" % limit if code is None else "exit %d" % code
        self.expect(said and all(found is True for found in said.values()), "NCCL: %s" % (
            said or "%s: %s" % (ended, error.strip()[-1500:])))
        self.expect(code == 0 or not said, "NCCL, when the communicator is given back: %s: %s" % (ended, error.strip()[-500:]))
        return self.say("NCCL with itself: " + ", ".join("%s %s" % (name, {True: "right", False: "wrong"}.get(found, found))
                                                         for name, found in said.items()))

    def two_processes(self, case):
        """NCCL refuses two ranks on a device but for those that seem to be of two machines. Whatever becomes of it says
        nothing about GPUs of their own: it is a try."""
        arguments = self.target / "plans" / case["name"], case["inputs"], self.target / "data" / case["model"]
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        limit = min(LAST_LIMIT, int(self.left()) - 1)

        def rank(number):
            environment = {"RANK": str(number), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
                           "NCCL_HOSTID": "pipec-%d" % number, "NCCL_SOCKET_IFNAME": "lo", "NCCL_DEBUG": "WARN",
                           "PIPEC_NCCL_ONE_GPU": "1"}
            try:
                # Half of the timeout is what the first connection may take.
                return self.attempt(*arguments, case["steps"], *case["words"], "--timeout", "50", limit=limit,
                                    environment=environment)
            except (CutShort, OSError, ValueError, IndexError) as error:  # the metrics are rank 0's
                return repr(error)
        with ThreadPoolExecutor(2) as pool:
            done, other = pool.map(rank, range(2))
        works = not isinstance(done, str) and done.error is None
        losses = works and max(abs(got - want) / max(1e-6, abs(want)) for got, want in zip(done.losses, case["losses"]))
        text = ("it works, and the losses are %.2g from PyTorch's" % losses if works else
                "it does not: %s; %s" % tuple(getattr(end, "error", end) for end in (done, other)))
        self.note("tries", TRY, text)
        self.say("a try: %s: %s" % (TRY, text))

    # All of it.

    def work(self, packed, references):
        """The steps of each phase: (needs, name, work, arguments)."""
        def is_first(case):
            return case["ranks"] == 1 or case["name"] in ("gpt-2-1f1b-fp32", "gpt-4-1f1b-fp32")
        work = {phase: [] for phase in PHASES}
        for case in packed["cases"]:
            work["first" if is_first(case) else "rest"].append((20, case["name"], self.losses, case, references))
        work["times"] = self.steps_of_times(packed["times"])
        names = {case["name"]: case for case in packed["cases"] if case["ranks"] == 1}
        checked = [name for name in SANITIZED if name in names] or list(names)[:2]
        races = [name for name in RACES if name in checked] or checked[:1]
        for name in checked:
            for tool in ("memcheck", "racecheck")[:1 + (name in races)]:
                work["sanitizer"].append((45, "%s of %s" % (tool, name), self.sanitizer, tool, names[name]))
        work["oracles"] = [(20, case["name"], self.oracle, case) for case in packed["oracles"]]
        work["nccl"] = [(10, "NCCL with itself", self.nccl)]
        return work

    def all(self, only=None, earlier=None):
        """The exit code. `only` these phases; `earlier`: the results of a call whose left out steps are done."""
        packed = json.loads((self.target / "cases.json").read_text())
        self.note("date", datetime.date.today().isoformat())
        self.note("device", "stand-in" if self.standin else device_name())
        self.say(self.results["device"])
        self.note("build", packed.get("build"))
        self.note("times", {})
        # It takes long, and nothing of a GPU; nobody waits for the end of what hangs.
        asked = threading.Thread(target=self.step, args=(20, "machine", self.machine), daemon=True)
        asked.start()
        references = {}
        if earlier and earlier.get("build") == packed.get("build"):
            references.update(earlier.get("references", {}))
        work = self.work(packed, references)
        pair = next((case for case in packed["cases"] if case["ranks"] == 2 and case["name"].endswith("-fp32")), None)
        chosen = {phase: how for phase, how in PHASES.items() if not only or phase in only}
        last = [(LAST_NEEDS, TRY, self.two_processes, pair)] if pair and "nccl" in chosen else []
        # None where the earlier call has not come so far as to list anything.
        wanted = earlier.get("left out") if earlier else None
        if wanted is not None:
            work = {phase: [item for item in items if item[1] in wanted] for phase, items in work.items()}
            last = [item for item in last if item[1] in wanted]
            chosen = {phase: how for phase, how in chosen.items() if work[phase]}
        # All of it is left out until it is done: whatever ends this, another call knows what to do.
        self.note("left out", [item[1] for phase in chosen for item in work[phase]] + [item[1] for item in last])
        self.note("references", references)  # they grow
        self.archive()
        left, over = {}, 0
        start, end = self.until - self.left(), self.end - LAST * len(last)  # now, and what all but the last thing has
        for phase, (share, jobs) in chosen.items():
            over += share / sum(share for share, _ in chosen.values())
            self.until = start + over * (end - start)
            left[phase] = self.each(work[phase], self.jobs(jobs))
            self.archive()
        self.until = end
        asked.join(max(1, min(60, self.left())))
        for phase, items in left.items():
            left[phase] = self.each(items, self.jobs(PHASES[phase][1]))
        self.until = self.end
        self.each(last)
        names = self.results["left out"]
        if names:
            self.say("\n  ".join(["left out, there was no time (--only-left results.json does them): %d steps" % len(names),
                                  *names]))
        for model in packed["times"]:
            (self.target / model["model"] / "weights.bin").unlink(missing_ok=True)
        self.summary()
        self.archive()
        return 1 if self.wrong else 0

    def jobs(self, most):
        return max(1, min(most, len(os.sched_getaffinity(0)) // PROCESSORS))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", type=lambda path: pathlib.Path(path).resolve())
    parser.add_argument("out", nargs="?", type=pathlib.Path)
    parser.add_argument("--standin", type=pathlib.Path, help="the folder of the stand-ins, build/test/standin")
    parser.add_argument("--minutes", type=float, default=9)
    parser.add_argument("--only", nargs="+", choices=list(PHASES), help="these phases, which share the time")
    parser.add_argument("--only-left", type=pathlib.Path, metavar="RESULTS", help="what this results.json has as left out")
    parser.add_argument("--bring", type=pathlib.Path, metavar="FOLDER", help="gets the archive and the results as well")
    options = parser.parse_args()
    earlier = json.loads(options.only_left.read_text()) if options.only_left else None
    out = options.out or options.target / "out"
    out.mkdir(parents=True, exist_ok=True)
    check = Check(options.target, out, options.standin, options.minutes, options.bring)
    signal.signal(signal.SIGTERM, check.stop)
    return check.all(options.only, earlier)


if __name__ == "__main__":
    sys.exit(main())
