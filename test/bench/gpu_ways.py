"""What gpu_check.py does about a run that fails or whose numbers are wrong: the same again, where it goes wrong, and which
other way works."""
import pathlib
import threading

import gpu_sums
from gpu_runs import CutShort, Runs

NO_EPILOGUES = {"PIPEC_EPILOGUES": "off"}
# Other ways to run what has failed: name, words, environment, and what it means when that works.
WAYS = (("--graphs off", ["--graphs", "off"], {}, "recording a step is at fault: docs/gpu.md, 'capture'"),
        ("PIPEC_CALL_SYNC=1", ["--graphs", "off"], {"PIPEC_CALL_SYNC": "1"},
         "the order of streams is: an event is missing; when it fails the error names the call"),
        ("PIPEC_GPU_CODE=ptx", [], {"PIPEC_GPU_CODE": "ptx"}, "the machine code is: docs/gpu.md, 'first load'"),
        ("CUDA_MODULE_LOADING=EAGER", [], {"CUDA_MODULE_LOADING": "EAGER"}, "lazy loading is: docs/gpu.md"),
        ("CUDA_LAUNCH_BLOCKING=1", ["--graphs", "off"], {"CUDA_LAUNCH_BLOCKING": "1"},
         "the order of streams is: an event is missing"),
        ("PIPEC_EPILOGUES=off", [], NO_EPILOGUES, "the biases that cuBLASLt adds are: docs/gpu.md, 'Running'"),
        ("NVIDIA_TF32_OVERRIDE=0", [], {"NVIDIA_TF32_OVERRIDE": "0"}, "TF32 is: docs/gpu.md, 'Running'"))
# Every library's log of a run that fails.
LOGS = {"CUBLASLT_LOG_LEVEL": "5", "CUBLASLT_LOG_FILE": "%s-cublaslt.log", "CUDNN_LOGLEVEL_DBG": "3",
        "CUDNN_LOGDEST_DBG": "%s-cudnn.log", "NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": "%s-nccl-%%p.log"}
MOST_DIAGNOSES = 3
LIMIT = 40  # seconds of a run that only tells why
# What stands still is to say where before that: half of this.
STANDSTILL = ("--timeout", "30")


class Ways(Runs):
    def __init__(self, *arguments, **more):
        super().__init__(*arguments, **more)
        self.diagnoses = 0
        self.diagnosed = set()  # what was wrong
        self.diagnosing = threading.Lock()
        self.logs = self.out / "logs"

    def diagnose(self, fault, arguments, words, right, way, sums=None):
        """Of a run that was not `right` (of losses) when `way` was that of all runs: whether it is so again, the call that is
        at fault where `sums` has the emulation's, the libraries' logs, and which other ways are right. True when it is to be
        run once more: one of them has become that of all runs, here or meanwhile."""
        with self.diagnosing:
            if self.way != way:
                return True
            if fault in self.diagnosed or self.diagnoses >= MOST_DIAGNOSES or self.left() < 60:
                return False
            self.diagnosed.add(fault)
            self.diagnoses += 1
            self.logs.mkdir(exist_ok=True)
            found = []
            try:
                self.other_ways(arguments, words, right, sums, found)
            except CutShort:  # what is known by now was said
                pass
            if found:
                self.way = found[0]
                self.note("way", self.way)
                self.say("    so are all runs from here on")
            return bool(found)

    def other_ways(self, arguments, words, right, sums, found):
        """To `found`: the words and environment of the first way that is right whenever the usual one is wrong."""
        plan, inputs, data, steps = arguments
        stem = str(self.logs / ("%d-%s" % (self.diagnoses, plan.name)))
        words = with_standstill(words)

        def is_right(log, more=(), **environment):
            done = self.attempt(*arguments, *words, *more, environment=environment, limit=LIMIT)
            with open(stem + log + ".txt", "a") as file:
                file.write((done.error or "runs: %r" % done.losses) + "\n")
            return done.error is None and right(done.losses), done
        # Logs take time, which hides a race: first as it was, and with them where that is wrong again.
        if is_right("")[0]:
            return self.comes_and_goes(plan)
        if sums:
            self.locate(plan, inputs, data, words, sums, stem)
        if self.left() >= 2 * LIMIT and is_right("-logs", **{key: value % stem if "%" in value else value
                                                             for key, value in LOGS.items()})[0]:
            self.say("    with the libraries' logs on it is right once: they take time, which hides races")
        recorded = True
        for name, more, environment, meaning in WAYS:
            if self.left() < LIMIT:
                break
            if more and not recorded:  # what the environment adds says nothing then
                continue
            if more and not environment and list(self.way[0]) == more:  # all runs are so
                continue
            log = "-" + name.replace(" ", "-")
            works, done = is_right(log, more, **environment)
            recorded = recorded and not (works and more)
            self.note("diagnoses", plan.name, name, works)
            why = ": " + done.error.splitlines()[-1][:200] if done.error else ""
            self.say("    with %s it is %s" % (name, "right (once): " + meaning if works else "wrong, too" + why))
            # One that is right by luck would become that of all runs.
            if works and not found and self.way == ((), {}) and self.left() >= 2 * LIMIT:
                if is_right("")[0]:
                    return self.comes_and_goes(plan)
                if is_right(log, more, **environment)[0]:
                    self.say("    and a second time, and wrong without it in between")
                    found.append((more, environment))
                else:
                    self.say("    and then wrong, with the same")
        return None

    def comes_and_goes(self, plan):
        self.say("    again, and with nothing changed, it is right: it comes and goes, so that no way that is right says "
                 "anything; races do that")
        self.note("comes and goes", plan.name, True)

    def locate(self, plan, inputs, data, words, sums, stem):
        """Says which calls of the first step are not as emulated, and of a step that fails behind which of them it does."""
        got = pathlib.Path(stem + ".sums")
        want = gpu_sums.read(sums)
        done = self.attempt(plan, inputs, data, 1, *words, "--graphs", "off", environment={"PIPEC_CALL_SUMS": str(got)},
                            limit=LIMIT)
        rows = gpu_sums.read(got)
        why = (done.error or "nothing was written").strip().splitlines()[-1][:200]
        if not rows:
            return self.say("    no sums of its calls: " + why)
        precision = "bf16" if "bf16" in plan.name else "fp32"
        found = gpu_sums.differences(rows, want, precision, not done.error)
        self.note("first calls that differ", plan.name, found)
        for text in found:
            self.say("    differs from the emulation: " + text)
        if done.error:
            ends = gpu_sums.ends(rows, want)
            self.note("ends behind", plan.name, ends)
            return self.say("    its first step fails: %s\n%s" % (why, "\n".join("      " + text for text in ends)))
        if not found:
            self.say("    the calls of its first step are as emulated, as far as sums tell: " + gpu_sums.COARSE[precision])
        return None


def with_standstill(words):
    return list(words) if "--timeout" in words else [*words, *STANDSTILL]
