"""ONNX models as bytes, for tests that need what the text form has not: element types, metadata."""
import struct

FLOAT, UINT8, INT32, INT64, BOOL, FLOAT16, DOUBLE, BFLOAT16 = 1, 2, 6, 7, 9, 10, 11, 16
CODES = {FLOAT: "f", UINT8: "B", INT32: "i", INT64: "q", BOOL: "?", FLOAT16: "e", DOUBLE: "d"}


def varint(value):
    value, out = value & (1 << 64) - 1, b""
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
    return struct.pack("<%d%s" % (len(values), CODES[kind]), *values)


def tensor(name, kind, shape, values):
    return b"".join(field(1, size) for size in shape) + field(2, kind) + field(8, name) + field(9, pack(kind, values))


def attribute(name, value):
    """A number, a text, or a list of such (an empty one is of integers)."""
    message = field(1, name)
    if isinstance(value, float):
        message += varint(2 << 3 | 5) + struct.pack("<f", value) + field(20, 1)
    elif isinstance(value, int):
        message += field(3, value) + field(20, 2)
    elif isinstance(value, str):
        message += field(4, value) + field(20, 3)
    elif value and isinstance(value[0], float):
        message += b"".join(varint(7 << 3 | 5) + struct.pack("<f", x) for x in value) + field(20, 6)
    elif value and isinstance(value[0], str):
        message += b"".join(field(9, x) for x in value) + field(20, 8)
    else:
        message += b"".join(field(8, x) for x in value) + field(20, 7)
    return message


def node(op, inputs, outputs, name="", metadata=None, domain="", **attributes):
    message = b"".join(field(1, i) for i in inputs) + b"".join(field(2, o) for o in outputs) + field(3, name) + field(4, op)
    for key, value in attributes.items():
        message += field(5, attribute(key, value))
    for key, value in (metadata or {}).items():
        message += field(9, field(1, key) + field(2, value))
    return message + (field(7, domain) if domain else b"")


def value(name, kind, shape, metadata=None):
    dims = b"".join(field(1, field(1, size)) for size in shape)
    message = field(1, name) + field(2, field(1, field(1, kind) + field(2, dims)))
    return message + b"".join(field(4, field(1, k) + field(2, v)) for k, v in (metadata or {}).items())


def model(nodes, tensors, inputs, outputs, opset=18, values=(), metadata=None, producer=""):
    graph = b"".join(field(1, n) for n in nodes) + field(2, "g") + b"".join(field(5, t) for t in tensors)
    graph += b"".join(field(11, i) for i in inputs) + b"".join(field(12, o) for o in outputs)
    graph += b"".join(field(13, v) for v in values)
    graph += b"".join(field(16, field(1, k) + field(2, v)) for k, v in (metadata or {}).items())
    return field(1, 8) + field(2, producer) + field(7, graph) + field(8, field(2, opset))
