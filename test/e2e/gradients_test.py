"""Gradients of every ONNX operator, and of its attributes' variants, against central differences in f64.

The cases are ONNX's node tests (bench/gradient_cases.py), and those of MORE. Every row of the table of operators has a
case, or a reason here why it has none.
"""
import json
import unittest

from gradient_model import write
from pipeline import SOURCE, PipelineTest, call

CASES = SOURCE / "test" / "onnx" / "gradient-cases.json"
TOLERANCE = 1e-5


def case(op, opset, inputs, outputs=1, **attributes):
    """Inputs: "3x4:-1:1" trains, with numbers of this range."""
    shaped = [["f", text.split(":")[0], *map(float, text.split(":")[1:])] if isinstance(text, str) else text
              for text in inputs]
    return {"op": op, "opset": opset, "attributes": attributes, "inputs": shaped, "outputs": [True] * outputs}


def ints(*values, shape=None, kind="i64"):
    return [kind, "x".join(map(str, shape or [len(values)])), list(values)]


def bools(*values, shape):
    return ints(*values, shape=shape, kind="b")


# Kinds and edges that the node tests have not.
MORE = [
    # The same weight twice, and broadcast against itself.
    case("Mul", 14, ["3x4:-1:1", 0]), case("MatMul", 13, ["3x3:-1:1", 0]), case("Sub", 14, ["3x3:-1:1", 0]),
    case("Concat", 13, ["2x3:-1:1", 0, 0], axis=0), case("Pow", 15, ["2x3:0.5:1.5", 0]),
    # Broadcasting of both sides; a number.
    case("Add", 14, ["3x1:-1:1", "1x4:-1:1"]), case("Div", 14, ["2x1x3:-1:1", "4x1:1:2"]),
    case("Mul", 14, [":-1:1", "2x3:-1:1"]), case("Max", 13, ["3x1:-1:1", "4:-1:1", ":-1:1"]),
    case("Where", 16, [bools(True, False, shape=[2, 1]), "1x3:-1:1", ":-1:1"]),
    case("PRelu", 16, ["2x3x4:-1:1", "3x1:0.1:0.5"]), case("Gemm", 13, ["3x4:-1:1", "4x5:-1:1", "5:-1:1"], alpha=0.5),
    case("MatMul", 13, ["2x1x3x4:-1:1", "5x4x2:-1:1"]), case("MatMul", 13, ["4:-1:1", "2x4x3:-1:1"]),
    case("MatMul", 13, ["4:-1:1", "4:-1:1"]), case("Expand", 13, ["3x1:-1:1", ints(2, 1, 4)]),
    # Repeated and negative indices.
    case("Gather", 13, ["4x3:-1:1", ints(1, 1, -1, 0, 1)], axis=0),
    case("GatherElements", 13, ["3x2:-1:1", ints(0, 0, 2, -1, 2, 2, shape=[3, 2])], axis=0),
    case("GatherND", 13, ["3x2:-1:1", ints(1, 0, 1, 0, 2, 1, shape=[3, 2])]),
    case("ScatterElements", 18, ["3x3:-1:1", ints(0, 0, 1, 0, 2, 2, shape=[2, 3]), "2x3:-1:1"], reduction="add"),
    case("ScatterND", 18, ["4x2:-1:1", ints(1, 1, shape=[2, 1]), "2x2:-1:1"], reduction="add"),
    case("ScatterND", 18, ["4x2:0.5:1", ints(1, 3, shape=[2, 1]), "2x2:0.5:1"], reduction="mul"),
    # No axis at all, all axes, and one element.
    *(case(op, 18, ["2x3:0.5:2", ints(shape=[0])], noop_with_empty_axes=flag, keepdims=0)
      for op in ("ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSum",
                 "ReduceLogSumExp", "ReduceSumSquare") for flag in (0, 1)),
    *(case("ReduceSum", 13, ["2x3:-1:1", ints(shape=[0])], noop_with_empty_axes=flag) for flag in (0, 1)),
    case("ReduceLogSumExp", 18, ["2x3:-1:1", ints(1)]), case("Softmax", 13, ["3x1:-1:1"]), case("Neg", 13, [":-1:1"]),
    # A branch that is not taken has no part, also where it is infinite or NaN.
    case("Where", 16, [bools(True, False, True, shape=[3]), "3:-1:1", ["f", "3", [float("inf"), 0.0, float("-inf")]]]),
    case("Clip", 13, ["3x4:-2:2", ["f", "", [-0.5]], ["f", "", [0.7]]]),
    case("Mod", 13, ["3x4:-5:5", "3x4:1:2"], fmod=1), case("Mod", 13, ["2x3:-5:5", "3:-2:-1"], fmod=1),
    # What the node tests have in other types only, or not at all.
    case("Mish", 22, ["3x5:-3:3"]), case("Cast", 19, ["2x3:-1:1"], to=1), case("CastLike", 19, ["2x3:-1:1", ["f", "1", [0.0]]]),
    case("GlobalLpPool", 7, ["2x3x4x4:-1:1"], p=2), case("GlobalLpPool", 22, ["2x3x4x4:-1:1"], p=3),
    case("OneHot", 11, [ints(0, 2, -1), ints(4, shape=[]), "2:-1:1"], axis=0),
    case("Trilu", 14, ["3x4:-1:1", ints(1, shape=[])], upper=0),
    case("Pad", 18, ["2x3:-1:1", ints(1, 0, 0, 2), ["f", "", [0.5]]]),
    *(case("Pad", 19, ["3x4:-1:1", ints(1, 2, 1, 1)], mode=mode) for mode in ("reflect", "edge", "wrap")),
    case("CumSum", 14, ["2x4:-1:1", ints(1, shape=[])], exclusive=1, reverse=1),
    case("CumProd", 26, ["2x4:0.5:1.5", ints(1, shape=[])]),
    case("Einsum", 12, ["2x3x4:-1:1", "2x4x5:-1:1"], equation="bij,bjk->bik"),
    case("Einsum", 12, ["3x3:-1:1"], equation="ii->i"), case("Einsum", 12, ["3:-1:1", "4:-1:1"], equation="i,j->ij"),
    *(case("ConvTranspose", 22, ["1x4x3x3:-1:1", "4x2x3x3:-1:1", "4:-1:1"], group=2, strides=[2, 1], pads=[1, 0, 1, 1],
           output_padding=[1, 0], dilations=d) for d in ([1, 1], [2, 1])),
    case("DFT", 20, ["2x5x3x1:-1:1", ints(8, shape=[]), ints(1, shape=[])], onesided=1),
    case("DFT", 20, ["1x5x2:-1:1", ints(8, shape=[]), ints(1, shape=[])], onesided=1, inverse=1),
    case("STFT", 17, ["2x12x1:-1:1", ints(3, shape=[]), "4:0.2:1"]),
    *(case("Det", 22, ["%s:-1:1" % shape]) for shape in ("1x1", "2x2", "3x3", "2x3x5x5")),
    case("LinearAttention", 27, ["1x3x4:-1:1", "1x3x2:-1:1", "1x3x3:-1:1", "1x1x2x3:-1:1", "1x3x1:-1:0", "1x3x1:0.2:0.8"],
         outputs=2, q_num_heads=2, kv_num_heads=1),
    case("DeformConv", 22, ["1x4x5x5:-1:1", "6x2x3x3:-1:1", "1x36x3x3:0.1:0.4", "6:-1:1", "1x18x3x3:0.2:1"], group=2,
         offset_group=2),
    case("DeformConv", 19, ["2x3x4x5:-1:1", "2x3x3x2:-1:1", "2x12x2x3:0.1:0.4"], strides=[2, 1], dilations=[1, 2],
         pads=[1, 0, 1, 0]),
    case("RoiAlign", 16, ["2x3x6x6:-1:1", "3x4:0.6:4.9", ints(0, 1, 1)], output_height=2, output_width=3, sampling_ratio=2),
]

INTEGERS = "its inputs or its outputs are integers or booleans"
SHAPES = "its output depends on no number of its inputs"
INSIDE = "it is read as the operators inside it"
PARTS = "it hands on tensors as they are"
CHOICE = "its output is a choice among constants: the slope is 0 or there is none"
NONE = {
    **dict.fromkeys("And ArgMax ArgMin BitCast BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor "
                    "ConvInteger DynamicQuantizeLinear Equal Greater GreaterOrEqual IsInf IsNaN Less LessOrEqual MatMulInteger NonZero "
                    "Not Or QLinearConv QLinearMatMul QuantizeLinear Xor".split(), INTEGERS),
    **dict.fromkeys("BlackmanWindow Constant ConstantOfShape EyeLike HammingWindow HannWindow MelWeightMatrix "
                    "OptionalHasElement RandomNormal RandomNormalLike RandomUniform RandomUniformLike Range SequenceEmpty "
                    "SequenceLength Shape Size".split(), SHAPES),
    **dict.fromkeys("If Loop Scan SequenceMap".split(), INSIDE),
    **dict.fromkeys("ConcatFromSequence Optional SequenceAt SequenceConstruct SequenceErase "
                    "SequenceInsert SplitToSequence".split(), PARTS),
    **dict.fromkeys("Bernoulli Hardmax".split(), CHOICE),
}
# Differentiable with slope 0 almost everywhere.
STEPS = {"Ceil", "Floor", "Round", "Sign"}


def shapes(entry):
    return [given[1] if isinstance(given, list) else given for given in entry["inputs"]]


def all_cases():
    return json.loads(CASES.read_text()) + MORE


class GradientsTest(PipelineTest):
    def test_every_operator_has_a_case(self):
        known = {entry["op"] for entry in all_cases()}
        rows = json.loads(call("pipec", "list", "ops", "--format", "json").stdout)
        names = {row["name"] for row in rows if row["domain"] == "ai.onnx"}
        self.assertEqual(sorted(names - known - set(NONE)), [])
        self.assertEqual(sorted(set(NONE) & known), [])
        self.assertEqual(sorted(set(NONE) - names), [])

    def test_gradients_are_slopes(self):
        entries = all_cases()
        files = []
        for entry in entries:
            files.append(self.fresh(".onnx"))
            write(entry, files[-1])
        lines = call("pipec-gradients", *files, timeout=800).stdout.splitlines()
        self.assertEqual(len(lines), len(entries))
        moved = set()
        for entry, line in zip(entries, lines):
            result = json.loads(line)
            with self.subTest(op=entry["op"], attributes=entry["attributes"], inputs=shapes(entry)):
                self.assertNotIn("problem", result)
                self.assertTrue(result["weights"] or entry["op"] in STEPS)
                for name, weight in result["weights"].items():
                    self.assertNotEqual(weight["error"], "NaN", name)
                    self.assertLess(weight["error"], TOLERANCE, name)
                    if weight["gradient"]:
                        moved.add(entry["op"])
        # A gradient that is zero everywhere would pass every comparison with steps.
        self.assertEqual(sorted({entry["op"] for entry in entries} - moved), sorted(STEPS))


if __name__ == "__main__":
    unittest.main()
