"""What the files of exporters say by their names and their metadata: what is a constant of the code, what was folded."""
import json
import unittest

import onnx_writer as onnx
from pipeline import PipelineTest, call

SIGNATURE = "pkg.torch.export.ExportedProgram.graph_signature"
FOLDED = "pkg.onnxscript.optimizer.folded_from"


class ExportersTest(PipelineTest):
    def report(self, nodes, tensors, **more):
        path = self.fresh(".onnx")
        path.write_bytes(onnx.model(nodes, tensors, [onnx.value("x", onnx.FLOAT, (2, 3))],
                                    [onnx.value("y", onnx.FLOAT, (2, 3))], **more))
        answer = call("pipec-import", path, "--report")
        self.check_exit(answer, 0)
        return json.loads(answer.stdout)

    def chain(self, names, producer=""):
        """x plus or times each tensor, one after the other; which of them train."""
        values = ["x", *("v%d" % i for i in range(1, len(names))), "y"]
        nodes = [onnx.node("Mul" if i % 2 else "Sub", [values[i], name], [values[i + 1]]) for i, name in enumerate(names)]
        tensors = [onnx.tensor(name, onnx.FLOAT, shape, [1 + i for i in range(shape[-1])]) for name, shape in names.items()]
        return self.report(nodes, tensors, producer=producer)["trainable"]

    def test_constants_of_tensorflow(self):
        names = {"net/scale/ReadVariableOp:0": (3,), "net/normalization/Sub/y:0": (1, 3), "net/div/truediv_recip:0": (1, 3),
                 "net/Const_2:0": (3,), "const_fold_opt__12": (1, 1), "const_fold_opt__13": (3,)}
        variables = ["net/scale/ReadVariableOp:0", "const_fold_opt__13"]
        self.assertEqual(self.chain(names, "tf2onnx"), variables)
        self.assertEqual(self.chain(names), [name for name in names if name != "const_fold_opt__12"])

    def test_constants_of_paddle(self):
        self.assertEqual(self.chain({"linear.w_0": (3,), "auto.cast.4": (1,), "helper.constant.1": (1,), "scale": (1,)}),
                         ["linear.w_0", "scale"])

    def test_folded_batch_norms_by_the_signature(self):
        nodes = [onnx.node("MatMul", ["x", "w"], ["y"])]
        tensors = [onnx.tensor("w", onnx.FLOAT, (3, 3), range(9))]
        for line, said in (("b: BUFFER target='norm.running_mean'", True), ("b: BUFFER target='table'", False)):
            notes = self.report(nodes, tensors, metadata={SIGNATURE: line})["notes"]
            self.assertEqual(any(note.startswith("batch norms are folded") for note in notes), said, notes)

    def test_biases_that_are_left_out(self):
        """A listed bias that is no tensor, folded into none and merged with none is a bias of zeros, say."""
        scopes = {"pkg.torch.onnx.name_scopes": "['', 'net', 'net.out', 'linear']"}
        nodes = [onnx.node("MatMul", ["x", "net.fc.weight"], ["a"]), onnx.node("Add", ["a", "mul_3"], ["b"]),
                 onnx.node("MatMul", ["b", "net.tied.weight"], ["y"], metadata=scopes)]
        tensors = [onnx.tensor(name, onnx.FLOAT, (3, 3), range(9)) for name in ("net.fc.weight", "net.tied.weight")]
        tensors.append(onnx.tensor("mul_3", onnx.FLOAT, (3,), range(3)))
        values = [onnx.value("mul_3", onnx.FLOAT, (3,), {FOLDED: "['net.scale', 'net.shift']"})]
        here = ["net.fc.weight", "net.tied.weight", "net.scale", "net.shift", "net.out.weight", "unused"]
        for names, text in (([], None), (["net.fc.bias"], "'net.fc.bias', as it does"), (["net.in_proj_bias"], "'net.in_proj_bias', as it does"),
                            (["a.bias", "b.bias", "c.bias", "d.bias"], "'a.bias', 'b.bias', 'c.bias' and 1 more, as it does")):
            signature = "\n".join("p: PARAMETER target='%s'" % name for name in here + names)
            notes = [note for note in self.report(nodes, tensors, values=values, metadata={SIGNATURE: signature})["notes"]
                     if note.startswith("the exporter left out")]
            self.assertEqual(len(notes), 1 if text else 0, notes)
            if text:
                self.assertIn("the exporter left out %s with biases of zeros: what is not in the file does not train" % text, notes[0])

    def test_computed_weights(self):
        """The operator that a folded value is named after tells a product from a transposed copy."""
        for first, source, said in (("mul", "['net.w', 'scale']", True), ("val_3", "['net.w', 'val_1']", True),
                                    ("exp_1", "['net.w']", True), ("val_3", "['net.w']", False),
                                    ("unsqueeze_1", "['net.w', 'val_1']", False)):
            names = [first, "mul_9"]
            nodes = [onnx.node("MatMul", ["x", names[0]], ["a"]), onnx.node("MatMul", ["a", names[1]], ["y"])]
            tensors = [onnx.tensor(name, onnx.FLOAT, (3, 3), range(9)) for name in names]
            values = [onnx.value(name, onnx.FLOAT, (3, 3), {FOLDED: source}) for name in names]
            notes = self.report(nodes, tensors, values=values, metadata={SIGNATURE: "p: PARAMETER target='net.w'"})["notes"]
            text = "the exporter computed '%s' (and 1 more) from the parameter 'net.w': what stands in " \
                "the file trains, not the parameter. To keep the computation, export with optimize=False" % first
            self.assertEqual(text in notes, said, notes)


if __name__ == "__main__":
    unittest.main()
