"""Orders by hand: `--strategy file:S.csv` trains what the file says, or says where it is wrong."""
from pipeline import (BAD_PLAN, NO_FIT, NO_INPUT, USAGE, Golden, PipelineTest, call, read_plan)

STEPS = 3


def read(path):
    return [line.split(",") for line in path.read_text().splitlines()]


class OrderFileTest(PipelineTest):
    def setUp(self):
        super().setUp()
        self.golden = Golden("gpt")
        self.words = self.golden.arguments()
        self.microbatches = int(self.words[self.words.index("--microbatches") + 1])

    def write(self, lines):
        path = self.fresh(".csv")
        path.write_text("".join(",".join(line) + "\n" for line in lines))
        return path

    def generate(self, name, ranks):
        path = self.fresh(".csv")
        process = call("pipec", "schedule", name, "--stages", ranks, "--microbatches",
                       self.microbatches, "--quiet", "-o", path)
        self.check_exit(process, 0)
        return read(path)

    def by_hand(self, placement, split=()):
        """All forwards, then all backwards; microbatch k of a stage on copy k mod copies."""
        ranks = 1 + max(max(copies) for copies in placement)
        lines = [[] for _ in range(ranks)]
        for kinds, stages in (("F", range(len(placement))), ("B", range(len(placement) - 1, -1, -1))):
            for stage in stages:
                for k in range(self.microbatches):
                    line = lines[placement[stage][k % len(placement[stage])]]
                    for kind in "IW" if kinds == "B" and stage in split else kinds:
                        line.append("%d%s%d" % (stage, kind, k))
        return lines

    def losses(self, strategy, ranks, *extra):
        plan = self.compile(self.golden.model, *self.words, "--cpus", ranks, "--strategy", strategy, *extra)
        run = self.train(plan, self.golden.data, STEPS, "--transport", "inproc")
        for rank in run.summary["ranks"]:
            self.assertEqual(rank["peak_bytes"], rank["predicted_peak_bytes"])
        return run.losses, plan

    def trains(self, lines, *extra):
        """Trains the order and returns its losses; the plan holds exactly it."""
        path = self.write(lines)
        losses, plan = self.losses("file:%s" % path, len(lines), *extra)
        written = read_plan(plan)
        self.assertEqual(written["schedule"], path.name)
        self.assertEqual(written["strategy"]["name"], "file")
        split = any("W" in cell for line in lines for cell in line)
        if split:  # a whole backward is its two halves where some are apart
            lines = [[half for cell in line
                      for half in ((cell.replace("B", "I"), cell.replace("B", "W")) if "B" in cell else (cell,))]
                     for line in lines]
        self.assertEqual(read(plan / "schedule.csv"), lines)
        return losses

    def test_an_edited_order_has_the_bits_of_1f1b(self):
        expected, _ = self.losses("1f1b", 2)
        lines = self.generate("1f1b", 2)
        # One more forward before the first backward on rank 0.
        first = next(i for i, cell in enumerate(lines[0]) if "B" in cell)
        lines[0][first], lines[0][first + 1] = lines[0][first + 1], lines[0][first]
        self.assertIn("F", lines[0][first])
        self.assertNotEqual(lines, self.generate("1f1b", 2))
        self.assertEqual(self.trains(lines), expected)
        self.assertEqual(self.trains(lines, "--recompute", "full"), expected)
        # Late weight gradients: one weight gradient of rank 1 goes to the end.
        lines = self.generate("zb-h1", 2)
        last = next(i for i in range(len(lines[1]) - 1, -1, -1) if "W" in lines[1][i])
        lines[1].append(lines[1].pop(last))
        self.assertEqual(self.trains(lines), expected)

    def test_stages_live_where_the_file_says(self):
        expected, _ = self.losses("1f1b", 1)
        self.assertEqual(self.trains(self.by_hand([[1], [0], [1]])), expected)
        self.assertEqual(self.trains(self.by_hand([[0], [1], [2]], split=(1,))), expected)
        copies = self.trains(self.by_hand([[0], [1, 2]]))
        for a, b in zip(copies, expected):
            self.assertLess(abs(a - b) / abs(b), 1e-5)

    def refused(self, code, part, lines, *arguments, ranks=2):
        path = self.write(lines)
        plan = self.folder / "refused"
        process = call("pipec", self.golden.model, *self.words, "--cpus", ranks, "--strategy",
                       "file:%s" % path, *arguments, "-o", plan)
        self.check_exit(process, code)
        self.assertIn(part.replace("@", str(path)), process.stderr)
        self.assertFalse(plan.exists())

    def test_broken_files(self):
        lines = self.generate("1f1b", 2)
        broken = [list(line) for line in lines]
        broken[1][2] = "1G1"
        self.refused(BAD_PLAN, "@:2:9: '1G1': wanted <stage>", broken)
        broken = [list(line) for line in lines]
        broken[1][0], broken[1][1] = broken[1][1], broken[1][0]
        self.refused(BAD_PLAN, "@:2:1: dependency: device 1: 1B0 stands before 1F0", broken)
        self.refused(BAD_PLAN, "@:2: missing task: device 1: 1B%d is missing" % (self.microbatches - 1),
                     [lines[0], lines[1][:-1]])
        self.refused(BAD_PLAN, "@:3: rank 2 has nothing to do", [*lines, []], ranks=3)
        # Rank 1 takes microbatch 1 first, rank 0 sends microbatch 0 first.
        turned = [lines[0], ["1F1", "1F0", "1B0", "1B1", *lines[1][4:]]]
        self.refused(BAD_PLAN, "@:2:1: message order: device 1: 1F1 takes", turned)

    def test_files_that_do_not_fit_the_command(self):
        lines = self.generate("1f1b", 2)
        self.refused(USAGE, "2 lines, one for each rank; there are 1 device: give as many", lines, ranks=1)
        self.refused(USAGE, "leave --replicas out", lines, "--replicas", "1-1")
        self.refused(USAGE, "has 2 stages, not 3", lines, "--stages", "3")
        fewer = [[cell for cell in line if int(cell[2:]) == 0] for line in lines]
        self.refused(USAGE, "has 1 microbatches: give --microbatches 1", fewer)
        self.refused(NO_FIT, "it would fit with --memory-limit", lines, "--memory-limit", "1KiB")
        process = call("pipec", self.golden.model, *self.words, "--cpus", 2, "--strategy",
                       "file:%s" % (self.folder / "missing.csv"))
        self.check_exit(process, NO_INPUT)
        self.assertIn("missing.csv", process.stderr)

    def test_devices_without_a_line_are_noted(self):
        order = self.write(self.generate("1f1b", 2))
        for ranks, noted in ((2, False), (3, True)):
            process = call("pipec", self.golden.model, *self.words, "--cpus", ranks, "--strategy", "file:%s" % order,
                           "--dry-run")
            self.check_exit(process, 0)
            note = "note: the order of %s is for 2 ranks: 1 of 3 devices have nothing to do\n" % order.name
            self.assertEqual(note in process.stderr, noted)
            self.assertEqual(process.stderr.count("nothing to do"), int(noted))


if __name__ == "__main__":
    import unittest
    unittest.main()
