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
    """Of two lines; `no_numbers` are words that are none."""
    if one.get("no_numbers", 0) != other.get("no_numbers", 0):
        return False
    a, b = one["sum"], other["sum"]
    return a == b or abs(a - b) <= tolerance * max(abs(a), abs(b))


def told(row):
    odd = row.get("no_numbers", 0)
    return "its sum is %s, of %s bytes%s" % (row["sum"], row["changed"], ", and %d words are no numbers" % odd if odd else "")


def differences(got, want, precision):
    """The first calls whose sums are not near the emulation's, in words; those that only one of both makes (a library may
    add a bias, or leave that to a kernel) are not compared."""
    found = []
    for rank, rows in got.items():
        theirs = want.get(rank, [])
        names = [[row["name"] for row in list_] for list_ in (rows, theirs)]
        compared = 0
        for block in difflib.SequenceMatcher(None, *names, autojunk=False).get_matching_blocks():
            for one, other in zip(rows[block.a:block.a + block.size], theirs[block.b:block.b + block.size]):
                compared += 1
                if not is_near(one, other, TOLERANCE[precision]):
                    found.append("rank %d, call %d of %d, %s: %s; emulated: %s" % (
                        rank, one["call"], len(rows), one["name"], *map(told, (one, other))))
        if 2 * compared < len(theirs):
            found.append("rank %d: only %d of %d calls are the emulation's" % (rank, compared, len(theirs)))
    return found[:MOST]
