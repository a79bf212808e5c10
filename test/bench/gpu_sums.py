"""Which call of a training step gives other numbers on a device than under emulation.

With PIPEC_CALL_SUMS=FILE a rank writes a line for every kernel and library call of its first step: what of its memory has
changed, and the sum of that. gpu_pack.py makes the list of a model under emulation and gpu_check.py that of a device.
"""
import difflib
import json

# Of a sum of absolute values, which no cancelling makes small: the order of adding, and in bf16 the roundings.
TOLERANCE = {"fp32": 1e-3, "bf16": 3e-2}
MOST = 3  # the first is to blame, and the others say whether it goes on


def read(file):
    """The calls of each rank: of FILE and what is called after it."""
    ranks = {}
    for path in sorted(file.parent.glob(file.name + "*")):
        for line in path.read_text().splitlines():
            row = json.loads(line)
            ranks.setdefault(row["rank"], []).append(row)
    return {rank: sorted(rows, key=lambda row: row["call"]) for rank, rows in sorted(ranks.items())}


def write(file, ranks):
    file.write_text("".join(json.dumps(row) + "\n" for rows in ranks.values() for row in rows))


def is_near(one, other, tolerance):
    if one is None or other is None:  # not a number
        return False
    return one == other or abs(one - other) <= tolerance * max(abs(one), abs(other))


def differences(got, want, precision):
    """The first calls whose sums are not near the emulation's, in words; those that only one of both makes (a library that
    adds no bias leaves that to a kernel) are not compared, nor their neighbour's other half."""
    found = []
    for rank, rows in got.items():
        theirs = want.get(rank, [])
        kinds = [[row["name"].split()[0] for row in list_] for list_ in (rows, theirs)]
        compared = 0
        for block in difflib.SequenceMatcher(None, *kinds, autojunk=False).get_matching_blocks():
            for one, other in zip(rows[block.a:block.a + block.size], theirs[block.b:block.b + block.size]):
                if ("+ bias" in one["name"]) != ("+ bias" in other["name"]):
                    continue
                compared += 1
                if not is_near(one["sum"], other["sum"], TOLERANCE[precision]):
                    found.append("rank %d, call %d of %d, %s: its sum is %s, emulated %s; it changed %s bytes, emulated %s" % (
                        rank, one["call"], len(rows), one["name"], one["sum"], other["sum"], one["changed"],
                        other["changed"]))
        if 2 * compared < len(theirs):
            found.append("rank %d: only %d of %d calls are the emulation's" % (rank, compared, len(theirs)))
    return found[:MOST]
