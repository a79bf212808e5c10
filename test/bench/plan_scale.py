#!/usr/bin/env python3
"""Time and memory of planning large models, from the ONNX file to the printed plan.

Usage: plan_scale.py PIPEC [CASE ...] [--markdown]
       plan_scale.py PIPEC CASE --strategies all | NAME,NAME,... [--markdown] [-- PIPEC'S OPTIONS]

Writes the models of large_models.py to a temporary folder and runs `pipec --dry-run` on them, with the options a user
would give; and, in the column "import s", `pipec --emit nn`: the processor time until the model is read.

With --strategies one model is planned under each of them by name (all: those of `pipec list strategies`). What fits
nowhere counts as well: until the error that says what it needs.
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


def strategies(pipec):
    """All that train in steps: the others have no microbatches."""
    listed = subprocess.run([pipec, "list", "strategies"], check=True, capture_output=True, text=True).stdout
    rows = [line.split(None, 6) for line in listed.splitlines()[1:]]
    return [row[0] for row in rows if not row[0].startswith("file:") and row[5] != "no"]


def outcome(status, shown, said):
    if status == 0:
        plan = next(line for line in shown.splitlines() if line.startswith("plan "))
        predicted = next(line for line in shown.splitlines() if line.startswith("predicted "))
        return plan.split(" · ")[1] + ", " + predicted.split(None, 1)[1].split(" · ")[0]
    if status == 79:
        return f"needs {said.split('needs ')[1].split(' on ')[0].removeprefix('at least ')} a device"
    return f"exit {status}: {' '.join(said.split())[:70]}"


def measure_named(pipec, folder, case, names, more):
    subprocess.run([sys.executable, os.path.join(HERE, "large_models.py"), case, folder], check=True)
    for name in names:
        with open(os.path.join(folder, "shown"), "w+") as shown, open(os.path.join(folder, "said"), "w+") as said:
            process = subprocess.Popen([pipec, os.path.join(folder, "model.onnx"), *CASES[case], "--strategy", name,
                                        "--dry-run", *more], stdout=shown, stderr=said)
            _, status, usage = os.wait4(process.pid, 0)
            shown.seek(0), said.seek(0)
            yield [name, outcome(os.waitstatus_to_exitcode(status), shown.read(), said.read()),
                   f"{usage.ru_utime + usage.ru_stime:.1f}", f"{usage.ru_maxrss / 1024:.0f}"]


def main():
    end = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    asked, more = sys.argv[1:end], sys.argv[end + 1:]
    named = []
    if "--strategies" in asked:
        at = asked.index("--strategies")
        named = asked[at + 1:at + 2]
        del asked[at:at + 2]
    names = [a for a in asked[1:] if not a.startswith("-")]
    if not asked or any(name not in CASES for name in names) or (named and len(names) != 1):
        sys.exit(__doc__)
    if named:
        rows = [["strategy", "plan or error", "processor s", "MiB"]]
        named = strategies(asked[0]) if named == ["all"] else named[0].split(",")
        with tempfile.TemporaryDirectory() as folder:
            rows += measure_named(asked[0], folder, names[0], named, more)
    else:
        rows = [["model", "devices", "plan", "wall s", "import s", "processor s", "MiB"]]
        for name in names or CASES:
            with tempfile.TemporaryDirectory() as folder:
                rows.append(measure(asked[0], folder, name))
    if "--markdown" in asked:
        rows.insert(1, ["---"] * len(rows[0]))
        for row in rows:
            print("| " + " | ".join(row) + " |")
        return
    width = [max(len(row[c]) for row in rows) for c in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(w) for cell, w in zip(row, width)).rstrip())


if __name__ == "__main__":
    main()
