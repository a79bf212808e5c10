"""A second simulator of schedules, apart from pipec's, and random costs to hold the two against each other."""
import itertools
import re

ACTION = re.compile(r"(\d+)([FBIW])(\d+)$")


def parse(rows):
    """[[(stage, kind, microbatch)]] of the actions in a JSON answer."""
    return [[(int(m[1]), m[2], int(m[3])) for m in map(ACTION.match, row)] for row in rows]


class Costs:
    """Random costs of each device (a chunk takes its share) and of the links between neighbours."""

    def __init__(self, rng, devices):
        def times():
            return [round(rng.uniform(0.2, 3), 3) for _ in range(devices)]
        self.time = {"F": times(), "I": times(), "W": [rng.choice([0, t]) for t in times()]}
        kept = [round(rng.uniform(0.5, 2), 2) for _ in range(devices)]
        freed = [round(-rng.random() * k, 2) for k in kept]
        self.memory = {"F": kept, "I": freed, "W": [-(k + f) for k, f in zip(kept, freed)]}
        self.links = [round(rng.random(), 3) for _ in range(devices - 1)]

    def json(self):
        return {"F": self.time["F"], "B": self.time["I"], "W": self.time["W"], "comm": self.links,
                "memory": {"F": self.memory["F"], "B": self.memory["I"], "W": self.memory["W"]}}

    def of(self, table, kind, device):
        return sum(table[k][device] for k in ("IW" if kind == "B" else kind))

    def hop(self, a, b):
        if self.links and isinstance(self.links[0], list):
            return self.links[a][b]
        return max(self.links[min(a, b):max(a, b)], default=0)


def simulate(rows, chunks, costs):
    """(makespan, span, peaks) of an as-soon-as-possible execution; AssertionError where a rule is broken."""
    home = {}
    for device, row in enumerate(rows):
        for action in row:
            assert action not in home, f"{action} twice"
            home[action] = device
    stages, microbatches = (1 + max(a[i] for a in home) for i in (0, 2))
    for s, k in itertools.product(range(stages), range(microbatches)):
        kinds = "".join(t for t in "FBIW" if (s, t, k) in home)
        assert kinds in ("FB", "FIW"), f"stage {s} microbatch {k} has {kinds}"
        assert len({home[s, t, k] for t in kinds}) == 1, f"stage {s} microbatch {k} moves"

    def inputs(stage, kind, k):
        if kind == "F":
            return [(stage - 1, "F", k)] if stage else []
        if kind == "W":
            return [(stage, "I", k)]
        later = [(stage + 1, t, k) for t in "BI" if (stage + 1, t, k) in home]
        return [(stage, "F", k), *later]

    end, at, free, first = {}, [0] * len(rows), [0.0] * len(rows), [None] * len(rows)
    moved = True
    while moved:
        moved = False
        for d, row in enumerate(rows):
            while at[d] < len(row) and all(i in end for i in inputs(*row[at[d]])):
                action = row[at[d]]
                begin = max([free[d], *(end[i] + (costs.hop(home[i], d) if home[i] != d else 0)
                                        for i in inputs(*action))])
                first[d] = begin if first[d] is None else first[d]
                free[d] = end[action] = begin + costs.of(costs.time, action[1], d) / chunks
                at[d] += 1
                moved = True
    assert all(a == len(row) for a, row in zip(at, rows)), "deadlock"
    peaks = []
    for d, row in enumerate(rows):
        held = itertools.accumulate(costs.of(costs.memory, t, d) / chunks for _, t, _ in row)
        peaks.append(max(held, default=0))
    used = [d for d, row in enumerate(rows) if row]
    return (max(free) - min(first[d] for d in used), max(free[d] - first[d] for d in used), peaks)
