#!/usr/bin/env python3
"""What two builds plan for the same models: predicted steps, and the time that planning takes.

Usage: plan_builds.py PIPEC OTHER FOLDER [MODEL ...]
                      [--clusters "--gpus 1x2,--cpus 1x4"] [--strategies auto] [--shares 60,50]

FOLDER has models with a golden.json, as ../shared/models; without a MODEL all of them are planned, with `pipec
--dry-run`, on each of the clusters by each of the strategies. With --shares they are planned under so many percent of
what OTHER's free plan takes instead. A row has the step of OTHER's plan, how much longer PIPEC's is, and the
processor's seconds for both. Exit 1 when PIPEC plans a longer step, or refuses what OTHER plans.
"""
import argparse, itertools, json, os, pathlib, shlex, subprocess, sys


def planned(pipec, folder, cluster, strategy, limit=None):
    """The plan, or None where nothing fits or the strategy has no stages; and processor seconds."""
    golden = json.loads((folder / "golden.json").read_text())
    command = [pipec, "model.onnx", *golden["pipec_args"], *shlex.split(cluster), "--strategy", strategy, "--dry-run",
               "--format", "json", *(["--memory-limit", str(limit)] if limit else [])]
    before = os.times().children_user
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    if done.returncode not in (0, 64, 79):
        sys.exit(f"{shlex.join(map(str, command))}: exit {done.returncode}: {done.stderr}")
    return json.loads(done.stdout) if done.returncode == 0 else None, os.times().children_user - before


def limits(other, folder, cluster, strategy, shares):
    if not shares:
        return [None]
    free = planned(other, folder, cluster, strategy)[0]
    return [max(rank["peak_bytes"] for rank in free["ranks"]) * share // 100 for share in shares] if free else []


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pipec", type=os.path.abspath)
    parser.add_argument("other", type=os.path.abspath)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("models", nargs="*")
    parser.add_argument("--clusters", default="--gpus 1x2,--gpus 1x4,--gpus 2x2", type=lambda text: text.split(","))
    parser.add_argument("--strategies", default="auto", type=lambda text: text.split(","))
    parser.add_argument("--shares", default=[], type=lambda text: [int(share) for share in text.split(",")])
    options = parser.parse_args()
    models = options.models or sorted(path.parent.name for path in options.folder.glob("*/golden.json"))
    faster, slower, count, times = 0, 0, 0, [0.0, 0.0]
    for model, cluster, strategy in itertools.product(models, options.clusters, options.strategies):
        folder = options.folder / model
        for limit in limits(options.other, folder, cluster, strategy, options.shares):
            (old, before), (new, now) = (planned(build, folder, cluster, strategy, limit)
                                         for build in (options.other, options.pipec))
            times[0] += before
            times[1] += now
            count += 1
            steps = [plan["predicted"]["step_s"] if plan else float("inf") for plan in (old, new)]
            faster += steps[1] < steps[0] * (1 - 1e-6)
            slower += steps[1] > steps[0] * (1 + 1e-6)
            told = f"{steps[0] * 1e3:9.4g} ms {100 * (steps[1] / steps[0] - 1):+6.2f} %" if old and new else \
                f"{'a plan' if old else 'none':>9} -> {'a plan' if new else 'none'}"
            print(f"{model:22} {cluster:12} {strategy:12} {limit or 'free':>10} {told}  {before:6.2f} {now:6.2f} s",
                  flush=True)
    print(f"{count} plans: {faster} faster, {slower} slower; {times[0]:.1f} and {times[1]:.1f} s of the processor")
    sys.exit(bool(slower))


if __name__ == "__main__":
    main()
