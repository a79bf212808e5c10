"""What gpu_check.py does about a run that fails or whose numbers are wrong, without any GPU: other ways, the first call that
differs."""
import pathlib
import time
import unittest

from gpu_runs_test import CASE, Checked, gpu_runs
import gpu_sums
import gpu_ways


class WhatFails(Checked):
    """Other ways of a run, whose losses come from a list."""

    def judge(self, answers, sums=None, way=((), {}), left=None):
        """What becomes of a case whose runs have these losses or errors, and then 0.5 for ever; and what was run: with a way
        that all runs have by then, with so many seconds left."""
        check, runs, answers = self.check(), [], iter(answers)
        check.way = way
        if left:
            check.until = time.monotonic() + left

        def attempt(plan, inputs, data, steps, *words, environment=None, **_):
            more = {**check.way[1], **(environment or {})}
            # What stands still says where before it is ended.
            self.assertEqual("--timeout" in words, check.diagnosing.locked(), words)
            words = tuple(word for word in words if word not in gpu_ways.STANDSTILL)
            logs = ("logs",) * (not gpu_ways.LOGS.keys().isdisjoint(more))
            runs.append(tuple(check.way[0]) + words + tuple(key for key in more if key not in gpu_ways.LOGS) + logs)
            loss = next(answers, 0.5)
            ranks = [{"peak_bytes": 1, "predicted_peak_bytes": 1}]
            if environment and "PIPEC_CALL_SUMS" in environment and sums:
                pathlib.Path(environment["PIPEC_CALL_SUMS"]).write_text(sums)
            if isinstance(loss, str):
                return gpu_runs.Done(None, None, None, loss)
            return gpu_runs.Done([loss], [1.0], {"ranks": ranks, "code": "ptx"}, None)
        check.attempt = attempt
        if sums:
            (check.target / "sums").mkdir()
            (check.target / "sums" / (CASE["name"] + ".jsonl")).write_text(
                '{"rank": 0, "call": 0, "name": "kernel0", "changed": 8, "sum": 2.5}\n'
                '{"rank": 0, "call": 1, "name": "product 2 x 2 x 2", "changed": 8, "sum": 2.5}\n')
        check.losses(CASE, {})
        return check, runs

    def test_right(self):
        check, runs = self.judge([1.0, 1.0])
        self.assertEqual((check.wrong, runs), ([], [(), ("--graphs", "off")]))
        self.assertIn("code ptx", self.said[-1])

    def test_it_comes_and_goes(self):
        """Wrong once, and right when nothing has changed: no way is that of all runs, since each would be right."""
        check, runs = self.judge([0.5, 1.0])
        self.assertEqual(len(check.wrong), 1)
        self.assertEqual(check.way, ((), {}))
        self.assertTrue(check.results["comes and goes"][CASE["name"]])
        self.assertEqual(runs[:2], [(), ()])  # without the logs, which take time and so hide a race
        self.assertTrue(any("it comes and goes" in text for text in self.said))

    def test_it_comes_and_goes_later(self):
        """Twice wrong, right with a way, and then right without it as well."""
        check, runs = self.judge([0.5, 0.5, 0.5, 1.0, 1.0])
        self.assertEqual(check.way, ((), {}))
        self.assertTrue(check.results["comes and goes"][CASE["name"]])
        self.assertEqual(runs[:5], [(), (), ("logs",), ("--graphs", "off"), ()])

    def test_right_with_logs(self):
        """That is said, and is no way."""
        check, _ = self.judge([0.5, 0.5, 1.0])
        self.assertEqual(check.way, ((), {}))
        self.assertTrue(any("with the libraries' logs on it is right once" in text for text in self.said), self.said)

    def test_a_way_by_luck(self):
        check, _ = self.judge([0.5, 0.5, 0.5, 1.0, 0.5, 0.5])
        self.assertEqual(check.way, ((), {}))
        self.assertNotIn("PIPEC_CALL_SYNC=1", check.results["diagnoses"][CASE["name"]])
        self.assertIn("    and then wrong, with the same", self.said)

    def test_a_way(self):
        """It is right again and again, and the usual way never."""
        none = [0.5] * 2
        check, runs = self.judge([*["exit 70: no PTX"] * 3, *none, 1.0, "exit 70: no PTX", 1.0, *none, *none, 1.0,
                                  1.0])
        self.assertEqual(check.way, ([], {"PIPEC_GPU_CODE": "ptx"}))
        self.assertEqual(runs[3:6], [("--graphs", "off"), ("--graphs", "off", "PIPEC_CALL_SYNC"), ("PIPEC_GPU_CODE",)])
        self.assertEqual(runs[-2], ("PIPEC_GPU_CODE",))
        self.assertEqual(check.wrong, ["mlp-1-1f1b-fp32: exit 70: no PTX"])

    def test_without_graphs(self):
        """What is right without graphs is so when the host waits as well, which says nothing more."""
        check, runs = self.judge([0.5, 0.5, 0.5, 1.0, 0.5, 1.0])
        self.assertEqual(check.way, (["--graphs", "off"], {}))
        self.assertIn("    and a second time, and wrong without it in between", self.said)
        self.assertNotIn("PIPEC_CALL_SYNC=1", check.results["diagnoses"][CASE["name"]])
        self.assertNotIn("CUDA_LAUNCH_BLOCKING=1", check.results["diagnoses"][CASE["name"]])

    def test_without_graphs_once(self):
        """Neither is there time to try it again nor is it the first way: still it says what the waiting host would."""
        for way, left, answers in ((((), {}), 70, [0.5, 0.5, 1.0, 1.0, 1.0]),
                                   (([], {"PIPEC_GPU_CODE": "ptx"}), None, [0.5, 0.5, 0.5, 1.0, 1.0, 1.0, 1.0])):
            check, runs = self.judge(answers, way=way, left=left)
            self.assertEqual(check.way, way)
            found = check.results["diagnoses"][CASE["name"]]
            self.assertTrue(found["--graphs off"])
            self.assertFalse({"PIPEC_CALL_SYNC=1", "CUDA_LAUNCH_BLOCKING=1"} & found.keys())
            self.assertIn("    with --graphs off it is right (once): " + gpu_ways.WAYS[0][3], self.said)
        # All runs are so by now: it is no news.
        check, runs = self.judge([0.5, 0.5, 0.5, 1.0], way=(["--graphs", "off"], {}))
        found = check.results["diagnoses"][CASE["name"]]
        self.assertNotIn("--graphs off", found)
        self.assertTrue(found["PIPEC_CALL_SYNC=1"])

    def test_the_first_call_that_differs(self):
        sums = ('{"rank": 0, "call": 0, "name": "kernel0", "changed": 8, "sum": 2.5001}\n'
                '{"rank": 0, "call": 1, "name": "product 2 x 2 x 2", "changed": 8, "sum": 3.5}\n')
        check, runs = self.judge([0.5, 0.5], sums)
        found = check.results["first calls that differ"][CASE["name"]]
        self.assertEqual(len(found), 1)
        self.assertIn("call 1 of 2, product 2 x 2 x 2: its sum is 3.5, of 8 bytes; emulated: its sum is 2.5", found[0])
        self.assertIn("    differs from the emulation: " + found[0], self.said)

    def test_the_call_that_fails(self):
        """Of a step that does not end: the one behind the last whose sums are there."""
        sums = '{"rank": 0, "call": 0, "name": "kernel0", "changed": 8, "sum": 2.5}\n'
        check, runs = self.judge(["exit 70: a fault"] * 9, sums)
        self.assertEqual(runs[2], ("--graphs", "off", "PIPEC_CALL_SUMS"))
        self.assertEqual(check.results["first calls that differ"][CASE["name"]], [])
        self.assertEqual(check.results["ends behind"][CASE["name"]], [
            "rank 0: the last call that ended is 0, kernel0; behind it comes product 2 x 2 x 2"])
        self.assertTrue(any("its first step fails: exit 70: a fault\n      rank 0: the last" in text for text in self.said))

    def test_other_numbers(self):
        """A way that means other numbers has a first of its kind of its own."""
        check = self.check()
        check.way = ([], gpu_ways.NO_EPILOGUES)
        check.attempt = lambda *_, **__: gpu_runs.Done([1.0], [1.0], {"ranks": []}, None)
        references = {CASE["like"]: [1.00001]}
        check.losses(CASE, references)
        self.assertEqual(check.wrong, [])
        self.assertEqual(len(references), 2)


class Sums(Checked):
    def test_differences(self):
        def ranks(*sums, names=("kernel0", "product", "kernel1", "kernel2")):
            return {0: [{"rank": 0, "call": i, "name": name, "changed": 4, "sum": sum_} for i, (name, sum_) in enumerate(zip(
                names, sums))]}
        want = ranks(1.0, 2.0, 3.0, 4.0)
        self.assertEqual(gpu_sums.differences(want, want, "fp32"), [])
        self.assertEqual(gpu_sums.differences(ranks(1.01, 2.0, 3.0, 4.0), want, "bf16"), [])
        found = gpu_sums.differences(ranks(1.0, 2.1, 3.5, 4.0), want, "fp32")
        self.assertEqual(len(found), 2)
        self.assertIn("call 1 of 4, product", found[0])
        # What is not a number is in no sum.
        odd = ranks(1.0, 2.0, 3.0, 4.0)
        odd[0][2]["no_numbers"] = 1
        self.assertIn("call 2 of 4, kernel1: its sum is 3.0, of 4 bytes, and 1 words are no numbers; emulated: its sum is 3.0",
                      gpu_sums.differences(odd, want, "fp32")[0])
        # Calls that only one of both makes are passed over: there a library adds the bias of a product.
        apart = ranks(1.0, 2.0, 9.0, 3.0, 4.0, names=("kernel0", "product", "bias", "kernel1", "kernel2"))
        added = ranks(1.0, 9.0, 3.0, 4.0, names=("kernel0", "product + bias", "kernel1", "kernel2"))
        self.assertEqual(gpu_sums.differences(apart, want, "fp32"), [])
        self.assertEqual(gpu_sums.differences(apart, added, "fp32"), [])
        self.assertIn("only 0 of 4 calls", gpu_sums.differences(ranks(1.0, names=("other",)), want, "fp32")[0])
        # Of a step that has failed there are not all, and those of the next microbatch have the same names.
        self.assertIn("only 1 of 4 calls", gpu_sums.differences(ranks(1.0), want, "fp32")[0])
        self.assertEqual(gpu_sums.differences(ranks(1.0), want, "fp32", False), [])

    def test_right_numbers_at_wrong_places(self):
        """They have the same sum: where both lists have more than that it is compared."""
        one = {"rank": 0, "call": 0, "name": "copy", "changed": 8, "sum": 3.0, "length": 2.2, "placed": 0.1}
        for key, value in (("placed", 0.3), ("placed", 0.103), ("length", 2.3)):
            other = {**one, key: value}
            found = gpu_sums.differences({0: [other]}, {0: [one]}, "fp32")
            self.assertEqual(len(found), 1)
            self.assertIn("%s %s" % (key, value), found[0])
            self.assertEqual(bool(gpu_sums.differences({0: [other]}, {0: [one]}, "bf16")), value != 0.103)
            # An older list.
            del other[key]
            self.assertEqual(gpu_sums.differences({0: [other]}, {0: [one]}, "fp32"), [])
        # It may cancel, and is compared with the length.
        self.assertEqual(gpu_sums.differences({0: [{**one, "placed": 0.1001}]}, {0: [{**one, "placed": 0.1}]}, "fp32"), [])

    def test_what_comes_behind(self):
        def calls(*names):
            return {0: [{"rank": 0, "call": i, "name": name, "changed": 4, "sum": 1.0} for i, name in enumerate(names)]}
        want = calls(*["kernel0", "product", "bias", "kernel1"] * 9)
        for got, behind in ((("kernel0",), "product"), (("kernel0", "product", "bias", "kernel1", "kernel0"), "product"),
                            (["kernel0", "product", "bias", "kernel1"] * 9, "no other")):
            self.assertTrue(gpu_sums.ends(calls(*got), want)[0].endswith("behind it comes " + behind), got)

    def test_files(self):
        """Of every rank, in the order of the calls."""
        folder = self.fresh()
        folder.mkdir()
        for rank in (1, 0):
            (folder / ("sums.rank%d" % rank)).write_text("".join('{"rank": %d, "call": %d, "name": "k", "changed": 0, '
                                                                 '"sum": 0}\n' % (rank, call) for call in (1, 0)))
        rows = gpu_sums.read(folder / "sums")
        self.assertEqual([(rank, [row["call"] for row in list_]) for rank, list_ in rows.items()], [(0, [0, 1]), (1, [0, 1])])
        gpu_sums.write(folder / "all", rows)
        self.assertEqual(gpu_sums.read(folder / "all"), rows)


if __name__ == "__main__":
    unittest.main()
