"""Weights that are copies of others: apart by default, one weight with --tie auto, exported as both."""
import random
import struct
import unittest

import onnx_writer as onnx
from pipeline import PipelineTest, call, initializers, write_npy

ROWS, COLUMNS = 6, 9


def tensor(name, rows, columns, value):
    numbers = ",".join("%.6f" % value(i, j) for i in range(rows) for j in range(columns))
    return "float[%d,%d] %s = {%s}" % (rows, columns, name, numbers)


def model(second):
    random.seed(4)
    numbers = [[random.gauss(0, 0.4) for _ in range(COLUMNS)] for _ in range(ROWS)]
    copy, node = {"copy": (", " + tensor("wt", COLUMNS, ROWS, lambda i, j: numbers[j][i]), "b = MatMul(t, wt)"),
                  "same": ("", "v = Transpose <perm = [1, 0]> (w)  b = MatMul(t, v)")}[second]
    return """<ir_version: 8, opset_import: ["" : 17]>
g (float[4,%d] input) => (float[4,%d] logits) <%s%s>
{ a = MatMul(input, w)  t = Tanh(a)  %s  logits = MatMul(b, w) }""" % (
        ROWS, COLUMNS, tensor("w", ROWS, COLUMNS, lambda i, j: numbers[i][j]), copy, node)


class TieTest(PipelineTest):
    def setUp(self):
        super().setUp()
        random.seed(7)
        self.data = {"input": self.fresh(".npy"), "labels": self.fresh(".npy")}
        write_npy(self.data["input"], "<f4", (16, ROWS), struct.pack("<96f", *(random.gauss(0, 1) for _ in range(96))))
        write_npy(self.data["labels"], "<i8", (16,), struct.pack("<16q", *(random.randrange(COLUMNS) for _ in range(16))))

    def run_model(self, second, *flags, ranks=1):
        source, target, trained = self.fresh(".txt"), self.fresh(".onnx"), self.fresh(".onnx")
        source.write_text(model(second))
        self.check_exit(call("onnx-from-text", source, target), 0)
        plan = self.compile(target, "--cpus", "1x%d" % ranks, "--stages", ranks, "--strategy", "1f1b", "--microbatches", 2,
                            "--optimizer", "sgd:lr=0.3,momentum=0.9", *flags)
        losses = self.train(plan, self.data, 6, "--export", trained, "--transport", "inproc").losses
        return losses, initializers(trained)

    def test_tied_copy_trains_as_the_transpose(self):
        want, expected = self.run_model("same")
        apart, _ = self.run_model("copy")
        self.assertNotEqual(apart, want)
        for ranks in (1, 2, 3):
            losses, tensors = self.run_model("copy", "--tie", "auto", ranks=ranks)
            self.assertEqual(losses, want)
            self.assertEqual(tensors["w"].bytes, expected["w"].bytes)
            w, wt = tensors["w"].values(), tensors["wt"].values()
            self.assertEqual([wt[j * ROWS + i] for i in range(ROWS) for j in range(COLUMNS)], list(w))

    def test_weights_repeated_for_every_sample(self):
        """The exporter folds rows of positions into one copy a sample: --tie auto trains one, and writes all."""
        rows = [0.1 * i - 0.3 for i in range(ROWS)]
        folded = {"pkg.onnxscript.optimizer.folded_from": "['positions']"}
        made = {}
        for times in (1, 4):
            made[times] = self.fresh(".onnx")
            made[times].write_bytes(onnx.model(
                [onnx.node("Add", ["input", "index"], ["a"]), onnx.node("Tanh", ["a"], ["t"]),
                 onnx.node("MatMul", ["t", "w"], ["logits"])],
                [onnx.tensor("index", onnx.FLOAT, (times, ROWS), rows * times),
                 onnx.tensor("w", onnx.FLOAT, (ROWS, COLUMNS), [(7 * i % 11) / 11 for i in range(ROWS * COLUMNS)])],
                [onnx.value("input", onnx.FLOAT, (4, ROWS))], [onnx.value("logits", onnx.FLOAT, (4, COLUMNS))],
                values=[onnx.value("index", onnx.FLOAT, (times, ROWS), folded),
                        onnx.value("w", onnx.FLOAT, (ROWS, COLUMNS), {
                            "pkg.torch.export.graph_signature.InputSpec.kind": "PARAMETER"})],
                metadata={"pkg.torch.export.ExportedProgram.graph_signature":
                          "index: PARAMETER target='positions'"}))
        results = []
        for times, ranks, flags in ((1, 1, []), (4, 1, ["--tie", "auto"]), (4, 2, ["--tie", "auto"]), (4, 1, [])):
            trained = self.fresh(".onnx")
            plan = self.compile(made[times], "--cpus", ranks, "--stages", ranks, "--strategy", "1f1b", "--microbatches", 2,
                                "--optimizer", "sgd:lr=0.3,momentum=0.9", *flags)
            losses = self.train(plan, self.data, 6, "--export", trained).losses
            results.append((losses, initializers(trained)["index"].bytes))
        (want, row), tied, split, apart = results
        self.assertEqual(tied, (want, row * 4))
        self.assertEqual(split, tied)
        self.assertNotEqual(apart[0], want)

    def test_layers_that_the_dynamo_exporter_merged(self):
        """Its metadata names the parameters that are gone: a note says so, and --untie trains them apart."""
        names = ["layers.%d.weight" % i for i in range(2)]
        numbers = [(7 * i % 11) / 11 - 0.4 for i in range(ROWS * ROWS)]
        parameter = {"pkg.torch.export.graph_signature.InputSpec.kind": "PARAMETER"}
        said, losses = [], []
        for kept, flags in ((names[:1], []), (names[:1], ["--untie"]), (names, [])):
            made = self.fresh(".onnx")
            made.write_bytes(onnx.model(
                [onnx.node("MatMul", ["input", names[0]], ["a"]), onnx.node("Tanh", ["a"], ["t"]),
                 onnx.node("MatMul", ["t", kept[-1]], ["b"]), onnx.node("MatMul", ["b", "w"], ["logits"])],
                [*(onnx.tensor(name, onnx.FLOAT, (ROWS, ROWS), numbers) for name in kept),
                 onnx.tensor("w", onnx.FLOAT, (ROWS, COLUMNS), [(5 * i % 13) / 13 for i in range(ROWS * COLUMNS)])],
                [onnx.value("input", onnx.FLOAT, (4, ROWS))], [onnx.value("logits", onnx.FLOAT, (4, COLUMNS))],
                values=[onnx.value(name, onnx.FLOAT, (ROWS, ROWS), parameter) for name in kept] +
                       [onnx.value("w", onnx.FLOAT, (ROWS, COLUMNS), parameter)],
                metadata={"pkg.torch.export.ExportedProgram.graph_signature":
                          "".join("p: PARAMETER target='%s'\n" % name for name in [*names, "w"])}))
            said.append(call("pipec", made, "--cpus", "1", "--dry-run", *flags).stderr)
            plan = self.compile(made, "--cpus", "1", "--microbatches", 2, "--optimizer", "sgd:lr=0.3", *flags)
            losses.append(self.train(plan, self.data, 4).losses)
        note = "'layers.0.weight' stands for 'layers.1.weight' too"
        self.assertIn(note, said[0])
        self.assertNotIn(note, said[1])
        self.assertNotEqual(losses[0], losses[2])
        self.assertEqual(losses[1], losses[2])

    def test_said_without_the_option(self):
        source, target = self.fresh(".txt"), self.fresh(".onnx")
        source.write_text(model("copy"))
        self.check_exit(call("onnx-from-text", source, target), 0)
        said = call("pipec", target, "--cpus", "1", "--dry-run").stderr
        self.assertIn("note: 'wt' is 'w' transposed: they train apart; --tie auto trains them as one", said)

    def test_merged_tensor_trains_apart(self):
        ones = "float[%d] ones = {%s}" % (COLUMNS, ",".join("1" * COLUMNS))
        twin = "float[%d] twin = {%s}" % (COLUMNS, ",".join("1" * COLUMNS))
        random.seed(3)
        w = tensor("w", ROWS, COLUMNS, lambda i, j: random.gauss(0, 0.4))
        graph = """<ir_version: 8, opset_import: ["" : 17]>
g (float[4,%d] input) => (float[4,%d] logits) <%s>
{ a = MatMul(input, w)  b = LayerNormalization(a, ones)  t = Tanh(b)  logits = LayerNormalization(t, %s) }"""
        runs = []
        for weights, second, flags in (([w, ones], "ones", ["--untie"]), ([w, ones, twin], "twin", []), ([w, ones], "ones", [])):
            source, target, trained = self.fresh(".txt"), self.fresh(".onnx"), self.fresh(".onnx")
            source.write_text(graph % (ROWS, COLUMNS, ", ".join(weights), second))
            self.check_exit(call("onnx-from-text", source, target), 0)
            plan = self.compile(target, "--cpus", "1x2", "--strategy", "1f1b", "--optimizer", "sgd:lr=0.5", *flags)
            runs.append((self.train(plan, self.data, 5, "--export", trained).losses, trained))
        (untied, exported), (apart, expected), (merged, _) = runs
        self.assertEqual(untied, apart)
        self.assertNotEqual(untied, merged)
        got, want = initializers(exported), initializers(expected)
        self.assertEqual(got["ones"].bytes, want["ones"].bytes)
        self.assertEqual(got["ones.1"].bytes, want["twin"].bytes)
        self.assertNotEqual(got["ones"].bytes, got["ones.1"].bytes)
        # The exported model trains on where the other one would.
        plan = self.compile(exported, "--cpus", "1")
        twin_plan = self.compile(expected, "--cpus", "1")
        self.assertEqual(self.train(plan, self.data, 2).losses, self.train(twin_plan, self.data, 2).losses)


if __name__ == "__main__":
    unittest.main()
