#!/usr/bin/env python3
"""Small Paddle networks as paddle2onnx writes them, with the losses Paddle computes: folders for elsewhere.py.

Usage: paddle_models.py FOLDER [--only REGEX]     needs paddlepaddle, paddle2onnx (PyPI)
"""
import os

os.environ.update(OMP_NUM_THREADS="1", GLOG_minloglevel="3")
import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import nn

from elsewhere import MICROBATCHES, ROWS, STEPS, make_all, rows_of, save

MODELS, V, T = {}, 50, 10


def model(*inputs, label, opset=17, rate=0.05):
    """Registers a Layer; inputs are (name, shape of a row, number of values or None)."""
    def register(layer):
        MODELS[layer.__name__.lower()] = (layer, inputs, label, opset, rate)
        return layer
    return register


PICTURE, WORDS = ("x", (3, 16, 16), None), ("words", (T,), V)


@model(("x", (8,), None), label=4)
class Dense(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 12, bias_attr=False), nn.Silu(), nn.LayerNorm(12), nn.Linear(12, 4))


@model(PICTURE, label=5, opset=13)
class Convolutions(nn.Layer):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2D(3, 8, 3, padding=1), nn.Conv2D(8, 12, 3, 2, groups=4)
        self.norm, self.head = nn.GroupNorm(4, 8), nn.Linear(12, 5)

    def forward(self, x):
        x = F.max_pool2d(F.hardswish(self.norm(self.a(x))), 2)
        return self.head(F.adaptive_avg_pool2d(F.relu6(self.b(x)), 1).flatten(1))


@model(PICTURE, label=(3, 16, 16), rate=0.02)
class Upsampler(nn.Layer):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Conv2D(3, 8, 4, 2, 1), nn.Conv2DTranspose(8, 8, 4, 2, 1), nn.Conv2D(8, 3, 3, padding=1)

    def forward(self, x):
        x = F.interpolate(F.elu(self.a(x)), size=[15, 15], mode="bilinear", align_corners=True)
        return self.c(F.pixel_shuffle(F.interpolate(F.tanh(self.b(x)), size=[16, 16], mode="nearest"), 1))


@model(WORDS, label=4)
class Lstm(nn.Layer):
    def __init__(self):
        super().__init__()
        self.e, self.cells, self.head = nn.Embedding(V, 8), nn.LSTM(8, 10, num_layers=2, direction="bidirect"), nn.Linear(20, 4)

    def forward(self, words):
        return self.head(self.cells(self.e(words))[0].mean(1))


@model(WORDS, label=4)
class Gru(nn.Layer):
    def __init__(self):
        super().__init__()
        self.e, self.cells, self.head = nn.Embedding(V, 8), nn.GRU(8, 10), nn.Linear(10, 4)

    def forward(self, words):
        return self.head(self.cells(self.e(words))[0][:, -1])


@model(WORDS, label=V)
class Transformer(nn.Layer):
    def __init__(self):
        super().__init__()
        self.e, self.head = nn.Embedding(V, 16), nn.Linear(16, V)
        self.place = self.create_parameter([T, 16])
        self.body = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 32, 0.0, "gelu"), 2)

    def forward(self, words):
        mask = paddle.triu(paddle.full([T, T], -1e9), 1)
        return self.head(self.body(self.e(words) + self.place, mask)[:, -1])


@model(("user", (), V), ("item", (), V), ("x", (6,), None), label="bits")
class Recommender(nn.Layer):
    def __init__(self):
        super().__init__()
        self.users, self.items, self.deep = nn.Embedding(V, 8), nn.Embedding(V, 8), nn.Linear(6, 8)

    def forward(self, user, item, x):
        u, i = self.users(user), self.items(item)
        return (u * i).sum(-1, keepdim=True) + F.cosine_similarity(u, F.sigmoid(self.deep(x)), 1).unsqueeze(-1)


def arrays_of(inputs, label):
    random = np.random.default_rng(1)
    arrays = {name: random.standard_normal((ROWS, *shape)).astype("float32") if values is None else
              random.integers(0, values, (ROWS, *shape)) for name, shape, values in inputs}
    arrays["labels"] = (random.integers(0, 2, (ROWS, 1)).astype("float32") if label == "bits" else
                        random.integers(0, label, ROWS) if isinstance(label, int) else
                        random.random((ROWS, *label)).astype("float32"))
    return arrays


def loss_of(label, logits, labels):
    if label == "bits":
        return F.binary_cross_entropy_with_logits(logits, labels)
    return F.cross_entropy(logits, labels) if isinstance(label, int) else F.mse_loss(logits, labels)


def train(net, names, arrays, label, rate):
    """The loss of every step: SGD with momentum as PyTorch has it."""
    net.train()
    optimizer, losses = paddle.optimizer.Momentum(rate, 0.9, net.parameters()), []
    for step in range(STEPS):
        total = 0.0
        for k in range(MICROBATCHES):
            rows = rows_of(step, k)
            out = net(*(paddle.to_tensor(arrays[name][rows]) for name in names))
            loss = loss_of(label, out, paddle.to_tensor(arrays["labels"][rows])) / MICROBATCHES
            loss.backward()
            total += float(loss)
        optimizer.step()
        optimizer.clear_grad()
        losses.append(total)
    return losses


def make(name, folder):
    layer, inputs, label, opset, rate = MODELS[name]
    paddle.seed(0)
    net, arrays, names = layer(), arrays_of(inputs, label), [key for key, _, _ in inputs]
    for parameter in net.parameters(): # no two equal ones, and none that is 0
        parameter.set_value(parameter + 0.02 * paddle.randn(parameter.shape))
    specs = [paddle.static.InputSpec([None, *shape], str(arrays[key].dtype), key) for key, shape, _ in inputs]
    net.eval()
    paddle.onnx.export(net, f"{folder}/model", input_spec=specs, opset_version=opset)
    count = sum(int(np.prod(p.shape)) for p in net.parameters())
    save(folder, arrays, of="Paddle", exporter=f"paddle2onnx, opset {opset}", losses=train(net, names, arrays, label, rate), elements=count,
         inputs=names, loss="bce" if label == "bits" else "cross-entropy" if isinstance(label, int) else "mse", rate=rate)


if __name__ == "__main__":
    make_all(__doc__, MODELS, "paddle-", make)
