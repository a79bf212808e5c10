"""The pictures of a schedule (terminal, page, trace) show what its CSV says, and nothing else."""
import json
import re
import unittest

from pipeline import PipelineTest, call

CASES = [("gpipe", 3, 4, []), ("1f1b", 4, 6, []), ("zb-h1", 4, 5, []), ("interleaved-1f1b", 2, 4, []),
         ("zb-v", 3, 4, []), ("dualpipe-v", 2, 4, []), ("chimera", 4, 4, []), ("seq1f1b", 2, 2, ["--slices", "2"]),
         ("auto", 3, 4, ["--chunks", "2"]), ("1f1b", 1, 1, []), ("dp", 3, 5, []), ("gems", 2, 3, [])]
COSTS = ["--time", "F=2,B=3,W=1,comm=0.5", "--memory", "F=1,B=-0.25,W=-0.75"]
GLYPH = re.compile(r"([FBIWfbiw])(\d*)=*")


class PicturesTest(PipelineTest):
    def pictures(self, name, devices, microbatches, more):
        """(CSV rows, data of the page, events of the trace, lines of the terminal, figures)."""
        csv, page, trace = self.fresh(".csv"), self.fresh(".html"), self.fresh(".json")
        words = ["schedule", name, "--stages", devices, "--microbatches", microbatches, *more]
        drawn = call("pipec", *words, "-o", csv, "--html", page, "--perfetto", trace, "--timeline")
        self.check_exit(drawn, 0)
        said = call("pipec", *words, "--format", "json")
        self.check_exit(said, 0)
        rows = [[a for a in line.split(",") if a] for line in csv.read_text().splitlines()]
        data = re.search(r'\{"name":.*?"tasks":\[.*?\]\]\]\}', page.read_text(), re.S)
        self.assertTrue(data, "no data in the page")
        lines = [line for line in drawn.stdout.splitlines() if re.match(r" *\d+ \|", line)]
        return rows, json.loads(data[0]), json.loads(trace.read_text())["traceEvents"], lines, json.loads(said.stdout)

    def check_page(self, rows, page, figures):
        named = [[f"{t[3]}{'FBIW'[t[2]]}{t[4]}" for t in tasks] for tasks in page["tasks"]]
        self.assertEqual(named, rows)
        for tasks in page["tasks"]:
            for one, next_ in zip(tasks, tasks[1:]):
                self.assertLessEqual(one[1], next_[0] + 1e-9)
        for key in ("makespan", "span", "bubble_makespan", "bubble_span"):
            self.assertAlmostEqual(page[key], figures[key], delta=1e-6 * max(1, abs(figures[key])))
        ends = [t[1] for tasks in page["tasks"] for t in tasks]
        begins = [t[0] for tasks in page["tasks"] for t in tasks]
        self.assertAlmostEqual(max(ends) - min(begins), figures["makespan"], delta=1e-6)
        for tasks, peak in zip(page["tasks"], figures["peak"], strict=True):
            self.assertAlmostEqual(max((t[5] for t in tasks), default=0), peak, delta=1e-6)

    def check_trace(self, rows, page, events):
        bars = [[] for _ in rows]
        held = [[] for _ in rows]
        for e in events:
            if e["ph"] == "X":
                bars[e["tid"]].append(e)
            elif e["ph"] == "C":
                held[int(e["name"].split()[-1])].append((e["ts"], e["args"]["held"]))
        self.assertEqual([[e["name"] for e in bar] for bar in bars], rows)
        scale = max((e["ts"] + e["dur"] for bar in bars for e in bar)) / max(t[1] for ts in page["tasks"] for t in ts)
        for bar, memory, tasks in zip(bars, held, page["tasks"], strict=True):
            for e, (at, amount), t in zip(bar, memory, tasks, strict=True):
                self.assertAlmostEqual(e["ts"], t[0] * scale, delta=1e-6 * scale)
                self.assertAlmostEqual(e["ts"] + e["dur"], t[1] * scale, delta=1e-6 * scale)
                self.assertAlmostEqual(at, t[1] * scale, delta=1e-6 * scale)
                self.assertAlmostEqual(amount, t[5], delta=1e-6)
                self.assertEqual((e["args"]["stage"], e["args"]["microbatch"]), (t[3], t[4]))

    def check_terminal(self, rows, lines):
        """Each task in its place, with its microbatch where that fits; other chunks of a device in small letters."""
        self.assertEqual(len(lines), len(rows))
        for row, line in zip(rows, lines):
            self.assertLessEqual(len(line), 100)
            actions = [re.match(r"(\d+)([FBIW])(\d+)", a).groups() for a in row]
            stages = sorted({int(a[0]) for a in actions})
            expected = [(k.lower() if stages.index(int(s)) % 2 else k, m) for s, k, m in actions]
            drawn = GLYPH.findall(line.split("|", 1)[1])
            self.assertEqual(len(drawn), len(expected), line)
            for (glyph, number), (kind, microbatch) in zip(drawn, expected):
                self.assertEqual(glyph, kind, line)
                self.assertIn(number, ("", microbatch), line)

    def test_pictures_agree_with_the_csv(self):
        for name, devices, microbatches, more in CASES:
            with self.subTest(name=name):
                rows, page, events, _, figures = self.pictures(name, devices, microbatches, [*more, *COSTS])
                self.assertEqual([r for r in rows], figures["actions"])
                self.check_page(rows, page, figures)
                self.check_trace(rows, page, events)
                rows, page, events, lines, figures = self.pictures(name, devices, microbatches, more)
                self.check_page(rows, page, figures)
                self.check_trace(rows, page, events)
                self.check_terminal(rows, lines)


if __name__ == "__main__":
    unittest.main()
