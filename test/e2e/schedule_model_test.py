"""`pipec schedule` against a simulator of its own, on random sizes, costs, links and limits."""
import json
import random
import re
import unittest

import schedule_model
from pipeline import NO_FIT, USAGE, PipelineTest, call

TWO_COPIES = ("gems", "chimera", "dualpipe")
CHUNKS = ("interleaved-1f1b", "looped-bfs", "interleaved-zb")
V = ("zb-v", "v-half", "v-min", "v-flex", "1f1b-v", "dualpipe-v")
NAMES = ("naive", "dp", "gpipe", "1f1b", "zb-h1", "zb-h2", "zb", "auto", *CHUNKS, *V, *TWO_COPIES)


class ScheduleModelTest(PipelineTest):
    def ask(self, name, devices, microbatches, costs, *more):
        file = self.fresh(".json")
        file.write_text(json.dumps(costs.json()))
        return call("pipec", "schedule", name, "--stages", str(devices), "--microbatches", str(microbatches),
                    "--costs", file, "--format", "json", *more)

    def check(self, process, costs, microbatches):
        """The figures of an answer, equal to ours."""
        answer = json.loads(process.stdout)
        rows = schedule_model.parse(answer["actions"])
        makespan, span, peaks = schedule_model.simulate(rows, answer["chunks"], costs)
        self.assertEqual(1 + max(k for row in rows for _, _, k in row), microbatches)
        self.assertAlmostEqual(answer["makespan"], makespan, delta=1e-6 * makespan)
        self.assertAlmostEqual(answer["span"], span, delta=1e-6 * makespan)
        for said, peak in zip(answer["peak"], peaks, strict=True):
            self.assertAlmostEqual(said, peak, delta=1e-6)
        return makespan, span, max(peaks)

    def test_figures_of_every_schedule(self):
        rng = random.Random(1)
        answered = set()
        for round_ in range(3 * len(NAMES)):
            name = NAMES[round_ % len(NAMES)]
            devices, microbatches = rng.randint(2, 7), rng.randint(1, 16)
            if name in TWO_COPIES:
                devices += devices % 2
            if name.startswith("dualpipe"):
                microbatches = 2 * devices + 2 * rng.randint(0, 3)
            costs = schedule_model.Costs(rng, devices)
            more = ["--chunks", str(rng.randint(1, 4))] if name in CHUNKS else []
            with self.subTest(name=name, devices=devices, microbatches=microbatches, round=round_):
                process = self.ask(name, devices, microbatches, costs, *more)
                if process.returncode == USAGE:
                    continue  # sizes it does not serve
                self.check_exit(process, 0)
                makespan, _, _ = self.check(process, costs, microbatches)
                answered.add(name)
                bound = json.loads(process.stdout).get("bound", 0)
                self.assertLessEqual(bound, makespan * (1 + 1e-9))
        self.assertEqual(answered, set(NAMES))

    def test_auto_is_not_behind_at_any_peak(self):
        rng = random.Random(2)
        for _ in range(4):
            devices, microbatches = rng.randint(3, 6), rng.randint(4, 12)
            costs = schedule_model.Costs(rng, devices)
            seen = []
            for name in ("1f1b", "zb-h1", "interleaved-zb", "zb", "zb-v", "v-half", "v-min", "v-flex"):
                process = self.ask(name, devices, microbatches, costs)
                self.check_exit(process, 0)
                makespan, _, peak = self.check(process, costs, microbatches)
                seen.append((peak, makespan, name))
            for limit in {peak for peak, _, _ in seen}:
                process = self.ask("auto", devices, microbatches, costs, "--memory-limit", repr(limit + 1e-9))
                self.check_exit(process, 0)
                makespan, _, peak = self.check(process, costs, microbatches)
                self.assertLessEqual(peak, limit + 1e-6)
                for other, theirs, name in seen:
                    if other <= limit:
                        self.assertLessEqual(makespan, theirs * (1 + 1e-9), name)

    def test_the_least_limit_is_the_one_named(self):
        rng = random.Random(3)
        for _ in range(5):
            devices = rng.randint(2, 6)
            costs = schedule_model.Costs(rng, devices)
            process = self.ask("auto", devices, 6, costs, "--memory-limit", "0.01")
            self.check_exit(process, NO_FIT)
            least = float(re.search(r"needs at least ([0-9.]+)", process.stderr)[1])
            self.check_exit(self.ask("auto", devices, 6, costs, "--memory-limit", repr(least * (1 + 1e-5))), 0)
            self.check_exit(self.ask("auto", devices, 6, costs, "--memory-limit", repr(least * 0.99)), NO_FIT)


if __name__ == "__main__":
    unittest.main()
