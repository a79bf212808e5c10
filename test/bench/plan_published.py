#!/usr/bin/env python3
"""The planner on published inputs beside what the published planners reach.

Usage: plan_published.py PIPEC FOLDER [--markdown]

PIPEC is pipec or the stand-alone pipec-partition; FOLDER holds the inputs under
the names that plan_published.json lists (inputs that are not there are left
out). The published objectives and CPU-seconds come from that file, which names
their sources; nothing published is run here.
"""
import json
import os
import subprocess
import sys


def run(pipec, path, args):
    command = [pipec, "partition", path, *args, "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    pipec, folder = sys.argv[1], sys.argv[2]
    here = os.path.dirname(os.path.abspath(__file__))
    table = json.load(open(os.path.join(here, "plan_published.json")))
    head = ["input", "devices", "unit", "published", "ours", "ratio", "bound",
            "published CPU-s", "ours s", "optimal"]
    rows = []
    for case in table["cases"]:
        path = os.path.join(folder, case["file"])
        if not os.path.exists(path):
            continue
        plan = run(pipec, path, case["args"])
        rows.append([case["input"], case["topology"], plan["unit"], f"{case['published']:g}",
                     f"{plan['objective']:.6g}", f"{plan['objective'] / case['published']:.4f}",
                     f"{plan['lower_bound']:.6g}", f"{case['cpu_s']:g}", f"{plan['seconds']:.3f}",
                     "yes" if plan["exact"] else ""])
    if not rows:
        sys.exit(f"none of the inputs is under {folder}")
    width = [max(len(r[c]) for r in [head, *rows]) for c in range(len(head))]
    line = lambda cells: "| " + " | ".join(x.ljust(w) for x, w in zip(cells, width)) + " |"
    print(line(head))
    print("|" + "|".join("-" * (w + 2) for w in width) + "|")
    for row in rows:
        print(line(row))
    print("\nPublished figures: " + "; ".join(f"{k}: {v}" for k, v in table["sources"].items()) + ".")


if __name__ == "__main__":
    main()
