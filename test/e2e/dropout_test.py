"""Dropout nodes in training mode: masks are drawn from (seed, step, microbatch, node), whatever the pipeline."""
import math
import random
import struct
import unittest

from pipeline import PipelineTest, call, initializers, write_npy

RATIO = 0.25


def tensor(name, shape, values):
    return "float[%s] %s = {%s}" % (",".join(map(str, shape)), name, ",".join("%.6f" % v for v in values))


def network():
    """Three layers, a dropout between each two."""
    random.seed(5)
    sizes = [16, 24, 24, 5]
    weights = [tensor("w%d" % i, (a, b), [random.gauss(0, a ** -0.5) for _ in range(a * b)])
               for i, (a, b) in enumerate(zip(sizes, sizes[1:]))]
    return """<ir_version: 8, opset_import: ["" : 17]>
g (float[4,16] input) => (float[4,5] logits)
<%s, float third = {0.3}, float half = {0.5}, bool train = {1}>
{ a = MatMul(input, w0)  b = Relu(a)  c = Dropout(b, third, train)
  d = MatMul(c, w1)  e = Tanh(d)  f = Dropout(e, half, train)
  logits = MatMul(f, w2) }""" % ", ".join(weights)


def mean_of_dropped(count):
    """The mean of a dropped vector of ones is the loss, so loss and gradient both show the mask."""
    return """<ir_version: 8, opset_import: ["" : 17]>
g (float[1] x) => (float y)
<%s, float ratio = {%g}, bool train = {1}>
{ a = Mul(w, x)  b = Dropout(a, ratio, train)  y = ReduceMean <keepdims = 0> (b) }""" % (
        tensor("w", (count,), [1] * count), RATIO)


class DropoutTest(PipelineTest):
    def model(self, text):
        source, target = self.fresh(".txt"), self.fresh(".onnx")
        source.write_text(text)
        self.check_exit(call("onnx-from-text", source, target), 0)
        return target

    def classification(self):
        random.seed(6)
        data = {"input": self.fresh(".npy"), "labels": self.fresh(".npy")}
        write_npy(data["input"], "<f4", (32, 16), struct.pack("<512f", *(random.gauss(0, 1) for _ in range(512))))
        write_npy(data["labels"], "<i8", (32,), struct.pack("<32q", *(random.randrange(5) for _ in range(32))))
        return data

    def test_same_bits_everywhere(self):
        model, data = self.model(network()), self.classification()
        runs = {}
        for ranks, strategy, recompute in [(1, "gpipe", "none"), (2, "1f1b", "selective"), (3, "gpipe", "full"),
                                           (4, "zb-h1", "selective"), (4, "1f1b", "full")]:
            plan = self.compile(model, "--cpus", "1x%d" % ranks, "--stages", ranks, "--microbatches", 4, "--strategy",
                                strategy, "--recompute", recompute, "--optimizer", "sgd:lr=0.1")
            target = self.fresh(".onnx")
            result = self.train(plan, data, 5, "--transport", "inproc", "--export", target)
            runs[ranks, strategy, recompute] = result.losses, {k: v.bytes for k, v in initializers(target).items()}
        first = next(iter(runs.values()))
        for case, run in runs.items():
            self.assertEqual(run, first, case)
        plan = self.compile(model, "--cpus", "1x2", "--microbatches", 4, "--optimizer", "sgd:lr=0.1")
        self.assertNotEqual(self.train(plan, data, 5, "--seed", 1).losses, first[0], "another seed, other masks")

    def test_pipedream_equals_its_oracle(self):
        plan = self.compile(self.model(network()), "--cpus", "1x2", "--stages", 2, "--strategy", "pipedream")
        self.train(plan, self.classification(), 12, "--verify", "--transport", "inproc")

    def test_resumed_run_draws_the_same(self):
        data = self.classification()
        plan = self.compile(self.model(network()), "--cpus", "1x2", "--microbatches", 2)
        whole = self.train(plan, data, 6).losses
        folder = self.fresh()
        self.train(plan, data, 3, "--checkpoint", folder)
        self.assertEqual(self.train(plan, data, 6, "--resume", folder).losses, whole[3:])

    def test_mask_of_loss_and_gradient(self):
        count, steps = 3000, 4
        plan = self.compile(self.model(mean_of_dropped(count)), "--cpus", "1", "--loss", "output", "--optimizer",
                            "sgd:lr=1")
        x = self.fresh(".npy")
        write_npy(x, "<f4", (1,), struct.pack("<f", 1))
        masks = []
        for step in range(1, steps + 1):
            target = self.fresh(".onnx")
            result = self.train(plan, {"x": x}, step, "--export", target)
            masks.append(list(initializers(target)["w"].values()))
        before = [1.0] * count
        for step, after in enumerate(masks):
            kept = [a != b for a, b in zip(after, before)]
            loss = sum(b for b, k in zip(before, kept) if k) / (1 - RATIO) / count
            self.assertLess(abs(result.losses[step] - loss), 1e-5 * loss, "loss and gradient drop the same")
            deviation = math.sqrt(RATIO * (1 - RATIO) / count)
            self.assertLess(abs(sum(kept) / count - (1 - RATIO)), 4 * deviation)
            if step:
                # Masks of two steps are independent: kept in both at (1 - ratio)^2.
                both = sum(k and p for k, p in zip(kept, previous)) / count
                self.assertLess(abs(both - (1 - RATIO) ** 2), 4 * deviation)
            previous, before = kept, after


if __name__ == "__main__":
    unittest.main()
