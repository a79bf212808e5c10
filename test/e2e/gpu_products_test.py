"""Which of cuBLASLt's algorithms is run: the fastest of those that add up in the same order as its first choice."""
import os
import unittest
from unittest import mock

from gpu_test import GpuTest
from pipeline import Golden


class Tuning(GpuTest):
    def test_the_fastest_of_equal_bits(self):
        golden = Golden("mlp")
        plan = self.compile_for(golden, "1x2", "--strategy", "1f1b", "--stages", "2")
        runs = {}
        for wish in ("all", "off", "on"):
            log = self.fresh(".log")
            with mock.patch.dict(os.environ, PIPEC_TUNE_PRODUCTS=wish):
                run = self.run_gpu(plan, golden, "--steps", 3, "--graphs", "off", log=log, faster=1)
            lines = [line for line in log.read_text().splitlines() if line.startswith("multiply")]
            runs[wish] = run, lines
        tuned, lines = runs["all"]
        kinds = tuned.summary["products_tuned"]
        self.assertGreater(kinds, 2)
        # One run shows that the faster one with other bits has them; the one that says so is not tried. The slow one is
        # what the others are compared with and measured by.
        self.assertEqual(lines.count("multiply otherwise"), kinds)
        self.assertGreaterEqual(lines.count("multiply"), 13 * kinds)
        plain, usual = runs["off"]
        self.assertEqual(plain.summary["products_tuned"], 0)
        self.assertEqual(set(usual), {"multiply"})
        self.assertEqual(lines.count("multiply fast"), len(usual) + 13 * kinds)
        self.assertEqual(tuned.losses, plain.losses)
        # Products of a few thousand operations are not worth a trial.
        self.assertEqual(runs["on"][1], usual)

    def test_no_memory_for_a_trial(self):
        golden = Golden("mlp")
        plan = self.compile_for(golden, "1", "--strategy", "1f1b", "--stages", "1")
        with mock.patch.dict(os.environ, PIPEC_TUNE_PRODUCTS="all"):
            free = self.run_gpu(plan, golden, "--steps", 2, faster=1)
            log = self.fresh(".log")
            needed = free.summary["ranks"][0]["peak_bytes"] + free.summary["ranks"][0]["overhead_bytes"]
            full = self.run_gpu(plan, golden, "--steps", 2, faster=1, memory=needed, log=log)
        self.assertGreater(free.summary["products_tuned"], 0)
        self.assertEqual(full.losses, free.losses)


if __name__ == "__main__":
    unittest.main()
