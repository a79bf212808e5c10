#!/usr/bin/env python3
"""How long schedules take to make, and how that grows with devices P and microbatches M.

Usage: schedules_scale.py PIPEC [--quick]

Processor time of whole commands (`pipec schedule NAME …`: generate, verify,
simulate, print), less that of `pipec schedule --version`. Exponents are the
least-squares fit of log t = a + b log P + c log M over a grid. --quick leaves
out the largest sizes. schedules_published.py puts the tables in docs/schedules.md.
"""
import argparse
import math
import os
import re
import resource
import subprocess
import sys
import tempfile

LARGE = (1024, 8192)
GRID = [(p, m) for p in (64, 128, 256) for m in (1024, 2048, 4096)]
SEARCH_GRID = [(p, m) for p in (4, 8, 16, 32) for m in (32, 64, 128, 256)]
# Times and memory of the 1.5B profile of the ICLR 2024 paper.
REAL = ["--time", "F=18522,B=18086,W=9337,comm=601", "--memory", "F=1,B=-0.6335877862595419,W=-0.366412213740458"]


class Table:
    """Rows that come out aligned as text and as markdown."""

    def __init__(self, *head):
        self.rows = [head]

    def add(self, *cells):
        self.rows.append([str(cell) for cell in cells])

    def text(self):
        width = [max(len(row[c]) for row in self.rows) for c in range(len(self.rows[0]))]
        lines = ["| " + " | ".join(x.ljust(w) for x, w in zip(row, width)) + " |" for row in self.rows]
        lines.insert(1, "|" + "|".join("-" * (w + 2) for w in width) + "|")
        return "\n".join(lines)


def schedule_rows():
    """Name and traits of each row of Schedules.def."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../compiler/schedule/Schedules.def")
    found = re.findall(r'^PIPEC_SCHEDULE\(\w+,\s*"([^"]+)",\s*\w+,\s*(\w+),\s*\w+,\s*(\w+),\s*\w+,\s*\w+,\s*(\w+)',
                       open(path).read(), re.M)
    return [{"name": name, "chunks": chunks, "splits": splits == "true", "searched": costs == "true"
             and name != "chimera"} for name, chunks, splits, costs in found]


def cpu_seconds():
    """Of all finished children: what a busy machine does not change."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def seconds(program, *words):
    begin = cpu_seconds()
    with tempfile.TemporaryFile() as sink:
        subprocess.run([program, "schedule", *map(str, words)], check=True, stdout=sink)
    return cpu_seconds() - begin


def solve(a, b):
    """x with a x = b, by elimination; a is small and positive definite."""
    n = len(b)
    rows = [list(a[i]) + [b[i]] for i in range(n)]
    for i in range(n):
        for j in range(i + 1, n):
            f = rows[j][i] / rows[i][i]
            rows[j] = [y - f * x for x, y in zip(rows[i], rows[j])]
    x = [0.0] * n
    for i in reversed(range(n)):
        x[i] = (rows[i][n] - sum(rows[i][j] * x[j] for j in range(i + 1, n))) / rows[i][i]
    return x


def exponents(points):
    """(b, c, largest factor off) of t = A P^b M^c for (P, M, t)."""
    lines = [([1.0, math.log(p), math.log(m)], math.log(t)) for p, m, t in points]
    normal = [[sum(x[i] * x[j] for x, _ in lines) for j in range(3)] for i in range(3)]
    fit = solve(normal, [sum(x[i] * y for x, y in lines) for i in range(3)])
    off = max(abs(sum(f * v for f, v in zip(fit, x)) - y) for x, y in lines)
    return fit[1], fit[2], math.exp(off)


def closed_forms(program, rows, base, quick):
    """Every row whose order is a formula: growth over the grid, and the largest size."""
    table = Table("schedule", "tasks a device and microbatch", "grows as", "fit within", "s at P = 1024, M = 8192")
    for row in rows:
        if row["searched"]:
            continue
        name = row["name"]
        kinds = 3 if row["splits"] else 2
        tasks = kinds * (2 if row["chunks"] != "One" else 1) * (4 if name == "seq1f1b" else 1)
        points = []
        for p, m in GRID:
            took = min(seconds(program, name, "--stages", p, "--microbatches", m) for _ in range(2)) - base
            points.append((p, m, max(took, 1e-4)))
        b, c, off = exponents(points)
        large = "" if quick else f"{seconds(program, name, '--stages', LARGE[0], '--microbatches', LARGE[1]) - base:.1f}"
        if name == "dp":
            tasks = f"{tasks} / P"
        table.add(name, tasks, f"P^{b:.2f} M^{c:.2f}", f"x {off:.2f}", large)
    return table


def searches(program, rows, base):
    """Searched rows and auto over sizes: their effort is a number of task visits, bounded below and above."""
    table = Table("schedule", "costs", "grows as", "fit within", "s at P=4 M=16", "P=8 M=24", "P=8 M=64", "P=32 M=256")
    names = ["auto"] + [row["name"] for row in rows if row["searched"]]
    for name in names:
        for costs, words, limited in (("unit", [], 0), ("1.5B", REAL, 0), ("1.5B, limit P", REAL, 1),
                                      ("1.5B, limit P/2", REAL, 2)):
            if limited and name != "auto":
                continue

            def took(p, m):
                limit = ["--memory-limit", p / limited] if limited else []
                return seconds(program, name, "--stages", p, "--microbatches", m, *words, *limit)

            points = [(p, m, max(took(p, m) - base, 1e-4))
                      for p, m in (SEARCH_GRID if name == "auto" else SEARCH_GRID[::3])]
            b, c, off = exponents(points)
            at = [f"{took(p, m):.3f}" for p, m in ((4, 16), (8, 24), (8, 64), (32, 256))]
            table.add(name, costs, f"P^{b:.2f} M^{c:.2f}", f"x {off:.2f}", *at)
    return table


def tables(program, quick=False):
    rows = schedule_rows()
    base = min(seconds(program, "--version") for _ in range(5))
    return closed_forms(program, rows, base, quick), searches(program, rows, base)


def text(program, heading="", quick=False):
    closed, searched = tables(program, quick)
    return (f"{heading}Time to make them\n\nProcessor time of whole commands (`test/bench/schedules_scale.py`), one core: "
            "generate, verify, simulate,\nprint figures. A closed form is O(P M): linear in its tasks (`dp`: O(M + P)). The "
            "exponents are fitted over\nP = 64 … 256, M = 1024 … 4096, the start of a process taken off; what they are "
            f"above 1 is caches.\n\n{closed.text()}\n\n"
            "A search is O(P M) a pass over an order; the number of passes is bounded by a budget of task visits that\n"
            "grows with the problem up to a most, so that time grows slower than the problem until single passes\n"
            "outweigh the budget; `--effort` scales it, and more never does worse: there is a search for each power of ten up to\n"
            "it. Fitted over P = 4 … 32, M = 32 … 256; seconds include the start of the process. Within limits `auto` takes up to\n"
            "three times as long, where tasks are few (6 P M at most 600) five times: up to 20,000 tasks it then also makes the\n"
            "searches of the named schedules that it must not be behind.\n\n"
            f"{searched.text()}\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("pipec")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    sys.stdout.write(text(options.pipec, quick=options.quick))
