#!/usr/bin/env python3
"""The planner on published inputs beside what the published planners reach.

Usage: plan_published.py PIPEC FOLDER

PIPEC is pipec or the stand-alone pipec-partition; FOLDER holds the inputs under
the names that plan_published.json lists (inputs that are not there are left
out; every PipeDream profile and placement graph whose published result is known
has its rows). The published objectives and CPU-seconds come from that file,
which names their sources ("none": the published program found no plan,
"killed": not within 100 s of its processor, "-": its plan or time is not
known); nothing published is run here. Exits with 1 when a plan is worse than
the published one by more than the rounding of its figure.
"""
import decimal
import json
import os
import subprocess
import sys


def run(pipec, path, args):
    command = [pipec, "partition", path, *args, "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode == 79:
        return None
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def is_worse(ours, published):
    """Published figures are rounded: half a unit of the last digit."""
    digits = decimal.Decimal(repr(published)).as_tuple().exponent
    return ours > published * (1 + 1e-6) + 0.5 * 10.0 ** digits


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    pipec, folder = sys.argv[1], sys.argv[2]
    here = os.path.dirname(os.path.abspath(__file__))
    table = json.load(open(os.path.join(here, "plan_published.json")))
    head = ["input", "devices", "unit", "published", "ours", "ratio", "bound",
            "published CPU-s", "ours s", "optimal"]
    rows, worse = [], 0
    for case in table["cases"]:
        path = os.path.join(folder, case["file"])
        if not os.path.exists(path):
            continue
        plan, published = run(pipec, path, case["args"]), case["published"]
        start = [case["input"], case["topology"]]
        known = isinstance(published, (int, float))
        told = [f"{published:g}" if known else published or "none"]
        cpu = f"{case['cpu_s']:g}" if case["cpu_s"] is not None else "-"
        if plan is None:
            worse += known
            rows.append([*start, "", *told, "none fits", "", "", cpu, "", ""])
            continue
        ratio = plan["objective"] / published if known else 0
        worse += known and is_worse(plan["objective"], published)
        rows.append([*start, plan["unit"], *told, f"{plan['objective']:.6g}",
                     f"{ratio:.4f}" if known else "",
                     f"{plan['lower_bound']:.6g}" if plan["lower_bound"] is not None else "", cpu,
                     f"{plan['seconds']:.3f}", "yes" if plan["exact"] else ""])
    if not rows:
        sys.exit(f"none of the inputs is under {folder}")
    width = [max(len(r[c]) for r in [head, *rows]) for c in range(len(head))]
    line = lambda cells: "| " + " | ".join(x.ljust(w) for x, w in zip(cells, width)) + " |"
    print(line(head))
    print("|" + "|".join("-" * (w + 2) for w in width) + "|")
    for row in rows:
        print(line(row))
    print(f"\n{len(rows)} cases, {worse} worse than published.")
    print("Published figures: " + "; ".join(f"{k}: {v}" for k, v in table["sources"].items()) + ".")
    sys.exit(worse > 0)


if __name__ == "__main__":
    main()
