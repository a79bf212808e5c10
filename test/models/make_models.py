"""Writes the committed test models: python make_models.py [--bf16] [NAME...]

Each folder NAME/ has model.onnx as PyTorch's exporter writes it, the data as .npy (N rows on axis 0) and golden.json: how to
train it, and what PyTorch computes. Needs torch, onnx and onnxscript; nothing of this runs in the tests.

golden.json
  B, M, N, steps     microbatch size, microbatches a step, rows, optimizer steps; row of sample i of microbatch k of step t is
                     ((t*M + k)*B + i) mod N
  data               graph input or label -> file
  pipec_args         options for the first run; each run has its own. A weight= of the loss names a file of the folder
  run_args           options of pipec-run, when there are any
  logits             the output the loss takes, with its inference values for rows 0..B-1
  runs[]             losses_bf16: the losses with contractions in bfloat16 (rounded.py), where there is no LSTM or GRU; --bf16
                     adds them to what is there. optimizer, losses_f64 and losses_f32 of every step, and after the last one `final`: per trained
                     initializer, in the layout of the file and in float64, l2, mean, first4 (row-major) and
                     max_f32_difference, the largest distance of the float32 run; `buffers`: the same for running statistics
  trainable, frozen  float initializers that train, and all others
"""
import copy
import json
import math
import sys
import sysconfig
import warnings
from collections import namedtuple
from pathlib import Path

import numpy as np
import onnx
import torch
import torch.nn.functional as F
from onnx import numpy_helper
from torch import nn

from rounded import Rounded

warnings.filterwarnings("ignore")
HERE = Path(__file__).resolve().parent
STEPS = 8
Case = namedtuple("Case", "model inputs labels loss exporter batch microbatches optimizers args notes run_args extra",
                  defaults=((), "", (), {}))


# ------------------------------------------------------------------------------------------------------------- models

class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in ((12, 24), (24, 20), (20, 16), (16, 6)))

    def forward(self, input):
        for layer in self.layers[:-1]:
            input = torch.relu(layer(input))
        return self.layers[-1](input)


class Cnn(nn.Module):
    """Convolutions with batch norms, a residual connection over two of them, a strided and a grouped convolution."""

    def __init__(self):
        super().__init__()
        self.stem, self.bn0 = nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.conv1, self.bn1 = nn.Conv2d(8, 8, 3, padding=1, groups=2), nn.BatchNorm2d(8, momentum=0.2)
        self.conv2, self.bn2 = nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.down = nn.Conv2d(8, 16, 3, stride=2, padding=1)
        self.head = nn.Linear(16, 5)

    def forward(self, input):
        x = torch.relu(self.bn0(self.stem(input)))
        y = torch.relu(self.bn1(self.conv1(x)))
        x = torch.relu(x + self.bn2(self.conv2(y)))
        x = F.max_pool2d(x, 2)
        x = torch.relu(self.down(x))
        return self.head(x.mean((2, 3)))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.attention(self.norm1(x)).split(width, 2)
        q, k, v = (t.reshape(batch, length, self.heads, -1).transpose(1, 2) for t in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.projection(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    """GPT-2 in small: learned positions, pre-norm blocks, the token embedding tied to the output."""

    def __init__(self, vocabulary=264, length=24, width=32, heads=4, layers=2):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        nn.init.normal_(self.tokens.weight, std=0.1)
        nn.init.normal_(self.positions.weight, std=0.1)

    def forward(self, input_ids):
        x = self.tokens(input_ids) + self.positions.weight[:input_ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.tokens.weight)


class UNet(nn.Module):
    """Three scales; up once by a transposed convolution, once by bilinear interpolation."""

    def __init__(self):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8)
        self.down, self.affine = nn.Conv2d(8, 12, 3, stride=2, padding=1), nn.InstanceNorm2d(12, affine=True)
        self.bottom, self.slope = nn.Conv2d(12, 16, 3, stride=2, padding=1, dilation=1), nn.PReLU(16)
        self.up, self.mix = nn.ConvTranspose2d(16, 12, 2, stride=2), nn.Conv2d(24, 8, 3, padding=1)
        self.head, self.temperature = nn.Conv2d(16, 4, 1), nn.Parameter(torch.tensor(1.3))

    def forward(self, input):
        a = F.silu(self.norm(self.stem(input)))
        b = F.elu(self.affine(self.down(a)))
        c = self.slope(self.bottom(b))
        d = F.hardswish(self.mix(torch.cat((b, self.up(c)), 1)))
        e = F.interpolate(d, scale_factor=2.0, mode="bilinear", align_corners=False)
        return self.head(torch.cat((a, e), 1)) * self.temperature


class Translator(nn.Module):
    """A bidirectional encoder, a decoder that attends to it."""

    def __init__(self, vocabulary=40, width=12, hidden=10):
        super().__init__()
        self.source, self.target = nn.Embedding(vocabulary, width), nn.Embedding(vocabulary, width)
        self.encoder = nn.GRU(width, hidden, bidirectional=True, batch_first=True)
        self.bridge = nn.Linear(2 * hidden, 2 * hidden)
        self.decoder = nn.LSTM(width, 2 * hidden, batch_first=True)
        self.score, self.output = nn.Linear(2 * hidden, 2 * hidden), nn.Linear(4 * hidden, vocabulary)

    def forward(self, source, target):
        states, last = self.encoder(self.source(source))
        first = torch.tanh(self.bridge(torch.cat((last[0], last[1]), 1))).unsqueeze(0)
        decoded, _ = self.decoder(self.target(target), (first, torch.zeros_like(first)))
        weights = torch.softmax(self.score(decoded) @ states.transpose(1, 2), -1)
        return self.output(torch.tanh(torch.cat((decoded, weights @ states), -1)))


def freshen(model):
    """Constant initial values made random: the dynamo exporter merges equal tensors and drops zero biases."""
    generator = torch.Generator().manual_seed(5)
    noise = lambda t: torch.randn(t.shape, generator=generator)
    with torch.no_grad():
        for name, value in [*model.named_parameters(), *model.named_buffers()]:
            if name.endswith("running_var"):
                value.copy_(0.75 + 0.1 * noise(value).abs())
            elif name.endswith("running_mean"):
                value.copy_(0.1 * noise(value))
            elif value.is_floating_point() and value.ndim == 1:
                value.add_(0.02 * noise(value))
    return model.eval()


def classes(rows, shape, count):
    rng = np.random.default_rng(7)
    labels = rng.integers(0, count, rows).astype(np.int64)
    means = rng.standard_normal((count, *shape))
    return (means[labels] + 0.5 * rng.standard_normal((rows, *shape))).astype(np.float32), labels


def tokens(rows, length, vocabulary):
    """Rows that repeat a short random pattern."""
    pattern = np.random.default_rng(8).integers(0, vocabulary, (rows, 4))
    return np.tile(pattern, (1, length // 4)).astype(np.int64)


SGD, ADAM, ADAMW = "sgd:lr=0.1,momentum=0.9", "adam:lr=0.005", "adamw:lr=0.005,weight_decay=0.05"


def mlp():
    x, y = classes(46, (12,), 6)
    return Case(freshen(Mlp()), {"input": x}, {"labels": y}, "cross-entropy", "dynamo", 4, 4, (SGD, ADAM, ADAMW),
                notes="46 rows: a microbatch of 4 wraps round the end of the data.")


def mlp_external():
    return mlp()._replace(exporter="dynamo, external data", optimizers=(SGD,),
                          notes="mlp with its weights in model.onnx.data.")


def cnn():
    x, y = classes(48, (3, 12, 12), 5)
    return Case(freshen(Cnn()), {"input": x}, {"labels": y}, "cross-entropy", "torchscript", 6, 2,
                ("sgd:lr=0.02,momentum=0.9", ADAM, ADAMW),
                notes="Batch norms with the statistics of each microbatch; conv1 and conv2 have biases whose gradient is zero.")


def cnn_dynamo():
    return cnn()._replace(exporter="dynamo, not optimized", optimizers=("sgd:lr=0.02,momentum=0.9",),
                          notes="cnn with the zero biases that the exporter computes in the graph; they do not train.")


def gpt():
    x = tokens(40, 24, 264)  # 264 * 32 elements: more than the exporter folds, so that the tie stays
    return Case(freshen(Gpt()), {"input_ids": x}, {}, "next-token", "dynamo", 4, 4, (SGD, ADAM, ADAMW),
                notes="The token embedding is tied to the output.")


def unet():
    x, _ = classes(18, (3, 12, 12), 3)
    labels = (x[:, 0] > 0).astype(np.int64) + 2 * (x[:, 1] > 0.3)
    labels[np.random.default_rng(9).random(labels.shape) < 0.1] = 255
    return Case(freshen(UNet()), {"input": x}, {"labels": labels}, "cross-entropy:ignore_index=255", "dynamo", 2, 3,
                ("sgd:lr=0.05,momentum=0.9", ADAM), args=("--clip-norm", "0.5"), notes="Labels of pixels, some not counted.")


def translator():
    rng = np.random.default_rng(10)
    source = rng.integers(0, 40, (26, 7))
    labels = source[:, :6].copy()
    target = np.concatenate((np.zeros((26, 1), np.int64), labels[:, :-1]), 1)
    labels[::3, 4:] = -100
    return Case(freshen(Translator()), {"source": source, "target": target}, {"labels": labels},
                "cross-entropy:label_smoothing=0.1,weight=class_weights.npy", "torchscript", 4, 2,
                (SGD, "adamw:lr=0.01"), run_args=("--lr-schedule", "cosine:warmup=3,total=8,min=0.1"),
                extra={"class_weights": np.linspace(0.5, 1.5, 40).astype(np.float32)},
                notes="The exporter slices and joins the gates of the recurrent weights in the graph.")


CASES = {"unet": unet, "translator": translator, "mlp": mlp, "mlp-external": mlp_external, "cnn": cnn, "cnn-dynamo": cnn_dynamo, "gpt": gpt}


# ------------------------------------------------------------------------------------------------------------- export

def export(case, path):
    names = list(case.inputs)
    example = tuple(torch.from_numpy(a[:2]) for a in case.inputs.values())
    if case.exporter.startswith("dynamo"):
        batch = torch.export.Dim("batch")
        torch.onnx.export(case.model, example, str(path), input_names=names, output_names=["logits"], opset_version=18,
                          dynamo=True, dynamic_shapes=tuple({0: batch} for _ in names), verbose=False,
                          external_data="external" in case.exporter, optimize="not optimized" not in case.exporter)
    else:
        torch.onnx.export(case.model, example, str(path), input_names=names, output_names=["logits"], opset_version=17,
                          dynamo=False, dynamic_axes={n: {0: "batch"} for n in [*names, "logits"]},
                          training=torch.onnx.TrainingMode.PRESERVE, do_constant_folding=False)
    proto = onnx.load(path, load_external_data=False)
    folders = (str(HERE) + "/", sysconfig.get_paths()["purelib"] + "/")
    for node in proto.graph.node:  # no paths of this machine in the stack traces
        for item in node.metadata_props:
            for prefix in folders:
                item.value = item.value.replace(prefix, "")
    path.write_bytes(proto.SerializeToString())
    return onnx.load(path)


def layouts(proto, model):
    """Initializer -> (parameter or buffer, function of it), by comparing values."""
    known = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    views = (lambda t: t, lambda t: t.T if t.ndim == 2 else t)
    found = {}
    for tensor in proto.graph.initializer:
        value = numpy_helper.to_array(tensor)
        for name, source in known.items():
            for view in views:
                array = view(source.detach())
                if value.dtype.kind == "f" and value.size == array.numel() and np.array_equal(
                        array.numpy().reshape(-1), value.reshape(-1)):
                    found.setdefault(tensor.name, (name, view))
    return found


# ----------------------------------------------------------------------------------------------------------- training

def make_optimizer(spec, parameters):
    kind, _, rest = spec.partition(":")
    options = {k: float(v) for k, v in (item.split("=") for item in rest.split(",") if item)}
    return {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[kind](parameters, **options)


def settings(text):
    """The key=value parts behind KIND:"""
    return dict(item.split("=") for item in text.partition(":")[2].split(",") if item)


def loss_of(case, logits, batch):
    options = settings(case.loss)
    if case.loss == "next-token":
        logits, labels = logits[:, :-1].flatten(0, 1), batch["input_ids"][:, 1:].flatten()
    elif logits.ndim == 3:
        logits, labels = logits.flatten(0, 1), batch["labels"].flatten()
    else:
        labels = batch["labels"]
    weight = torch.from_numpy(case.extra["class_weights"]).to(logits.dtype) if "weight" in options else None
    return F.cross_entropy(logits, labels, weight=weight, ignore_index=int(options.get("ignore_index", -100)),
                           label_smoothing=float(options.get("label_smoothing", 0)))


def schedule(case, optimizer):
    """--lr-schedule as PyTorch's LambdaLR."""
    if not case.run_args:
        return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    numbers = {k: float(v) for k, v in settings(case.run_args[1]).items()}
    warmup, total, least = numbers["warmup"], numbers["total"], numbers["min"]
    wave = lambda step: 0.5 * (1 + math.cos(math.pi * min(1, (step - warmup) / (total - warmup))))
    return torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: (step + 1) / warmup if step < warmup else least + (1 - least) * wave(step))


def train(case, spec, dtype):
    model = copy.deepcopy(case.model).to(dtype).train()
    optimizer = make_optimizer(spec, model.parameters())
    rate = schedule(case, optimizer)
    clip = float(case.args[case.args.index("--clip-norm") + 1]) if "--clip-norm" in case.args else None
    arrays = {**case.inputs, **case.labels}
    rows, losses = len(next(iter(arrays.values()))), []
    for step in range(STEPS):
        optimizer.zero_grad()
        total = 0.0
        for k in range(case.microbatches):
            index = [((step * case.microbatches + k) * case.batch + i) % rows for i in range(case.batch)]
            batch = {n: torch.from_numpy(a[index]) for n, a in arrays.items()}
            batch = {n: t.to(dtype) if t.is_floating_point() else t for n, t in batch.items()}
            loss = loss_of(case, model(*(batch[n] for n in case.inputs)), batch) / case.microbatches
            loss.backward()
            total += loss.item()
        if clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        rate.step()
        losses.append(total)
    return losses, model


def statistics(value):
    value = value.detach().double().reshape(-1)
    return {"l2": float(value.norm()), "mean": float(value.mean()), "first4": [float(v) for v in value[:4]]}


def train_runs(case, found, trainable):
    for spec in case.optimizers:
        losses64, model64 = train(case, spec, torch.float64)
        losses32, model32 = train(case, spec, torch.float32)
        named64, named32 = ({**dict(m.named_parameters()), **dict(m.named_buffers())} for m in (model64, model32))
        final, buffers = {}, {}
        for name, (source, view) in found.items():
            a, b = view(named64[source]).detach(), view(named32[source]).detach().double()
            if name in trainable:
                final[name] = {**statistics(a), "max_f32_difference": float((a - b).abs().max())}
            else:
                buffers[name] = statistics(a)
        run = {"optimizer": spec, "pipec_args": arguments(case, spec), "losses_f64": losses64, "losses_f32": losses32,
               "final": final}
        yield {**run, "buffers": buffers} if buffers else run


def arguments(case, spec):
    return ["--dim", f"batch={case.batch}", "--microbatches", str(case.microbatches), "--loss", case.loss, *case.args,
            "--optimizer", spec]


def build(name):
    torch.manual_seed(3)
    case = CASES[name]()
    folder = HERE / name
    folder.mkdir(exist_ok=True)
    proto = export(case, folder / "model.onnx")
    found = layouts(proto, case.model)
    parameters = {n for n, _ in case.model.named_parameters()}
    floats = [t.name for t in proto.graph.initializer if numpy_helper.to_array(t).dtype.kind == "f"]
    trainable = [n for n in floats if n in found and found[n][0] in parameters]
    # Every parameter is in the file, and once: copies would train untied.
    assert sorted(found[n][0] for n in trainable) == sorted(parameters), [found[n][0] for n in trainable]
    with torch.no_grad():
        logits = case.model(*(torch.from_numpy(a[:case.batch]) for a in case.inputs.values()))
    for key, array in {**case.inputs, **case.labels, **case.extra}.items():
        np.save(folder / f"{key}.npy", array)
    golden = {
        "name": name, "exporter": case.exporter, "opset": proto.opset_import[0].version,
        "batch_dimension": "symbolic: batch", "B": case.batch, "M": case.microbatches,
        "N": len(next(iter(case.inputs.values()))), "steps": STEPS,
        "data": {k: f"{k}.npy" for k in {**case.inputs, **case.labels}},
        "pipec_args": arguments(case, case.optimizers[0]),
        **({"run_args": list(case.run_args)} if case.run_args else {}),
        "logits": {"name": "logits",
                   "inference_of_first_microbatch": {"shape": list(logits.shape), **statistics(logits)}},
        "runs": list(train_runs(case, found, trainable)), "trainable": trainable,
        "frozen": [n for n in floats if n not in trainable],
        "layouts": {n: found[n][0] for n in trainable if found[n][0] != n}, "notes": case.notes}
    (folder / "golden.json").write_text(json.dumps(golden, indent=1) + "\n")
    size = sum(f.stat().st_size for f in folder.iterdir()) // 1024
    for run in golden["runs"]:
        a, b = run["losses_f64"], run["losses_f32"]
        print(f"{name} ({size} KB) {run['optimizer']}: {a[0]:.4f} -> {a[-1]:.4f}, "
              f"float32 off by {max(abs(x - y) / y for x, y in zip(b, a)):.1e}")


def add_rounded(name):
    torch.manual_seed(3)
    case, path = CASES[name](), HERE / name / "golden.json"
    if any(isinstance(module, nn.RNNBase) for module in case.model.modules()):
        return
    golden = json.loads(path.read_text())
    for run in golden["runs"]:
        with Rounded():
            run["losses_bf16"], _ = train(case, run["optimizer"], torch.float64)
        far = max(abs(a - b) / b for a, b in zip(run["losses_bf16"], run["losses_f64"]))
        print(f"{name} {run['optimizer']}: bfloat16 off by {far:.1e}")
    path.write_text(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    torch.set_num_threads(2)
    names = [a for a in sys.argv[1:] if not a.startswith("--")] or CASES
    for name in names:
        if "--bf16" not in sys.argv:
            build(name)
        add_rounded(name)
