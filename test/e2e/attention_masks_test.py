"""Masks that hide whole rows of scores: attention as one op has the losses of the ops it is made of."""
import random
import struct
import unittest

import onnx_writer as onnx
from gpu_test import GpuTest
from pipeline import call, write_npy

BATCH, TOKENS, WIDTH, CLASSES, MICROBATCHES = 2, 6, 4, 3, 2
LOWEST = -3.4028234663852886e38


class Masked:
    """One attention whose keys are hidden where the sample is padded. Stands in for a Golden.

    `spelling`: "where" puts `low` in place of scores, "add" adds it. The first of every two samples is all padding.
    """

    def __init__(self, folder, spelling, low, causal):
        generator = random.Random(7)
        numbers = lambda count, scale=1.0: [generator.gauss(0, scale) for _ in range(count)]
        tensors = [onnx.tensor("w" + x, onnx.FLOAT, [WIDTH, WIDTH], numbers(WIDTH * WIDTH)) for x in "qkv"]
        tensors += [onnx.tensor("w", onnx.FLOAT, [TOKENS * WIDTH, CLASSES], numbers(TOKENS * WIDTH * CLASSES, 0.3)),
                    onnx.tensor("one", onnx.FLOAT, [], [1.0]), onnx.tensor("low", onnx.FLOAT, [], [low]),
                    onnx.tensor("half", onnx.FLOAT, [], [0.5]),
                    onnx.tensor("rows", onnx.INT64, [3], [BATCH, 1, TOKENS]),
                    onnx.tensor("flat", onnx.INT64, [2], [BATCH, TOKENS * WIDTH]),
                    onnx.tensor("triangle", onnx.BOOL, [TOKENS, TOKENS],
                                [j <= i for i in range(TOKENS) for j in range(TOKENS)])]
        nodes = [onnx.node("MatMul", ["input", "w" + x], [x]) for x in "qkv"]
        nodes += [onnx.node("Transpose", ["k"], ["kt"], perm=[0, 2, 1]), onnx.node("MatMul", ["q", "kt"], ["s"]),
                  onnx.node("Mul", ["s", "half"], ["scaled"]), onnx.node("Reshape", ["mask", "rows"], ["keys"])]
        scores = "scaled"
        if causal:
            nodes.append(onnx.node("Where", ["triangle", scores, "low"], ["past"]))
            scores = "past"
        if spelling == "where":
            nodes += [onnx.node("Cast", ["keys"], ["seen"], to=onnx.BOOL),
                      onnx.node("Where", ["seen", scores, "low"], ["t"])]
        else:
            nodes += [onnx.node("Sub", ["one", "keys"], ["hidden"]), onnx.node("Mul", ["hidden", "low"], ["added"]),
                      onnx.node("Add", [scores, "added"], ["t"])]
        nodes += [onnx.node("Softmax", ["t"], ["p"], axis=-1), onnx.node("MatMul", ["p", "v"], ["y"]),
                  onnx.node("Reshape", ["y", "flat"], ["row"]), onnx.node("MatMul", ["row", "w"], ["logits"])]
        self.model = folder / "masked.onnx"
        self.model.write_bytes(onnx.model(
            nodes, tensors, [onnx.value("input", onnx.FLOAT, [BATCH, TOKENS, WIDTH]),
                             onnx.value("mask", onnx.FLOAT, [BATCH, TOKENS])],
            [onnx.value("logits", onnx.FLOAT, [BATCH, CLASSES])]))
        rows = 4 * BATCH * MICROBATCHES
        self.data = {name: folder / (name + ".npy") for name in ("input", "mask", "labels")}
        write_npy(self.data["input"], "<f4", (rows, TOKENS, WIDTH),
                  struct.pack("<%df" % (rows * TOKENS * WIDTH), *numbers(rows * TOKENS * WIDTH)))
        # Padding on the left: with a triangle also rows of other samples see nothing.
        write_npy(self.data["mask"], "<f4", (rows, TOKENS),
                  struct.pack("<%df" % (rows * TOKENS), *(float(row % 2 and token >= row % 4) for row in range(rows)
                                                          for token in range(TOKENS))))
        write_npy(self.data["labels"], "<i8", (rows,),
                  struct.pack("<%dq" % rows, *(generator.randrange(CLASSES) for _ in range(rows))))

    def arguments(self, optimizer=None):
        return ["--microbatches", MICROBATCHES, "--loss", "cross-entropy", "--optimizer", optimizer or "sgd:lr=0.3",
                "--strategy", "gpipe", "--stages", 1]


class Masks(GpuTest):
    STEPS = 6

    def check(self, spelling, low, causal, fused=1):
        model = Masked(self.folder, spelling, low, causal)
        losses = {}
        for attention in ("plain", "fused"):
            words = ["--cpus", 1, "--attention", attention]
            text = self.fresh(".mlir")
            self.check_exit(call("pipec", model.model, *model.arguments(), *words, "--emit", "nn", "-o", text), 0)
            self.assertEqual(text.read_text().count("nn.attention "), fused if attention == "fused" else 0)
            plan = self.compile(model.model, *model.arguments(), *words)
            losses[attention] = self.train(plan, model.data, self.STEPS, "--transport", "inproc").losses
        plan = self.compile_for(model, "1", optimizer="sgd:lr=0.3")
        losses["gpu"] = self.run_gpu(plan, model, "--steps", self.STEPS).losses
        self.assertNotEqual(losses["plain"][0], losses["plain"][-1])
        for kind in ("fused", "gpu"):
            for got, want in zip(losses[kind], losses["plain"], strict=True):
                self.assertLessEqual(abs(got - want), 2e-6 * abs(want), (kind, losses))

    def test_replaced(self):
        for low in (LOWEST, -1e9):
            with self.subTest(low):
                self.check("where", low, causal=False)

    def test_replaced_behind_a_triangle(self):
        self.check("where", LOWEST, causal=True)

    def test_added(self):
        for low in (LOWEST, -1e9, -1e4):
            with self.subTest(low):
                self.check("add", low, causal=False)

    def test_both(self):
        """Stays as it is: a row may attend to keys that the one hides and the other does not."""
        self.check("add", LOWEST, causal=True, fused=0)


if __name__ == "__main__":
    unittest.main()
