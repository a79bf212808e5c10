#!/usr/bin/env python3
"""Small networks as scripts write them, with the losses PyTorch computes from the same numbers: folders for elsewhere.py.

Usage: script_models.py FOLDER [--only REGEX]

onnx.parser's text, onnx.helper, onnxscript's functions, spox, ndonnx: weights in Constant nodes, initializers that are inputs
as well, functions of functions with attributes, loops over the steps of a sequence with the weights outside of the loop.
Needs onnx, onnxscript, spox, ndonnx, torch, numpy (PyPI).
"""
import os

os.environ["OMP_NUM_THREADS"] = "1"
import numpy as np
import onnx
import torch
import torch.nn.functional as F
from onnx import TensorProto, helper, numpy_helper, parser
from onnxscript import FLOAT

from elsewhere import MICROBATCHES, ROWS, STEPS, make_all, rows_of, save

MODELS, T = {}, 6


def model(exporter, label, loss="cross-entropy", rate=0.1, flags=(), **inputs):
    """Registers a function from weights to (ONNX model, function of PyTorch from inputs to logits).

    Inputs are shapes of a row; a label is a number of classes or the shape of a row, None with a loss in the graph."""
    def register(function):
        MODELS[function.__name__.replace("_", "-")] = (function, exporter, label, loss, rate, flags, inputs)
        return function
    return register


class Weights(dict):
    """Trained arrays by name, random by their shape."""

    def __init__(self):
        super().__init__()
        self.random = np.random.default_rng(3)

    def __call__(self, name, *shape, type="float32"):
        self[name] = (self.random.standard_normal(shape) * (0.5 if len(shape) > 1 else 0.1)).astype(type)
        return self[name]


def parsed(text, weights, version=10, opset="18"):
    """Text of ONNX with initializers; `batch` is symbolic."""
    result = parser.parse_model(f'<ir_version: {version}, opset_import: ["" : {opset}]>\n' + text)
    result.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in weights.items())
    return result


@model("onnx.parser, opset 18", 4, x=(8,))
def dense_text(w):
    a, b, c, d = w("a", 8, 12), w("b", 12), w("c", 4, 12), w("d", 4)
    text = """net (float[batch, 8] x) => (float[batch, 4] y) {
        p = MatMul(x, a)
        q = Add(b, p)
        r = HardSwish(q)
        y = Gemm <transB = 1, alpha = 0.5, beta = 2.0> (r, c, d)
    }"""
    return parsed(text, w), lambda t, x: 0.5 * F.hardswish(x @ t["a"] + t["b"]) @ t["c"].T + 2 * t["d"]


RECURRENT = """
        hs = Transpose <perm = [1, 0, 2]> (x)
        shape = Shape <start = 0, end = 1> (x)
        tail = Constant <value_ints = [5]> ()
        size = Concat <axis = 0> (shape, tail)
        zero = ConstantOfShape (size)
"""


def recurrent(t, x):
    h = torch.zeros(x.shape[0], 5)
    for i in range(T):
        h = torch.tanh(x[:, i] @ t["a"] + h @ t["u"] + t["b"])
    return h @ t["c"]


def recurrent_weights(w):
    w("a", 7, 5), w("u", 5, 5), w("b", 5), w("c", 5, 4)


@model("onnx.parser, opset 18", 4, x=(T, 7))
def scan_text(w):
    recurrent_weights(w)
    text = """net (float[batch, 6, 7] x) => (float[batch, 4] y) {""" + RECURRENT + """
        last, all = Scan <num_scan_inputs = 1, body = step (float[batch, 5] h, float[batch, 7] e) => (float[batch, 5] n, float[batch, 5] o) {
            p = MatMul(e, a)
            q = MatMul(h, u)
            r = Sum(p, q, b)
            n = Tanh(r)
            o = Identity(n)
        }> (zero, hs)
        y = MatMul(last, c)
    }"""
    return parsed(text, w), recurrent


@model("onnx.parser, opset 18", 4, x=(T, 7))
def loop_text(w):
    recurrent_weights(w)
    text = """net (float[batch, 6, 7] x) => (float[batch, 4] y) {""" + RECURRENT + """
        count = Constant <value_int = 6> ()
        yes = Constant <value = bool {1}> ()
        last = Loop <body = step (int64 i, bool go, float[batch, 5] h) => (bool on, float[batch, 5] n) {
            on = Identity(go)
            e = Gather(hs, i)
            p = MatMul(e, a)
            q = MatMul(h, u)
            r = Sum(p, q, b)
            n = Tanh(r)
        }> (count, yes, zero)
        y = MatMul(last, c)
    }"""
    return parsed(text, w), recurrent


@model("onnx.parser, opset 20", 4, x=(8,))
def functions_text(w):
    w("a", 8, 8), w("s", 8), w("b", 8, 4)
    text = """net (float[batch, 8] x) => (float[batch, 4] y) {
        p = my.block <slope = 0.3> (x, a, s)
        q = my.block <slope = 0.1> (p, a, s)
        y = MatMul(q, b)
    }
    <domain: "my", opset_import: ["" : 20, "my" : 1]>
    norm (x, s) => (y) {
        two = Constant <value_float = 2.0> ()
        axes = Constant <value_ints = [-1]> ()
        sq = Pow(x, two)
        m = ReduceMean(sq, axes)
        one = Constant <value_float = 0.1> ()
        t = Add(m, one)
        r = Sqrt(t)
        n = Div(x, r)
        y = Mul(n, s)
    }
    <domain: "my", opset_import: ["" : 20, "my" : 1]>
    block <slope> (x, a, s) => (y) {
        n = my.norm(x, s)
        p = MatMul(n, a)
        q = LeakyRelu <alpha: float = @slope> (p)
        y = Add(x, q)
    }"""

    def block(t, x, slope):
        n = x / torch.sqrt((x ** 2).mean(-1, keepdim=True) + 0.1) * t["s"]
        return x + F.leaky_relu(n @ t["a"], slope)
    result = parsed(text, w, opset='20, "my" : 1')
    return result, lambda t, x: block(t, block(t, x, 0.3), 0.1) @ t["b"]


@model("onnx.helper, IR 3, opset 13", 4, x=(3, 10, 10))
def initializers_as_inputs(w):
    k, b, d = w("kernel", 6, 3, 3, 3), w("bias", 6), w("dense", 96, 4)
    nodes = [helper.make_node("Conv", ["x", "kernel", "bias"], ["p"], auto_pad="SAME_UPPER", strides=[2, 2]),
             helper.make_node("Relu", ["p"], ["q"]),
             helper.make_node("AveragePool", ["q"], ["r"], kernel_shape=[2, 2], ceil_mode=0),
             helper.make_node("Flatten", ["r"], ["s"]), helper.make_node("MatMul", ["s", "dense"], ["y"])]
    w["dense"] = d = (np.random.default_rng(5).standard_normal((6 * 16, 4)) * 0.2).astype("float32")
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, a.shape) for n, a in w.items()]
    graph = helper.make_graph(nodes, "net", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, 10, 10]), *values],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 4])],
                              [numpy_helper.from_array(a, n) for n, a in w.items()])
    result = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=3)

    def forward(t, x):
        p = F.relu(F.conv2d(F.pad(x, (0, 1, 0, 1)), t["kernel"], t["bias"], 2))
        return F.avg_pool2d(p, 2, 1).flatten(1) @ t["dense"]
    return result, forward


@model("onnx.helper, opset 21, doubles", 3, x=(5,))
def doubles(w):
    w("a", 5, 6, type="float64"), w("b", 6, 3, type="float64")
    nodes = [helper.make_node("Cast", ["x"], ["z"], to=TensorProto.DOUBLE), helper.make_node("MatMul", ["z", "a"], ["p"]),
             helper.make_node("Softsign", ["p"], ["q"]), helper.make_node("MatMul", ["q", "b"], ["r"]),
             helper.make_node("Cast", ["r"], ["y"], to=TensorProto.FLOAT)]
    graph = helper.make_graph(nodes, "net", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 5])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 3])],
                              [numpy_helper.from_array(a, n) for n, a in w.items()])
    return (helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10),
            lambda t, x: (F.softsign(x.double() @ t["a"]) @ t["b"]).float())


@model("onnxscript, opset 20", 4, x=(T, 8))
def attention_script(w):
    from onnxscript import opset20 as op, script
    from onnxscript.values import Opset
    mine = Opset("mine", 1)
    for name in "qkvo":
        w(name, 8, 8)
    w("s", 8), w("t", 8), w("h", 8, 4)

    @script(mine, default_opset=op)
    def Project(x, weight, shift, heads: int):
        size = op.Constant(value_ints=[0, 0, 2, -1])
        return op.Transpose(op.Reshape(op.MatMul(x, weight) + shift, size), perm=[0, 2, 1, 3])

    @script(mine, default_opset=op)
    def Heads(q, k, v):
        scores = op.MatMul(q, op.Transpose(k, perm=[0, 1, 3, 2])) * op.Constant(value_float=0.5)
        mixed = op.Transpose(op.MatMul(op.Softmax(scores, axis=-1), v), perm=[0, 2, 1, 3])
        return op.Reshape(mixed, op.Constant(value_ints=[0, 0, -1]))

    @script(default_opset=op)
    def net(x: FLOAT["N", 6, 8], q: FLOAT[8, 8], k: FLOAT[8, 8], v: FLOAT[8, 8], o: FLOAT[8, 8], s: FLOAT[8], t: FLOAT[8],
            h: FLOAT[8, 4]) -> FLOAT["N", 4]:
        n = op.LayerNormalization(x, s, t, axis=-1)
        y = x + op.MatMul(Heads(Project(n, q, s, heads=2), Project(n, k, t, heads=2), Project(n, v, s, heads=2)), o)
        return op.MatMul(op.ReduceMean(y, op.Constant(value_ints=[1]), keepdims=0), h)
    result = net.to_model_proto(ir_version=10)
    del result.graph.input[1:]
    result.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in w.items())

    def forward(t, x):
        n = F.layer_norm(x, (8,), t["s"], t["t"])
        q, k, v = ((n @ t[a] + t[b]).unflatten(-1, (2, 4)).transpose(1, 2) for a, b in ("qs", "kt", "vs"))
        y = ((q @ k.transpose(-1, -2) * 0.5).softmax(-1) @ v).transpose(1, 2).flatten(2)
        return (x + y @ t["o"]).mean(1) @ t["h"]
    return result, forward


@model("spox, opset 21", 4, x=(8,))
def dense_spox(w):
    import spox.opset.ai.onnx.v21 as op
    from spox import Tensor, argument, build
    a, s, b = w("a", 8, 12), w("s", 12), w("b", 12, 4)
    x = argument(Tensor(np.float32, ("N", 8)))
    h = op.gelu(op.mul(op.matmul(x, op.const(a)), op.const(s)), approximate="tanh")
    y = op.matmul(op.div(h, op.add(op.reduce_l2(h, op.const([1])), op.const(np.float32(1)))), op.const(b))

    def forward(t, x):
        h = F.gelu(x @ t["a"] * t["s"], approximate="tanh")
        return h / (h.norm(dim=1, keepdim=True) + 1) @ t["b"]
    return build({"x": x}, {"y": y}), forward


@model("spox, opset 21", 4, x=(T, 7))
def loop_spox(w):
    import spox.opset.ai.onnx.v21 as op
    from spox import Tensor, argument, build
    from spox._future import initializer
    recurrent_weights(w)
    x = argument(Tensor(np.float32, ("N", T, 7)))
    v = {name: initializer(array) for name, array in w.items()}
    zero = op.expand(op.const(np.zeros((1, 5), "float32")), op.concat([op.shape(x, end=1), op.const([5])], axis=0))

    def step(i, go, h, a, u, b):
        e = op.squeeze(op.gather(x, i, axis=1), op.const([1]))
        return [op.identity(go), op.tanh(op.sum([op.matmul(e, a), op.matmul(h, u), b])), a, u, b]
    last, *_ = op.loop(op.shape(x, start=1, end=2), op.const([True]), [zero, v["a"], v["u"], v["b"]], body=step)
    return build({"x": x}, {"y": op.matmul(last, v["c"])}), recurrent


@model("spox, opset 21", 4, x=(8,))
def condition_spox(w):
    import spox.opset.ai.onnx.v21 as op
    from spox import Tensor, argument, build
    a, b = w("a", 8, 8), w("b", 8, 4)
    x = argument(Tensor(np.float32, (4, 8)))
    rows = op.squeeze(op.shape(x, end=1))
    h = op.matmul(x, op.const(a))
    y, = op.if_(op.greater(rows, op.const(2)), then_branch=lambda: [op.softplus(h)], else_branch=lambda: [op.exp(h)])
    return build({"x": x}, {"y": op.matmul(y, op.const(b))}), lambda t, x: F.softplus(x @ t["a"]) @ t["b"]


@model("ndonnx", None, loss="output", x=(8,), goal=(3,))
def loss_ndonnx(w):
    import ndonnx as ndx
    w("a", 8, 6), w("b", 6), w("c", 6, 3)
    x, goal = ndx.argument(shape=("N", 8), dtype=ndx.float32), ndx.argument(shape=("N", 3), dtype=ndx.float32)
    a, b, c = (ndx.asarray(w[n]) for n in "abc")
    h = ndx.where(x @ a + b > 0, x @ a + b, 0.2 * (x @ a + b))
    y = h @ c
    z = y - ndx.max(y, axis=-1, keepdims=True)
    p = ndx.exp(z) / ndx.sum(ndx.exp(z), axis=-1, keepdims=True)
    loss = ndx.mean(ndx.square(p - goal)) + 0.1 * ndx.mean(ndx.abs(ndx.sin(y)))

    def forward(t, x, goal):
        y = F.leaky_relu(x @ t["a"] + t["b"], 0.2) @ t["c"]
        return ((y.softmax(-1) - goal) ** 2).mean() + 0.1 * torch.sin(y).abs().mean()
    return ndx.build({"x": x, "goal": goal}, {"loss": loss}), forward


# ------------------------------------------------------------------------------------------- data and training

def loss_of(kind, logits, labels):
    return logits if kind == "output" else F.cross_entropy(logits, labels)


def train(weights, forward, arrays, names, loss, rate):
    tensors = {name: torch.from_numpy(array.copy()).requires_grad_() for name, array in weights.items()}
    optimizer, losses = torch.optim.SGD(tensors.values(), rate, 0.9), []
    for step in range(STEPS):
        optimizer.zero_grad()
        total = 0.0
        for k in range(MICROBATCHES):
            rows = {name: torch.from_numpy(array[rows_of(step, k)]) for name, array in arrays.items()}
            value = loss_of(loss, forward(tensors, *(rows[name] for name in names)), rows.get("labels")) / MICROBATCHES
            value.backward()
            total += value.item()
        optimizer.step()
        losses.append(total)
    return losses


def make(name, folder):
    function, exporter, label, loss, rate, flags, inputs = MODELS[name]
    weights, random = Weights(), np.random.default_rng(1)
    result, forward = function(weights)
    arrays = {key: random.standard_normal((ROWS, *shape)).astype("float32") for key, shape in inputs.items()}
    if label:
        arrays["labels"] = random.integers(0, label, ROWS)
    onnx.checker.check_model(result)
    onnx.save(result, f"{folder}/model.onnx")
    save(folder, arrays, of="PyTorch", exporter=exporter, losses=train(weights, forward, arrays, list(inputs), loss, rate), loss=loss, rate=rate,
         elements=sum(a.size for a in weights.values()), inputs=list(inputs), flags=flags)


if __name__ == "__main__":
    make_all(__doc__, MODELS, "script-", make)
