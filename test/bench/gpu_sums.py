"""Which call of a training step gives other numbers on a device than under emulation.

With PIPEC_CALL_SUMS=FILE a rank writes a line for every kernel and library call of its first step: what of its memory has
changed, the sum of that, its length, and the sum with signs that go by the place (`placed`: the others do not see right
numbers at wrong places). gpu_pack.py makes the list of a model under emulation and gpu_check.py that of a device.
"""
import difflib
import json

# Of a sum of absolute values, which no cancelling makes small: the order of adding, and in bf16 the roundings.
TOLERANCE = {"fp32": 1e-3, "bf16": 3e-2}
# Of a sum with signs, beside the length: errors have signs of their own and do not grow with the number of words.
TOLERANCE_PLACED = {"fp32": 1e-3, "bf16": 6e-2}
# What these cannot see.
COARSE = {"fp32": "one wrong number among a million may hide in them", "bf16": "one wrong number among hundreds may"}
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


def is_near(one, other, precision):
    """Of two lines; `no_numbers` are words that are none. Of a list without lengths the sums are compared."""
    if one.get("no_numbers", 0) != other.get("no_numbers", 0):
        return False

    def near(key, tolerance, size):
        return one[key] == other[key] or abs(one[key] - other[key]) <= tolerance * max(abs(one[size]), abs(other[size]))
    if not near("sum", TOLERANCE[precision], "sum"):
        return False
    return not {"length", "placed"} <= one.keys() & other.keys() or (
        near("length", TOLERANCE[precision], "length") and near("placed", TOLERANCE_PLACED[precision], "length"))


def told(row):
    odd = row.get("no_numbers", 0)
    more = "".join(", %s %s" % (key, row[key]) for key in ("length", "placed") if key in row)
    return "its sum is %s%s, of %s bytes%s" % (row["sum"], more, row["changed"],
                                               ", and %d words are no numbers" % odd if odd else "")


def same_calls(rows, theirs, is_whole):
    """Blocks of calls that both have, in order. Of a step that has not come to its end the calls are among the first: the
    same come again with the next microbatch."""
    first = theirs if is_whole else theirs[:len(rows) * 5 // 4 + 8]
    names = [[row["name"] for row in list_] for list_ in (rows, first)]
    return difflib.SequenceMatcher(None, *names, autojunk=False).get_matching_blocks()


def differences(got, want, precision, is_whole=True):
    """The first calls whose sums are not near the emulation's, in words; those that only one of both makes (a library may
    add a bias, or leave that to a kernel) are not compared. `is_whole`: the step has come to its end."""
    found = []
    for rank, rows in got.items():
        theirs = want.get(rank, [])
        compared = 0
        for block in same_calls(rows, theirs, is_whole):
            for one, other in zip(rows[block.a:block.a + block.size], theirs[block.b:block.b + block.size]):
                compared += 1
                if not is_near(one, other, precision):
                    found.append("rank %d, call %d of %d, %s: %s; emulated: %s" % (
                        rank, one["call"], len(rows), one["name"], *map(told, (one, other))))
        if 2 * compared < len(theirs if is_whole else rows):
            found.append("rank %d: only %d of %d calls are the emulation's" % (rank, compared, len(theirs)))
    return found[:MOST]


def ends(got, want):
    """Of a step that has failed, for each rank the last call that was looked at, and the one that the emulation makes behind
    it: that is at fault, or has waited for what is."""
    found = []
    for rank, rows in got.items():
        theirs = want.get(rank, [])
        last = [block for block in same_calls(rows, theirs, False) if block.size]
        behind = last[-1].b + last[-1].size if last else 0
        # A library's product with its bias is another call than the emulation's two.
        behind += len(rows) - (last[-1].a + last[-1].size) if last else len(rows)
        found.append("rank %d: the last call that ended is %d, %s; behind it comes %s" % (
            rank, rows[-1]["call"], rows[-1]["name"], theirs[behind]["name"] if behind < len(theirs) else "no other"))
    return found
