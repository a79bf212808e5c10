"""What the end-to-end tests share: compile, run, read what they leave.

Needs Python's standard library alone. PIPEC_BIN is the folder of the programs
(ctest sets it).
"""
import array
import contextlib
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
MODELS = SOURCE / "test" / "models"
BIN = pathlib.Path(os.environ.get("PIPEC_BIN", SOURCE / "build" / "bin"))

# Exit codes (README).
USAGE, BAD_MODEL, NO_INPUT, UNAVAILABLE = 64, 65, 66, 69
CANNOT_WRITE, STOPPED, BAD_NUMBERS, BAD_PLAN, NO_FIT = 73, 75, 77, 78, 79


def call(program, *arguments, timeout=300, **options):
    """Runs a program of the build; stdout and stderr are text."""
    command = [str(BIN / program), *map(str, arguments)]
    environment = dict(os.environ, OMP_NUM_THREADS="1")
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout,
                          stdin=subprocess.DEVNULL, env=environment, **options)


class Run:
    """A finished pipec-run with metrics."""

    def __init__(self, process, metrics):
        self.code, self.stdout, self.stderr = process.returncode, process.stdout, process.stderr
        text = pathlib.Path(metrics).read_text() if os.path.exists(metrics) else ""
        lines = [json.loads(line) for line in text.splitlines()]
        self.losses = [line["loss"] for line in lines if "loss" in line]
        self.steps = [line["step"] for line in lines if "loss" in line]
        self.summary = next((line["summary"] for line in lines if "summary" in line), None)


class PipelineTest(unittest.TestCase):
    """A test with a folder of its own."""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="pipec-e2e-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.counter = 0

    def fresh(self, suffix=""):
        self.counter += 1
        return self.folder / ("%d%s" % (self.counter, suffix))

    def check_exit(self, process, code):
        self.assertEqual(process.returncode, code,
                         "exit %d:\n%s%s" % (process.returncode, process.stdout, process.stderr))

    def compile(self, model, *arguments):
        """Compiles; returns the plan folder."""
        plan = self.fresh(".plan")
        self.check_exit(call("pipec", model, *arguments, "--quiet", "-o", plan), 0)
        return plan

    def dry_run(self, model, *arguments, code=0):
        """What a dry run would do, or what it says where it fails with `code`."""
        process = call("pipec", model, *arguments, "--dry-run", "--format", "json", cwd=self.folder)
        self.check_exit(process, code)
        return process.stderr if code else json.loads(process.stdout)

    def cores(self, ranks):
        """So many ranks on two cores, as options. Stages and orders are the same wherever a test runs; for --cpus they are not."""
        file = self.folder / ("cores-%d.json" % ranks)
        flops = {"fp64": 96e9, "fp32": 192e9, "tf32": 192e9, "fp16": 192e9, "bf16": 192e9}
        device = {"name": "core", "kind": "cpu", "memory_GiB": 8, "flops": flops, "memory_GBps": 25, "launch_us": 0.2}
        file.write_text(json.dumps({"device": device, "cores": 2, "levels": [
            {"name": "server", "count": 1, "bandwidth_GBps": 1.25, "latency_us": 80},
            {"name": "rank", "count": ranks, "bandwidth_GBps": 5, "latency_us": 50}]}))
        return "--cluster", file

    def train(self, plan, data, steps, *arguments, code=0):
        """Runs a plan; `data` maps input names to files."""
        metrics = self.fresh(".jsonl")
        flags = [word for name, file in data.items() for word in ("--data", "%s=%s" % (name, file))]
        process = call("pipec-run", plan, *flags, "--steps", steps, "--metrics", metrics,
                       "--quiet", *arguments)
        self.check_exit(process, code)
        return Run(process, metrics)


class Golden:
    """A model of test/models with the losses PyTorch computed."""

    run_args = ()

    def __init__(self, name):
        self.folder = MODELS / name
        self.__dict__.update(json.loads((self.folder / "golden.json").read_text()))
        self.model = self.folder / getattr(self, "model", "model.onnx")
        self.data = {name: self.folder / file for name, file in self.data.items()}

    def arguments(self, optimizer=None):
        """The flags of a compile, without devices and strategy."""
        words = [word.replace("weight=", "weight=%s/" % self.folder) if word.startswith("cross-entropy:") else word
                 for word in self.pipec_args]
        if optimizer:
            words[words.index("--optimizer") + 1] = optimizer
        return words


def flags(words):
    """A line of options and values, of which a later one takes an earlier one's place."""
    return dict(zip(words[::2], words[1::2]))


@contextlib.contextmanager
def busy(count):
    """So many other programs, which compute when this begins."""
    code = "print(flush=True)\nwhile True: pass"
    others = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) for _ in range(count)]
    try:
        for other in others:
            other.stdout.readline()
        yield
    finally:
        for other in others:
            other.kill()
            other.communicate()


def read_plan(plan):
    return json.loads((plan / "plan.json").read_text())


# ONNX's tensors, as far as these tests need them.


def fields(data):
    """(number, value) of a protobuf message; nested ones are bytes."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        key = varint()
        kind = key & 7
        if kind == 0:
            yield key >> 3, varint()
            continue
        size = {1: 8, 5: 4}.get(kind)
        if size is None:
            size = varint()
        yield key >> 3, data[at:at + size]
        at += size


class OnnxTensor:
    FLOAT = 1

    def __init__(self, message, folder):
        self.shape, self.type, self.name, raw, external = [], 0, "", None, {}
        floats = b""
        for number, value in fields(message):
            if number == 1:
                if isinstance(value, int):
                    self.shape.append(value)
                else:
                    self.shape += [size for size in _packed(value)]
            elif number == 2:
                self.type = value
            elif number == 4:
                floats += value
            elif number == 8:
                self.name = value.decode()
            elif number == 9:
                raw = value
            elif number == 13:
                entry = dict(fields(value))
                external[entry[1].decode()] = entry.get(2, b"").decode()
        if external:
            file = (folder / external["location"]).read_bytes()
            begin = int(external.get("offset", 0))
            raw = file[begin:begin + int(external.get("length", len(file) - begin))]
        self.bytes = raw if raw is not None else floats

    def values(self):
        values = array.array("f")
        values.frombytes(self.bytes)
        return values


def _packed(data):
    at = 0
    while at < len(data):
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        yield value


def onnx_graph(path):
    """The graph message of a model file."""
    return next(value for number, value in fields(pathlib.Path(path).read_bytes()) if number == 7)


def initializers(path):
    """Name -> OnnxTensor."""
    folder = pathlib.Path(path).parent
    tensors = [OnnxTensor(value, folder) for number, value in fields(onnx_graph(path)) if number == 5]
    return {tensor.name: tensor for tensor in tensors}


def nodes(path):
    """The node messages, byte for byte."""
    return [value for number, value in fields(onnx_graph(path)) if number == 1]


# NumPy files.


def read_npy(path):
    """(descr, shape, bytes) of a C-ordered array."""
    data = pathlib.Path(path).read_bytes()
    size = struct.unpack_from("<H", data, 8)[0]
    header = eval(data[10:10 + size].decode(), {"__builtins__": {}}, {"False": False, "True": True})
    return header["descr"], header["shape"], data[10 + size:]


def write_npy(path, descr, shape, data):
    header = "{'descr': %r, 'fortran_order': False, 'shape': %r, }" % (descr, tuple(shape))
    header += " " * (-(len(header) + 11) % 64) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)))
        file.write(header.encode() + data)


def rotate_rows(source, target, rows):
    """The array with its first `rows` rows moved to the end."""
    descr, shape, data = read_npy(source)
    size = len(data) // shape[0] * (rows % shape[0])
    write_npy(target, descr, shape, data[size:] + data[:size])
