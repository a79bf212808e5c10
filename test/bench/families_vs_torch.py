#!/usr/bin/env python3
"""Training steps of model families at real shapes, pipec beside PyTorch eager in the same run, same threads.

Usage: families_vs_torch.py [--only REGEX] [--threads 1] [--steps 2] [--markdown] [--keep DIR [--prepare]]

Needs torch, torchvision, transformers, onnx, onnxscript, numpy (PyPI) and build/bin (or PIPEC_BIN). One line a family:
samples/s of both (median step), and the ratio; for a ratio below 1, where pipec's time goes, by Linux's perf where it
is installed: the share of each library routine, and of all generated kernels together. Both sides take turns in short
pieces; on a machine that does other work the numbers are worth little. --keep leaves models and plans in DIR and takes
them from there again; with --prepare that is all it does.
"""
import argparse
import collections
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

FAMILIES = {}
BIN = os.environ.get("PIPEC_BIN", os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../build/bin"))


def family(name, loss, batch, *inputs, exporter="torchscript"):
    """Inputs: (name, kind, shape without the batch); a number as kind is a count of tokens or classes."""
    def register(function):
        FAMILIES[name] = (function, loss, batch, inputs, exporter)
        return function
    return register


IMAGE = ("input", "float", (3, 224, 224))
CLASS = ("labels", 1000, ())


def vision(name, batch):
    @family(name, "cross-entropy", batch, IMAGE, CLASS)
    def make():
        import torchvision
        return getattr(torchvision.models, name)(weights=None)


for model, size in (("alexnet", 16), ("vgg16", 4), ("resnet50", 8), ("densenet121", 4), ("mobilenet_v2", 8),
                    ("mobilenet_v3_small", 8), ("efficientnet_b0", 4), ("convnext_tiny", 4), ("swin_t", 4),
                    ("vit_b_16", 2), ("shufflenet_v2_x1_0", 8), ("regnet_y_400mf", 8), ("resnext50_32x4d", 4)):
    vision(model, size)


@family("gpt2", "next-token", 4, ("input_ids", 50257, (128,)), exporter="dynamo")
def gpt2():
    import transformers as t
    return logits_of(t.GPT2LMHeadModel(t.GPT2Config(n_positions=128, tie_word_embeddings=False, use_cache=False)))


@family("llama-135m", "next-token", 2, ("input_ids", 49152, (128,)), exporter="dynamo")
def llama():
    import transformers as t
    return logits_of(t.LlamaForCausalLM(t.LlamaConfig(
        vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9,
        num_key_value_heads=3, max_position_embeddings=256, tie_word_embeddings=False, use_cache=False)))


@family("bert-base", "cross-entropy", 4, ("input_ids", 30522, (128,)), ("labels", 2, ()), exporter="dynamo")
def bert():
    import transformers as t
    return logits_of(t.BertForSequenceClassification(t.BertConfig(num_labels=2)))


@family("lstm", "next-token", 20, ("input_ids", 10000, (35,)))
def lstm():
    import torch

    class Lstm(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.output = torch.nn.Embedding(10000, 650), torch.nn.Linear(650, 10000)
            self.cells = torch.nn.LSTM(650, 650, 2, batch_first=True)

        def forward(self, input_ids):
            return self.output(self.cells(self.embedding(input_ids))[0])
    return Lstm()


@family("speech-gru", "cross-entropy", 8, ("sound", "float", (100, 80)), ("labels", 42, (100,)))
def speech():
    import torch

    class Speech(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.cells, self.output = torch.nn.GRU(80, 256, 3, batch_first=True, bidirectional=True), torch.nn.Linear(512, 42)

        def forward(self, sound):
            return self.output(self.cells(sound)[0])
    return Speech()


@family("t5-small", "cross-entropy", 4, ("input_ids", 32128, (64,)), ("decoder_input_ids", 32128, (64,)),
        ("labels", 32128, (64,)))
def t5():
    import transformers as t
    return logits_of(t.T5ForConditionalGeneration(t.T5Config(
        vocab_size=32128, d_model=512, d_ff=2048, num_layers=6, num_heads=8, tie_word_embeddings=False, use_cache=False)),
        "input_ids", "decoder_input_ids")


@family("deeplab-v3", "cross-entropy", 2, ("input", "float", (3, 192, 192)), ("labels", 21, (192, 192)))
def deeplab():
    import torch
    import torchvision

    class Pixels(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = torchvision.models.segmentation.deeplabv3_mobilenet_v3_large(weights=None, weights_backbone=None)

        def forward(self, x):
            return self.model(x)["out"]
    return Pixels()


@family("dcgan-generator", "mse", 16, ("noise", "float", (100, 1, 1)), ("labels", "float", (3, 64, 64)))
def generator():
    from torch import nn
    sizes, layers = (100, 512, 256, 128, 64), []
    for at, (a, b) in enumerate(zip(sizes, sizes[1:])):
        layers += [nn.ConvTranspose2d(a, b, 4, 2 if at else 1, 1 if at else 0, bias=False), nn.BatchNorm2d(b), nn.ReLU(True)]
    return nn.Sequential(*layers, nn.ConvTranspose2d(64, 3, 4, 2, 1), nn.Tanh())


@family("unet", "cross-entropy", 2, ("input", "float", (3, 128, 128)), ("labels", 21, (128, 128)))
def unet():
    import torch
    from torch import nn
    block = lambda a, b: nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(True),
                                       nn.Conv2d(b, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(True))

    class Unet(nn.Module):
        def __init__(self):
            super().__init__()
            sizes = (32, 64, 128, 256)
            self.down = nn.ModuleList(block(a, b) for a, b in zip((3, *sizes), sizes))
            self.ups = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, 2) for a, b in zip(sizes, sizes[1:]))
            self.up, self.head = nn.ModuleList(block(2 * a, a) for a in sizes[:-1]), nn.Conv2d(32, 21, 1)

        def forward(self, x):
            kept = []
            for i, part in enumerate(self.down):
                x = part(x if not i else nn.functional.max_pool2d(x, 2))
                kept.append(x)
            for i in (2, 1, 0):
                x = self.up[i](torch.cat((kept[i], self.ups[i](x)), 1))
            return self.head(x)
    return Unet()


@family("mixer-s16", "cross-entropy", 4, IMAGE, CLASS)
def mixer():
    from torch import nn
    mlp = lambda a, b: nn.Sequential(nn.Linear(a, b), nn.GELU(), nn.Linear(b, a))

    class Mixer(nn.Module):
        def __init__(self):
            super().__init__()
            self.patches, self.norm, self.head = nn.Conv2d(3, 512, 16, 16), nn.LayerNorm(512), nn.Linear(512, 1000)
            self.blocks = nn.ModuleList(nn.ModuleList((nn.LayerNorm(512), mlp(196, 256), nn.LayerNorm(512),
                                                       mlp(512, 2048))) for _ in range(8))

        def forward(self, input):
            x = self.patches(input).flatten(2).transpose(1, 2)
            for norm1, tokens, norm2, channels in self.blocks:
                x = x + tokens(norm1(x).transpose(1, 2)).transpose(1, 2)
                x = x + channels(norm2(x))
            return self.head(self.norm(x).mean(1))
    return Mixer()


@family("dlrm", "bce", 128, ("dense", "float", (13,)), ("sparse", 20000, (26,)), ("labels", "bits", (1,)))
def dlrm():
    import torch
    from torch import nn

    class Dlrm(nn.Module):
        def __init__(self):
            super().__init__()
            self.tables = nn.ModuleList(nn.Embedding(20000, 16) for _ in range(26))
            self.bottom = nn.Sequential(nn.Linear(13, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(),
                                        nn.Linear(256, 16), nn.ReLU())
            self.top = nn.Sequential(nn.Linear(16 + 27 * 27, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(),
                                     nn.Linear(256, 1))

        def forward(self, dense, sparse):
            x = self.bottom(dense)
            z = torch.stack([x, *(table(sparse[:, i]) for i, table in enumerate(self.tables))], 1)
            return self.top(torch.cat((x, torch.bmm(z, z.transpose(1, 2)).flatten(1)), 1))
    return Dlrm()


def logits_of(model, *names):
    """A model of transformers that takes inputs by position and returns logits alone."""
    import torch

    class Logits(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, *inputs):
            return self.model(**dict(zip(names or ("input_ids",), inputs))).logits
    return Logits()


# ------------------------------------------------------------------------------------------- both sides

def prepare(name, folder):
    """(model without dropout, arrays); the ONNX file and the arrays are in the folder."""
    import numpy as np
    import torch
    make, _, batch, inputs, exporter = FAMILIES[name]
    torch.manual_seed(0)
    model, random, arrays = make(), np.random.default_rng(1), {}
    for module in model.modules():
        for key, value in vars(module).items():
            if isinstance(value, float) and ("drop" in key or key == "p"):
                setattr(module, key, 0.0)
    for key, kind, shape in inputs:
        shape = (2 * batch, *shape)
        arrays[key] = (random.standard_normal(shape).astype("float32") if kind == "float" else
                       random.integers(0, 2, shape).astype("float32") if kind == "bits" else
                       random.integers(0, kind, shape))
        np.save(f"{folder}/{key}.npy", arrays[key])
    names = [key for key in arrays if key != "labels"]
    example = tuple(torch.from_numpy(arrays[key][:batch]) for key in names)
    path = f"{folder}/model.onnx"
    if os.path.exists(path):
        pass
    elif exporter == "dynamo":
        torch.onnx.export(model.eval(), example, path, dynamo=True, opset_version=18, input_names=names,
                          output_names=["logits"], external_data=True, verbose=False)
    else:
        torch.onnx.export(model, example, path, dynamo=False, opset_version=17, input_names=names,
                          output_names=["logits"], do_constant_folding=False,
                          training=torch.onnx.TrainingMode.PRESERVE)
    return model, {key: torch.from_numpy(array) for key, array in arrays.items()}


def torch_seconds(name, model, arrays, threads, steps):
    import torch
    import torch.nn.functional as F
    _, loss, batch, _, _ = FAMILIES[name]
    torch.set_num_threads(threads)
    torch.set_flush_denormal(True) # as pipec has it: a comparison of kernels
    optimizer, seconds = torch.optim.SGD(model.train().parameters(), lr=1e-3, momentum=0.9), []
    for step in range(steps + 1):
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        part = {key: array[step % 2 * batch:(step % 2 + 1) * batch] for key, array in arrays.items()}
        out = model(*(value for key, value in part.items() if key != "labels"))
        if loss == "next-token":
            value = F.cross_entropy(out[:, :-1].flatten(0, 1), part["input_ids"][:, 1:].flatten())
        elif loss == "bce":
            value = F.binary_cross_entropy_with_logits(out, part["labels"])
        elif loss == "mse":
            value = F.mse_loss(out, part["labels"])
        elif out.dim() == 3:
            value = F.cross_entropy(out.flatten(0, 1), part["labels"].flatten())
        else:
            value = F.cross_entropy(out, part["labels"])
        value.backward()
        optimizer.step()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[1:])


def compile_plan(name, folder):
    if os.path.exists(f"{folder}/plan"):
        return
    loss = FAMILIES[name][1]
    loss += "" if loss == "next-token" else ":label=labels"
    subprocess.run([f"{BIN}/pipec", f"{folder}/model.onnx", "--cpus", "1", "--microbatches", "1", "--loss", loss,
                    "--optimizer", "sgd:lr=1e-3,momentum=0.9", "--quiet", "-o", f"{folder}/plan"], check=True)


def pipec_command(folder, threads, steps):
    data = [part for file in sorted(os.listdir(folder)) if file.endswith(".npy")
            for part in ("--data", f"{file[:-4]}={folder}/{file}")]
    return [f"{BIN}/pipec-run", f"{folder}/plan", *data, "--steps", str(steps + 1), "--threads", str(threads), "--quiet",
            "--metrics", f"{folder}/metrics.jsonl"]


def pipec_seconds(folder, threads, steps):
    subprocess.run(pipec_command(folder, threads, steps), check=True)
    lines = [json.loads(line) for line in open(f"{folder}/metrics.jsonl")]
    return statistics.median(line["seconds"] for line in lines[1:-1])


def responsible(folder, threads):
    """The three largest shares of pipec's time."""
    if not shutil.which("perf"):
        return "(perf is not installed)"
    record = ["perf", "record", "-q", "-o", f"{folder}/perf.data", *pipec_command(folder, threads, 2)]
    subprocess.run(record, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    text = subprocess.run(["perf", "report", "-q", "-i", f"{folder}/perf.data", "--sort", "dso,symbol", "--percent-limit",
                           "0.2"], capture_output=True, text=True).stdout
    shares = collections.Counter()
    for percent, library, symbol in re.findall(r"^\s*([\d.]+)%\s+(\S+)\s+\[[.k]\]\s+(.*\S)", text, re.M):
        plain = re.sub(r"\(.*|<.*|\[clone.*", "", symbol.replace("(anonymous namespace)::", "")).split("::")[-1].strip()
        if plain.startswith("0x"): # a library without symbols
            plain = library
        shares["generated kernels" if library.startswith("stage") else plain] += float(percent)
    return ", ".join(f"{what} {share:.0f} %" for what, share in shares.most_common(3))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="REGEX")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--keep", metavar="DIR")
    parser.add_argument("--prepare", action="store_true")
    options = parser.parse_args()
    if options.prepare and not options.keep:
        parser.error("--prepare leaves models and plans in the folder of --keep DIR: give it")
    if options.markdown:
        print("| family | batch | PyTorch samples/s | pipec samples/s | ratio | where the time goes, below 1 |\n"
              "|---|---|---|---|---|---|")
    for name in FAMILIES:
        if not re.search(options.only, name):
            continue
        batch = FAMILIES[name][2]
        with tempfile.TemporaryDirectory() as temporary:
            folder = os.path.join(options.keep or temporary, name)
            os.makedirs(folder, exist_ok=True)
            try:
                model, arrays = prepare(name, folder)
                compile_plan(name, folder)
                if options.prepare:
                    continue
                # Turns, so that what else the machine does meets both.
                pairs = [(torch_seconds(name, model, arrays, options.threads, options.steps),
                          pipec_seconds(folder, options.threads, options.steps)) for _ in range(2)]
                theirs, ours = (min(column) for column in zip(*pairs))
                why = responsible(folder, options.threads) if ours > theirs else ""
                cells = [name, str(batch), f"{batch / theirs:.2f}", f"{batch / ours:.2f}", f"{theirs / ours:.2f}", why]
            except Exception as error:
                cells = [name, str(batch), "", "", "", f"{type(error).__name__}: {error}"[:120]]
        print("| " + " | ".join(cells) + " |" if options.markdown else "  ".join(f"{c:>12}" for c in cells), flush=True)


if __name__ == "__main__":
    main()
