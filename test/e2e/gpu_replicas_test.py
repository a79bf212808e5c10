# ctest: one core
"""Gradients of replicas on GPUs, summed while the backward pass goes on; on stand-ins of NVIDIA's libraries."""
import random
import re
import struct
import unittest

import onnx_writer as onnx
from gpu_test import GpuTest
from pipeline import UNAVAILABLE, Golden, read_plan, write_npy

WIDTH, LAYERS, BATCH = 512, 3, 4


class Wide:
    """Layers of 1 MiB each: gradients of several buckets. Stands in for a Golden."""

    def __init__(self, folder):
        generator = random.Random(5)
        nodes, tensors, value = [], [], "input"
        for layer in range(LAYERS):
            numbers = [generator.gauss(0, 0.05) for _ in range(WIDTH * WIDTH)]
            tensors.append(onnx.tensor("w%d" % layer, onnx.FLOAT, [WIDTH, WIDTH], numbers))
            nodes.append(onnx.node("MatMul", [value, "w%d" % layer], ["a%d" % layer], "product%d" % layer))
            value = "logits" if layer == LAYERS - 1 else "t%d" % layer
            nodes.append(onnx.node("Tanh", ["a%d" % layer], [value], "tanh%d" % layer))
        self.model = folder / "wide.onnx"
        self.model.write_bytes(onnx.model(nodes, tensors, [onnx.value("input", onnx.FLOAT, [BATCH, WIDTH])],
                                          [onnx.value("logits", onnx.FLOAT, [BATCH, WIDTH])]))
        rows = 16 * BATCH
        self.data = {"input": folder / "input.npy", "labels": folder / "labels.npy"}
        write_npy(self.data["input"], "<f4", (rows, WIDTH),
                  struct.pack("<%df" % (rows * WIDTH), *(generator.gauss(0, 1) for _ in range(rows * WIDTH))))
        write_npy(self.data["labels"], "<i8", (rows,),
                  struct.pack("<%dq" % rows, *(generator.randrange(WIDTH) for _ in range(rows))))

    def arguments(self, optimizer):
        return ["--microbatches", 4, "--loss", "cross-entropy", "--optimizer", optimizer]


class Replicas(GpuTest):
    def plan(self, devices, stages, *words):
        self.model = Wide(self.folder)
        plan = self.compile_for(self.model, devices, "--stages", stages, *words)
        self.assertTrue(all(len(stage["ranks"]) == 2 for stage in read_plan(plan)["stages"]))
        return plan

    def test_sums_begin_in_the_last_backward(self):
        """The first sums are queued while most of the backward pass is still to come."""
        plan = self.plan("1x2", 1, "--strategy", "1f1b")
        want = self.run_gpu(plan, self.model, "--steps", 3).losses
        log = self.fresh()
        log.mkdir()
        got = self.run_gpu(plan, self.model, "--steps", 3, "--transport", "nccl", "--graphs", "off", log="%s/" % log)
        self.assertEqual(got.losses, want)
        logs = list(log.iterdir())
        texts = [text for text in (file.read_text() for file in logs) if "send peer" in text]
        self.assertEqual(len(texts), 2)
        for text in texts:
            step = text.splitlines()
            sums = [i for i, line in enumerate(step) if "launch pipec_sum" in line]
            self.assertEqual(len(sums) % 3, 0)
            step, sums = step[:sums[len(sums) // 3]], sums[:len(sums) // 3]  # until the second step's first sum
            self.assertGreater(len(sums), 3)
            # On the stream of messages, and with work of the backward pass behind them.
            streams = {re.search("on stream (.*)", line)[1] for line in step if "launch kernel" in line}
            own = {re.search("on stream (.*)", step[i])[1] for i in sums}
            self.assertEqual((len(streams), len(own), len(streams & own)), (1, 1, 0))
            between = [line for line in step[sums[0]:sums[-1]] if "launch kernel" in line or line == "multiply"]
            self.assertGreaterEqual(len(between), 3, "\n".join(step))

    def test_the_same_bits(self):
        """Whatever the order in which streams run, with graphs and without, and as of the whole sum at the end."""
        for devices, stages, strategy in (("1x2", 1, "1f1b"), ("1x4", 2, "gpipe"), ("1x2", 2, "chimera"), ("1x2", 2, "dualpipe")):
            with self.subTest(strategy=strategy, stages=stages):
                plan = self.plan(devices, stages, "--strategy", strategy)
                want = self.run_gpu(plan, self.model, "--steps", 3, "--graphs", "off").losses
                for words, settings in (((), {}), ((), {"order": "random:3"}),
                                        (("--graphs", "off"), {"order": "random:4"})):
                    again = self.run_gpu(plan, self.model, "--steps", 3, *words, **settings)
                    self.assertEqual(again.losses, want)
                oracle = self.run_gpu(plan, self.model, "--steps", 3, "--oracle").losses
                self.assertEqual(oracle, want)

    def test_more_replicas_than_one_launch_adds_up(self):
        """A launch adds up eight terms; the last four replicas add to their own, which are later ones."""
        golden = Golden("mlp")
        golden.pipec_args[golden.pipec_args.index("--microbatches") + 1] = "12"
        plan = self.compile_for(golden, "1x12", "--strategy", "dp")
        self.assertEqual([len(stage["ranks"]) for stage in read_plan(plan)["stages"]], [12])
        want = self.run_gpu(plan, golden, "--steps", 2, "--oracle").losses
        self.assertEqual(len(set(want)), 2)
        self.assertEqual(self.run_gpu(plan, golden, "--steps", 2, "--graphs", "off").losses, want)

    def test_the_first_failure_is_the_one_told(self):
        """All ranks fail, or miss what the others no longer have: neither says more, nor changes the code."""
        golden = Golden("mlp")
        plan = self.compile_for(golden, "1x4", "--strategy", "dp", machine=True)  # no notes on PTX
        run = self.run_gpu(plan, golden, "--steps", 2, "--graphs", "off", fail="pipec_sum", code=UNAVAILABLE)
        self.assertRegex(run.stderr, r"\Apipec-run: error: rank [0-3] \(stage 0\): the GPU has failed: cuLaunchKernel.*\n\Z")

    def test_a_missing_event_is_noticed(self):
        """Of the sums: without it they add up what is not there yet."""
        plan = self.plan("1x2", 1, "--strategy", "1f1b")
        words = ("--steps", 2, "--graphs", "off")
        want = self.run_gpu(plan, self.model, *words, order="messages-first").losses
        changed = []
        check, self.check_exit = self.check_exit, lambda process, code: None
        for number in range(2, 32):
            run = self.run_gpu(plan, self.model, *words, drop_wait=number, order="messages-first")
            changed.append(run.code != 0 or run.losses != want)
        self.check_exit = check
        self.assertGreaterEqual(sum(changed), 10, changed)


class Pipelines(GpuTest):
    """Whole pipelines of schedules that know no replicas have the numbers of as many replicas of 1f1b's stages."""

    def losses(self, golden, strategy, stages):
        """In one process, and with NCCL between four whose streams run in another order."""
        plan = self.compile_for(golden, "1x4", "--strategy", strategy, "--replicas", "-".join(["2"] * stages))
        self.assertEqual([len(stage["ranks"]) for stage in read_plan(plan)["stages"]], [2] * stages)
        got = self.run_gpu(plan, golden, "--steps", 3)
        for rank in got.summary["ranks"]:
            self.assertEqual(rank["peak_bytes"], rank["predicted_peak_bytes"])
        again = self.run_gpu(plan, golden, "--steps", 3, "--transport", "nccl", devices=4, order="random:6")
        self.assertEqual(again.losses, got.losses)
        return got.losses

    def test_have_the_numbers_of_replicas(self):
        golden = Golden("gpt")
        want = self.losses(golden, "1f1b", 2)
        for strategy, stages in (("zb-h1", 2), ("interleaved-zb", 4), ("zb-v", 4)):
            with self.subTest(strategy=strategy):
                self.assertEqual(self.losses(golden, strategy, stages), want)


if __name__ == "__main__":
    unittest.main()
