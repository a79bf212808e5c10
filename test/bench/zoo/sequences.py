"""Networks over sequences as users write them: mixers, experts, speech."""
import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from case import ROWS, Case, family, padding, random, tokens
from modules import normal

V, T = 64, 12


def language(net, **more):
    return Case(net, {"input_ids": tokens(T, V)}, loss="next-token", **more)


class Rwkv(nn.Module):
    """Time mixing with a running numerator, denominator and maximum; channel mixing; tokens shifted by one."""

    def __init__(self, d=12):
        super().__init__()
        self.e, self.n, self.m, self.head = nn.Embedding(V, d), nn.LayerNorm(d), nn.LayerNorm(d), nn.Linear(d, V, bias=False)
        self.mix, self.decay, self.first = nn.Parameter(torch.rand(5, d)), nn.Parameter(torch.randn(d) * 0.3), nn.Parameter(torch.randn(d) * 0.3)
        self.k, self.v, self.r, self.o = (nn.Linear(d, d, bias=False) for _ in range(4))
        self.ck, self.cv, self.cr = nn.Linear(d, 3 * d, bias=False), nn.Linear(3 * d, d, bias=False), nn.Linear(d, d, bias=False)
        self.shift = nn.ZeroPad2d((0, 0, 1, -1))

    def wkv(self, k, v):
        w, u = -torch.exp(self.decay), self.first
        a = b = torch.zeros_like(k[:, 0])
        p, out = torch.full_like(a, -1e30), []
        for t in range(T):
            q = torch.maximum(p, u + k[:, t])
            e, f = torch.exp(p - q), torch.exp(u + k[:, t] - q)
            out.append((e * a + f * v[:, t]) / (e * b + f))
            q = torch.maximum(p + w, k[:, t])
            e, f = torch.exp(p + w - q), torch.exp(k[:, t] - q)
            a, b, p = e * a + f * v[:, t], e * b + f, q
        return torch.stack(out, 1)

    def forward(self, input_ids):
        x = self.e(input_ids)
        y = self.n(x)
        s = self.shift(y)
        k, v, r = (f(y * m + s * (1 - m)) for f, m in zip((self.k, self.v, self.r), self.mix))
        x = x + self.o(torch.sigmoid(r) * self.wkv(k, v))
        y = self.m(x)
        s = self.shift(y)
        k, r = y * self.mix[3] + s * (1 - self.mix[3]), y * self.mix[4] + s * (1 - self.mix[4])
        return self.head(x + torch.sigmoid(self.cr(r)) * self.cv(torch.relu(self.ck(k)) ** 2))


family("decoder", "rwkv")(lambda: language(Rwkv()))


class XLstm(nn.Module):
    """Exponential gates with a stabilizer, and a matrix memory."""

    def __init__(self, d=10):
        super().__init__()
        self.e, self.gates, self.qkv, self.head = nn.Embedding(V, d), nn.Linear(d, 3 * d), nn.Linear(d, 3 * d), nn.Linear(2 * d, V)

    def forward(self, input_ids):
        x = self.e(input_ids)
        c = n = m = torch.zeros_like(x[:, 0])
        memory, outs = torch.zeros(x.shape[0], 10, 10), []
        for t in range(T):
            i, f, z = self.gates(x[:, t]).chunk(3, -1)
            f = F.logsigmoid(f)
            new = torch.maximum(f + m, i)
            i, f, m = torch.exp(i - new), torch.exp(f + m - new), new
            c, n = f * c + i * torch.tanh(z), f * n + i
            q, k, v = self.qkv(x[:, t]).chunk(3, -1)
            memory = memory * f.mean(-1)[:, None, None] + v.unsqueeze(-1) * k.unsqueeze(-2) / math.sqrt(10)
            outs.append(torch.cat([c / n.clamp(min=1e-6), (memory @ q.unsqueeze(-1)).squeeze(-1)], -1))
        return self.head(torch.stack(outs, 1))


family("recurrent", "xlstm")(lambda: language(XLstm()))


class Hyena(nn.Module):
    """Gated long convolutions whose filters are a network of the position."""

    def __init__(self, d=12):
        super().__init__()
        self.e, self.inp, self.short = nn.Embedding(V, d), nn.Linear(d, 3 * d), nn.Conv1d(3 * d, 3 * d, 3, padding=2, groups=3 * d)
        self.filter, self.out = nn.Sequential(nn.Linear(5, 16), nn.SiLU(), nn.Linear(16, d)), nn.Linear(d, V)
        t = torch.linspace(0, 1, T)[:, None]
        self.register_buffer("z", torch.cat([t, torch.cos(t * 3), torch.sin(t * 3), torch.cos(t * 7), torch.sin(t * 7)], -1))
        self.register_buffer("window", torch.exp(-t * torch.linspace(1, 4, d)))
        self.register_buffer("lag", (torch.arange(T)[:, None] - torch.arange(T)[None]).clamp(min=0))
        self.register_buffer("causal", torch.tril(torch.ones(T, T)))

    def forward(self, input_ids):
        x = self.short(self.inp(self.e(input_ids)).transpose(1, 2))[..., :T]
        a, b, v = x.chunk(3, 1)
        h = self.filter(self.z) * self.window
        toeplitz = h.t()[:, self.lag] * self.causal
        y = torch.einsum("dij,bdj->bdi", toeplitz, a * v) * b
        return self.out(y.transpose(1, 2))


family("decoder", "hyena")(lambda: language(Hyena()))


class Alibi(nn.Module):
    """Attention with linear biases, queries in groups, soft caps, a gated network, weights shared with the embedding."""

    def __init__(self, d=16, heads=4, groups=2):
        super().__init__()
        self.heads, self.groups, self.w = heads, groups, d // heads
        self.e, self.n1, self.n2, self.n3 = nn.Embedding(V, d), nn.RMSNorm(d), nn.RMSNorm(d), nn.RMSNorm(d)
        self.q, self.kv, self.o = nn.Linear(d, d, bias=False), nn.Linear(d, 2 * groups * self.w, bias=False), nn.Linear(d, d, bias=False)
        self.gate, self.up, self.down = nn.Linear(d, 24), nn.Linear(d, 24), nn.Linear(24, d)

    def forward(self, input_ids):
        b, t = input_ids.shape
        x = self.e(input_ids) * 4.0
        y = self.n1(x)
        q = self.q(y).view(b, t, self.heads, self.w).transpose(1, 2)
        k, v = (z.reshape(b, t, self.groups, self.w).repeat_interleave(self.heads // self.groups, 2).transpose(1, 2)
                for z in self.kv(y).chunk(2, -1))
        slopes = 2.0 ** -torch.arange(1, self.heads + 1)
        i = torch.arange(t)
        bias = slopes[:, None, None] * (i[None] - i[:, None])[None]
        s = q @ k.transpose(-1, -2) / math.sqrt(self.w) + bias
        s = torch.tanh(s / 5.0) * 5.0
        s = s.masked_fill(torch.ones(t, t, dtype=torch.bool).triu(1), float("-inf"))
        x = x + self.o((s.softmax(-1) @ v).transpose(1, 2).flatten(2))
        y = self.n2(x)
        x = x + self.down(F.gelu(self.gate(y), approximate="tanh") * self.up(y))
        return F.linear(self.n3(x), self.e.weight)


family("decoder", "alibi-grouped-softcap")(lambda: language(Alibi(), dynamic=("length",)))


class Buckets(nn.Module):
    """Relative positions in logarithmic buckets, computed in the graph (T5); attention by nn.MultiheadAttention's weights."""

    def __init__(self, d=16):
        super().__init__()
        self.e, self.bias, self.qkv, self.o = nn.Embedding(V, d), nn.Embedding(8, 4), nn.Linear(d, 3 * d, bias=False), nn.Linear(d, V)

    @staticmethod
    def bucket(relative):
        n = -relative
        side = (n < 0).to(torch.long) * 4
        n = n.abs()
        far = 2 + (torch.log(n.float().clamp(min=1) / 2) / math.log(16 / 2) * 2).to(torch.long)
        return side + torch.where(n < 2, n, torch.minimum(far, torch.full_like(far, 3)))

    def forward(self, input_ids):
        t = input_ids.shape[1]
        relative = torch.arange(t)[None, :] - torch.arange(t)[:, None]
        bias = self.bias(self.bucket(relative)).permute(2, 0, 1)[None]
        q, k, v = (z.unflatten(-1, (4, -1)).transpose(1, 2) for z in self.qkv(self.e(input_ids)).chunk(3, -1))
        s = q @ k.transpose(-1, -2) + bias
        s = s + torch.full((t, t), torch.finfo(torch.float32).min).triu(1)
        return self.o((F.softmax(s.float(), dim=-1).type_as(s) @ v).transpose(1, 2).flatten(2))


family("decoder", "bucketed-positions")(lambda: language(Buckets()))


class Mixtral(nn.Module):
    """Experts chosen by top-k, dispatched with one-hot masks and einsum, and a loss that balances them."""

    def __init__(self, d=12, experts=4):
        super().__init__()
        self.e, self.gate, self.out = nn.Embedding(V, d), nn.Linear(d, experts, bias=False), nn.Linear(d, V)
        self.w1, self.w2, self.w3 = (nn.Parameter(torch.randn(experts, *s) * 0.3) for s in ((d, 16), (16, d), (d, 16)))

    def forward(self, input_ids):
        x = self.e(input_ids)
        flat = x.flatten(0, 1)
        probabilities = self.gate(flat).softmax(-1)
        top, chosen = torch.topk(probabilities, 2, dim=-1)
        top = top / top.sum(-1, keepdim=True)
        mask = F.one_hot(chosen, 4).float()
        weight = torch.einsum("nk,nke->ne", top, mask)
        h = F.silu(torch.einsum("nd,edh->neh", flat, self.w1)) * torch.einsum("nd,edh->neh", flat, self.w3)
        y = torch.einsum("neh,ehd,ne->nd", h, self.w2, weight)
        logits = self.out(flat + y)
        balance = 4 * (mask.sum(1).mean(0) * probabilities.mean(0)).sum()
        labels = input_ids[:, 1:].reshape(-1)
        return F.cross_entropy(logits.view(*x.shape[:2], V)[:, :-1].reshape(-1, V), labels) + 0.1 * balance


family("decoder", "experts-balanced")(lambda: Case(Mixtral(), {"input_ids": tokens(T, V)}, loss="output"))


class Speech(nn.Module):
    """Strided convolutions over sound, sines as positions, an encoder and a decoder of nn.Transformer's layers (Whisper)."""

    def __init__(self, d=16):
        super().__init__()
        self.a, self.b = nn.Conv1d(10, d, 3, padding=1), nn.Conv1d(d, d, 3, stride=2, padding=1)
        angles = torch.arange(12)[:, None] / 10000 ** (torch.arange(0, d, 2) / d)[None]
        self.register_buffer("sines", torch.cat((angles.sin(), angles.cos()), 1))
        self.encoder = nn.TransformerEncoderLayer(d, 2, 24, 0.0, "gelu", batch_first=True, norm_first=True)
        self.e, self.p = nn.Embedding(V, d), nn.Parameter(torch.randn(8, d) * 0.1)
        self.decoder = nn.TransformerDecoderLayer(d, 2, 24, 0.0, F.gelu, batch_first=True, norm_first=True)
        self.norm = nn.LayerNorm(d)

    def forward(self, sound, words):
        x = F.gelu(self.b(F.gelu(self.a(sound)))).permute(0, 2, 1) + self.sines
        memory = self.encoder(x)
        t = words.shape[1]
        mask = torch.full((t, t), float("-inf")).triu(1)
        y = self.norm(self.decoder(self.e(words) + self.p[:t], memory, tgt_mask=mask))
        return y @ self.e.weight.t()


family("audio", "speech-transformer")(lambda: Case(Speech(), {"sound": normal(10, 24), "words": tokens(8, V)},
                                                   {"labels": np.roll(tokens(8, V), -1, 1)}, flags=("--untie",)))


class Transducer(nn.Module):
    """RNN-T: an encoder, a prediction network, a joint over both, and the likelihood over all alignments."""

    def __init__(self, k=6):
        super().__init__()
        self.encoder, self.e, self.predictor = nn.LSTM(8, 10, batch_first=True), nn.Embedding(k, 6), nn.GRU(6, 10, batch_first=True)
        self.joint = nn.Linear(10, k)

    def forward(self, sound, words):
        h = self.encoder(sound)[0]
        g = self.predictor(self.e(F.pad(words, (1, 0))))[0]
        p = torch.log_softmax(self.joint(torch.tanh(h[:, :, None] + g[:, None])), -1)
        blank = p[..., 0]
        emit = p[:, :, :-1].gather(-1, words[:, None, :, None].expand(-1, h.shape[1], -1, 1)).squeeze(-1)
        frames, length = 5, 3
        row = [torch.zeros_like(blank[:, 0, 0])]
        for u in range(length):
            row.append(row[-1] + emit[:, 0, u])
        for t in range(1, frames):
            new = [row[0] + blank[:, t - 1, 0]]
            for u in range(1, length + 1):
                new.append(torch.logaddexp(row[u] + blank[:, t - 1, u], new[-1] + emit[:, t, u - 1]))
            row = new
        return -(row[-1] + blank[:, -1, -1]).mean()


family("audio", "transducer")(lambda: Case(Transducer(), {"sound": normal(5, 8), "words": random(3).integers(1, 6, (ROWS, 3))},
                                           loss="output", optimizer="sgd:lr=0.1,momentum=0.9"))
