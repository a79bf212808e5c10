#!/usr/bin/env python3
"""Large ONNX files without their weights, to measure how import and planning scale.

Usage: large_models.py gpt3-175b|gpt-2|llama-7b|resnet-50|operators-N FOLDER        (N: 10000, 25000, 50000 or 100000)

Writes FOLDER/model.onnx and FOLDER/weights.bin, a sparse file of the right size that holds zeros and takes no space.
Needs Python's standard library alone.
"""
import os
import struct
import sys

FLOAT, INT64 = 1, 7


def varint(value):
    out = bytearray()
    value &= (1 << 64) - 1
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(number, value):
    """A field of a protobuf message: an int, a text, or the bytes of a message."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, str):
        value = value.encode()
    return varint(number << 3 | 2) + varint(len(value)) + value


class Model:
    def __init__(self, opset):
        self.opset, self.nodes, self.tensors, self.inputs, self.outputs = opset, [], [], [], []
        self.bytes = self.count = 0

    def op(self, kind, *inputs, outputs=1, **attributes):
        """Adds a node; the names of its results (one: the name)."""
        self.count += 1
        names = [f"{kind.lower()}_{self.count}" + (f".{i}" if i else "") for i in range(outputs)]
        node = b"".join(field(1, i) for i in inputs) + b"".join(field(2, o) for o in names)
        node += field(3, f"node_{kind}_{self.count}") + field(4, kind)
        for name, value in attributes.items():
            node += field(5, field(1, name) + self.attribute(value))
        self.nodes.append(node)
        return names[0] if outputs == 1 else names

    @staticmethod
    def attribute(value):
        if isinstance(value, float):
            return varint(2 << 3 | 5) + struct.pack("<f", value) + field(20, 1)
        if isinstance(value, int):
            return field(3, value) + field(20, 2)
        if isinstance(value, str):
            return field(4, value) + field(20, 3)
        return b"".join(field(8, v) for v in value) + field(20, 7)

    def weight(self, name, *shape):
        """A float tensor in weights.bin."""
        size = 4
        for n in shape:
            size *= n
        where = (("location", "weights.bin"), ("offset", str(self.bytes)), ("length", str(size)))
        tensor = b"".join(field(1, n) for n in shape) + field(2, FLOAT) + field(8, name)
        tensor += b"".join(field(13, field(1, k) + field(2, v)) for k, v in where) + field(14, 1)
        self.tensors.append(tensor)
        self.bytes += (size + 63) // 64 * 64
        return name

    def constant(self, values, kind, *shape):
        self.count += 1
        name = f"constant_{self.count}"
        raw = struct.pack("<%d%s" % (len(values), "f" if kind == FLOAT else "q"), *values)
        self.tensors.append(b"".join(field(1, n) for n in shape) + field(2, kind) + field(8, name) + field(9, raw))
        return name

    def ints(self, *values):
        return self.constant(values, INT64, len(values))

    def scalar(self, value):
        return self.constant([value], FLOAT)

    @staticmethod
    def value(name, kind, shape):
        dims = b"".join(field(1, field(2 if isinstance(d, str) else 1, d)) for d in shape)
        return field(1, name) + field(2, field(1, field(1, kind) + field(2, dims)))

    def save(self, folder):
        os.makedirs(folder, exist_ok=True)
        graph = b"".join(field(1, n) for n in self.nodes) + field(2, "large")
        graph += b"".join(field(5, t) for t in self.tensors)
        graph += b"".join(field(11, self.value(*i)) for i in self.inputs)
        graph += b"".join(field(12, self.value(*o)) for o in self.outputs)
        with open(os.path.join(folder, "model.onnx"), "wb") as file:
            file.write(field(1, 9) + field(2, "large_models.py") + field(7, graph) +
                       field(8, field(1, "") + field(2, self.opset)))
        with open(os.path.join(folder, "weights.bin"), "wb") as file:
            file.truncate(self.bytes)

    # What transformers are made of.

    def linear(self, x, name, rows, columns, bias=True):
        y = self.op("MatMul", x, self.weight(name + ".weight", rows, columns))
        return self.op("Add", y, self.weight(name + ".bias", columns)) if bias else y

    def causal(self, length):
        """[length, length], true where a position may look."""
        zero, one, end = (self.constant([v], INT64) for v in (0, 1, length))
        at = self.op("Range", zero, end, one)
        return self.op("LessOrEqual", self.op("Unsqueeze", at, self.ints(0)), self.op("Unsqueeze", at, self.ints(1)))

    def heads(self, x, heads, size):
        return self.op("Transpose", self.op("Reshape", x, self.ints(0, 0, heads, size)), perm=[0, 2, 1, 3])

    def attend(self, q, k, v, mask, width, size):
        scores = self.op("MatMul", q, self.op("Transpose", k, perm=[0, 1, 3, 2]))
        scores = self.op("Mul", scores, self.scalar(size ** -0.5))
        weights = self.op("Softmax", self.op("Where", mask, scores, self.scalar(-1e9)), axis=-1)
        mixed = self.op("Transpose", self.op("MatMul", weights, v), perm=[0, 2, 1, 3])
        return self.op("Reshape", mixed, self.ints(0, 0, width))


def gpt3(layers=96, width=12288, heads=96, length=2048, vocabulary=50257):
    m = Model(20)
    m.inputs.append(("input_ids", INT64, ["batch", length]))
    norm = lambda x, name: m.op("LayerNormalization", x, m.weight(name + ".weight", width),
                                m.weight(name + ".bias", width), axis=-1, epsilon=1e-5)
    mask = m.causal(length)
    x = m.op("Gather", m.weight("wte", vocabulary, width), "input_ids")
    x = m.op("Add", x, m.weight("wpe", length, width))
    for i in range(layers):
        name = f"h.{i}."
        qkv = m.linear(norm(x, name + "ln_1"), name + "qkv", width, 3 * width)
        parts = m.op("Split", qkv, m.ints(width, width, width), outputs=3, axis=-1)
        q, k, v = (m.heads(part, heads, width // heads) for part in parts)
        mixed = m.attend(q, k, v, mask, width, width // heads)
        x = m.op("Add", x, m.linear(mixed, name + "proj", width, width))
        wide = m.op("Gelu", m.linear(norm(x, name + "ln_2"), name + "fc", width, 4 * width), approximate="tanh")
        x = m.op("Add", x, m.linear(wide, name + "out", 4 * width, width))
    logits = m.linear(norm(x, "ln_f"), "lm_head", width, vocabulary, bias=False)
    m.outputs.append((logits, FLOAT, ["batch", length, vocabulary]))
    return m


def llama(layers=32, width=4096, heads=32, length=2048, wide=11008, vocabulary=32000):
    m = Model(18)
    m.inputs.append(("input_ids", INT64, ["batch", length]))
    size = width // heads

    def norm(x, name):
        mean = m.op("ReduceMean", m.op("Pow", x, m.scalar(2.0)), m.ints(-1), keepdims=1)
        scale = m.op("Reciprocal", m.op("Sqrt", m.op("Add", mean, m.scalar(1e-5))))
        return m.op("Mul", m.op("Mul", x, scale), m.weight(name, width))

    zero, one, end = (m.constant([v], INT64) for v in (0, 1, length))
    at = m.op("Cast", m.op("Range", zero, end, one), to=FLOAT)
    speeds = m.constant([10000.0 ** (-2 * i / size) for i in range(size // 2)], FLOAT, size // 2)
    angle = m.op("Mul", m.op("Unsqueeze", at, m.ints(1)), speeds)
    angle = m.op("Concat", angle, angle, axis=-1)
    cosine, sine = m.op("Cos", angle), m.op("Sin", angle)

    def rotate(x):
        low = m.op("Slice", x, m.ints(0), m.ints(size // 2), m.ints(3))
        high = m.op("Slice", x, m.ints(size // 2), m.ints(size), m.ints(3))
        turned = m.op("Concat", m.op("Neg", high), low, axis=-1)
        return m.op("Add", m.op("Mul", x, cosine), m.op("Mul", turned, sine))

    mask = m.causal(length)
    x = m.op("Gather", m.weight("embed", vocabulary, width), "input_ids")
    for i in range(layers):
        name = f"layers.{i}."
        y = norm(x, name + "norm_1")
        q, k, v = (m.heads(m.linear(y, name + part, width, width, bias=False), heads, size) for part in "qkv")
        mixed = m.attend(rotate(q), rotate(k), v, mask, width, size)
        x = m.op("Add", x, m.linear(mixed, name + "o", width, width, bias=False))
        y = norm(x, name + "norm_2")
        gate = m.linear(y, name + "gate", width, wide, bias=False)
        y = m.op("Mul", m.op("Mul", gate, m.op("Sigmoid", gate)), m.linear(y, name + "up", width, wide, bias=False))
        x = m.op("Add", x, m.linear(y, name + "down", wide, width, bias=False))
    logits = m.linear(norm(x, "norm"), "lm_head", width, vocabulary, bias=False)
    m.outputs.append((logits, FLOAT, ["batch", length, vocabulary]))
    return m


def resnet50(size=224, classes=1000):
    m = Model(18)
    m.inputs.append(("input", FLOAT, ["batch", 3, size, size]))

    def unit(x, name, inputs, outputs, kernel, stride=1):
        x = m.op("Conv", x, m.weight(name + ".conv", outputs, inputs, kernel, kernel), kernel_shape=[kernel, kernel],
                 strides=[stride, stride], pads=[kernel // 2] * 4)
        return m.op("BatchNormalization", x, *(m.weight(f"{name}.{part}", outputs)
                                               for part in ("scale", "bias", "mean", "var")))

    x = m.op("Relu", unit("input", "stem", 3, 64, 7, 2))
    x, channels = m.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]), 64
    for group, (middle, count, stride) in enumerate(((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))):
        for i in range(count):
            name, out, step = f"layer{group}.{i}", 4 * middle, stride if i == 0 else 1
            y = m.op("Relu", unit(x, name + ".a", channels, middle, 1))
            y = unit(m.op("Relu", unit(y, name + ".b", middle, middle, 3, step)), name + ".c", middle, out, 1)
            short = unit(x, name + ".short", channels, out, 1, step) if i == 0 else x
            x, channels = m.op("Relu", m.op("Add", y, short)), out
    x = m.op("Flatten", m.op("GlobalAveragePool", x), axis=1)
    logits = m.op("Gemm", x, m.weight("fc.weight", channels, classes), m.weight("fc.bias", classes))
    m.outputs.append((logits, FLOAT, ["batch", classes]))
    return m


def operators(count=10000, width=64):
    """A residual network of so many small operators."""
    m = Model(18)
    m.inputs.append(("x", FLOAT, ["batch", width]))
    x = "x"
    for i in range(count // 4):
        x = m.op("Add", x, m.op("Relu", m.linear(x, f"block.{i}", width, width)))
    m.outputs.append((x, FLOAT, ["batch", width]))
    return m


def gpt2():
    """Of 124 M parameters, and an output layer of its own."""
    return gpt3(layers=12, width=768, heads=12, length=1024)


MODELS = {"gpt3-175b": gpt3, "gpt-2": gpt2, "llama-7b": llama, "resnet-50": resnet50,
          **{f"operators-{n}": lambda n=n: operators(n) for n in (10000, 25000, 50000, 100000)}}

if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in MODELS:
        sys.exit(__doc__)
    MODELS[sys.argv[1]]().save(sys.argv[2])
