# ctest: one core
"""Matrices whose rows have no whole 16 bytes, as those of a vocabulary of 50257: on GPUs they are placed with a gap behind
each row, in the workspace, where they are kept for the backward pass and as rounded copies of weights; messages and the
weights themselves stay as they are."""
import json
import os
import re
import sys
import unittest
from types import SimpleNamespace
from unittest import mock

from gpu_test import GpuTest
from pipeline import MODELS, call, read_plan

sys.path.insert(0, str(MODELS.parent / "bench"))
import gpu_timed
import large_models



class EvenRows(GpuTest):
    def odd_gpt(self, vocabulary, length, used=None):
        """A GPT over so many words, as a model of test/models. `used`: only so many logits, the last ones."""
        folder = self.fresh()
        shape = dict(layers=1, width=32, heads=2, length=length, vocabulary=vocabulary)
        model = large_models.gpt3(**shape)
        if used:
            shape["vocabulary"] = used
            (logits, kind, sizes), = model.outputs
            part = model.op("Slice", logits, model.ints(vocabulary - used), model.ints(vocabulary), model.ints(2))
            model.outputs = [(part, kind, [*sizes[:-1], used])]
        model.save(folder)
        gpu_timed.write_weights(folder, (folder / "weights.bin").stat().st_size // 4)
        with mock.patch.object(gpu_timed, "GPT2", shape):
            gpu_timed.write_tokens(folder / "input_ids.npy", 16)
        words = ["--dim", "batch=2", "--loss", "next-token", "--microbatches", "4", "--optimizer"]
        return SimpleNamespace(model=folder / "model.onnx", data={"input_ids": folder / "input_ids.npy"},
                               arguments=lambda optimizer: [*words, optimizer])

    @staticmethod
    def rows(log):
        """The bytes from row to row of all matrices that were multiplied."""
        lines = re.findall(r"^heuristic for rows of (.*) bytes$", log.read_text(), re.MULTILINE)
        return {int(number) for line in lines for number in line.split(", ")}

    def test_odd_vocabulary(self):
        golden = self.odd_gpt(67, 64)
        optimizer = "adamw:lr=1e-3"
        for precision, bound in (("fp32", 1e-5), ("bf16", 1e-3)):
            cpu = self.compile(golden.model, *golden.arguments(optimizer), "--cpus", "1", "--precision", precision)
            want = self.train(cpu, golden.data, 4).losses
            alone = None
            for ranks, strategy in ((1, "1f1b"), (2, "1f1b"), (2, "zb-h1")):
                with self.subTest(precision=precision, ranks=ranks, strategy=strategy):
                    plan = self.compile_for(golden, "1x%d" % ranks, "--stages", ranks, "--strategy", strategy,
                                            "--precision", precision, optimizer=optimizer)
                    log = self.fresh(".log")
                    run = self.run_gpu(plan, golden, "--steps", 4, log=log)
                    for rank in run.summary["ranks"]:
                        self.assertEqual(rank["peak_bytes"], rank["predicted_peak_bytes"])
                    alone = alone or run.losses
                    self.assertEqual(run.losses, alone)
                    for got, expected in zip(run.losses, want):
                        self.assertLessEqual(abs(got - expected), bound * expected)
                    # Only weights and their gradients, of f32, lie as the model has them.
                    rows = self.rows(log)
                    self.assertEqual({bytes for bytes in rows if bytes % 16}, {268})
                    self.assertIn(272 if precision == "fp32" else 144, rows)

    def test_rows_in_shared_memory(self):
        """A loss's rows of 26003 are fetched into shared memory where two of them fit beside each other: the same bits."""
        golden = self.odd_gpt(26003, 16)
        plan = self.compile_for(golden, "1", "--stages", "1", "--precision", "bf16", optimizer="sgd:lr=0.1")
        losses = []
        for env, asks in (({}, True), ({"PIPEC_HELD_ROWS": "off"}, False), ({"PIPEC_STANDIN_CHIP": "80"}, True)):
            log = self.fresh(".log")
            # On Hopper alone attention is cuDNN's.
            with mock.patch.dict(os.environ, {**env, "PIPEC_CUDNN_ATTENTION": "off"}):
                losses.append(self.run_gpu(plan, golden, "--steps", 2, log=log).losses)
            asked = re.findall(r"^shared memory of kernel\d+: (\d+)$", log.read_text(), re.MULTILINE)
            self.assertEqual(bool(asked), asks, env)
            self.assertTrue(all(52006 <= int(bytes) for bytes in asked))
        self.assertEqual(losses, losses[:1] * 3)

    def check_cuts(self, golden, precision, cuts):
        """The same losses where the last stage has so many nodes; `cuts` says how many numbers a token are sent."""
        alone = None
        for cut, numbers in ((None, 0), *cuts):
            words = ["1", "--stages", "1"]
            if cut is not None:
                file = self.fresh(".json")
                file.write_text(json.dumps({"stages": [{"first_node": 0}, {"first_node": last - cut}]}))
                words = ["1x2", "--stage-file", file]
            plan = self.compile_for(golden, *words, "--strategy", "1f1b", "--precision", precision)
            with self.subTest(precision=precision, cut=cut):
                sent = [edge["bytes"] for edge in read_plan(plan)["edges"]]
                if cut is not None:  # perhaps beside others of the same stages
                    self.assertGreaterEqual(max(sent), 2 * 16 * numbers * 4)
                losses = self.run_gpu(plan, golden, "--steps", 3).losses
                last = read_plan(plan)["stages"][-1]["last_node"]
                alone = alone or losses
                self.assertEqual(losses, alone)

    def test_gaps_are_a_part_of_products(self):
        """Of 2051 logits a token: what cuBLASLt multiplies are sizes that fill 16 bytes, and the gradient of their weights,
        which has no gaps, is added apart."""
        golden = self.odd_gpt(2051, 16)
        calls = self.fresh(".txt")
        self.check_exit(call("pipec", golden.model, *golden.arguments("adamw:lr=1e-3"), "--gpus", "1", "--stages", "1",
                             "--precision", "bf16", "--emit", "calls", "-o", calls), 0)
        products = {line.split("\t")[1] for line in calls.read_text().splitlines() if "\tmatmul" in line}
        # m, k and n; rows of bf16 have 2112 numbers, those of f32 2080.
        for wanted in ("1 x 32 x 32 x 2112", "1 x 32 x 2112 x 32 b'", "1 x 32 x 32 x 2080 a'"):
            self.assertIn("matmul bf16 " + wanted, products)
        self.assertFalse([name for name in products if "2051" in name])

    def test_sums_over_odd_rows(self):
        """Logits with gaps and, where the loss is another stage's and they are sent, without: sums of one order."""
        for precision in ("fp32", "bf16"):
            self.check_cuts(self.odd_gpt(4099, 16), precision, [(22, 4099), (16, 4099), (10, 4099)])

    def test_sums_over_a_part_of_odd_rows(self):
        """Rows that begin anywhere, and the same ones sent on their own, among others of labels: sums of one order."""
        self.check_cuts(self.odd_gpt(67, 16, used=64), "fp32", [(22, 64), (8, 1)])


if __name__ == "__main__":
    unittest.main()
