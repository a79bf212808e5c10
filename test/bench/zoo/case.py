"""What a family of the zoo is: a small model with random weights, its data, its loss."""
import itertools
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import nn

FAMILIES = {}
ROWS = 24


@dataclass
class Case:
    model: nn.Module
    inputs: dict                 # graph input -> array of ROWS rows
    labels: dict = field(default_factory=dict)
    loss: str = "cross-entropy"
    optimizer: str = "sgd:lr=0.05,momentum=0.9"
    batch: int = 4
    microbatches: int = 2
    dynamic: tuple = ()          # names of further symbolic axes: ("sequence",) makes axis 1 of every input symbolic
    outputs: int = 1             # the first is the logits
    flags: tuple = ()            # further options of pipec
    tolerance: float = 1e-4
    script: bool = False         # exported as a script of TorchScript, whose loops and conditions stay

    def __post_init__(self):
        self.model = freshen(self.model)

    @property
    def has_batch_norm(self):
        return any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in self.model.modules())


def family(group, name=None):
    """Registers a function without arguments that makes a Case."""
    def register(function):
        FAMILIES[name or function.__name__.replace("_", "-")] = (group, function)
        return function
    return register


def freshen(model, seed=0):
    """No dropout, no padding rows, and no constant initial values: the dynamo exporter merges equal initializers."""
    generator = torch.Generator().manual_seed(seed)
    for module in model.modules():
        for name, value in vars(module).items():
            if isinstance(value, float) and ("drop" in name or name == "p" and "Drop" in type(module).__name__ or
                                             type(module).__name__ == "StochasticDepth"):
                setattr(module, name, 0.0)
        if isinstance(module, nn.Embedding):
            module.padding_idx = None
    with torch.no_grad():
        for name, value in itertools.chain(model.named_parameters(), model.named_buffers()):
            if not value.is_floating_point() or not value.numel():
                continue
            if name.endswith("running_var"):
                value.copy_(torch.rand(value.shape, generator=generator) + 0.5)
            elif name.endswith("running_mean"):
                value.copy_(torch.randn(value.shape, generator=generator) * 0.1)
            elif isinstance(value, nn.Parameter) and (value == value.flatten()[0]).all():
                value.add_(torch.randn(value.shape, generator=generator) * 0.02)
    return model.eval()


def random(seed=1):
    return np.random.default_rng(seed)


def tokens(length, vocabulary, low=3, seed=1, period=4):
    """Rows that repeat a short random pattern."""
    pattern = random(seed).integers(low, vocabulary, (ROWS, period))
    return np.tile(pattern, (1, -(-length // period)))[:, :length].astype(np.int64)


def classes(count, seed=2):
    return random(seed).integers(0, count, ROWS).astype(np.int64)


def images(shape, count, seed=1):
    """One random image per class plus noise, and the classes."""
    r, labels = random(seed), classes(count)
    means = r.standard_normal((count, *shape))
    return (means[labels] + 0.5 * r.standard_normal((ROWS, *shape))).astype(np.float32), labels


def padding(length, seed=3):
    """1 where a token is, 0 behind the end of its row."""
    ends = random(seed).integers(length // 2, length + 1, ROWS)
    return (np.arange(length)[None] < ends[:, None]).astype(np.int64)


class Logits(nn.Module):
    """The logits of a model of transformers, and its keys and values when `cache` is set; takes inputs by position."""

    def __init__(self, model, names, cache=False, take="logits", **fixed):
        super().__init__()
        self.model, self.names, self.cache, self.take, self.fixed = model, names, cache, take, fixed

    def forward(self, *inputs):
        out = self.model(**dict(zip(self.names, inputs)), use_cache=True, **self.fixed) if self.cache \
            else self.model(**dict(zip(self.names, inputs)), **self.fixed)
        if not self.cache:
            return out[self.take] if isinstance(self.take, (int, str)) else out
        layers = out.past_key_values
        pairs = [(layer.keys, layer.values) for layer in layers.layers] if hasattr(layers, "layers") else layers
        return (out.logits, *(tensor for pair in pairs for tensor in pair[:2]))
