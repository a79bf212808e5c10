"""Models with hardly anything in them: every one computes, or says in one error what it lacks."""
import json
import struct
import unittest

from pipeline import BAD_MODEL, PipelineTest, call, initializers, read_plan, write_npy

SQUARE = "float[3,3] w = {1,2,3,4,5,6,7,8,9}"
HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'
NOTHING = "the loss depends on no trained weight"


def floats(*shape):
    count = 1
    for size in shape:
        count *= size
    return ("<f4", shape, struct.pack("<%df" % count, *(0.1 * ((7 * i) % 13) - 0.6 for i in range(count))))


class SmallModelsTest(PipelineTest):
    def model(self, text):
        source, target = self.fresh(".txt"), self.fresh(".onnx")
        source.write_text(HEAD + text)
        self.check_exit(call("onnx-from-text", source, target), 0)
        return target

    def refused(self, text, cause, *flags):
        process = call("pipec", self.model(text), "--cpus", 1, "--microbatches", 2, "--format", "json", *flags, "-o",
                       self.fresh(".plan"))
        self.check_exit(process, BAD_MODEL)
        problem, = json.loads(process.stderr)["problems"]
        self.assertIn(cause, problem["cause"])

    def test_nothing_to_train(self):
        for text in ("g (float[4,3] x) => (float[4,3] y) { y = Tanh(x) }",
                     "g () => (float[3,3] y) <%s> { y = Tanh(w) }" % SQUARE,
                     "g (float[4,3] x) => (float[4,3] x) { }",
                     "g (float[4,3] x) => (float[4,3] y) <%s> { a = MatMul(x, w)  y = Floor(a) }" % SQUARE,
                     "g (float[4,3] x) => (float[4,3] y) <%s> { a = MatMul(x, w)  k = ArgMax <axis = 1> (a)"
                     "  f = Cast <to = 1> (k)  y = Add(x, f) }" % SQUARE):
            with self.subTest(text):
                self.refused(text, NOTHING, "--loss", "mse")

    def test_no_row_for_each_sample(self):
        for text in ("g (float[4,3] x) => (float[3,3] y) <%s> { y = Tanh(w) }" % SQUARE,
                     "g (float[4,3] x) => (float[3,3] w) <%s> { y = Tanh(x) }" % SQUARE):
            self.refused(text, "needs an output whose axis 0 counts the 4 samples", "--loss", "mse")

    def test_no_output(self):
        for flags in ([], ["--forward-only"]):
            self.refused("g (float[4,3] x) => () <%s> { y = MatMul(x, w) }" % SQUARE, "the model has no output", *flags)

    def test_no_classes(self):
        for text in ("g (float[4,3] x) => (float[4,0] y) <float[3,0] w = {}> { y = MatMul(x, w) }",
                     "g (float[4,3] x) => (float y) <%s> { a = MatMul(x, w)  y = ReduceMean <keepdims = 0> (a) }" % SQUARE):
            self.refused(text, "cross-entropy needs logits with a class axis")

    def test_weights_without_slope_beside_others(self):
        """PyTorch's gradient of floor is zero: the weight before it only decays."""
        text = "g (float[4,3] x) => (float[4,3] y) <%s, float[3,3] v = {1,0,2,0,1,0,2,0,1}> " \
            "{ a = MatMul(x, w)  b = Floor(a)  y = MatMul(b, v) }" % SQUARE
        losses = []
        for ranks in (1, 2):
            plan = self.compile(self.model(text), "--cpus", ranks, "--stages", ranks, "--strategy", "1f1b",
                                "--microbatches", 2, "--loss", "mse", "--optimizer", "sgd:lr=0.01,weight_decay=0.5")
            losses.append(self.train(plan, self.data(x=(16, 3), targets=(16, 3)), 3).losses)
        self.assertEqual(losses[0], losses[1])
        self.assertEqual(len(set(losses[0])), 3)

    def data(self, **shapes):
        files = {}
        for name, shape in shapes.items():
            files[name] = self.fresh(".npy")
            write_npy(files[name], *floats(*shape))
        return files

    def test_forward_of_next_to_nothing(self):
        for text, inputs in (("g () => (float[3,3] y) <%s> { y = Tanh(w) }" % SQUARE, {}),
                             ("g (float[4,3] x) => (float[4,3] x) { }", {"x": (4, 3)}),
                             ("g (float[4,3] x) => (float[4,3] y, float[4,3] z) { y = Identity(x)  z = Identity(y) }",
                              {"x": (4, 3)}),
                             ("g (float x) => (float y) { y = Exp(x) }", {"x": ()}),
                             ("g (float[4,0] x) => (float[4,0] y) { y = Exp(x) }", {"x": (4, 0)}),
                             ("g (float[1,3] x, float[2] unused) => (float[1,3] y) { y = Exp(x) }",
                              {"x": (1, 3), "unused": (2,)}),
                             ("g (float[1,3] x, float[2] unused) => (float[1,3] y) { y = Exp(x) }", {"x": (1, 3)}),
                             ("g (float[4,3] x, float[4] unused) => (float[3] y) <float[3] w = {1, 2, 3}> { y = Exp(w) }",
                              {})):
            with self.subTest(text):
                plan = self.compile(self.model(text), "--cpus", 1, "--forward-only")
                words = [w for n, f in self.data(**inputs).items() for w in ("--data", "%s=%s" % (n, f))]
                self.check_exit(call("pipec-run", plan, *words, "--quiet"), 0)

    def test_what_is_kept_in_another_order_is_sent_as_it_is(self):
        """The product wants the looked-up rows transposed and keeps them so; the next stage adds them as they are."""
        rows = ",".join("%g" % (((5 * i) % 17) / 17 - 0.4) for i in range(128))
        model = self.model("g (int64[4,6] x) => (float[4,6,8] y) <float[16,8] e = {%s}, float[8,8] v = {%s}> "
                           "{ g = Gather(e, x)  t = Transpose <perm = [1,0,2]> (g)  m = MatMul(t, v)  u = Tanh(m)"
                           "  b = Transpose <perm = [1,0,2]> (u)  y = Add(g, b) }" % (
                               rows, ",".join(rows.split(",")[:64])))
        data = self.data(targets=(16, 6, 8))
        data["x"] = self.fresh(".npy")
        write_npy(data["x"], "<i8", (16, 6), struct.pack("<96q", *((7 * i) % 16 for i in range(96))))
        losses, kept = [], 0
        for cut in (None, 3, 4, 5, 6):
            split = self.fresh(".json")
            split.write_text(json.dumps({"stages": [{"first_node": n} for n in (0, cut) if n is not None]}))
            plan = self.compile(model, "--cpus", 2 if cut else 1, "--stage-file", split, "--microbatches", 2, "--strategy",
                                "1f1b", "--recompute", "selective", "--loss", "mse", "--optimizer", "sgd:lr=0.5")
            kept += any(edge["from_region"] == "stash" for edge in read_plan(plan)["edges"])
            losses.append(self.train(plan, data, 3).losses)
        self.assertEqual(losses, losses[:1] * 5)
        self.assertGreater(kept, 0)

    def test_weights_in_constant_nodes(self):
        """As Paddle's exporter writes them: they train as initializers do, and are exported as such."""
        values = "{%s}" % ",".join("%g" % (((5 * i) % 17) / 17 - 0.4) for i in range(12))
        texts = ("g (float[4,3] x) => (float[4,4] y) <float[3,4] w = %s> { y = MatMul(x, w) }" % values,
                 "g (float[4,3] x) => (float[4,4] y) { w = Constant <value = float[3,4] %s> ()  y = MatMul(x, w) }" % values)
        data, losses = self.data(x=(16, 3), targets=(16, 4)), []
        for text in texts:
            flags = ("--cpus", 1, "--microbatches", 2, "--loss", "mse", "--optimizer", "sgd:lr=0.1")
            trained, first = self.fresh(".onnx"), self.compile(self.model(text), *flags)
            losses.append(self.train(first, data, 2, "--export", trained).losses)
            losses[-1] += self.train(self.compile(trained, *flags), data, 2).losses
        self.assertEqual(losses[0], losses[1])
        self.assertEqual(len(set(losses[0])), 4)

    def test_unsigned_inputs(self):
        """Pictures as bytes train as the same numbers in floats do; what is computed in bytes wraps."""
        numbers, losses = [(97 * i) % 256 for i in range(48)], []
        for kind, dtype, packing in (("float", "<f4", "f"), ("uint8", "|u1", "B"), ("uint16", "<u2", "H"), ("uint32", "<u4", "I")):
            data = self.data(targets=(16, 4))
            data["x"] = self.fresh(".npy")
            write_npy(data["x"], dtype, (16, 3), struct.pack("<48" + packing, *numbers))
            model = self.model("g (%s[4,3] x) => (float[4,4] y) <float[3,4] w = {%s}> "
                               "{ t = Transpose <perm = [1,0]> (x)  f = Cast <to = 1> (t)  u = Transpose <perm = [1,0]> (f)"
                               "  y = MatMul(u, w) }" % (kind, ",".join("%g" % (i / 1000) for i in range(12))))
            plan = self.compile(model, "--cpus", 1, "--microbatches", 2, "--loss", "mse", "--optimizer", "sgd:lr=1e-6")
            losses.append(self.train(plan, data, 3).losses)
        self.assertEqual(losses, losses[:1] * 4)
        plan = self.compile(self.model("g (uint8[4,3] x) => (uint8[4,3] y) { s = Add(x, x)  y = Mul(s, x) }"), "--cpus", 1,
                            "--forward-only")
        x, y = self.fresh(".npy"), self.fresh(".npy")
        write_npy(x, "|u1", (4, 3), bytes(numbers[:12]))
        self.check_exit(call("pipec-run", plan, "--data", "x=%s" % x, "--output", "y=%s" % y, "--quiet"), 0)
        self.assertEqual(y.read_bytes()[-12:], bytes(2 * n * n % 256 for n in numbers[:12]))

    def test_integer_convolutions(self):
        image, kernel = [(61 * i) % 256 for i in range(9)], [1, 200, 3, 4]
        sums = [sum((image[3 * (r + i) + c + j] - 3) * (kernel[2 * i + j] - 1) for i in range(2) for j in range(2))
                for r in range(2) for c in range(2)]
        scaled = [min(255, max(0, round(0.5 * 0.25 / 8 * number) + 10)) for number in sums]
        zeros = "uint8 p = {3}, uint8[1,1,2,2] w = {1, 200, 3, 4}, uint8 q = {1}"
        x = self.fresh(".npy")
        write_npy(x, "|u1", (1, 1, 3, 3), bytes(image))
        for body, packing, want in (
                ("int32[1,1,2,2] y) <%s> { y = ConvInteger (x, w, p, q) }" % zeros, "<4i", sums),
                ("uint8[1,1,2,2] y) <%s, float a = {0.5}, float b = {0.25}, float c = {8}, uint8 o = {10}> "
                 "{ y = QLinearConv (x, a, p, w, b, q, c, o) }" % zeros, "<4B", scaled)):
            with self.subTest(body):
                plan = self.compile(self.model("g (uint8[1,1,3,3] x) => (" + body), "--cpus", 1, "--forward-only")
                y = self.fresh(".npy")
                self.check_exit(call("pipec-run", plan, "--data", "x=%s" % x, "--output", "y=%s" % y, "--quiet"), 0)
                self.assertEqual(list(struct.unpack(packing, y.read_bytes()[-struct.calcsize(packing):])), want)

    def test_training_scatters_as_inference_does(self):
        """Which elements are written is counted, where training takes tiny numbers for 0."""
        model = self.model("g (float[4,3] x, int64[4,1] i) => (float loss) <float[3,2] w = {1, 2, 3, 4, 5, 6}, "
                           "float[4,5] old = {%s}> { v = MatMul(x, w)  f = ReduceMax <axes = [1]> (v)"
                           "  s = ScatterElements <axis = 1> (old, i, f)  q = Mul(s, s)  loss = ReduceMean <keepdims = 0> (q) }"
                           % ",".join("0.5" for _ in range(20)))
        data = self.data(x=(4, 3))
        data["i"] = self.fresh(".npy")
        write_npy(data["i"], "<i8", (4, 1), struct.pack("<4q", 0, 3, 1, 4))
        rows = [[0.1 * ((7 * (3 * r + j)) % 13) - 0.6 for j in range(3)] for r in range(4)]
        best = [max(sum(row[j] * (2 * j + k + 1) for j in range(3)) for k in range(2)) for row in rows]
        plan = self.compile(model, "--cpus", 1, "--microbatches", 1, "--loss", "output", "--optimizer", "sgd:lr=0.1")
        losses = self.train(plan, data, 2).losses
        self.assertAlmostEqual(losses[0], (sum(b * b for b in best) + 16 * 0.25) / 20, places=5)
        self.assertNotEqual(losses[0], losses[1])

    def test_roots_of_zero_have_no_slope(self):
        """Norms and deviations of equal values, as exporters write them."""
        for power in ("Sqrt(s)", "Pow(s, h)", "Pow(s, q)", "Pow(s, t)"):
            with self.subTest(power):
                model = self.model("g (float[4,3] x) => (float[4] y) <float[3] w = {0.5, -1, 2}, float h = {0.5}, "
                                   "float q = {0.4999}, float t = {1.5}, int64[1] a = {1}, float z = {0}> "
                                   "{ p = Mul(x, w)  n = Mul(p, z)  c = Mul(n, n)  s = ReduceSum <keepdims = 0> (c, a)"
                                   "  r = %s  e = ReduceSum <keepdims = 0> (p, a)  y = Add(r, e) }" % power)
                plan = self.compile(model, "--cpus", 1, "--microbatches", 2, "--loss", "mse", "--optimizer", "sgd:lr=0.1")
                losses = self.train(plan, self.data(x=(16, 3), targets=(16,)), 3).losses
                self.assertEqual(len(set(losses)), 3)

    def test_powers_of_zero_have_no_slope(self):
        for power in (0.5, 0.4999):
            with self.subTest(power):
                model = self.model("g (float[4,3] x) => (float[4,3] y) <float[3] w = {0, 4, 9}, float q = {%g}> "
                                   "{ r = Pow(w, q)  y = Mul(x, r) }" % power)
                plan = self.compile(model, "--cpus", 1, "--microbatches", 2, "--loss", "mse", "--optimizer", "sgd:lr=0.1")
                trained = self.fresh(".onnx")
                self.train(plan, self.data(x=(16, 3), targets=(16, 3)), 2, "--export", trained)
                after = struct.unpack("<3f", initializers(trained)["w"].bytes)
                self.assertEqual(after[0], 0)
                self.assertNotEqual(after[1], 4)

    def test_many_sums_over_rows_in_one_kernel(self):
        """The gradient of a chain of scales is one kernel with a sum over rows for each of them."""
        count, rows, width = 9, 64, 16
        scales = ", ".join("float[%d] w%d = {%s}" % (width, i, ",".join("%g" % (1 + 0.1 * i + 0.01 * j)
                                                                       for j in range(width))) for i in range(count))
        body = "".join(" m%d = Mul(%s, w%d) t%d = Tanh(m%d)" % (i, "t%d" % (i - 1) if i else "x", i, i, i)
                       for i in range(count))
        model = self.model("g (float[%d,%d] x) => (float[%d,%d] t%d) <%s> {%s }" % (
            rows, width, rows, width, count - 1, scales, body))
        losses = []
        for ranks in (1, 3):
            plan = self.compile(model, "--cpus", ranks, "--stages", ranks, "--microbatches", 2, "--loss", "mse",
                                "--optimizer", "sgd:lr=0.5")
            run = self.train(plan, self.data(x=(128, width), targets=(128, width)), 4)
            self.assertLess(run.losses[-1], run.losses[0])
            losses.append(run.losses)
        self.assertEqual(losses[0], losses[1])


if __name__ == "__main__":
    unittest.main()
