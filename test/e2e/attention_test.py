"""--attention fused: one op that keeps no scores and computes them again for the gradient."""
import re
import unittest

from golden_test import tolerance
from pipeline import USAGE, Golden, PipelineTest, call, read_plan

MODELS = ("gpt", "translator")


class Attention(PipelineTest):
    def phase(self, golden, *words):
        """The text of the model's ops, and of the tasks."""
        output = self.fresh(".mlir")
        self.check_exit(call("pipec", golden.model, *golden.arguments(), "--strategy", "1f1b", *words, "-o", output), 0)
        return output.read_text()

    def test_found(self):
        """In all models with attention; by default where the devices are GPUs."""
        for name, count in (("gpt", 2), ("mlp", 0)):
            golden = Golden(name)
            for words, fused in ((("--gpus", "1"), True), (("--cpus", "1"), False),
                                 (("--gpus", "1", "--attention", "plain"), False),
                                 (("--cpus", "1", "--attention", "fused"), True)):
                with self.subTest(name, words=words):
                    text = self.phase(golden, *words, "--emit", "nn")
                    self.assertEqual(text.count("nn.attention "), count if fused else 0)
                    self.assertEqual(text.count("nn.softmax "), 0 if fused else count)

    def test_losses(self):
        """PyTorch's, on processors, where it is made of products; the same bits for any number of ranks."""
        for name in MODELS:
            golden = Golden(name)
            run, first = golden.runs[0], None
            for ranks in (1, 2):
                with self.subTest(name, ranks=ranks):
                    plan = self.compile(golden.model, *golden.arguments(run["optimizer"]), "--cpus", ranks, "--stages",
                                        ranks, "--strategy", "1f1b", "--attention", "fused")
                    result = self.train(plan, golden.data, golden.steps, "--transport", "inproc", *golden.run_args)
                    for got, want in zip(result.losses, run["losses_f64"], strict=True):
                        self.assertLessEqual(abs(got - want), tolerance(run) * max(1e-6, abs(want)))
                    for rank in result.summary["ranks"]:
                        self.assertEqual(rank["peak_bytes"], rank["predicted_peak_bytes"])
                    first = first or result.losses
                    self.assertEqual(result.losses, first)

    def test_memory(self):
        """No [T, T] of a head is kept for backward, nor held by a GPU within a task."""
        golden = Golden("gpt")
        scores = re.compile(r"(?:\d+x)+24x24x(?:f32|bf16)>")
        for precision in ("fp32", "bf16"):
            words = ("--gpus", "1", "--stages", "1", "--recompute", "none", "--precision", precision)
            kept = {}
            for attention in ("fused", "plain"):
                text = self.phase(golden, *words, "--attention", attention, "--emit", "pipe")
                stores = [line for line in text.splitlines() if "pipe.store" in line and '"stash"' in line]
                self.assertTrue(stores)
                kept[attention] = sum(bool(scores.search(line)) for line in stores)
            self.assertEqual(kept["fused"], 0)
            self.assertGreater(kept["plain"], 0)
            peaks = []
            for attention in ("fused", "plain"):
                plan = self.fresh(".plan")
                self.check_exit(call("pipec", golden.model, *golden.arguments(), "--strategy", "1f1b", *words,
                                     "--attention", attention, "--quiet", "-o", plan), 0)
                peaks.append(read_plan(plan)["ranks"][0]["peak_bytes"])
            self.assertLess(*peaks)

    def test_refused(self):
        golden = Golden("gpt")
        process = call("pipec", golden.model, *golden.arguments(), "--cpus", "2", "--strategy", "seq1f1b", "--slices",
                       "4", "--attention", "fused")
        self.check_exit(process, USAGE)
        self.assertIn("--attention fused does not go with pieces of a sequence: leave out --slices or take --attention "
                      "plain", process.stderr)
        process = call("pipec", golden.model, "--cpus", "1", "--attention", "flash")
        self.check_exit(process, USAGE)
        self.assertIn("--attention", process.stderr)


if __name__ == "__main__":
    unittest.main()
