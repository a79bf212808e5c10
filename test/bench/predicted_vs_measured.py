#!/usr/bin/env python3
"""Predicted beside measured step time and memory, on CPU: calibrated, and with a profile.

Usage: predicted_vs_measured.py BIN FOLDER [MODEL ...] [--ranks 1,2,4] [--strategy 1f1b] [--seconds 3] [--markdown]

BIN holds pipec and pipec-run; FOLDER/MODEL/ holds model.onnx, golden.json (pipec_args: the options of training) and one
.npy file for each input, as test/models has them; examples/gpt2 works with its tokens.npy made. For every model and
number of ranks: `pipec calibrate` once, a plan made with it, a run that also writes a profile, a plan of the same stages
made with that profile, and a run of it. The median step is measured, the first one left out; runs of few seconds on a
machine that does other work say little. Memory is compared byte for byte. Needs Python's standard library alone.
"""
import argparse, json, os, pathlib, statistics, subprocess, tempfile


def call(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          env=dict(os.environ, OMP_NUM_THREADS="1"))
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
    return done.stdout


class Case:
    def __init__(self, tools, folder, scratch):
        self.tools, self.folder, self.scratch = tools, folder, pathlib.Path(scratch)
        golden = folder / "golden.json"
        if golden.exists():
            known = json.loads(golden.read_text())
            self.arguments = [word.replace("weight=", f"weight={folder}/") if word.startswith("cross-entropy:") else word
                              for word in known["pipec_args"]]
            data = {name: folder / file for name, file in known["data"].items()}
        else:
            self.arguments = ["--dim", "batch=4", "--microbatches", "8", "--loss", "next-token", "--optimizer",
                              "adamw:lr=1e-3"]
            data = {"input_ids": folder / "tokens.npy"}
        self.data = [word for name, file in data.items() for word in ("--data", f"{name}={file}")]

    def plan(self, *options):
        plan = self.scratch / "plan"
        subprocess.run(["rm", "-rf", str(plan)], check=True)
        call(f"{self.tools}/pipec", self.folder / "model.onnx", *self.arguments, *options, "--quiet", "-o", plan)
        return plan, json.loads((plan / "plan.json").read_text())["predicted"]["step_s"]

    def run(self, plan, steps, *options):
        metrics = self.scratch / "metrics.jsonl"
        call(f"{self.tools}/pipec-run", plan, *self.data, "--steps", steps, "--metrics", metrics, "--quiet", *options)
        lines = [json.loads(line) for line in metrics.read_text().splitlines()]
        summary = lines[-1]["summary"]
        exact = all(rank["peak_bytes"] == rank["predicted_peak_bytes"] for rank in summary["ranks"])
        return statistics.median(line["seconds"] for line in lines[1:-1]), exact


def measure(case, ranks, options, cluster):
    shape = ["--strategy", options.strategy, "--cluster", cluster]
    plan, calibrated = case.plan(*shape)
    stages, profile = case.scratch / "stages.json", case.scratch / "profile.json"
    seconds, _ = case.run(plan, 4)
    steps = max(6, min(400, int(options.seconds / seconds)))
    first, exact = case.run(plan, steps, "--profile-out", profile)
    stages.write_bytes((plan / "plan.json").read_bytes())
    again, profiled = case.plan(*shape, "--profile", profile, "--stage-file", stages)
    second, exact_again = case.run(again, steps)
    ms = lambda s: f"{s * 1e3:.3g}"
    return [case.folder.name, str(ranks), ms(calibrated), ms(first), f"{100 * (calibrated / first - 1):+.0f} %",
            ms(profiled), ms(second), f"{100 * (profiled / second - 1):+.0f} %",
            "equal" if exact and exact_again else "differs"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tools")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("models", nargs="*")
    parser.add_argument("--ranks", default="1,2,4")
    parser.add_argument("--strategy", default="1f1b")
    parser.add_argument("--seconds", type=float, default=3, help="about how long each run takes")
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    names = options.models or sorted(f.name for f in options.folder.iterdir() if (f / "golden.json").exists())
    rows = [["model", "ranks", "calibrated ms", "measured ms", "error", "profile ms", "measured ms", "error", "memory"]]
    with tempfile.TemporaryDirectory() as scratch:
        for ranks in map(int, options.ranks.split(",")):
            cluster = f"{scratch}/cluster{ranks}.json"
            call(f"{options.tools}/pipec", "calibrate", "--cpus", ranks, "-o", cluster, "--quiet")
            for name in names:
                rows.append(measure(Case(options.tools, options.folder / name, scratch), ranks, options, cluster))
    if options.markdown:
        rows.insert(1, ["---"] * len(rows[0]))
        print("\n".join("| " + " | ".join(row) + " |" for row in rows))
        return
    width = [max(len(row[c]) for row in rows) for c in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.rjust(w) if c else cell.ljust(w) for c, (cell, w) in enumerate(zip(row, width))).rstrip())


if __name__ == "__main__":
    main()
