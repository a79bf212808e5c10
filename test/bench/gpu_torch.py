"""The models of gpu_check.py's times in PyTorch alone: a training step, eager or compiled.

Usage: gpu_torch.py JSON, as Check.torch of gpu_check.py writes it; the last line is the median seconds of a step. "device"
and "pixels" are for tests without a GPU.
"""
import json
import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc, self.out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        parts = self.qkv(self.ln_1(x)).split(x.shape[-1], dim=-1)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(mixed.transpose(1, 2).flatten(2))
        return x + self.out(F.gelu(self.fc(self.ln_2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    """GPT-2 with an output layer of its own, as large_models.gpt3."""

    def __init__(self, layers, width, heads, length, vocabulary=50257):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.h = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.ln_f, self.lm_head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids):
        x = self.wte(ids) + self.wpe.weight
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))


class Bottleneck(nn.Module):
    def __init__(self, channels, middle, out, stride):
        super().__init__()
        def unit(a, b, size, stride=1):
            return nn.Sequential(nn.Conv2d(a, b, size, stride, size // 2, bias=False), nn.BatchNorm2d(b))
        self.a, self.b, self.c = unit(channels, middle, 1), unit(middle, middle, 3, stride), unit(middle, out, 1)
        self.short = unit(channels, out, 1, stride) if stride > 1 or channels != out else nn.Identity()

    def forward(self, x):
        return F.relu(self.c(F.relu(self.b(F.relu(self.a(x))))) + self.short(x))


class ResNet50(nn.Sequential):
    def __init__(self, classes=1000):
        layers, channels = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)], 64
        for middle, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
            for i in range(count):
                layers.append(Bottleneck(channels, middle, 4 * middle, stride if i == 0 else 1))
                channels = 4 * middle
        super().__init__(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))


def step_seconds(device, make_model, optimizer, loss_of, batches, count, precision, compiled, seconds_left):
    """Median seconds of a step of `count` microbatches, in bf16 by autocast; None when there is no time."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    synchronize = torch.cuda.synchronize if device == "cuda" else lambda: None
    model = make_model().to(device)
    parameters = optimizer(model.parameters())

    def forward(*batch):
        with torch.autocast(device, torch.bfloat16, enabled=precision == "bf16"):
            return loss_of(model, *batch)
    if compiled:
        forward = torch.compile(forward)
    batches = [tuple(part.to(device) for part in batch) for batch in batches]
    times = []
    for step in range(12):
        if seconds_left() < 20:
            break
        synchronize()
        start = time.perf_counter()
        for k in range(count):
            (forward(*batches[(step * count + k) % len(batches)]) / count).backward()
        parameters.step()
        parameters.zero_grad()
        synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times[3:]) if len(times) > 5 else None


def gpt2_seconds(device, shape, size, count, *rest):
    rows = torch.randint(shape["vocabulary"], (64, shape["length"]))
    return step_seconds(
        device, lambda: Gpt2(**shape), lambda weights: torch.optim.AdamW(weights, lr=1e-4, fused=True),
        lambda model, ids: F.cross_entropy(model(ids)[:, :-1].flatten(0, 1), ids[:, 1:].flatten()),
        [(rows[at:at + size],) for at in range(0, len(rows), size)], count, *rest)


def resnet_seconds(device, pixels, size, count, *rest):
    images, labels = torch.randn(size, 3, pixels, pixels), torch.randint(1000, (size,))
    return step_seconds(device, ResNet50, lambda weights: torch.optim.SGD(weights, lr=1e-4, momentum=0.9, fused=True),
                        lambda model, x, y: F.cross_entropy(model(x), y), [(images, labels)], count, *rest)


def main(how):
    end = time.monotonic() + how["seconds"]
    rest = how["size"], how["count"], how["precision"], how["compiled"], lambda: end - time.monotonic()
    device = how.get("device", "cuda")
    models = {"gpt2": lambda: gpt2_seconds(device, how["shape"], *rest),
              "resnet": lambda: resnet_seconds(device, how.get("pixels", 224), *rest)}
    print(json.dumps(models[how["model"]]()))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
