# ctest: one core
"""Biases that a product adds, on stand-ins of NVIDIA's libraries."""
import os
import pathlib
import struct
import unittest
from types import SimpleNamespace
from unittest import mock

from gpu_test import GpuTest
from pipeline import Golden, call, read_npy, read_plan, write_npy


class Biases(GpuTest):
    """cuBLASLt adds the biases of queries, keys and values, whose sum only attention reads."""

    def test_the_same_without(self):
        golden, apart = Golden("gpt"), self.fresh(".json")
        # The second layer's product for queries, keys and values ends a stage; its bias begins the next.
        apart.write_text('{"stages": [{"first_node": 0}, {"first_node": 81}]}')
        for precision in ("fp32", "bf16"):
            losses = []
            for ranks in (1, 2):
                cut = ("--stage-file", apart) if (precision, ranks) == ("fp32", 2) else ("--stages", ranks)
                plan = self.compile_for(golden, "1x%d" % ranks, *cut, "--strategy", "1f1b", "--precision", precision)
                # The library does; it cannot; it must not.
                for adds, settings, wish in ((True, {}, "on"), (False, {"epilogues": 0}, "on"), (False, {}, "off")):
                    log = self.fresh(".log")
                    with self.subTest(precision=precision, ranks=ranks, wish=wish, **settings), \
                            mock.patch.dict(os.environ, PIPEC_EPILOGUES=wish):
                        result = self.run_gpu(plan, golden, "--steps", 3, log=log, **settings)
                        losses.append(result.losses)
                        lines = log.read_text().splitlines()
                        # Two layers and four microbatches, queued twice; in f32 one product is sent without its bias.
                        count = 8 if (precision, ranks) == ("fp32", 2) else 16
                        self.assertEqual(lines.count("multiply, add a bias"), count if adds else 0)
                        self.assertEqual(losses[-1], losses[0])
                        summary = result.summary
                        self.assertEqual((summary["biases_added"] > 0, summary["biases_refused"] > 0),
                                         (adds, not adds and wish == "on"))
                        self.assertEqual(summary["code"], "cubin" if ranks == 1 else "ptx")

    def test_an_algorithm_that_is_not_run(self):
        """Products go on to the next that was found; a bias is added by a kernel, and counted where it is."""
        golden = Golden("gpt")
        # Two stages, and two replicas, whose sums wait for a count of calls.
        for words in (("--stages", "2"), ("--stages", "1", "--recompute", "full")):
            plan = self.compile_for(golden, "1x2", "--strategy", "1f1b", *words)
            logs = [self.fresh(".log") for _ in range(2)]
            want, got = (self.run_gpu(plan, golden, "--steps", 3, log=log, promise=promise)
                         for promise, log in enumerate(logs))
            self.assertEqual(got.losses, want.losses)
            self.assertEqual(got.summary["biases_added"], 0)
            self.assertGreater(want.summary["biases_added"], 0)
            added, refused = ([line for line in log.read_text().splitlines() if line.startswith("multiply")]
                              for log in logs)
            self.assertIn("multiply, add a bias", added)
            self.assertEqual(refused, ["multiply"] * len(added))
            # What was refused is no call.
            file = self.fresh()
            with mock.patch.dict(os.environ, PIPEC_CALL_SUMS=str(file)):
                self.run_gpu(plan, golden, "--steps", 1, promise=1)
            calls = pathlib.Path("%s.rank0" % file).read_text()
            self.assertIn("matmul", calls)
            self.assertNotIn("+ bias", calls)

    def test_one_column(self):
        """cuBLASLt is not asked for the bias of a result with one column: some versions leave it out of rows."""
        for columns, adds in ((1, False), (2, True)):
            source, model, data, labels = (self.fresh(suffix) for suffix in (".txt", ".onnx", ".npy", ".npy"))
            source.write_text('<ir_version: 8, opset_import: ["" : 17]>\n'
                              "g (float[4,3] x) => (float[4,1] y) <float[3,%d] w = {%s}, float[%d] v = {%s}, "
                              "float[%d,1] u = {%s}> { a = MatMul(x, w)  h = Add(a, v)  y = MatMul(h, u) }" %
                              (columns, ",".join("123456"[:3 * columns]), columns, ",".join("12"[:columns]), columns,
                               ",".join("11"[:columns])))
            self.check_exit(call("onnx-from-text", source, model), 0)
            write_npy(data, "<f4", (4, 3), struct.pack("<12f", *range(12)))
            write_npy(labels, "<f4", (4, 1), bytes(16))
            small = SimpleNamespace(model=model, data={"x": data, "targets": labels},
                                    arguments=lambda optimizer: ["--loss", "mse", "--microbatches", "2"])
            plan = self.compile_for(small, "1", "--stages", "1", "--strategy", "1f1b")
            log, output = self.fresh(".log"), self.fresh(".npy")
            self.run_gpu(plan, small, "--evaluate", "--output", "y=%s" % output, log=log)
            self.assertEqual("multiply, add a bias" in log.read_text().splitlines(), adds)
            weights = [[*range(1 + column, 3 * columns + 1, columns), 1 + column] for column in range(columns)]
            want = [sum(x * w for column in weights for x, w in zip([*range(3 * row, 3 * row + 3), 1], column))
                    for row in range(4)]
            self.assertEqual(read_npy(output)[2], struct.pack("<4f", *want))

    def test_where_gradients_are_complete(self):
        """A product that adds its bias is two calls in the count that sums of gradients wait for."""
        golden = Golden("gpt")
        plan = self.compile_for(golden, "1x2", "--stages", "1", "--strategy", "1f1b", "--recompute", "full")
        losses = []
        for epilogues in (1, 0):
            log = self.fresh(".log")
            losses.append(self.run_gpu(plan, golden, "--steps", 3, log=log, epilogues=epilogues).losses)
            self.assertEqual("multiply, add a bias" in log.read_text().splitlines(), bool(epilogues))
        self.assertEqual(*losses)


    def test_a_part_of_the_stages_computes_again(self):
        """Where memory asks for it, with the same bits and exactly the bytes that were predicted."""
        golden = Golden("gpt")
        words = ("1x2", "--strategy", "gpipe")
        free = self.compile_for(golden, *words, "--stages", "2")
        words += ("--stage-file", free / "plan.json")
        full = self.compile_for(golden, *words, "--recompute", "full")
        most, least = (max(rank["peak_bytes"] for rank in read_plan(plan)["ranks"]) for plan in (free, full))
        part = self.compile_for(golden, *words, "--memory-limit", least + (most - least) * 3 // 4)
        self.assertEqual({stage["recompute"] for stage in read_plan(part)["stages"]}, {False, True})
        runs = [self.run_gpu(plan, golden, "--steps", 3) for plan in (free, part)]
        self.assertEqual(runs[0].losses, runs[1].losses)
        for rank in runs[1].summary["ranks"]:
            self.assertEqual(rank["peak_bytes"], rank["predicted_peak_bytes"])


if __name__ == "__main__":
    unittest.main()
