"""Random operators: numbers of the right distribution, a function of (seed, step, microbatch, node) and of nothing else."""
import array
import math
import struct
import unittest

import onnx_writer as onnx
from pipeline import BAD_MODEL, PipelineTest, call, read_npy, write_npy

COUNT = 4096


class RandomTest(PipelineTest):
    def model(self, nodes):
        """y is what the nodes call r, which may read x [COUNT]; the loss is a mean that a weight takes part in."""
        path = self.fresh(".onnx")
        path.write_bytes(onnx.model(
            [*nodes, onnx.node("Mul", ["x", "none"], ["zero"]), onnx.node("Add", ["r", "zero"], ["y"]),
             onnx.node("Mul", ["y", "w"], ["z"]), onnx.node("ReduceMean", ["z"], ["loss"], keepdims=0)],
            [onnx.tensor("w", onnx.FLOAT, (1,), [1.0]), onnx.tensor("none", onnx.FLOAT, (), [0.0])], [onnx.value("x", onnx.FLOAT, (1, COUNT))],
            [onnx.value("loss", onnx.FLOAT, ()), onnx.value("y", onnx.FLOAT, (1, COUNT))], 17))
        return path

    def data(self, value=0.25, rows=2):
        file = self.fresh(".npy")
        write_npy(file, "<f4", (rows, COUNT), struct.pack("<f", value) * (rows * COUNT))
        return {"x": file}

    def numbers(self, nodes, *arguments):
        plan = self.compile(self.model(nodes), "--cpus", "1", "--loss", "output")
        output = self.fresh(".npy")
        process = call("pipec-run", plan, "--data", "x=%s" % self.data()["x"], "--evaluate", "--output",
                       "y=%s" % output, *arguments)
        self.check_exit(process, 0)
        values = array.array("f")
        values.frombytes(read_npy(output)[2])
        return values

    def check_moments(self, values, mean, deviation):
        got = math.fsum(values) / len(values)
        self.assertAlmostEqual(got, mean, delta=5 * deviation / math.sqrt(len(values)))
        square = math.fsum((v - got) ** 2 for v in values) / len(values)
        self.assertAlmostEqual(math.sqrt(square), deviation, delta=0.04 * deviation)

    def test_normal(self):
        for node in (onnx.node("RandomNormal", [], ["r"], mean=3.0, scale=0.5, shape=[1, COUNT]),
                     onnx.node("RandomNormalLike", ["x"], ["r"], mean=3.0, scale=0.5)):
            values = self.numbers([node])
            self.check_moments(values, 3, 0.5)
            inside = sum(abs(v - 3) < 0.5 for v in values) / len(values)
            self.assertAlmostEqual(inside, math.erf(math.sqrt(0.5)), delta=0.03)
            self.assertNotEqual(values[:COUNT], values[COUNT:]) # another microbatch

    def test_uniform(self):
        for node in (onnx.node("RandomUniform", [], ["r"], low=-2.0, high=4.0, shape=[1, COUNT]),
                     onnx.node("RandomUniformLike", ["x"], ["r"], low=-2.0, high=4.0)):
            values = self.numbers([node])
            self.check_moments(values, 1, 6 / math.sqrt(12))
            self.assertTrue(all(-2 <= v < 4 for v in values))

    def test_bernoulli(self):
        values = self.numbers([onnx.node("Bernoulli", ["x"], ["r"])])
        self.assertEqual(set(values), {0.0, 1.0})
        self.check_moments(values, 0.25, math.sqrt(0.25 * 0.75))

    def test_seeds(self):
        nodes = [onnx.node("RandomNormalLike", ["x"], ["r"])]
        first, again, other = (self.numbers(nodes, "--seed", seed) for seed in (1, 1, 2))
        self.assertEqual(first, again)
        self.assertNotEqual(first, other)

    def autoencoder(self):
        """A variational one: the loss depends on the noise, and its gradient goes around it."""
        random = iter(range(1, 1000))
        weight = lambda name, a, b: onnx.tensor(name, onnx.FLOAT, (a, b), [math.sin(next(random)) / 2 for _ in range(a * b)])
        nodes = [onnx.node("MatMul", ["x", "mean"], ["m"]), onnx.node("MatMul", ["x", "deviation"], ["s"]),
                 onnx.node("Exp", ["s"], ["e"]), onnx.node("RandomNormalLike", ["m"], ["noise"]),
                 onnx.node("Mul", ["e", "noise"], ["n"]), onnx.node("Add", ["m", "n"], ["code"]),
                 onnx.node("MatMul", ["code", "back"], ["y"])]
        path = self.fresh(".onnx")
        path.write_bytes(onnx.model(nodes, [weight("mean", 6, 4), weight("deviation", 6, 4), weight("back", 4, 6)],
                                    [onnx.value("x", onnx.FLOAT, (4, 6))], [onnx.value("y", onnx.FLOAT, (4, 6))], 17))
        return path

    def test_same_bits_on_any_number_of_ranks(self):
        file = self.fresh(".npy")
        write_npy(file, "<f4", (16, 6), struct.pack("<96f", *(math.sin(i / 3) for i in range(96))))
        runs = []
        for ranks, recompute in ((1, "none"), (2, "selective"), (3, "full")):
            plan = self.compile(self.autoencoder(), "--cpus", ranks, "--stages", ranks, "--strategy", "1f1b",
                                "--microbatches", 2, "--loss", "mse", "--optimizer", "sgd:lr=0.1", "--recompute", recompute)
            runs.append(self.train(plan, {"x": file, "targets": file}, 30).losses)
        self.assertEqual(runs[0], runs[1])
        self.assertEqual(runs[0], runs[2])
        self.assertLess(sum(runs[0][-5:]), 0.7 * sum(runs[0][:5]))

    def test_inference_has_no_seed(self):
        path = self.model([onnx.node("RandomNormalLike", ["x"], ["r"])])
        process = call("pipec", path, "--cpus", "1", "--forward-only", "-o", self.fresh(".plan"))
        self.check_exit(process, BAD_MODEL)
        self.assertIn("its numbers are random, and inference has no seed", process.stderr)
        self.assertIn("make its output an input of the model", process.stderr)


if __name__ == "__main__":
    unittest.main()
