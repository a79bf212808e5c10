"""--export writes the model that was compiled, with trained weights in it."""
import unittest

from pipeline import Golden, PipelineTest, initializers, nodes, onnx_graph, fields, rotate_rows


class ExportTest(PipelineTest):
    def flags(self, golden, ranks):
        return [*golden.arguments("sgd:lr=0.05"), "--cpus", "1x%d" % ranks, "--stages", ranks,
                "--strategy", "1f1b"]

    def check(self, name):
        golden = Golden(name)
        plan = self.compile(golden.model, *self.flags(golden, 2))
        whole = self.train(plan, golden.data, 4).losses
        exported = self.folder / "trained.onnx"
        self.train(plan, golden.data, 2, "--export", exported)
        self.check_graph(golden, exported)
        # Training goes on from the exported file as if it had never stopped.
        again = self.compile(exported, *self.flags(golden, 1))
        data = {}
        for input_name, file in golden.data.items():
            data[input_name] = self.folder / (input_name + ".npy")
            rotate_rows(file, data[input_name], 2 * golden.M * golden.B)
        self.assertEqual(self.train(again, data, 2).losses, whole[2:])

    def check_graph(self, golden, exported):
        before, after = initializers(golden.model), initializers(exported)
        self.assertEqual(nodes(golden.model), nodes(exported))
        self.assertEqual(list(before), list(after))
        for number in (11, 12):  # inputs, outputs
            self.assertEqual([v for n, v in fields(onnx_graph(golden.model)) if n == number],
                             [v for n, v in fields(onnx_graph(exported)) if n == number])
        trained = set(golden.trainable)
        for name, tensor in before.items():
            self.assertEqual((tensor.shape, tensor.type), (after[name].shape, after[name].type))
            changed = tensor.bytes != after[name].bytes
            if name in trained:
                self.assertTrue(changed, "%s did not train" % name)
            elif not name.endswith(("running_mean", "running_var")):
                self.assertFalse(changed, "%s changed" % name)

    def test_transformer(self):
        self.check("gpt")

    def test_external_data(self):
        self.check("mlp-external")

    def test_running_statistics_are_exported(self):
        golden = Golden("cnn")
        plan = self.compile(golden.model, *self.flags(golden, 3))
        exported = self.folder / "trained.onnx"
        self.train(plan, golden.data, 2, "--export", exported)
        before, after = initializers(golden.model), initializers(exported)
        for name in before:
            if name.endswith(("running_mean", "running_var")):
                self.assertNotEqual(before[name].bytes, after[name].bytes, name)


if __name__ == "__main__":
    unittest.main()
