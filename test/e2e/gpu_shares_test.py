"""How gpu_check.py shares its minutes out among phases, by a clock that only its steps move."""
import json
import os
import time
import unittest
from types import SimpleNamespace
from unittest import mock

from gpu_runs_test import Checked, gpu_check, gpu_runs
import gpu_pack


class Timed(gpu_check.Check):
    """Steps that take a while by a clock of their own, each until its phase is over at most."""
    clock, takes = 1000.0, {}

    def take(self, name, seconds=None):
        seconds = self.takes[name.split()[0]] if seconds is None else seconds
        has = max(0, self.left())
        Timed.clock += min(seconds, has)
        if seconds > has:
            raise gpu_runs.CutShort(name)
        self.done[name] = Timed.clock

    def machine(self):
        pass

    def losses(self, case, _):
        self.take(case["name"])

    def oracle(self, case):
        self.take(case["name"])

    def sanitizer(self, tool, case):
        self.take("%s of %s" % (tool, case["name"]))

    def nccl(self):
        self.take("NCCL with itself", 10)

    def two_processes(self, case):
        self.take(gpu_check.TRY, min(gpu_check.LAST_LIMIT, self.left()))

    def time_of(self, model, precision, weights, ranks, graphs, environment=None):
        self.take("%s %s %s %s %s" % (model, precision, ranks, graphs, environment))

    def time_of_torch(self, model, precision, compiled):
        self.take("%s %s PyTorch %s" % (model, precision, compiled))

    def trace_of(self, model, precision, weights, ranks):
        self.take("%s %s %s trace" % (model, precision, ranks))

    def calls_of(self, model, precision, weights, ranks):
        self.take("%s %s %s calls" % (model, precision, ranks))


class Shares(Checked):
    """A call of eight and a half minutes, in no time."""

    def call(self, takes, earlier=None):
        check = self.check(Timed, 8.5)
        check.takes, check.done = takes, {}
        cases = [{"name": "%s-%d-%s-%s" % (model, ranks, strategy, precision), "ranks": ranks, "model": model}
                 for model in ("mlp", "cnn", "gpt", "unet", "translator") for precision in ("fp32", "bf16")
                 for ranks, strategy in gpu_pack.CASES]
        plans = [[precision, ranks] for precision in ("bf16", "fp32") for ranks in (1, 2)]
        (check.target / "cases.json").write_text(json.dumps({
            "build": "this", "cases": cases, "oracles": [{"name": "oracle-%d" % i} for i in range(3)], "times": [
                {"model": "gpt2", "weights": 1, "plans": plans}, {"model": "resnet", "weights": 1, "plans": plans[::2]}]}))
        start = Timed.clock
        self.assertEqual(check.all(None, earlier), 0, check.wrong)
        left = check.results["left out"]
        # Each is done or left out.
        if not earlier:
            times = 2 * (2 * 4 + 2 + 1) + 2 * (4 + 2)  # on one and two ranks, PyTorch's, without epilogues; ResNet's
            self.assertEqual(len(check.done) + len(left), len(cases) + 3 + 6 + times + 2)
        self.assertLessEqual(Timed.clock - start, 510)
        return {name: when - start for name, when in check.done.items()}, check.results

    def test_shares(self):
        """However slow the others are, NCCL is asked early and the try has its time; another call does what is left."""
        clock = SimpleNamespace(monotonic=lambda: Timed.clock, time=time.time)
        for small, times, sanitizer in ((3, 8, 50), (15, 40, 100), (1, 2, 5)):
            takes = Takes({"gpt2": times, "resnet": times, "memcheck": sanitizer, "racecheck": sanitizer}, small)
            with mock.patch.object(gpu_runs, "time", clock), mock.patch.object(gpu_check, "device_name", lambda: "none"), \
                    mock.patch.object(os, "sched_getaffinity", lambda _: range(2)):
                done, results = self.call(takes)
                self.assertLess(done["NCCL with itself"], 200)
                self.assertIn(gpu_check.TRY, done)
                if results["left out"]:
                    _, again = self.call(takes, results)
                    self.assertLessEqual(again["seconds"].keys(), {"machine", *results["left out"]})
                    self.assertLess(len(again["left out"]), len(results["left out"]))


class Takes(dict):
    """All others are small models."""

    def __init__(self, known, small):
        super().__init__(known)
        self.small = small

    def __missing__(self, name):
        return self.small


if __name__ == "__main__":
    unittest.main()
