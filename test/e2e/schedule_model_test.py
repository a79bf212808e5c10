"""`pipec schedule` against a simulator of its own, on random sizes, costs, links and limits."""
import itertools
import json
import random
import re
import unittest

from pipeline import NO_FIT, USAGE, PipelineTest, call

ACTION = re.compile(r"(\d+)([FBIW])(\d+)$")
TWO_COPIES = ("gems", "chimera", "dualpipe")
CHUNKS = ("interleaved-1f1b", "looped-bfs", "interleaved-zb")
V = ("zb-v", "v-half", "v-min", "v-flex", "1f1b-v", "dualpipe-v")
NAMES = ("naive", "dp", "gpipe", "1f1b", "zb-h1", "zb-h2", "zb", "auto", *CHUNKS, *V, *TWO_COPIES)


class Costs:
    """Random costs of each device (a chunk takes its share) and of the links between neighbours."""

    def __init__(self, rng, devices):
        def times():
            return [round(rng.uniform(0.2, 3), 3) for _ in range(devices)]
        self.time = {"F": times(), "I": times(), "W": [rng.choice([0, t]) for t in times()]}
        kept = [round(rng.uniform(0.5, 2), 2) for _ in range(devices)]
        freed = [round(-rng.random() * k, 2) for k in kept]
        self.memory = {"F": kept, "I": freed, "W": [-(k + f) for k, f in zip(kept, freed)]}
        self.links = [round(rng.random(), 3) for _ in range(devices - 1)]

    def json(self):
        return {"F": self.time["F"], "B": self.time["I"], "W": self.time["W"], "comm": self.links,
                "memory": {"F": self.memory["F"], "B": self.memory["I"], "W": self.memory["W"]}}

    def of(self, table, kind, device):
        return sum(table[k][device] for k in ("IW" if kind == "B" else kind))

    def hop(self, a, b):
        return max(self.links[min(a, b):max(a, b)], default=0)


def simulate(rows, chunks, costs):
    """(makespan, span, peaks) of an as-soon-as-possible execution; AssertionError where a rule is broken."""
    home = {}
    for device, row in enumerate(rows):
        for action in row:
            assert action not in home, f"{action} twice"
            home[action] = device
    stages, microbatches = (1 + max(a[i] for a in home) for i in (0, 2))
    for s, k in itertools.product(range(stages), range(microbatches)):
        kinds = "".join(t for t in "FBIW" if (s, t, k) in home)
        assert kinds in ("FB", "FIW"), f"stage {s} microbatch {k} has {kinds}"
        assert len({home[s, t, k] for t in kinds}) == 1, f"stage {s} microbatch {k} moves"

    def inputs(stage, kind, k):
        if kind == "F":
            return [(stage - 1, "F", k)] if stage else []
        if kind == "W":
            return [(stage, "I", k)]
        later = [(stage + 1, t, k) for t in "BI" if (stage + 1, t, k) in home]
        return [(stage, "F", k), *later]

    end, at, free, first = {}, [0] * len(rows), [0.0] * len(rows), [None] * len(rows)
    moved = True
    while moved:
        moved = False
        for d, row in enumerate(rows):
            while at[d] < len(row) and all(i in end for i in inputs(*row[at[d]])):
                action = row[at[d]]
                begin = max([free[d], *(end[i] + (costs.hop(home[i], d) if home[i] != d else 0)
                                        for i in inputs(*action))])
                first[d] = begin if first[d] is None else first[d]
                free[d] = end[action] = begin + costs.of(costs.time, action[1], d) / chunks
                at[d] += 1
                moved = True
    assert all(a == len(row) for a, row in zip(at, rows)), "deadlock"
    peaks = []
    for d, row in enumerate(rows):
        held = itertools.accumulate(costs.of(costs.memory, t, d) / chunks for _, t, _ in row)
        peaks.append(max(held, default=0))
    used = [d for d, row in enumerate(rows) if row]
    return (max(free) - min(first[d] for d in used), max(free[d] - first[d] for d in used), peaks)


class ScheduleModelTest(PipelineTest):
    def ask(self, name, devices, microbatches, costs, *more):
        file = self.fresh(".json")
        file.write_text(json.dumps(costs.json()))
        return call("pipec", "schedule", name, "--stages", str(devices), "--microbatches", str(microbatches),
                    "--costs", file, "--format", "json", *more)

    def check(self, process, costs, microbatches):
        """The figures of an answer, equal to ours."""
        answer = json.loads(process.stdout)
        rows = [[(int(m[1]), m[2], int(m[3])) for m in map(ACTION.match, row)] for row in answer["actions"]]
        makespan, span, peaks = simulate(rows, answer["chunks"], costs)
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
            costs = Costs(rng, devices)
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
            costs = Costs(rng, devices)
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
            costs = Costs(rng, devices)
            process = self.ask("auto", devices, 6, costs, "--memory-limit", "0.01")
            self.check_exit(process, NO_FIT)
            least = float(re.search(r"needs at least ([0-9.]+)", process.stderr)[1])
            self.check_exit(self.ask("auto", devices, 6, costs, "--memory-limit", repr(least * (1 + 1e-5))), 0)
            self.check_exit(self.ask("auto", devices, 6, costs, "--memory-limit", repr(least * 0.99)), NO_FIT)


if __name__ == "__main__":
    unittest.main()
