#!/usr/bin/env python3
"""Plans under memory limits that bind: processor time, step and bytes, and whether what an error names is true.

Usage: plan_limits.py PIPEC [--cluster "--gpus 2x8"] [--shares 90,70,50,35,20] [--strategies auto]

Plans the examples (GPT-2 and LeNet) freely, then under shares in percent of what the free plan takes, with `pipec
--dry-run`, by each of the strategies. Where nothing fits the limit that the error names is tried as well. Exit 1 when that does not fit, or a plan
is above its limit.
"""
import argparse, itertools, json, os, pathlib, re, shlex, subprocess, sys

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"
MODELS = {"gpt2": ["--dim", "batch=4", "--loss", "next-token", "--optimizer", "adamw:lr=1e-3"],
          "lenet": ["--dim", "batch=8"]}


def plan(pipec, model, cluster, strategy, limit=None):
    """Processor seconds and the plan, or what was said."""
    command = [pipec, EXAMPLES / model / "model.onnx", *MODELS[model], "--microbatches", "16", *cluster, "--strategy", strategy,
               "--dry-run", "--format", "json", *(["--memory-limit", str(limit)] if limit else [])]
    before = os.times().children_user
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode not in (0, 79):
        sys.exit(f"{command}: exit {done.returncode}: {done.stderr}")
    return os.times().children_user - before, json.loads(done.stdout) if done.returncode == 0 else done.stderr


def peak(shown):
    return max(rank["peak_bytes"] for rank in shown["ranks"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pipec")
    parser.add_argument("--cluster", default="--gpus 2x8", type=shlex.split)
    parser.add_argument("--shares", default="90,70,50,35,20")
    parser.add_argument("--strategies", default="auto")
    options = parser.parse_args()
    wrong = 0
    for model, strategy in itertools.product(MODELS, options.strategies.split(",")):
        seconds, free = plan(options.pipec, model, options.cluster, strategy)
        limits = [None, *(peak(free) * int(share) // 100 for share in options.shares.split(","))]
        for limit in limits:
            if limit:
                seconds, shown = plan(options.pipec, model, options.cluster, strategy, limit)
            else:
                shown = free
            words = f"{model:6} {limit or 'free':>10} {seconds:6.2f} s  "
            if isinstance(shown, dict):
                wrong += bool(limit) and peak(shown) > limit
                again = sum(stage.get("recompute", False) for stage in shown["stages"])
                print(f"{words}{shown['strategy']:8} {len(shown['stages']):2} stages, {again:2} again  {peak(shown):>10} B  "
                      f"{shown['predicted']['step_s'] * 1e3:.4g} ms", flush=True)
                continue
            advice = re.search("would fit with --memory-limit ([0-9]+)", shown)
            if not advice:
                wrong += 1
                print(f"{words}nothing fits, and no limit is named: {shown.strip()}", flush=True)
                continue
            named = int(advice[1])
            fits = isinstance(plan(options.pipec, model, options.cluster, strategy, named)[1], dict)
            wrong += not fits
            print(f"{words}nothing fits; {named} {'does' if fits else 'DOES NOT EITHER'}", flush=True)
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
