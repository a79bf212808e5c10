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
        # Gradients of weights, a third of all products, are added to what is there, and not tried.
        self.assertIn(lines.count("multiply fast") - 13 * kinds, range(len(usual) // 2, len(usual) * 3 // 4))
        self.assertEqual(tuned.losses, plain.losses)
        # Products of a few thousand operations are not worth a trial.
        self.assertEqual(runs["on"][1], usual)


if __name__ == "__main__":
    unittest.main()
