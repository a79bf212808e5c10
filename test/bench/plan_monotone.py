#!/usr/bin/env python3
"""More devices, faster links, more memory and more microbatches are never predicted slower by `--strategy auto`.

Usage: plan_monotone.py PIPEC [--rounds N] [--seed S] [--limits N]

Each round draws a model, an optimizer, microbatches and a cluster of two levels as plan_random.py does, and plans it
again with twice the servers (or devices of the only server), twice and ten times the bandwidth, and twice the
microbatches, which may take twice as long; and under N limits between a third of what the free plan takes and all of
it, each held against the next smaller. Prints what is slower by more than 0.0001 %, and the processor's seconds for all
plans. Exit 1 when anything is.
"""
import argparse, itertools, json, os, pathlib, random, resource, subprocess, sys, tempfile

from plan_random import DEVICES, model_of


class Planner:
    def __init__(self, pipec, folder, rng):
        name, model, flags = model_of(rng)
        self.levels = [rng.choice([1, 1, 2, 3, 4]), rng.choice([1, 2, 2, 3, 4])]
        self.bandwidth = [10 ** rng.uniform(-1, 2.5) for _ in self.levels]
        self.latency = [10 ** rng.uniform(-1, 1.5) for _ in self.levels]
        self.device = rng.choice([*DEVICES, "cpu"])
        self.microbatches = rng.choice([1, 2, 3, 4, 6, 8, 12, 16, 24])
        self.file = folder / "cluster.json"
        self.words = [pipec, model, *flags, "--cluster", self.file, "--optimizer", rng.choice(["sgd", "adamw:lr=1e-3"])]
        self.text = (f"{name} {self.levels} {self.device} {[round(b, 2) for b in self.bandwidth]} GB/s, "
                     f"{self.microbatches} microbatches")

    def plan(self, levels=None, faster=1, microbatches=1, limit=None):
        """Seconds of a step and bytes of the fullest device, without end where nothing fits."""
        self.file.write_text(json.dumps({"device": self.device, "levels": [
            {"name": f"level{i}", "count": count, "bandwidth_GBps": faster * band, "latency_us": late}
            for i, (count, band, late) in enumerate(zip(levels or self.levels, self.bandwidth, self.latency))]}))
        done = subprocess.run([*map(str, self.words), "--microbatches", str(microbatches * self.microbatches), "--dry-run",
                               "--format", "json", *(["--memory-limit", str(limit)] if limit else [])],
                              capture_output=True, text=True)
        if done.returncode == 79:
            return float("inf"), float("inf")
        if done.returncode:
            sys.exit(f"{self.text}: exit {done.returncode}: {done.stderr}")
        shown = json.loads(done.stdout)
        return shown["predicted"]["step_s"], max(rank["peak_bytes"] for rank in shown["ranks"])

    def step(self, *arguments, **changed):
        return self.plan(*arguments, **changed)[0]

    def rows(self):
        """What is changed, and the step before and after."""
        own = self.step()
        more = list(self.levels)
        more[0 if more[0] > 1 else 1] *= 2
        yield "devices", own, self.step(more)
        twice, tenfold = self.step(faster=2), self.step(faster=10)
        yield "links x2", own, twice
        yield "links x10", min(own, twice), tenfold
        yield "microbatches x2", 2 * own, self.step(microbatches=2)

    def limits(self, rng, count):
        """The same of limits, from the smallest to none."""
        own, peak = self.plan()
        if not count or own == float("inf"):
            return
        asked = sorted(rng.randint(peak // 3, peak) for _ in range(count))
        steps = [(limit, self.step(limit=limit)) for limit in asked] + [(peak, own)]
        for (less, before), (limit, after) in itertools.pairwise(steps):
            yield f"--memory-limit {less} to {limit}", before, after


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pipec", type=os.path.abspath)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limits", type=int, default=0, help="so many of memory as well")
    options = parser.parse_args()
    compared = slower = 0
    with tempfile.TemporaryDirectory() as folder:
        for round_ in range(options.rounds):
            rng = random.Random(7000 * options.seed + round_)
            planner = Planner(options.pipec, pathlib.Path(folder), rng)
            for what, before, after in [*planner.rows(), *planner.limits(rng, options.limits)]:
                compared += 1
                if after > before * (1 + 1e-6):
                    slower += 1
                    print(f"round {round_} {planner.text}\n  {what}: {100 * (after / before - 1):+.4f} %", flush=True)
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"{slower} of {compared} are slower; {spent.ru_utime + spent.ru_stime:.1f} s of the processor")
    sys.exit(slower > 0)


if __name__ == "__main__":
    main()
