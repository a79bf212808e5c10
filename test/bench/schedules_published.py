#!/usr/bin/env python3
"""Our schedules beside published ones: reproduced, beaten, bounded, timed.

Usage: schedules_published.py PIPEC [--markdown] [--exact BENCH] [--cells N]

PIPEC is pipec or the stand-alone pipec-schedule. Published figures come from
schedules_published.json, which names their sources; nothing published is run
here. --exact names the program schedules_exact (ninja schedules_exact), whose
table of optima is then part of the output. --cells stops after N cells.
--markdown prints docs/schedules.md.

Exit code 1 when a published order is not reproduced, or some cell of ours is
worse than a published one of the same peak memory.
"""
import argparse
import json
import math
import os
import subprocess
import sys
import textwrap

import schedules_scale
from schedules_scale import Table, cpu_seconds

HERE = os.path.dirname(os.path.abspath(__file__))

# Ours, published, chunks: the same order, so the same figures on every cell.
FUSED = {"dualpipe", "dualpipe-v"}  # their pairs run as one task
SAME = [("gpipe", "GPipe", 1), ("1f1b", "1F1B", 1), ("interleaved-1f1b", "1F1B-I_v2", 2),
        ("interleaved-1f1b", "1F1B-I_v3", 3), ("interleaved-1f1b", "1F1B-I_v4", 4),
        ("looped-bfs", "LoopedBFS_v2", 2), ("zb-h1", "ZB-H1", 1), ("zb-h2", "ZB-H2", 1),
        ("interleaved-zb", "InterleavedZeroBubble_v2(PyTorch)", 2),
        ("interleaved-zb", "InterleavedZeroBubble_v3(PyTorch)", 3),
        ("interleaved-zb", "InterleavedZeroBubble_v4(PyTorch)", 4),
        ("dualpipe", "DualPipe(2x params)", 1), ("dualpipe-v", "DualPipeV", 1)]
# Ours, published, whether ours is held to the memory of the published one.
SEARCHED = [("zb", "ZB-1p", True), ("zb", "ZB-1.5p", True), ("zb", "ZB-2p", True),
            ("zb-v", "ZB-V", False), ("v-half", "V-Half", False), ("v-min", "V-Min", False),
            ("1f1b-v", "1F1B-V", False), ("zb-v", "ZB-V_hand", False), ("chimera", "Chimera(2x params)", True)]


class Ours:
    def __init__(self, program):
        self.program = program

    def run(self, name, cell, *extra):
        """The JSON of `pipec schedule`, or None where it refuses the sizes."""
        f, b, w, comm = cell["time"]
        words = [self.program, "schedule", name, "--stages", cell["p"], "--microbatches", cell["m"],
                 "--time", f"F={f},B={b},W={w},comm={comm}",
                 "--memory", "F={},B={},W={}".format(*cell["memory"]), "--format", "json", *extra]
        done = subprocess.run([str(x) for x in words], capture_output=True, text=True)
        if done.returncode in (64, 79):
            return None
        if done.returncode:
            sys.exit(f"{' '.join(map(str, words))}: {done.stderr.strip()}")
        return json.loads(done.stdout)


def name_of(cell):
    return f"{cell['profile']} P={cell['p']} M={cell['m']}"


def reproduced(ours, cells):
    """Each cost-blind generator against its published cells."""
    table = Table("schedule", "published as", "cells", "largest difference of bubbles", "of peaks")
    good = True
    for name, published, chunks in SAME:
        bubble = peak = count = 0
        for cell in cells:
            row = cell["rows"].get(published)
            extra = (["--chunks", chunks] if chunks > 1 else []) + (["--fuse-pairs"] if name in FUSED else [])
            got = row and ours.run(name, cell, *extra)
            if not got:
                continue
            count += 1
            bubble = max(bubble, abs(got["bubble_makespan"] - row[1]), abs(got["bubble_span"] - row[2]))
            peak = max(peak, abs(max(got["peak"]) - row[0]))
        good = good and bubble <= 1e-5 and peak <= 1e-4
        table.add(" ".join([name] + [str(x) for x in extra]), published, count,
                  f"{bubble:.1e}", f"{peak:.1e}")
    return table, good


# Name, arguments, metric, cost of a step beyond M(F+B+W), peak, where it holds.
# T = F+B+W. From the papers that docs/schedules.md and pipec list schedules name.
FORMS = [
    ("naive", [], "makespan", "M(P-1)T", lambda p, m, f, b, w: m * (p - 1) * (f + b + w), "1", lambda p, m: 1, None),
    ("dp", [], "makespan", "-M(1-1/P)T", lambda p, m, f, b, w: -m * (1 - 1 / p) * (f + b + w), "1",
     lambda p, m: 1, None),
    ("gpipe", [], "makespan", "(P-1)T", lambda p, m, f, b, w: (p - 1) * (f + b + w), "M", lambda p, m: m, None),
    ("1f1b", [], "makespan", "(P-1)T", lambda p, m, f, b, w: (p - 1) * (f + b + w), "P", lambda p, m: p, None),
    ("interleaved-1f1b", ["--chunks", 2], "makespan", "(P-1)T/2", lambda p, m, f, b, w: (p - 1) * (f + b + w) / 2,
     "P+(P-1)/2", lambda p, m: p + (p - 1) / 2, None),
    ("interleaved-1f1b", ["--chunks", 4], "makespan", "(P-1)T/4", lambda p, m, f, b, w: (p - 1) * (f + b + w) / 4,
     "P+(P-1)/4", lambda p, m: p + (p - 1) / 4, None),
    ("looped-bfs", ["--chunks", 2], "makespan", "(P-1)T/2", lambda p, m, f, b, w: (p - 1) * (f + b + w) / 2, "M",
     lambda p, m: m, None),
    ("zb-h1", [], "span", "(P-1)(F+B-W)", lambda p, m, f, b, w: (p - 1) * (f + b - w), "P", lambda p, m: p, None),
    ("zb-h2", [], "span", "(P-1)(F+B-2W)", lambda p, m, f, b, w: (p - 1) * (f + b - 2 * w), "2P-1",
     lambda p, m: 2 * p - 1, None),
    ("interleaved-zb", ["--chunks", 2], "makespan", "(P-1)(F+B-W)/2", lambda p, m, f, b, w: (p - 1) * (f + b - w) / 2,
     "P", lambda p, m: p, "unit"),
    ("interleaved-zb", ["--chunks", 4], "makespan", "(P-1)(F+B-W)/4", lambda p, m, f, b, w: (p - 1) * (f + b - w) / 4,
     "P", lambda p, m: p, "unit"),
    ("dualpipe", ["--fuse-pairs"], "makespan", "(P/2-1)(F+2B-W)", lambda p, m, f, b, w: (p / 2 - 1) * (f + 2 * b - w),
     "P+1", lambda p, m: p + 1, "unit"),
    ("dualpipe-v", ["--fuse-pairs"], "makespan", "(P-1)(F+2B-W)/2", lambda p, m, f, b, w: (p - 1) * (f + 2 * b - w) / 2,
     "P+1/2", lambda p, m: p + 0.5, "unit"),
    ("seq1f1b", ["--slices", 4], "makespan", "(P-1)T/4", lambda p, m, f, b, w: (p - 1) * (f + b + w) / 4, "(P+3)/4",
     lambda p, m: (p + 3) / 4, None),
    ("chimera", [], "makespan", "(P-2)/(3M/2+P-2) of it, M = P",
     lambda p, m, f, b, w: (f + b + w) * m * ((p - 2) / (1.5 * m)), "P", lambda p, m: p, "M = P"),
]


def closed_forms(ours):
    """Each generator against its published formulas, no latency."""
    table = Table("schedule", "metric", "beyond M T", "peak", "cases", "largest difference of cost", "of peaks")
    good = True
    for name, extra, metric, cost_text, cost, peak_text, peak, where in FORMS:
        count = off = peak_off = 0
        for p in (4, 8, 16):
            for m in (p,) if where == "M = P" else (2 * p, 4 * p):
                for profile, times in (("unit", (1, 1, 1, 0)), ("1.5B", (18522, 18086, 9337, 0))):
                    if profile != "unit" and where:
                        continue
                    cell = dict(p=p, m=m, time=times, memory=(1, 0, -1))
                    got = ours.run(name, cell, *extra)
                    want = m * sum(times) + cost(p, m, *times[:3])
                    count += 1
                    off = max(off, abs(got[metric] / want - 1))
                    peak_off = max(peak_off, abs(max(got["peak"]) - peak(p, m)))
        good = good and off <= 1e-9 and peak_off <= 1e-9
        table.add(" ".join([name] + [str(x) for x in extra]), metric, cost_text, peak_text, count, f"{off:.1e}",
                  f"{peak_off:.1e}")
    return table, good


def searched(ours, cells):
    """Each searched schedule against the published one it is named after."""
    table = Table("schedule", "published as", "cells", "shorter", "equal", "longer", "more memory")
    for name, published, limited in SEARCHED:
        counts = [0, 0, 0]
        more = 0
        for cell in cells:
            row = cell["rows"].get(published)
            extra = ["--memory-limit", row[0] + 1e-3] if row and limited else []
            got = row and ours.run(name, cell, "--metric", "span", *extra)
            if not got:
                continue
            difference = got["bubble_span"] - row[2]
            counts[0 if difference < -1e-5 else 2 if difference > 1e-5 else 1] += 1
            more += max(got["peak"]) > row[0] + 2e-3
        table.add(name + (" in its memory" if limited else ""), published, sum(counts), *counts, more)
    return table


def frontier(cell, metric):
    """(peak, bubble, name) of the published rows that no other one of less memory beats."""
    best = math.inf
    for published, row in sorted(cell["rows"].items(), key=lambda item: (round(item[1][0], 4), item[1][metric])):
        if "2x" not in published and row[metric] < best:
            best = row[metric]
            yield row[0], best, published


def beaten(ours, cells):
    """`auto` at every published peak memory, both metrics."""
    table = Table("cell", "metric", "memory", "best published", "its bubble", "ours", "lower bound",
                  "gap to it", "s")
    better = equal = worse = 0
    for cell in cells:
        for metric, column in (("makespan", 1), ("span", 2)):
            for peak, bubble, published in frontier(cell, column):
                begin = cpu_seconds()
                got = ours.run("auto", cell, "--chunks", "auto", "--memory-limit", peak + 1e-3,
                               "--metric", metric)
                mine = got["bubble_" + metric] if got else 1
                better += mine < bubble - 1e-5
                equal += abs(mine - bubble) <= 1e-5
                worse += mine > bubble + 1e-5
                work = sum(cell["time"][:3]) * cell["m"]
                bound = max(0.0, 1 - work / got["bound"])
                table.add(name_of(cell), metric, f"{peak:.3f}", published, f"{bubble:.4f}", f"{mine:.4f}",
                          f"{bound:.4f}", f"{abs(100 * (got[metric] / got['bound'] - 1)):.2f} %",
                          f"{cpu_seconds() - begin:.2f}")
    return table, (better, equal, worse)


LONG = 10  # --effort of the columns named so
MANY = 6  # --chunks of the columns named so, more than auto takes by itself


def low_memory(ours, cells):
    """Real costs in little memory: at what the published V-Half and V-Min need, and at exactly 1/2 and 1/3 of 1F1B's.

    Two tables and, for each share, cells of the second where ours is below the published, where no order can be, and
    where more chunks are better than more effort; then how many cells there are."""
    own = Table("cell", "1F1B", "memory", "V-Half", "ours", "effort 10", "lower bound", "memory", "V-Min", "ours",
                "effort 10", "lower bound")
    less = Table("cell", "V-Half", "at P/2", "effort 10", "6 chunks", "lower bound", "V-Min", "at P/3", "effort 10",
                 "6 chunks", "lower bound")
    below, impossible, many, count = [0, 0], [0, 0], [0, 0], 0

    def at(cell, limit):
        """Bubbles of auto and of a longer search, and what is proven of any."""
        got = [ours.run("auto", cell, "--memory-limit", limit, "--effort", effort) for effort in (1, LONG)]
        work = sum(cell["time"][:3]) * cell["m"]
        return [g["bubble_makespan"] for g in got] + [1 - work / got[0]["bound"]]

    for cell in cells:
        if cell["profile"] == "unit":
            continue
        published = [cell["rows"]["V-Half"], cell["rows"]["V-Min"]]
        row, exact = [f"{cell['rows']['1F1B'][1]:.4f}"], []
        count += 1
        for which, share in enumerate((2, 3)):
            peak, bubble = published[which][:2]
            row += [f"{peak:g}", f"{bubble:.4f}", *(f"{x:.4f}" for x in at(cell, peak + 1e-3))]
            figures = at(cell, cell["p"] / share)
            below[which] += min(figures[:2]) < bubble - 1e-5
            impossible[which] += figures[2] > bubble
            split = ours.run("auto", cell, "--memory-limit", cell["p"] / share, "--chunks", MANY)["bubble_makespan"]
            many[which] += split < min(figures[:2]) - 1e-5
            figures.insert(2, split)
            exact += [f"{bubble:.4f}", *(f"{x:.4f}" for x in figures)]
            exact[-1] += " *" if figures[3] > bubble else ""
        own.add(name_of(cell), *row)
        less.add(name_of(cell), *exact)
    return own, less, (below, impossible, many, count)


def low_text(ours, cells, title):
    own, less, (below, impossible, many, count) = low_memory(ours, cells)
    neither = [count - a - b for a, b in zip(below, impossible)]
    return (f"{title}Low memory at real costs\n\nMakespan bubbles, memory in microbatches of a device (1F1B "
            "needs P): the published figure, that of `auto`, that of\n`auto --effort 10` (about ten times as long, never "
            "worse), and the lower bound over all orders on all placements that\n`auto` searches. First at the memory "
            f"that the published V-Half and V-Min need.\n\n{own.text()}\n\nThen at exactly 1/2 and 1/3 of 1F1B's memory, "
            "which is less than V-Half (P/2 + 1) and V-Min (P/2 at P = 4 and 8)\nneed: beside their figures, which are of more memory. A star marks where "
            "no order can reach the published figure:\nan activation is held at least for the way to the last stage and "
            "back, and at real costs a device that holds only P/3\nat a time cannot hold what a period of pure work brings "
            "in, whatever the order. Six chunks: `auto --chunks 6`,\nmore stages on a device than "
            f"`auto` takes by itself, which the bound does not count.\n\n{less.text()}\n\nBelow the published figure: {below[0]} of {count} at P/2 and "
            f"{below[1]} at P/3; proven impossible with up to four stages on a device: {impossible[0]} at\nP/2 and "
            f"{impossible[1]} at P/3; open, neither reached nor ruled out: {neither[0]} at P/2 and {neither[1]} at P/3. Six "
            f"chunks are better than ten times\nthe effort on {many[0]} at P/2 and {many[1]} at P/3.\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("pipec")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--exact")
    parser.add_argument("--cells", type=int)
    options = parser.parse_args()
    data = json.load(open(os.path.join(HERE, "schedules_published.json")))
    cells = data["cells"][:options.cells]
    ours = Ours(options.pipec)
    title = "## " if options.markdown else ""
    if options.markdown:
        print("# Schedules: what they reach\n\nWritten by `test/bench/schedules_published.py --markdown`; the bubble is "
              "(cost - M(F+B+W)) / cost, memory\ncounts microbatches of a device's activations. Makespan: last end - "
              "first start over all devices. Span: the\nlongest device from its own first start to its own last end.\n")
    table, same = reproduced(ours, cells)
    print(f"{title}Published orders, reproduced\n\n{table.text()}\n")
    table, formulas = closed_forms(ours)
    print(f"{title}Published formulas\n\nP = 4, 8, 16; M = 2P, 4P; equal times and those of the 1.5B profile (where the "
          f"formula holds for them), no\nlatency.\n\n{table.text()}\n")
    table = searched(ours, cells)
    print(f"{title}Searched orders beside those they are named after\n\nSpan, the metric they were published for.\n\n"
          f"{table.text()}\n")
    table, (better, equal, worse) = beaten(ours, cells)
    print(f"{title}`auto` at every published peak memory\n\nThe lower bound holds for all orders on all placements that "
          f"auto searches (up to four stages\non a device).\n\n{table.text()}\n\n{better} shorter, {equal} equal, "
          f"{worse} longer of {better + equal + worse}. Cells that nobody chose, against every "
          "named\nschedule: `test/bench/schedules_random.py`.\n")
    print(low_text(ours, cells, title))
    if options.exact:
        done = subprocess.run([options.exact], capture_output=True, text=True, check=True)
        print(f"{title}Optima of small problems\n\nP = 2 … 4, M = 1 … 8, both metrics. Found: by the heuristics alone. "
              "Optimum: by branch and bound on that\nplacement; where it gave up, the range from what it has proven to the "
              "best known. The gap is from what\nwas found to the optimum or the proven bound.\n\n"
              f"{done.stdout}")
    print(schedules_scale.text(options.pipec, title))
    print(f"{title}Sources of the published figures\n")
    print("\n".join(textwrap.fill(f"* {k}: {v}", 120, subsequent_indent="  ") for k, v in data["sources"].items()))
    sys.exit(0 if same and formulas and worse == 0 else 1)


if __name__ == "__main__":
    main()
