"""Networks on tables, words, series and graphs written as papers' repositories write them."""
import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from case import ROWS, Case, classes, family, padding, random, tokens
from modules import NEW, normal, regression

V, T = 64, 12
REC = "recommender"


def clicks(net, inputs, **more):
    labels = (random(8).random((ROWS, 1)) < 0.5).astype("float32")
    return Case(net, inputs, {"labels": labels}, loss="bce", batch=6, **more)


def fields(count=5, size=30):
    return random(3).integers(0, size, (ROWS, count))


class DeepFm(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("offsets", torch.arange(5) * 30)
        self.first, self.second, self.bias = nn.Embedding(150, 1), nn.Embedding(150, 6), nn.Parameter(torch.zeros(1))
        self.deep = nn.Sequential(nn.Linear(30, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, x):
        x = x + self.offsets.unsqueeze(0)
        e = self.second(x)
        fm = 0.5 * (e.sum(1) ** 2 - (e ** 2).sum(1)).sum(1, keepdim=True)
        return self.first(x).sum(1) + self.bias + fm + self.deep(e.view(-1, 30))


family(REC, "deep-fm")(lambda: clicks(DeepFm(), {"fields": fields()}))


class Cross(nn.Module):
    """DCN and DCN-v2, xDeepFM's interactions, AutoInt's attention."""

    def __init__(self):
        super().__init__()
        self.e = nn.ModuleList(nn.Embedding(30, 6) for _ in range(5))
        self.w, self.b = nn.ParameterList(nn.Parameter(torch.randn(30, 1) * 0.2) for _ in range(2)), \
            nn.ParameterList(nn.Parameter(torch.randn(30) * 0.1) for _ in range(2))
        self.m, self.cin = nn.Linear(30, 30), nn.Conv1d(25, 8, 1)
        self.attention, self.out = nn.MultiheadAttention(6, 2), nn.Linear(30 + 8 + 30, 1)

    def forward(self, x):
        e = torch.stack([table(x[:, i]) for i, table in enumerate(self.e)], 1)
        x0 = x1 = e.flatten(1)
        for w, b in zip(self.w, self.b):
            x1 = x0 * (x1 @ w) + b + x1
        x1 = x0 * self.m(x1) + x1
        z = torch.einsum("bid,bjd->bijd", e, e).reshape(-1, 25, 6)
        t = e.transpose(0, 1)
        a = self.attention(t, t, t)[0].transpose(0, 1).flatten(1)
        return self.out(torch.cat((x1, F.relu(self.cin(z)).sum(2), F.relu(a)), 1))


family(REC, "cross-networks")(lambda: clicks(Cross(), {"fields": fields()}))


class Interest(nn.Module):
    """DIN: attention of an item over a padded history, Dice."""

    def __init__(self):
        super().__init__()
        self.items, self.a, self.b = nn.Embedding(40, 8), nn.Linear(32, 12), nn.Linear(12, 1)
        self.alpha, self.bn, self.out = nn.Parameter(torch.zeros(12)), nn.BatchNorm1d(12, affine=False), nn.Linear(16, 1)

    def forward(self, item, history, length):
        q, k = self.items(item).unsqueeze(1).expand(-1, T, -1), self.items(history)
        h = self.a(torch.cat([q, k, q - k, q * k], -1))
        p = torch.sigmoid(self.bn(h.reshape(-1, 12)).view_as(h))
        s = self.b(p * h + self.alpha * (1 - p) * h).squeeze(-1)
        mask = torch.arange(T)[None] < length[:, None]
        s = torch.where(mask, s, torch.ones_like(s) * (-2 ** 32 + 1))
        return self.out(torch.cat(((F.softmax(s, 1).unsqueeze(1) @ k).squeeze(1), q[:, 0]), 1))


family(REC, "interest-network")(lambda: clicks(Interest(), {
    "item": random().integers(0, 40, ROWS), "history": random(2).integers(0, 40, (ROWS, T)),
    "length": random(3).integers(1, T + 1, ROWS)}))


class Towers(nn.Module):
    def __init__(self):
        super().__init__()
        tower = lambda: nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))
        self.u, self.i, self.a, self.b = nn.Embedding(30, 8), nn.EmbeddingBag(50, 8, mode="mean"), tower(), tower()

    def forward(self, user, items):
        return F.normalize(self.a(self.u(user)), dim=-1) @ F.normalize(self.b(self.i(items)), dim=-1).T / 0.1


family(REC, "two-tower")(lambda: Case(Towers(), {"user": random().integers(0, 30, ROWS),
                                                 "items": random(3).integers(0, 50, (ROWS, 3))},
                                      {"labels": (np.arange(ROWS) % 4).astype(np.int64)}))


class Tasks(nn.Module):
    """Experts shared by tasks (MMoE): two outputs as one."""

    def __init__(self):
        super().__init__()
        self.experts = nn.Parameter(torch.randn(10, 6, 4) * 0.3)
        self.bias, self.gates = nn.Parameter(torch.randn(6, 4) * 0.1), nn.ParameterList(
            nn.Parameter(torch.randn(10, 4) * 0.3) for _ in range(2))
        self.towers = nn.ModuleList(nn.Linear(6, 1) for _ in range(2))

    def forward(self, x):
        e = F.relu(torch.tensordot(x, self.experts, dims=1) + self.bias)
        return torch.cat([t((e * F.softmax(x @ g, -1)[:, None]).sum(-1)) for g, t in zip(self.gates, self.towers)], 1)


family(REC, "tasks")(lambda: Case(Tasks(), {"x": normal(10)}, {"labels": (normal(2, seed=2) > 0).astype("float32")},
                                  loss="bce"))


class Tabular(nn.Module):
    """FT-Transformer: a token for each number and each category."""

    def __init__(self):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(4, 16) * 0.3), nn.Parameter(torch.randn(4, 16) * 0.3)
        self.cls, self.e = nn.Parameter(torch.randn(1, 1, 16)), nn.Embedding(60, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 24, 0.0, batch_first=True, norm_first=True)
        self.head = nn.Sequential(nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 4))

    def forward(self, numbers, kinds):
        x = torch.cat([self.cls.expand(numbers.shape[0], -1, -1), numbers[..., None] * self.weight + self.bias,
                       self.e(kinds + torch.tensor([0, 30]))], 1)
        return self.head(self.layer(x)[:, 0])


family("table", "ft-transformer")(lambda: Case(Tabular(), {"numbers": normal(4), "kinds": fields(2)},
                                               {"labels": classes(4)}))


class TabNet(nn.Module):
    """Steps with sparse masks (a sparsemax by sorting) and gated layers."""

    def __init__(self):
        super().__init__()
        self.f, self.a, self.out = nn.Linear(8, 16), nn.ModuleList(nn.Linear(8, 8) for _ in range(2)), nn.Linear(8, 4)
        self.bn = nn.BatchNorm1d(8)

    @staticmethod
    def sparsemax(z):
        z = z - z.max(-1, keepdim=True)[0]
        s, _ = torch.sort(z, -1, descending=True)
        k = torch.arange(1, 9, dtype=z.dtype)
        c = torch.cumsum(s, -1)
        support = 1 + k * s > c
        size = support.sum(-1, keepdim=True)
        tau = (c.gather(-1, size - 1) - 1) / size.to(z.dtype)
        return torch.clamp(z - tau, min=0)

    def forward(self, x):
        x, prior, total = self.bn(x), torch.ones_like(x), 0
        h = x
        for a in self.a:
            m = self.sparsemax(a(h) * prior)
            prior = prior * (1.3 - m)
            h = F.glu(self.f(m * x), -1) * math.sqrt(0.5)
            total = total + F.relu(h)
        return self.out(total)


family("table", "tabnet")(lambda: Case(TabNet(), {"x": normal(8)}, {"labels": classes(4)}, batch=6))


class Kan(nn.Module):
    """Splines on edges."""

    def __init__(self, a=5, b=4, grid=4, order=3):
        super().__init__()
        knots = (torch.arange(-order, grid + order + 1) / grid * 2 - 1).expand(a, -1).contiguous()
        self.register_buffer("grid", knots)
        self.order, self.base, self.spline = order, nn.Parameter(torch.randn(b, a) * 0.3), \
            nn.Parameter(torch.randn(b, a, grid + order) * 0.1)
        self.scaler = nn.Parameter(torch.rand(b, a) + 0.5)

    def forward(self, x):
        y, g = x.unsqueeze(-1), self.grid
        bases = ((y >= g[:, :-1]) & (y < g[:, 1:])).to(x.dtype)
        for k in range(1, self.order + 1):
            bases = ((y - g[:, :-(k + 1)]) / (g[:, k:-1] - g[:, :-(k + 1)]) * bases[:, :, :-1]) + \
                ((g[:, k + 1:] - y) / (g[:, k + 1:] - g[:, 1:-k]) * bases[:, :, 1:])
        return F.linear(F.silu(x), self.base) + \
            F.linear(bases.flatten(1), (self.spline * self.scaler.unsqueeze(-1)).flatten(1))


family("table", "kan")(lambda: Case(Kan(), {"x": np.tanh(normal(5)) * 0.9}, {"labels": classes(4)}))


class Hyper(nn.Module):
    """Weights computed from a code; low-rank additions; spectral and weight normalization."""

    def __init__(self):
        super().__init__()
        self.code, self.make = nn.Linear(4, 6), nn.Linear(6, 8 * 10)
        self.base, self.a, self.b = nn.Linear(8, 12), nn.Parameter(torch.randn(2, 8) * 0.3), nn.Parameter(torch.randn(12, 2) * 0.3)
        self.spectral = nn.utils.parametrizations.spectral_norm(nn.Linear(12, 12))
        self.weight = nn.utils.parametrizations.weight_norm(nn.Linear(12, 5))

    def forward(self, x, z):
        w = self.make(torch.tanh(self.code(z))).view(-1, 8, 10)
        h = torch.relu(torch.bmm(w, x[:, :, None]).squeeze(2))
        h = self.base(h) + 2.0 * (h @ self.a.t() @ self.b.t())
        return self.weight(F.gelu(self.spectral(h)))


family(NEW, "computed-weights")(lambda: Case(Hyper(), {"x": normal(10), "z": normal(4, seed=5)}, {"labels": classes(5)}))


class Ode(nn.Module):
    def __init__(self):
        super().__init__()
        self.f, self.head = nn.Sequential(nn.Linear(7, 16), nn.Tanh(), nn.Linear(16, 6)), nn.Linear(6, 4)

    def forward(self, x):
        def d(t, y):
            return self.f(torch.cat((y, torch.full_like(y[:, :1], t)), 1))
        for i in range(3):
            t, h = i / 3, 1 / 3
            k1 = d(t, x)
            k2 = d(t + h / 2, x + h / 2 * k1)
            k3 = d(t + h / 2, x + h / 2 * k2)
            x = x + h / 6 * (k1 + 2 * k2 + 2 * k3 + d(t + h, x + h * k3))
        return self.head(x)


family(NEW, "ode")(lambda: Case(Ode(), {"x": normal(6)}, {"labels": classes(4)}))


class Mixture(nn.Module):
    """Mixture density, its negative log-likelihood as the loss."""

    def __init__(self):
        super().__init__()
        self.body, self.pi, self.mu, self.sigma = nn.Linear(5, 12), nn.Linear(12, 3), nn.Linear(12, 3), nn.Linear(12, 3)

    def forward(self, x, y):
        h = torch.tanh(self.body(x))
        s = F.softplus(self.sigma(h)) + 1e-3
        log = -0.5 * ((y - self.mu(h)) / s) ** 2 - torch.log(s) - 0.5 * math.log(2 * math.pi)
        return -torch.logsumexp(F.log_softmax(self.pi(h), 1) + log, 1).mean()


family(NEW, "mixture-density")(lambda: Case(Mixture(), {"x": normal(5), "y": normal(1, seed=6)}, loss="output"))


class Triplets(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 12), nn.PReLU(12), nn.Linear(12, 4))

    def forward(self, a, p, n):
        return F.triplet_margin_loss(self.net(a), self.net(p), self.net(n), margin=1.0) + \
            0.1 * F.smooth_l1_loss(self.net(a), self.net(p)) + 0.1 * F.huber_loss(self.net(p), self.net(n))


family(NEW, "triplets")(lambda: Case(Triplets(), {"a": normal(6), "p": normal(6, seed=2), "n": normal(6, seed=3)},
                                     loss="output"))


class Duel(nn.Module):
    """A dueling network: the value of chosen actions against targets."""

    def __init__(self):
        super().__init__()
        self.f, self.v, self.a = nn.Linear(6, 16), nn.Linear(16, 1), nn.Linear(16, 4)

    def forward(self, state, action, target):
        h = F.relu(self.f(state))
        a = self.a(h)
        q = self.v(h) + a - a.mean(1, keepdim=True)
        return F.smooth_l1_loss(q.gather(1, action[:, None]).squeeze(1), target)


family(NEW, "dueling")(lambda: Case(Duel(), {"state": normal(6), "action": random(2).integers(0, 4, ROWS),
                                             "target": normal(seed=4)}, loss="output"))


# Words.

class TextCnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.e, self.c = nn.Embedding(V, 16), nn.ModuleList(nn.Conv2d(1, 6, (k, 16)) for k in (2, 3, 4))
        self.head = nn.Linear(18, 4)

    def forward(self, x):
        x = self.e(x).unsqueeze(1)
        x = [F.relu(c(x)).squeeze(3) for c in self.c]
        return self.head(torch.cat([F.max_pool1d(i, i.size(2)).squeeze(2) for i in x], 1))


def sentences(net, **more):
    labels = classes(4)
    ids = tokens(T, V)
    ids[:, 1] = 10 + labels
    return Case(net, {"input_ids": ids}, {"labels": labels}, **more)


family(NEW, "text-cnn")(lambda: sentences(TextCnn()))


class Hierarchy(nn.Module):
    """GRUs over words and sentences with attention (HAN), packed by a mask."""

    def __init__(self):
        super().__init__()
        self.e, self.w, self.s = nn.Embedding(V, 8), nn.GRU(8, 6, bidirectional=True, batch_first=True), \
            nn.GRU(12, 6, bidirectional=True, batch_first=True)
        self.p, self.u, self.head = nn.Linear(12, 12), nn.Parameter(torch.randn(12, 1)), nn.Linear(12, 4)

    def pool(self, h):
        return (F.softmax(torch.tanh(self.p(h)) @ self.u, 1) * h).sum(1)

    def forward(self, x):
        b = x.shape[0]
        words = self.pool(self.w(self.e(x.view(b * 3, 4)))[0]).view(b, 3, 12)
        return self.head(self.pool(self.s(words)[0]))


family("recurrent", "hierarchy")(lambda: sentences(Hierarchy()))


class Tagger(nn.Module):
    """A bidirectional GRU under the forward algorithm of a conditional random field."""

    def __init__(self, k=5):
        super().__init__()
        self.e, self.gru, self.out = nn.Embedding(V, 8), nn.GRU(8, 6, bidirectional=True), nn.Linear(12, k)
        self.step, self.begin, self.end = (nn.Parameter(torch.randn(*s) * 0.1) for s in ((k, k), (k,), (k,)))

    def forward(self, ids, tags):
        x = self.out(self.gru(self.e(ids.t()))[0])
        t = tags.t()
        score = self.begin[t[0]] + x[0].gather(1, t[0][:, None])[:, 0]
        alpha = self.begin + x[0]
        for i in range(1, T):
            score = score + self.step[t[i - 1], t[i]] + x[i].gather(1, t[i][:, None])[:, 0]
            alpha = torch.logsumexp(alpha[:, :, None] + self.step[None] + x[i][:, None, :], dim=1)
        return (torch.logsumexp(alpha + self.end, 1) - score - self.end[t[-1]]).mean()


family("recurrent", "random-field")(lambda: Case(Tagger(), {"ids": tokens(T, V), "tags": random(4).integers(0, 5, (ROWS, T))},
                                                 loss="output"))


class Luong(nn.Module):
    """Translation with GRUs, the decoder cell by cell with attention and its own outputs fed back."""

    def __init__(self):
        super().__init__()
        self.s, self.t = nn.Embedding(V, 12), nn.Embedding(V, 12)
        self.enc, self.cell, self.mix, self.out = nn.GRU(12, 12, batch_first=True), nn.GRUCell(24, 12), nn.Linear(24, 12), nn.Linear(12, V)

    def forward(self, source, target):
        m, h = self.enc(self.s(source))
        h, feed, ys = h[-1], torch.zeros_like(h[-1]), []
        for i in range(8):
            h = self.cell(torch.cat((self.t(target[:, i]), feed), 1), h)
            a = torch.softmax(torch.bmm(m, h.unsqueeze(2)).squeeze(2), 1)
            feed = torch.tanh(self.mix(torch.cat((torch.bmm(a.unsqueeze(1), m).squeeze(1), h), 1)))
            ys.append(self.out(feed))
        return torch.stack(ys, 1)


family("recurrent", "luong")(lambda: Case(Luong(), {"source": tokens(T, V), "target": np.roll(tokens(8, V, seed=7), 1, 1)},
                                          {"labels": tokens(8, V, seed=7)}))


class Bottleneck(nn.Module):
    """An LSTM with projections, initial states that train, the last state of each direction."""

    def __init__(self):
        super().__init__()
        self.e, self.h, self.c = nn.Embedding(V, 8), nn.Parameter(torch.randn(2, 1, 12) * 0.1), nn.Parameter(torch.randn(2, 1, 12) * 0.1)
        self.lstm, self.out = nn.LSTM(8, 12, bidirectional=True, batch_first=True), nn.Linear(24, 4)

    def forward(self, x):
        b = x.shape[0]
        _, (h, _) = self.lstm(self.e(x), (self.h.expand(-1, b, -1).contiguous(), self.c.expand(-1, b, -1).contiguous()))
        return self.out(torch.cat((h[0], h[1]), 1))


family("recurrent", "learned-states")(lambda: sentences(Bottleneck()))


class Scan(nn.Module):
    """A selective scan step by step, and its parameters as logarithms (Mamba)."""

    def __init__(self):
        super().__init__()
        self.e, self.out = nn.Embedding(V, 12), nn.Linear(12, V)
        self.conv = nn.Conv1d(12, 12, 3, padding=2, groups=12)
        self.x, self.dt = nn.Linear(12, 8, bias=False), nn.Linear(2, 12)
        self.A_log, self.D = nn.Parameter(torch.log(torch.arange(1, 4).float().repeat(12, 1)) + torch.randn(12, 3) * 0.1), nn.Parameter(torch.ones(12))

    def forward(self, input_ids):
        u = self.e(input_ids)
        u = F.silu(self.conv(u.transpose(1, 2))[..., :T].transpose(1, 2))
        dt, b, c = self.x(u).split([2, 3, 3], -1)
        dt = F.softplus(self.dt(dt))
        a = torch.exp(dt.unsqueeze(-1) * -torch.exp(self.A_log))
        d = dt.unsqueeze(-1) * b.unsqueeze(2) * u.unsqueeze(-1)
        h, ys = torch.zeros_like(d[:, 0]), []
        for t in range(T):
            h = a[:, t] * h + d[:, t]
            ys.append((h * c[:, t, None]).sum(-1))
        return self.out(torch.stack(ys, 1) + u * self.D)


family(NEW, "selective-scan")(lambda: Case(Scan(), {"input_ids": tokens(T, V)}, loss="next-token"))


class Retention(nn.Module):
    """Decays by distance, a normalization by groups; linear attention with running sums."""

    def __init__(self):
        super().__init__()
        self.e, self.q, self.k, self.v = nn.Embedding(V, 16), nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 16)
        self.g, self.n, self.out = nn.Linear(16, 16), nn.GroupNorm(2, 2), nn.Linear(16, V)

    def forward(self, input_ids):
        x = self.e(input_ids)
        q, k, v = (f(x).view(-1, T, 2, 8).transpose(1, 2) for f in (self.q, self.k, self.v))
        i = torch.arange(T)
        gamma = 1 - torch.exp2(-5 - torch.arange(2).float())
        decay = torch.tril(gamma[:, None, None] ** (i[:, None] - i[None]).clamp(min=0).float())
        y = ((q @ k.transpose(-1, -2)) * decay) @ v
        y = self.n(y.transpose(1, 2).reshape(-1, 2, 8)).view(-1, T, 16)
        p, r = F.elu(q) + 1, F.elu(k) + 1
        s = torch.cumsum(r.unsqueeze(-1) * v.unsqueeze(-2), 2)
        z = (p.unsqueeze(-2) @ s).squeeze(-2) / ((p * r.cumsum(2)).sum(-1, keepdim=True) + 1e-6)
        return self.out(x + F.silu(self.g(x)) * y + z.transpose(1, 2).reshape(-1, T, 16))


family(NEW, "retention")(lambda: Case(Retention(), {"input_ids": tokens(T, V)}, loss="next-token"))


class Relative(nn.Module):
    """Relative positions by a shift (Transformer-XL), a memory that is a parameter."""

    def __init__(self):
        super().__init__()
        self.e, self.qkv, self.r = nn.Embedding(V, 16), nn.Linear(16, 48, bias=False), nn.Parameter(torch.randn(T, 2, 8) * 0.3)
        self.u, self.v, self.out = nn.Parameter(torch.randn(2, 8) * 0.3), nn.Parameter(torch.randn(2, 8) * 0.3), nn.Linear(16, V)

    def forward(self, input_ids):
        x = self.e(input_ids)
        q, k, v = self.qkv(x).view(-1, T, 3, 2, 8).unbind(2)
        ac = torch.einsum("bind,bjnd->bnij", q + self.u, k)
        bd = torch.einsum("bind,jnd->bnij", q + self.v, self.r)
        bd = F.pad(bd, (1, 0)).view(x.size(0), 2, T + 1, T)[:, :, 1:].reshape_as(bd)
        s = (ac + bd) / math.sqrt(8)
        s = s.masked_fill(torch.ones(T, T).triu(1).bool(), -1e30)
        return self.out(x + torch.einsum("bnij,bjnd->bind", s.softmax(3), v).flatten(2))


family(NEW, "relative-shift")(lambda: Case(Relative(), {"input_ids": tokens(T, V)}, loss="next-token"))


class Sparse(nn.Module):
    """Experts that compute only their tokens in PyTorch: dense here, by one-hot dispatch with a capacity."""

    def __init__(self):
        super().__init__()
        self.e, self.gate, self.out = nn.Embedding(V, 16), nn.Linear(16, 4, bias=False), nn.Linear(16, V)
        self.w1, self.w2 = nn.Parameter(torch.randn(4, 16, 24) * 0.2), nn.Parameter(torch.randn(4, 24, 16) * 0.2)

    def forward(self, input_ids):
        x = self.e(input_ids).reshape(-1, 16)
        p = self.gate(x).softmax(-1)
        best = p.argmax(-1)
        one = F.one_hot(best, 4)
        place = ((torch.cumsum(one, 0) - 1) * one).sum(1)
        keep = (place < 20).float()
        dispatch = one.float()[:, :, None] * F.one_hot(place.clamp(max=19), 20).float()[:, None] * keep[:, None, None]
        h = torch.einsum("tec,td->ecd", dispatch, x)
        h = torch.einsum("ecf,efd->ecd", F.relu(torch.einsum("ecd,edf->ecf", h, self.w1)), self.w2)
        y = torch.einsum("tec,ecd->td", dispatch, h) * p.max(-1)[0][:, None]
        return self.out((x + y).view(-1, T, 16))


family(NEW, "switch-experts")(lambda: Case(Sparse(), {"input_ids": tokens(T, V)}, loss="next-token"))


# Series and graphs.

class Nbeats(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(20, 16), nn.ReLU(), nn.Linear(16, 8)) for _ in range(2))
        t = torch.arange(20) / 20
        self.register_buffer("back", torch.stack([t ** i for i in range(4)]))
        self.register_buffer("fore", torch.stack([torch.cos(2 * math.pi * i * torch.arange(5) / 5) for i in range(4)]))

    def forward(self, x):
        y = 0
        for block in self.blocks:
            theta = block(x)
            x = x - theta[:, :4] @ self.back
            y = y + theta[:, 4:] @ self.fore
        return y


family("time series", "n-beats")(lambda: regression(Nbeats(), {"x": normal(20)}, 5))


class Informer(nn.Module):
    """Decomposition by moving averages, distilling convolutions, normalization by instance with its inverse."""

    def __init__(self):
        super().__init__()
        self.token = nn.Conv1d(3, 16, 3, padding=1, padding_mode="circular", bias=False)
        self.attention, self.norm = nn.MultiheadAttention(16, 2, batch_first=True), nn.LayerNorm(16)
        self.distil, self.bn, self.head, self.trend = nn.Conv1d(16, 16, 3, padding=1), nn.BatchNorm1d(16), nn.Linear(160, 15), nn.Linear(20, 5)

    def forward(self, x):
        mean, std = x.mean(1, keepdim=True).detach(), torch.sqrt(x.var(1, keepdim=True, unbiased=False) + 1e-5)
        x = (x - mean) / std
        padded = torch.cat([x[:, :1].repeat(1, 2, 1), x, x[:, -1:].repeat(1, 2, 1)], 1)
        trend = F.avg_pool1d(padded.permute(0, 2, 1), 5, 1).permute(0, 2, 1)
        h = self.token((x - trend).permute(0, 2, 1)).transpose(1, 2)
        h = self.norm(h + self.attention(h, h, h)[0])
        h = F.max_pool1d(F.elu(self.bn(self.distil(h.transpose(1, 2)))), 3, 2, 1)
        y = self.head(h.flatten(1)).view(-1, 5, 3) + self.trend(trend.transpose(1, 2)).transpose(1, 2)
        return y * std + mean


family("time series", "informer")(lambda: regression(Informer(), {"x": normal(20, 3)}, 5, 3))


class Spectral(nn.Module):
    """A Fourier layer: complex weights as pairs."""

    def __init__(self):
        super().__init__()
        self.lift, self.w, self.p, self.out = nn.Linear(1, 8), nn.Parameter(torch.randn(8, 8, 5, 2) * 0.2), nn.Conv1d(8, 8, 1), nn.Linear(8, 1)

    def forward(self, x):
        x = self.lift(x).permute(0, 2, 1)
        f = torch.view_as_real(torch.fft.rfft(x))[:, :, :5]
        re = torch.einsum("bix,iox->box", f[..., 0], self.w[..., 0]) - torch.einsum("bix,iox->box", f[..., 1], self.w[..., 1])
        im = torch.einsum("bix,iox->box", f[..., 0], self.w[..., 1]) + torch.einsum("bix,iox->box", f[..., 1], self.w[..., 0])
        k = torch.arange(16)[None] * torch.arange(5)[:, None] * (2 * math.pi / 16)
        y = re @ torch.cos(k) - im @ torch.sin(k)
        return self.out(F.gelu(y / 8 + self.p(x)).permute(0, 2, 1))


family("time series", "fourier")(lambda: regression(Spectral(), {"x": normal(16, 1)}, 16, 1))


class Scatter(nn.Module):
    """Messages along a list of edges: index_add, degrees, attention by source (GCN, GAT)."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.s, self.d, self.head = nn.Linear(5, 8), nn.Linear(8, 8), nn.Linear(8, 1), nn.Linear(8, 1), nn.Linear(8, 3)
        g = torch.Generator().manual_seed(3)
        self.register_buffer("source", torch.randint(0, 10, (30,), generator=g))
        self.register_buffer("target", torch.cat((torch.arange(10), torch.randint(0, 10, (20,), generator=g))))

    def forward(self, x):
        h = self.a(x)
        e = F.leaky_relu(self.s(h)[:, self.source, 0] + self.d(h)[:, self.target, 0], 0.2)
        e = torch.exp(e - e.max())
        index = self.target[None].expand(e.shape[0], -1)
        total = torch.zeros_like(x[:, :, 0]).scatter_add(1, index, e)
        w = e / (total.gather(1, index) + 1e-9)
        m = h[:, self.source] * w[..., None]
        h = torch.zeros_like(h).scatter_add(1, index[..., None].expand(-1, -1, 8), m)
        h = F.relu(self.b(h))
        h = torch.zeros_like(h).index_add(1, self.target, h[:, self.source])
        return self.head(h.mean(1))


family("graph", "messages")(lambda: Case(Scatter(), {"x": normal(10, 5)}, {"labels": classes(3)}))


class Sets(nn.Module):
    """A set transformer with inducing points that train, pooling by attention."""

    def __init__(self):
        super().__init__()
        self.inp, self.seeds, self.pool = nn.Linear(4, 16), nn.Parameter(torch.randn(1, 3, 16)), nn.Parameter(torch.randn(1, 1, 16))
        self.a, self.b, self.c = (nn.MultiheadAttention(16, 2, batch_first=True) for _ in range(3))
        self.head = nn.Linear(16, 5)

    def forward(self, x, mask):
        x = self.inp(x)
        h = self.a(self.seeds.repeat(x.size(0), 1, 1), x, x, key_padding_mask=mask == 0)[0]
        x = x + self.b(x, h, h)[0]
        return self.head(self.c(self.pool.repeat(x.size(0), 1, 1), x, x, key_padding_mask=mask == 0)[0].squeeze(1))


family("graph", "sets")(lambda: Case(Sets(), {"x": normal(8, 4), "mask": padding(8)}, {"labels": classes(5)}))


class Wider(nn.Module):
    """Numbers of other types: f64 weights, int32 ids, masks that are booleans."""

    def __init__(self):
        super().__init__()
        self.e, self.a, self.b = nn.Embedding(20, 6), nn.Linear(6, 8).double(), nn.Linear(8, 4)

    def forward(self, ids, mask):
        h = torch.where(mask[..., None], self.e(ids), torch.zeros(())).sum(1) / mask.sum(1, keepdim=True).clamp(min=1)
        return self.b(torch.tanh(self.a(h.double())).float())


family(NEW, "mixed-types")(lambda: Case(Wider(), {"ids": random().integers(0, 20, (ROWS, 7)).astype(np.int32),
                                                  "mask": padding(7).astype(bool)}, {"labels": classes(4)}))
