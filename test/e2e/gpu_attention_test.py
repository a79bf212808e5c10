# ctest: one core
"""Attention of bf16 by cuDNN, whose stand-in goes through the graph of operations that it is given; where there is none,
by the stage's own kernels."""
import json
import os
import pathlib
import unittest
from unittest import mock

from gpu_test import STANDIN, GpuTest
from pipeline import Golden

LAYERS, MICROBATCHES = 2, 4


class Attention(GpuTest):
    def plan(self, golden, devices, *words):
        return self.compile_for(golden, devices, "--precision", "bf16", *words)

    def attended(self, plan, golden, *words, **settings):
        """How many calls cuDNN's stand-in ran, and the run."""
        log = self.fresh(".log")
        run = self.run_gpu(plan, golden, "--steps", 3, *words, log=log, **settings)
        return log.read_text().splitlines().count("attend"), run

    def test_the_same_in_every_pipeline(self):
        golden = Golden("gpt")
        losses = []
        for devices, words, forwards in (("1", ("--stages", "1", "--strategy", "1f1b"), 1),
                                         ("1x2", ("--stages", "2", "--strategy", "1f1b"), 1),
                                         ("1x2", ("--stages", "2", "--strategy", "zb-h1"), 1),
                                         ("1", ("--stages", "1", "--strategy", "gpipe", "--recompute", "full"), 2)):
            with self.subTest(devices=devices, words=words):
                count, run = self.attended(self.plan(golden, devices, *words), golden)
                # Queued once, and once more to be recorded.
                self.assertEqual(count, 2 * LAYERS * MICROBATCHES * (forwards + 1))
                self.assertGreaterEqual(run.summary["attention_by_cudnn"], 2)
                losses.append(run.losses)
        self.assertEqual(losses, [losses[0]] * len(losses))
        own = self.attended(self.plan(golden, "1", "--stages", "1", "--strategy", "1f1b"), golden, attention=0)[1]
        for got, want in zip(losses[0], own.losses):
            self.assertLess(abs(got - want) / want, 1e-3)

    def test_without(self):
        """No graph of cuDNN's, another chip, no cuDNN, or it is not wanted: the same numbers by kernels."""
        golden = Golden("gpt")
        plan = self.plan(golden, "1", "--stages", "1", "--strategy", "1f1b")
        folder = self.fresh()
        folder.mkdir()
        for name in ("libcuda.so.1", "libcublasLt.so.13"):
            (folder / name).symlink_to(STANDIN / name)
        for name in ("libcudnn.so.9", "libcudnn.so.8", "libcudnn.so"):
            (folder / name).write_text("no library, also where NVIDIA's own is installed")
        losses = []
        for wish, settings in (("on", {"attention": 0}), ("on", {"chip": 80}), ("on", {"libraries": folder}), ("off", {})):
            with self.subTest(wish=wish, **settings), mock.patch.dict(os.environ, PIPEC_CUDNN_ATTENTION=wish):
                count, run = self.attended(plan, golden, **settings)
                self.assertEqual((count, run.summary["attention_by_cudnn"]), (0, 0))
                losses.append(run.losses)
        self.assertEqual(losses, [losses[0]] * len(losses))

    def test_where_gradients_are_complete(self):
        """A gradient is three calls in the count that sums of gradients wait for."""
        golden = Golden("gpt")
        plan = self.plan(golden, "1x2", "--stages", "1", "--strategy", "1f1b")
        runs = [self.attended(plan, golden, attention=attention, order="random:1") for attention in (1, 0)]
        self.assertGreater(runs[0][0], 0)
        self.assertEqual(runs[1][0], 0)
        for got, want in zip(runs[0][1].losses, runs[1][1].losses):
            self.assertLess(abs(got - want) / want, 1e-3)

    def test_names(self):
        golden = Golden("gpt")
        plan = self.plan(golden, "1", "--stages", "1", "--strategy", "1f1b")
        file = self.fresh()
        with mock.patch.dict(os.environ, PIPEC_CALL_SUMS=str(file)):
            self.run_gpu(plan, golden, "--steps", 1)
        names = {json.loads(line)["name"] for line in pathlib.Path("%s.rank0" % file).read_text().splitlines()}
        self.assertEqual(len([name for name in names if name.startswith("attention of ")]), 1)
        self.assertEqual(len([name for name in names if name.startswith("attention gradient of ")]), 1)


if __name__ == "__main__":
    unittest.main()
