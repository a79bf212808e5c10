"""Recurrent networks, recommenders, plain transformers of PyTorch, and models with their own loss."""
import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from case import ROWS, Case, classes, family, padding, random, tokens

V, T = 64, 12
R = "recurrent"


class Recurrent(nn.Module):
    """A language model or a classifier over the last states."""

    def __init__(self, kind, classes=0, **more):
        super().__init__()
        self.embedding, self.classes = nn.Embedding(V, 16), classes
        self.cells = kind(16, 20, batch_first=True, **more)
        width = 20 * (2 if self.cells.bidirectional else 1)
        self.output = nn.Linear(width, classes or V)

    def forward(self, input_ids):
        y, states = self.cells(self.embedding(input_ids))
        if not self.classes:
            return self.output(y)
        h = states[0] if isinstance(states, tuple) else states
        return self.output(torch.cat((h[-2], h[-1]), 1) if self.cells.bidirectional else h[-1])


def recurrent_lm(kind, **more):
    return Case(Recurrent(kind, **more), {"input_ids": tokens(T, V)}, loss="next-token",
                optimizer="sgd:lr=0.3,momentum=0.9")


def recurrent_classifier(kind, **more):
    labels = classes(5)
    ids = tokens(T, V)
    ids[:, 2] = 10 + labels
    return Case(Recurrent(kind, 5, **more), {"input_ids": ids}, {"labels": labels}, optimizer="sgd:lr=0.3,momentum=0.9")


family(R, "lstm")(lambda: recurrent_lm(nn.LSTM, num_layers=2))
family(R, "lstm-bidirectional")(lambda: recurrent_classifier(nn.LSTM, num_layers=2, bidirectional=True))
family(R, "lstm-no-bias")(lambda: recurrent_lm(nn.LSTM, bias=False))
family(R, "gru")(lambda: recurrent_lm(nn.GRU, num_layers=2))
family(R, "gru-bidirectional")(lambda: recurrent_classifier(nn.GRU, bidirectional=True))
family(R, "rnn-tanh")(lambda: recurrent_lm(nn.RNN))
family(R, "rnn-relu-bidirectional")(lambda: recurrent_classifier(nn.RNN, nonlinearity="relu", bidirectional=True))


class Cells(nn.Module):
    """An LSTM cell called step by step, as exported loops are unrolled."""

    def __init__(self):
        super().__init__()
        self.embedding, self.cell, self.output = nn.Embedding(V, 16), nn.LSTMCell(16, 20), nn.Linear(20, V)

    def forward(self, input_ids):
        x = self.embedding(input_ids)
        h = c = torch.zeros(x.shape[0], 20)
        steps = []
        for i in range(T):
            h, c = self.cell(x[:, i], (h, c))
            steps.append(h)
        return self.output(torch.stack(steps, 1))


family(R, "lstm-cells")(lambda: Case(Cells(), {"input_ids": tokens(T, V)}, loss="next-token",
                                     optimizer="sgd:lr=0.3,momentum=0.9"))


class Gnmt(nn.Module):
    """An encoder whose first layer reads both ways, a decoder whose attention feeds every layer; residuals between."""

    def __init__(self, width=16, layers=3):
        super().__init__()
        self.source, self.target = nn.Embedding(V, width), nn.Embedding(V, width)
        self.both = nn.LSTM(width, width // 2, batch_first=True, bidirectional=True)
        self.encoder = nn.ModuleList(nn.LSTM(width, width, batch_first=True) for _ in range(layers - 1))
        self.first = nn.LSTM(width, width, batch_first=True)
        self.query, self.key, self.score = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.weight = nn.Parameter(torch.randn(width) * 0.3)
        self.decoder = nn.ModuleList(nn.LSTM(2 * width, width, batch_first=True) for _ in range(layers - 1))
        self.output = nn.Linear(width, V)

    def forward(self, source, source_mask, target):
        memory = self.both(self.source(source))[0]
        for at, layer in enumerate(self.encoder):
            y = layer(memory)[0]
            memory = memory + y if at else y
        h = self.first(self.target(target))[0]
        scores = torch.tanh(self.query(h)[:, :, None] + self.key(memory)[:, None]) @ self.weight
        scores = scores.masked_fill(source_mask[:, None] == 0, float("-inf"))
        context = torch.softmax(scores, -1) @ memory
        for at, layer in enumerate(self.decoder):
            y = layer(torch.cat((h, context), -1))[0]
            h = h + y if at else y
        return self.output(h)


@family(R)
def gnmt():
    goal = tokens(10, V, seed=7)
    return Case(Gnmt(), {"source": tokens(T, V), "source_mask": padding(T),
                         "target": np.concatenate([np.zeros((ROWS, 1), np.int64), goal[:, :-1]], 1)},
                {"labels": goal}, optimizer="sgd:lr=0.3,momentum=0.9")


# Recommenders.

class Dlrm(nn.Module):
    def __init__(self, tables=3, width=8, hot=4):
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(40, width, mode="sum") for _ in range(tables))
        self.bottom = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, width), nn.ReLU())
        pairs = (tables + 1) * tables // 2
        self.top = nn.Sequential(nn.Linear(width + pairs, 16), nn.ReLU(), nn.Linear(16, 1))
        self.register_buffer("rows", torch.tensor([i for i in range(tables + 1) for j in range(i)]))
        self.register_buffer("columns", torch.tensor([j for i in range(tables + 1) for j in range(i)]))

    def forward(self, dense, sparse):
        x = self.bottom(dense)
        bags = [table.weight[sparse[:, i]].sum(1) for i, table in enumerate(self.tables)]
        z = torch.stack((x, *bags), 1)
        products = torch.bmm(z, z.transpose(1, 2))[:, self.rows, self.columns]
        return self.top(torch.cat((x, products), 1))


@family("recommender")
def dlrm():
    dense = random().standard_normal((ROWS, 6)).astype(np.float32)
    return Case(Dlrm(), {"dense": dense, "sparse": random(3).integers(0, 40, (ROWS, 3, 4))},
                {"labels": (dense[:, :1] > 0).astype(np.float32)}, loss="bce", batch=6, optimizer="sgd:lr=0.2")


class WideAndDeep(nn.Module):
    def __init__(self):
        super().__init__()
        self.users, self.items, self.wide = nn.Embedding(30, 8), nn.Embedding(50, 8), nn.Embedding(50, 1)
        self.bias, self.scale = nn.Parameter(torch.tensor(0.1)), nn.Parameter(torch.tensor([1.2]))
        self.deep = nn.Sequential(nn.Linear(16, 16), nn.SELU(), nn.BatchNorm1d(16), nn.Linear(16, 8), nn.Mish())

    def forward(self, user, item):
        u, i = self.users(user), self.items(item)
        return (F.cosine_similarity(u, i) + self.wide(item)[:, 0] + self.deep(torch.cat((u, i), 1)).sum(1)) * self.scale \
            + self.bias


@family("recommender")
def wide_and_deep():
    users, items = random().integers(0, 30, ROWS), random(3).integers(0, 50, ROWS)
    return Case(WideAndDeep(), {"user": users, "item": items}, {"labels": ((users + items) % 2).astype(np.float32)},
                loss="bce", batch=8, microbatches=2)


# Transformers that PyTorch brings.

class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 4, 32, 0.0, "gelu", batch_first=True, norm_first=True)
        self.embedding, self.encoder = nn.Embedding(V, 16), nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.output = nn.Linear(16, V)
        angles = torch.arange(T)[:, None] / 10000 ** (torch.arange(0, 16, 2) / 16)[None]
        self.register_buffer("positions", torch.cat((angles.sin(), angles.cos()), 1))

    def forward(self, input_ids):
        mask = torch.triu(torch.full((T, T), float("-inf")), 1)
        return self.output(self.encoder(self.embedding(input_ids) * math.sqrt(16) + self.positions, mask))


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.source, self.target = nn.Embedding(V, 16), nn.Embedding(V, 16)
        self.body = nn.Transformer(16, 4, 2, 2, 32, 0.0, batch_first=True)
        self.output = nn.Linear(16, V)

    def forward(self, source, target):
        length = target.shape[1]
        mask = torch.triu(torch.ones(length, length, dtype=torch.bool), 1)
        return self.output(self.body(self.source(source), self.target(target), tgt_mask=mask))


P = "transformer of PyTorch"
family(P, "transformer-encoder")(lambda: Case(Encoder(), {"input_ids": tokens(T, V)}, loss="next-token",
                                              flags=("--untie",)))


@family(P)
def transformer():
    goal = tokens(10, V, seed=7)
    return Case(Translator(), {"source": tokens(T, V), "target": np.roll(goal, 1, 1)}, {"labels": goal},
                flags=("--untie",))


# Others.

class Tcn(nn.Module):
    """Causal dilated convolutions with weight normalization."""

    def __init__(self):
        super().__init__()
        norm = torch.nn.utils.parametrizations.weight_norm
        self.embedding, self.output = nn.Embedding(V, 16), nn.Linear(16, V)
        self.layers = nn.ModuleList(norm(nn.Conv1d(16, 16, 3, dilation=d)) for d in (1, 2, 4))

    def forward(self, input_ids):
        x = self.embedding(input_ids).transpose(1, 2)
        for layer, d in zip(self.layers, (1, 2, 4)):
            x = x + F.relu(layer(F.pad(x, (2 * d, 0))))
        return self.output(x.transpose(1, 2))


family("other", "tcn")(lambda: Case(Tcn(), {"input_ids": tokens(T, V)}, loss="next-token"))


class Contrastive(nn.Module):
    """Two views, normalized, against each other; the model computes the loss itself."""

    def __init__(self):
        super().__init__()
        self.net, self.temperature = nn.Sequential(nn.Linear(12, 24), nn.ELU(), nn.Linear(24, 8)), \
            nn.Parameter(torch.tensor(2.0))

    def forward(self, first, second):
        a, b = F.normalize(self.net(first), dim=1), F.normalize(self.net(second), dim=1)
        scores = torch.log_softmax(a @ b.t() * self.temperature.exp(), 1)
        return -scores.diagonal().mean()


@family("other")
def contrastive():
    x = random().standard_normal((ROWS, 12)).astype(np.float32)
    y = x + 0.3 * random(2).standard_normal((ROWS, 12)).astype(np.float32)
    return Case(Contrastive(), {"first": x, "second": y}, loss="output", batch=6)


class Graph(nn.Module):
    """Two layers of a graph network over dense adjacency matrices, with einsum."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.head = nn.Linear(6, 16), nn.Linear(16, 16), nn.Linear(16, 3)

    def forward(self, nodes, edges):
        x = F.relu(torch.einsum("bij,bjf->bif", edges, self.a(nodes)))
        x = F.relu(torch.einsum("bij,bjf->bif", edges, self.b(x)))
        return self.head(x.amax(1))


@family("other")
def graph_network():
    edges = (random(2).random((ROWS, 8, 8)) < 0.4) + np.eye(8)
    return Case(Graph(), {"nodes": random().standard_normal((ROWS, 8, 6)).astype(np.float32),
                          "edges": (edges / edges.sum(2, keepdims=True)).astype(np.float32)}, {"labels": classes(3)})


class Field(nn.Module):
    """A radiance field's network: sines and cosines of the position, a connection over half of the layers."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(15, 24), nn.Linear(39, 24), nn.Linear(24, 3)

    def forward(self, position):
        waves = [f(position * 2.0 ** i) for i in range(2) for f in (torch.sin, torch.cos)]
        x = torch.cat((position, *waves), -1)
        return torch.sigmoid(self.c(F.relu(self.b(torch.cat((x, F.relu(self.a(x))), -1)))))


@family("other")
def radiance_field():
    p = random().uniform(-1, 1, (ROWS, 20, 3)).astype(np.float32)
    return Case(Field(), {"position": p}, {"targets": np.abs(np.sin(3 * p)).astype(np.float32)}, loss="mse",
                optimizer="sgd:lr=0.3,momentum=0.9")


class Experts(nn.Module):
    """A mixture of experts, all computed, weighed by the two largest gates."""

    def __init__(self):
        super().__init__()
        self.embedding, self.gate, self.output = nn.Embedding(V, 16), nn.Linear(16, 4), nn.Linear(16, V)
        self.up, self.down = nn.Parameter(torch.randn(4, 16, 32) * 0.2), nn.Parameter(torch.randn(4, 32, 16) * 0.2)

    def forward(self, input_ids):
        x = self.embedding(input_ids)
        top, chosen = self.gate(x).topk(2, -1)
        weights = torch.zeros_like(self.gate(x)).scatter(-1, chosen, top.softmax(-1))
        y = torch.einsum("btd,edh->bteh", x, self.up)
        y = torch.einsum("bteh,ehd->bted", F.silu(y), self.down)
        return self.output(x + (weights[..., None] * y).sum(2))


family("other", "experts")(lambda: Case(Experts(), {"input_ids": tokens(T, V)}, loss="next-token"))


@family("other")
def mlp():
    labels = classes(6)
    x = (np.eye(12)[labels] + 0.2 * random().standard_normal((ROWS, 12))).astype(np.float32)
    layers = [nn.Linear(12, 20), nn.BatchNorm1d(20), nn.GLU(), nn.Linear(10, 16), nn.CELU(), nn.Linear(16, 12),
              nn.Hardswish(), nn.LayerNorm(12, elementwise_affine=False), nn.Linear(12, 6)]
    return Case(nn.Sequential(*layers), {"input": x}, {"labels": labels}, batch=8)
