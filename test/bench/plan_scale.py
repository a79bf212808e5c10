#!/usr/bin/env python3
"""Time and memory of planning large models, from the ONNX file to the printed plan.

Usage: plan_scale.py PIPEC [CASE ...] [--markdown]

Writes the models of large_models.py to a temporary folder and runs `pipec --dry-run` on them, with the options a user
would give; and, in the column "import s", `pipec --emit nn`: the processor time until the model is read.
"""
import os
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))

CASES = {
    "gpt3-175b": ["--gpus", "128x8", "--dim", "batch=1", "--microbatches", "512", "--loss", "next-token"],
    "llama-7b": ["--gpus", "2x8", "--dim", "batch=1", "--microbatches", "32", "--loss", "next-token"],
    **{f"operators-{n}": ["--gpus", "4x8", "--dim", "batch=16", "--microbatches", "32", "--loss", "mse"]
       for n in (10000, 25000, 50000, 100000)},
}


def processor(command):
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"{' '.join(command)}: exit {os.waitstatus_to_exitcode(status)}")
    return usage.ru_utime


def measure(pipec, folder, name):
    subprocess.run([sys.executable, os.path.join(HERE, "large_models.py"), name, folder], check=True)
    reading = processor([pipec, os.path.join(folder, "model.onnx"), *CASES[name], "--emit", "nn", "-o", os.devnull])
    begin = time.monotonic()
    process = subprocess.Popen([pipec, os.path.join(folder, "model.onnx"), *CASES[name], "--dry-run"],
                               stdout=subprocess.PIPE, text=True)
    shown = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"{name}: exit {os.waitstatus_to_exitcode(status)}")
    plan = next(line for line in shown.splitlines() if line.startswith("plan "))
    return [name, " ".join(CASES[name][:2]), " · ".join(plan.split(None, 1)[1].split(" · ")[:2]),
            f"{time.monotonic() - begin:.1f}", f"{reading:.1f}", f"{usage.ru_utime:.1f}", f"{usage.ru_maxrss / 1024:.0f}"]


def main():
    names = [a for a in sys.argv[2:] if not a.startswith("-")]
    if len(sys.argv) < 2 or any(name not in CASES for name in names):
        sys.exit(__doc__)
    rows = [["model", "devices", "plan", "wall s", "import s", "processor s", "MiB"]]
    for name in names or CASES:
        with tempfile.TemporaryDirectory() as folder:
            rows.append(measure(sys.argv[1], folder, name))
    if "--markdown" in sys.argv:
        rows.insert(1, ["---"] * len(rows[0]))
        for row in rows:
            print("| " + " | ".join(row) + " |")
        return
    width = [max(len(row[c]) for row in rows) for c in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(w) for cell, w in zip(row, width)).rstrip())


if __name__ == "__main__":
    main()
