#!/usr/bin/env python3
"""`pipec schedule auto` against every named schedule on cells that nobody chose.

Usage: schedules_random.py PIPEC [--rounds N] [--seed S] [--tasks N]

Each round draws devices (odd numbers too), microbatches, times and memory (all
devices alike or each its own), links (none, one latency, one per neighbours, a
matrix) and limits. Every schedule with one set of weights is made under both
metrics, free and within those limits. Then `auto` must not cost more within the
same limits, and, given the peaks of a free one as its limits, not more than
that, nor need more. Costs and peaks are those of the
simulator in test/e2e/schedule_model.py, which shares nothing with pipec; what
pipec says of each order must be the same. --tasks bounds the size of a cell
(forwards and backwards of one chunk each).

Exit code 1 when `auto` is behind somewhere.
"""
import argparse
import collections
import json
import os
import random
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../e2e"))
from schedule_model import Costs, parse, simulate  # noqa: E402

METRICS = ("makespan", "span")
PLAIN = ("naive", "gpipe", "1f1b", "zb-h1", "zb-h2", "dualpipe-v")
CHUNKED = ("interleaved-1f1b", "looped-bfs", "interleaved-zb")
SEARCHED = ("zb", "zb-v", "v-half", "v-min", "v-flex", "1f1b-v")


class Cell:
    def __init__(self, rng, most_tasks):
        self.devices = rng.randint(2, 9)
        most = max(1, most_tasks // (6 * self.devices))
        self.microbatches = min(most, rng.choice([rng.randint(1, 2 * self.devices), rng.randint(1, 4 * self.devices)]))
        self.costs = Costs(rng, self.devices)
        self.kind = rng.choice(["alike", "alike", "own"])
        if self.kind == "alike":
            for table in (self.costs.time, self.costs.memory):
                for kind, values in table.items():
                    table[kind] = [values[0]] * self.devices
            self.costs.time["W"] = [round(rng.uniform(0.3, 1.2) * self.costs.time["I"][0], 3)] * self.devices
        self.links = rng.choice(["none", "one", "each", "matrix"])
        if self.links == "none":
            self.costs.links = [0] * (self.devices - 1)
        elif self.links == "one":
            self.costs.links = [round(0.2 * rng.random(), 3)] * (self.devices - 1)
        elif self.links == "matrix":
            self.costs.links = [[round(rng.random(), 3) * (a != b) for b in range(self.devices)]
                                for a in range(self.devices)]
        whole = self.costs.memory["F"]
        share = rng.choice([1, 0.5, 0.34, rng.uniform(0.2, 1.2)])
        self.limits = [round(max(1.0, share * self.devices) * w * rng.uniform(1, 1.3), 3) for w in whole]

    def __str__(self):
        return (f"P={self.devices} M={self.microbatches} costs {self.kind} links {self.links} "
                f"limits {self.limits}")

    def ask(self, program, name, metric, limits, *more):
        """(cost by metric, peaks) by our simulator, None where the schedule refuses."""
        table = self.costs.json()
        if limits:
            table["limit"] = limits
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(table, file)
            file.flush()
            done = subprocess.run([program, "schedule", name, "--stages", str(self.devices), "--microbatches",
                                   str(self.microbatches), "--costs", file.name, "--metric", metric,
                                   "--format", "json", *more], capture_output=True, text=True)
        if done.returncode in (64, 79):
            return None
        if done.returncode:
            sys.exit(f"{name} {self}: exit {done.returncode}: {done.stderr}")
        answer = json.loads(done.stdout)
        makespan, span, peaks = simulate(parse(answer["actions"]), answer["chunks"], self.costs)
        for said, seen in [(answer["makespan"], makespan), (answer["span"], span), *zip(answer["peak"], peaks)]:
            if abs(said - seen) > 1e-6 * max(1, makespan):
                sys.exit(f"{name} {self}: pipec says {said}, the model {seen}")
        if "bound" in answer and answer["bound"] > answer[metric] * (1 + 1e-9):
            sys.exit(f"{name} {self}: a {metric} of {answer[metric]} is below its bound {answer['bound']}")
        return {"makespan": makespan, "span": span}, peaks


def rivals(cell, program):
    """(name, limits for `auto`, costs, peaks) of every order that it could have taken."""
    def free(name, metric, *more):
        got = cell.ask(program, name, metric, None, *more)
        return (got and [p * (1 + 1e-9) + 1e-9 for p in got[1]]), got
    for name in PLAIN:
        yield name, *free(name, "makespan")
    for name in CHUNKED:
        for chunks in ("2", "3", "4"):
            yield f"{name} --chunks {chunks}", *free(name, "makespan", "--chunks", chunks)
    for name in SEARCHED:
        for metric in METRICS:
            yield f"{name} for {metric}", *free(name, metric)
            yield f"{name} for {metric} limited", cell.limits, cell.ask(program, name, metric, cell.limits)


def compare(cell, program, counts, most):
    behind = []
    known = {}  # limits and metric -> what auto does
    for name, room, rival in rivals(cell, program):
        if not rival:
            continue
        for metric in METRICS:
            key = (tuple(room), metric)
            if key not in known:
                known[key] = cell.ask(program, "auto", metric, room)
            ours = known[key]
            if not ours:
                behind.append(f"{name}: auto finds nothing in {room}")
                continue
            if any(a > b + 1e-6 for a, b in zip(ours[1], room)):
                behind.append(f"{name}: auto needs {ours[1]}, had {room}")
            cost, ratio = rival[0][metric], ours[0][metric] / rival[0][metric]
            counts["shorter" if ratio < 1 - 1e-9 else "equal" if ratio <= 1 + 1e-9 else "longer"] += 1
            most[0] = max(most[0], ratio - 1)
            if ratio > 1 + 1e-9:
                behind.append(f"{name}: {metric} {ours[0][metric]:.6g}, it has {cost:.6g} (+{100 * (ratio - 1):.3f} %)")
    return behind


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("pipec")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tasks", type=int, default=1500)
    options = parser.parse_args()
    counts = collections.Counter()
    failed, most = 0, [0]
    for round_ in range(options.rounds):
        cell = Cell(random.Random(1000 * options.seed + round_), options.tasks)
        behind = compare(cell, options.pipec, counts, most)
        failed += bool(behind)
        for line in behind:
            print(f"round {round_} {cell}\n  {line}")
        sys.stdout.flush()
    print(f"{options.rounds} cells, {sum(counts.values())} comparisons: {counts['shorter']} shorter, "
          f"{counts['equal']} equal, {counts['longer']} longer"
          + (f" by {100 * most[0]:.3f} % at most" if most[0] > 1e-9 else ""))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
