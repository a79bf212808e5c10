"""Weights of any floating type train; their masters are float32, the exported model has its own type again."""
import random
import struct
import unittest

import onnx_writer as onnx
from pipeline import PipelineTest, call, initializers, write_npy

SIZES = (12, 20, 5)
TOLERANCE = {onnx.FLOAT: 0, onnx.DOUBLE: 1e-6, onnx.FLOAT16: 3e-3, onnx.BFLOAT16: 3e-2}
FORMAT = {onnx.FLOAT: "f", onnx.DOUBLE: "d", onnx.FLOAT16: "e"}


class PrecisionTest(PipelineTest):
    def setUp(self):
        super().setUp()
        random.seed(11)
        # Numbers that every type holds exactly.
        self.weights = [[random.randrange(-64, 65) / 128 for _ in range(a * b)] for a, b in zip(SIZES, SIZES[1:])]
        self.data = {"input": self.fresh(".npy"), "labels": self.fresh(".npy")}
        rows = [random.randrange(-128, 129) / 64 for _ in range(32 * SIZES[0])]
        write_npy(self.data["input"], "<f4", (32, SIZES[0]), struct.pack("<%df" % len(rows), *rows))
        write_npy(self.data["labels"], "<i8", (32,), struct.pack("<32q", *(random.randrange(5) for _ in range(32))))

    def write_model(self, kind):
        path = self.fresh(".onnx")
        path.write_bytes(onnx.model(
            [onnx.node("Cast", ["input"], ["x"], to=kind), onnx.node("MatMul", ["x", "w0"], ["a"]),
             onnx.node("Relu", ["a"], ["b"]), onnx.node("MatMul", ["b", "w1"], ["logits"])],
            [onnx.tensor("w%d" % i, kind, (a, b), self.weights[i]) for i, (a, b) in enumerate(zip(SIZES, SIZES[1:]))],
            [onnx.value("input", onnx.FLOAT, (4, SIZES[0]))], [onnx.value("logits", kind, (4, SIZES[-1]))]))
        return path

    def plan_of(self, model, ranks):
        return self.compile(model, "--cpus", "1x%d" % ranks, "--stages", ranks, "--microbatches", 2, "--optimizer",
                            "sgd:lr=0.1,momentum=0.9")

    def train_in(self, kind, ranks):
        trained = self.fresh(".onnx")
        plan = self.plan_of(self.write_model(kind), ranks)
        return self.train(plan, self.data, 8, "--export", trained).losses, initializers(trained)

    def check(self, kind):
        want, expected = self.train_in(onnx.FLOAT, 1)
        for ranks in (1, 2):
            losses, tensors = self.train_in(kind, ranks)
            for a, b in zip(losses, want):
                self.assertLessEqual(abs(a - b), TOLERANCE[kind] * abs(b))
            for name, tensor in tensors.items():
                self.assertEqual(tensor.type, kind)
                if kind not in FORMAT:
                    continue
                values = struct.unpack("<%d%s" % (len(expected[name].values()), FORMAT[kind]), tensor.bytes)
                for a, b in zip(values, expected[name].values()):
                    self.assertLessEqual(abs(a - b), 2 * TOLERANCE[kind])

    def test_double(self):
        self.check(onnx.DOUBLE)

    def test_half(self):
        self.check(onnx.FLOAT16)

    def test_bfloat(self):
        self.check(onnx.BFLOAT16)

    def evaluate(self, plan, *arguments):
        flags = [word for name, file in self.data.items() for word in ("--data", "%s=%s" % (name, file))]
        process = call("pipec-run", plan, *flags, "--evaluate", *arguments)
        self.check_exit(process, 0)
        return float(process.stdout.split("loss ")[1].split()[0])

    def test_evaluates_what_was_trained(self):
        """A checkpoint has the masters, the exported model their rounding."""
        for kind in (onnx.DOUBLE, onnx.FLOAT16, onnx.BFLOAT16):
            with self.subTest(kind=kind):
                plan, saved, trained = self.plan_of(self.write_model(kind), 2), self.fresh(), self.fresh(".onnx")
                before = self.evaluate(plan)
                self.train(plan, self.data, 8, "--checkpoint", saved, "--export", trained)
                after = self.evaluate(plan, "--resume", saved)
                self.assertLess(after, 0.95 * before)
                exported = self.evaluate(self.plan_of(trained, 1))
                self.assertLessEqual(abs(exported - after), max(1e-6, TOLERANCE[kind]) * after)


if __name__ == "__main__":
    unittest.main()
