"""ONNX models as bytes, for tests that need what the text form has not: element types, metadata."""
import struct

FLOAT, INT64, FLOAT16, DOUBLE, BFLOAT16 = 1, 7, 10, 11, 16


def varint(value):
    out = b""
    while True:
        out += bytes([value & 0x7F | (0x80 if value > 0x7F else 0)])
        value >>= 7
        if not value:
            return out


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def pack(kind, values):
    if kind == BFLOAT16:
        return b"".join(struct.pack("<I", int.from_bytes(struct.pack("<f", v), "little") + 0x8000)[2:] for v in values)
    return struct.pack("<%d%s" % (len(values), {FLOAT: "f", INT64: "q", FLOAT16: "e", DOUBLE: "d"}[kind]), *values)


def tensor(name, kind, shape, values):
    return b"".join(field(1, size) for size in shape) + field(2, kind) + field(8, name) + field(9, pack(kind, values))


def node(op, inputs, outputs, name="", metadata=None, domain="", **integers):
    message = b"".join(field(1, i) for i in inputs) + b"".join(field(2, o) for o in outputs) + field(3, name) + field(4, op)
    for key, value in integers.items():
        message += field(5, field(1, key) + field(3, value) + field(20, 2))
    for key, value in (metadata or {}).items():
        message += field(9, field(1, key) + field(2, value))
    return message + (field(7, domain) if domain else b"")


def value(name, kind, shape):
    dims = b"".join(field(1, field(1, size)) for size in shape)
    return field(1, name) + field(2, field(1, field(1, kind) + field(2, dims)))


def model(nodes, tensors, inputs, outputs, opset=18):
    graph = b"".join(field(1, n) for n in nodes) + field(2, "g") + b"".join(field(5, t) for t in tensors)
    graph += b"".join(field(11, i) for i in inputs) + b"".join(field(12, o) for o in outputs)
    return field(1, 8) + field(7, graph) + field(8, field(2, opset))
