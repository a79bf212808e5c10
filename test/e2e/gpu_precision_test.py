# ctest: one core
"""Plans of bf16 for GPUs, on stand-ins of NVIDIA's libraries: their losses are PyTorch's."""
import unittest

from gpu_test import GpuTest
from pipeline import Golden


class Narrow(GpuTest):
    """--precision bf16: products and convolutions are the libraries', but for gradients of convolutions' weights, which
    are multiplied in TF32, which holds bf16."""

    def check(self, name, bound, *words, first=1e-5, convolutions=None):
        golden = Golden(name)
        run = golden.runs[0]
        alone = None
        for ranks in (1, 2):
            plan = self.compile_for(golden, "1x%d" % ranks, "--stages", ranks, "--strategy", "1f1b", "--precision",
                                    "bf16", *words, optimizer=run["optimizer"])
            log = self.fresh(".log")
            result = self.run_gpu(plan, golden, "--steps", golden.steps, log=log)
            if convolutions:
                lines = log.read_text().splitlines()
                self.assertEqual(lines.count("convolve bf16") / lines.count("convolve"), convolutions)
            alone = alone or result.losses
            self.assertEqual(result.losses, alone)
            for rank in result.summary["ranks"]:
                self.assertEqual(rank["peak_bytes"], rank["predicted_peak_bytes"])
        self.assertLessEqual(abs(alone[0] - run["losses_bf16"][0]), first * alone[0])
        self.assertGreater(abs(alone[0] - run["losses_f64"][0]), 1e-5 * alone[0])
        for got, want in zip(alone, run["losses_bf16"]):
            self.assertLessEqual(abs(got - want), bound * want)

    def test_gpt(self):
        self.check("gpt", 3e-4, "--attention", "plain")
        # Scores are not rounded, as PyTorch's were.
        self.check("gpt", 5e-4, first=5e-5)

    def test_cnn(self):
        # Four convolutions, all but the first with a gradient of its input; four gradients of weights.
        self.check("cnn", 1e-3, convolutions=7 / 4)

    def test_without_convolutions_of_bf16(self):
        """Where cuDNN has none, or does not run what it has found, the numbers are those of f32, rounded here."""
        golden = Golden("cnn")
        plan = self.compile_for(golden, "1", "--stages", "1", "--strategy", "1f1b", "--precision", "bf16")
        log = self.fresh(".log")
        want = self.run_gpu(plan, golden, "--steps", 3, log=log).losses
        rounded = log.read_text().splitlines().count("convolve bf16")
        self.assertGreater(rounded, 0)
        # Transforms, where there is nothing else, work on f32 with products that do not round.
        for settings in ({"narrow": "none"}, {"narrow": "refused"}, {"transforms": 1}):
            log = self.fresh(".log")
            run = self.run_gpu(plan, golden, "--steps", 3, log=log, **settings)
            self.assertEqual(run.losses, want)
            lines = log.read_text().splitlines()
            self.assertEqual(lines.count("convolve bf16"), 0)
            self.assertEqual(sum("pipec_round" in line for line in lines), rounded)


if __name__ == "__main__":
    unittest.main()
