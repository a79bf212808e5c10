#!/usr/bin/env python3
"""`--strategy auto` against every synchronous strategy and every planner by name, on requests that nobody chose.

Usage: plan_random.py PIPEC [--rounds N] [--seed S] [--devices D] [--limits SHARE] [--verbose]

Each round draws one of the models here, a cluster (processors, GPUs, or a file of one to three levels of any
bandwidths), microbatches, an optimizer and, of half of them, a limit between what a thrifty strategy takes and what
the free plan does. Then `auto` may be slower than none of these by more than 0.01 %, as far as they fit: every
synchronous strategy, every planner for 1F1B and one of them for `auto`, both ways of --recompute, and the baselines
shown beside it; and it must fit where any of them does. Exit 1 when it is behind, or a plan is above its limit.
"""
import argparse, json, os, pathlib, random, subprocess, sys, tempfile

SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "test/e2e"))
from pipeline import Golden  # noqa: E402

EXAMPLES = {"gpt2": ["--dim", "batch=4", "--loss", "next-token"], "lenet": ["--dim", "batch=8"]}
GOLDEN = ["cnn", "gpt", "mlp", "translator", "unet"]
DEVICES = ["v100-16g", "h100-sxm", "l40s", "a100-40g"]
SLACK = 1e-4


def model_of(rng):
    """(name, file, flags) without devices, optimizer and microbatches."""
    name = rng.choice([*EXAMPLES, *GOLDEN])
    if name in EXAMPLES:
        return name, SOURCE / "examples" / name / "model.onnx", EXAMPLES[name]
    golden = Golden(name)
    words, flags = iter(golden.arguments()), []
    for word in words:
        value = next(words)
        if word not in ("--microbatches", "--optimizer", "--clip-norm"):
            flags += [word, value]
    return name, golden.model, flags


def cluster_of(rng, most, folder):
    kind = rng.choice(["cpus", "gpus", "gpus", "file", "file"])
    devices = rng.randint(1, most)
    servers = rng.choice([n for n in range(1, devices + 1) if devices % n == 0])
    grid = f"{servers}x{devices // servers}"
    if kind == "cpus":
        return ["--cpus", grid]
    if kind == "gpus":
        return ["--gpus", grid, "--device", rng.choice(DEVICES)]
    levels, left = [], devices
    for depth in range(rng.randint(1, 3)):
        count = rng.choice([n for n in range(1, left + 1) if left % n == 0])
        levels.append(count)
        left //= count
    levels[-1] *= left
    file = folder / "cluster.json"
    file.write_text(json.dumps({
        "levels": [{"name": f"level{i}", "count": count, "bandwidth_GBps": round(10 ** rng.uniform(-1, 2.5), 3),
                    "latency_us": round(10 ** rng.uniform(-1, 1.5), 2)} for i, count in enumerate(levels)],
        "device": rng.choice([*DEVICES, "cpu"])}))
    return ["--cluster", file]


class Request:
    def __init__(self, pipec, rng, most, folder):
        name, model, flags = model_of(rng)
        cluster = cluster_of(rng, most, folder)
        optimizer = rng.choice(["sgd:lr=0.1", "sgd:lr=0.1,momentum=0.9", "adamw:lr=1e-3"])
        more = ["--microbatches", rng.choice([1, 2, 3, 4, 6, 8, 12, 16, 24]), "--optimizer", optimizer]
        self.words = [pipec, model, *flags, *cluster, *more, "--dry-run", "--format", "json"]
        shown = [file.read_text().replace('"', "") for file in cluster[1:2] if isinstance(file, pathlib.Path)]
        self.text = " ".join(map(str, [name, *cluster, *more, *shown]))

    def plan(self, *more):
        """What is planned, or None where nothing fits or the strategy cannot."""
        done = subprocess.run([*map(str, self.words), *map(str, more)], capture_output=True, text=True)
        if done.returncode in (64, 79):
            return None
        if done.returncode:
            sys.exit(f"{self.text} {more}: exit {done.returncode}: {done.stderr}")
        return json.loads(done.stdout)


def peak(plan):
    return max(rank["peak_bytes"] for rank in plan["ranks"])


def named(pipec, what):
    rows = json.loads(subprocess.run([pipec, "list", what, "--format", "json"], capture_output=True, text=True,
                                     check=True).stdout)
    return [row["name"] for row in rows if row.get("synchronous", "yes") == "yes"]


def rivals(rng, strategies, planners):
    for strategy in strategies:
        if strategy != "seq1f1b":  # pieces of sequences are for who asks for them (--slices)
            yield ["--strategy", strategy]
    for planner in planners:
        yield ["--strategy", "1f1b", "--planner", planner]
    yield ["--strategy", "auto", "--planner", rng.choice(planners)]
    for recompute in ("none", "full"):
        yield ["--strategy", "1f1b", "--recompute", recompute]


def limit_of(request, rng, free):
    least = [request.plan("--strategy", "1f1b", "--recompute", how) for how in ("none", "full")]
    low = min(peak(plan) for plan in [free, *filter(None, least)])
    return rng.randint(low, max(low, peak(free)))


def behind(request, limit, ours, rows):
    """What is faster than `ours`, and by how much."""
    more = ["--memory-limit", limit] if limit else []
    found = []
    seconds = ours["predicted"]["step_s"] if ours else None
    for words in rows:
        other = request.plan(*words, *more)
        if not other:
            continue
        if limit and peak(other) > limit:
            found.append((1, f"{' '.join(words)} takes {peak(other)} bytes"))
        elif not ours:
            found.append((1, f"auto does not fit where {' '.join(words)} does"))
        elif seconds > other["predicted"]["step_s"] * (1 + SLACK):
            found.append((seconds / other["predicted"]["step_s"] - 1, " ".join(words)))
    for row in ours["baselines"] if ours else []:
        if row["fits"] and row["step_s"] > 0 and seconds > row["step_s"] * (1 + SLACK):
            found.append((seconds / row["step_s"] - 1, row["name"]))
    if limit and ours and peak(ours) > limit:
        found.append((1, f"auto takes {peak(ours)} bytes"))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pipec", type=os.path.abspath)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--devices", type=int, default=16, help="at most so many")
    parser.add_argument("--limits", type=float, default=0.5, help="share of the requests with a limit that binds")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    strategies = named(options.pipec, "strategies")
    planners = [name for name in named(options.pipec, "planners") if name != "auto"]
    failed, worst = 0, 0
    with tempfile.TemporaryDirectory() as folder:
        for round_ in range(options.rounds):
            rng = random.Random(1000 * options.seed + round_)
            request = Request(options.pipec, rng, options.devices, pathlib.Path(folder))
            ours, limit = request.plan(), None
            if ours and rng.random() < options.limits:
                limit = limit_of(request, rng, ours)
                ours = request.plan("--memory-limit", limit)
            found = behind(request, limit, ours, rivals(rng, strategies, planners))
            failed += bool(found)
            if found or options.verbose:
                print(f"round {round_} {request.text}{f' --memory-limit {limit}' if limit else ''}: "
                      f"{ours['strategy'] if ours else 'nothing'}", flush=True)
            for ratio, words in sorted(found, reverse=True):
                worst = max(worst, ratio)
                print(f"  {words}: +{100 * ratio:.3f} %", flush=True)
    print(f"{options.rounds} requests: auto is behind in {failed}"
          + (f", by {100 * worst:.3f} % at most" if failed else ""))
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
