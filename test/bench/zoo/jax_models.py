#!/usr/bin/env python3
"""Small networks of Flax as jax2onnx writes them, with the losses JAX computes: folders for elsewhere.py.

Usage: jax_models.py FOLDER [--only REGEX]      needs flax, jax2onnx (PyPI)
"""
import os

os.environ["OMP_NUM_THREADS"] = "1"
import jax
import jax.numpy as jnp
import numpy as np
import onnx
from flax import nnx
from jax2onnx import to_onnx

from elsewhere import MICROBATCHES, ROWS, STEPS, make_all, rows_of, save

MODELS, V, T = {}, 50, 8


def model(name, shape, values, label, rate=0.05):
    """Registers a module; its input has rows of a shape, of numbers or of so many values."""
    def register(module):
        MODELS[module.__name__.lower()] = (module, name, shape, values, label, rate)
        return module
    return register


@model("x", (16, 16, 3), None, 5)
class Convolutions(nnx.Module):
    def __init__(self, r):
        self.a, self.b = nnx.Conv(3, 8, (3, 3), strides=2, rngs=r), nnx.Conv(8, 12, (3, 3), feature_group_count=4, rngs=r)
        self.norm, self.head = nnx.GroupNorm(12, num_groups=3, rngs=r), nnx.Linear(12, 5, rngs=r)

    def __call__(self, x):
        x = nnx.max_pool(nnx.gelu(self.a(x)), window_shape=(2, 2), strides=(2, 2))
        return self.head(nnx.silu(self.norm(self.b(x))).mean((1, 2)))


@model("words", (T,), V, V)
class Transformer(nnx.Module):
    def __init__(self, r):
        self.words, self.places = nnx.Embed(V, 16, rngs=r), nnx.Embed(T, 16, rngs=r)
        self.attention = nnx.MultiHeadAttention(4, 16, decode=False, rngs=r)
        self.n, self.m = nnx.LayerNorm(16, rngs=r), nnx.RMSNorm(16, rngs=r)
        self.up, self.down, self.head = nnx.Linear(16, 32, rngs=r), nnx.Linear(32, 16, rngs=r), nnx.Linear(16, V, rngs=r)

    def __call__(self, words):
        x = self.words(words) + self.places(jnp.arange(T))
        x = x + self.attention(self.n(x))
        return self.head((x + self.down(nnx.relu(self.up(self.m(x)))))[:, -1])


@model("x", (T, 6), None, 4)
class Scanned(nnx.Module):
    """A recurrence by jax.lax.scan."""

    def __init__(self, r):
        self.a, self.u = nnx.Linear(6, 10, rngs=r), nnx.Linear(10, 10, use_bias=False, rngs=r)
        self.head = nnx.Linear(10, 4, rngs=r)

    def __call__(self, x):
        step = lambda h, e: (jnp.tanh(e + self.u(h)), None)
        h, _ = jax.lax.scan(step, jnp.zeros((x.shape[0], 10)), jnp.swapaxes(self.a(x), 0, 1))
        return self.head(h)


def loss_of(net, x, labels):
    chosen = jnp.take_along_axis(jax.nn.log_softmax(net(x)), labels[:, None], 1)
    return -chosen.mean()


def train(net, x, labels, rate):
    """The loss of every step, SGD with momentum as PyTorch has it, and the number of weights."""
    graph, weights, rest = nnx.split(net, nnx.Param, ...)
    value = jax.value_and_grad(lambda w, x, y: loss_of(nnx.merge(graph, w, rest), x, y))
    moments, losses = jax.tree.map(jnp.zeros_like, weights), []
    for step in range(STEPS):
        rows = [rows_of(step, k) for k in range(MICROBATCHES)]
        parts = [value(weights, x[r], labels[r]) for r in rows]
        losses.append(float(sum(loss for loss, _ in parts)) / MICROBATCHES)
        slopes = jax.tree.map(lambda *g: sum(g) / MICROBATCHES, *(g for _, g in parts))
        moments = jax.tree.map(lambda m, g: 0.9 * m + g, moments, slopes)
        weights = jax.tree.map(lambda w, m: w - rate * m, weights, moments)
    return losses, sum(w.size for w in jax.tree.leaves(weights))


def make(name, folder):
    module, key, shape, values, label, rate = MODELS[name]
    random = np.random.default_rng(1)
    net = module(nnx.Rngs(0))
    noise = lambda w: w + 0.02 * random.standard_normal(w.shape).astype("float32") if w.dtype == jnp.float32 else w
    graph, weights, rest = nnx.split(net, nnx.Param, ...)
    net = nnx.merge(graph, jax.tree.map(noise, weights), rest)
    x = random.standard_normal((ROWS, *shape)).astype("float32") if values is None else \
        random.integers(0, values, (ROWS, *shape)).astype("int32")
    labels = random.integers(0, label, ROWS)
    onnx.save(to_onnx(net, [jax.ShapeDtypeStruct(("B", *shape), x.dtype)], input_names=[key]), f"{folder}/model.onnx")
    losses, count = train(net, x, labels, rate)
    save(folder, {key: x, "labels": labels}, of="JAX", exporter="jax2onnx, opset 23", losses=losses, elements=count, inputs=[key],
         loss="cross-entropy", rate=rate)


if __name__ == "__main__":
    make_all(__doc__, MODELS, "jax-", make)
