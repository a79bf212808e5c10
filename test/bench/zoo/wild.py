"""Networks as users write them: what the other files have not."""
import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from case import ROWS, Case, classes, family, images, padding, random, tokens
from modules import model, normal, regression
from vision import SLOW, dense

V, T = 64, 12


class Film(nn.Module):
    """Features scaled and shifted by what a GRU read of the question."""

    def __init__(self):
        super().__init__()
        self.e, self.gru, self.film = nn.Embedding(V, 8), nn.GRU(8, 12, batch_first=True), nn.Linear(12, 2 * 2 * 8)
        self.stem = nn.Conv2d(3, 8, 4, 4)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Conv2d(10, 8, 1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1, bias=False),
                                                  nn.BatchNorm2d(8, affine=False)) for _ in range(2))
        self.head = nn.Linear(8, 10)

    def forward(self, image, question):
        x = F.relu(self.stem(image))
        b, _, h, w = x.shape
        gamma, beta = self.film(self.gru(self.e(question))[1][-1]).view(b, 2, 2, 8).unbind(1)
        grid = torch.stack(torch.meshgrid(torch.linspace(-1, 1, h), torch.linspace(-1, 1, w), indexing="ij"))
        for i, block in enumerate(self.blocks):
            y = block(torch.cat([x, grid.expand(b, -1, -1, -1)], 1))
            x = x + F.relu((1 + gamma[:, i, :, None, None]) * y + beta[:, i, :, None, None])
        return self.head(x.amax((2, 3)))


@family("images and text", "film")
def film():
    x, labels = images((3, 32, 32), 10)
    return Case(Film(), {"image": x, "question": tokens(6, V)}, {"labels": labels}, optimizer=SLOW)


class Discriminator(nn.Module):
    """Strided convolutions, the spread over the minibatch as a channel, a gradient-free penalty; scaled weights."""

    def __init__(self):
        super().__init__()
        self.w = nn.ParameterList(nn.Parameter(torch.randn(*s)) for s in ((8, 3, 4, 4), (16, 8, 4, 4), (16, 17, 3, 3)))
        self.n, self.head = nn.InstanceNorm2d(16, affine=True), nn.Linear(16 * 64, 1)

    def forward(self, x):
        for i, w in enumerate(self.w):
            if i == 2:
                spread = x.std(0, unbiased=False).mean()
                x = torch.cat([self.n(x), spread.expand(x.shape[0], 1, *x.shape[2:])], 1)
            scale = math.sqrt(2 / w[0].numel())
            x = F.leaky_relu(F.conv2d(x, w * scale, stride=2 if i < 2 else 1, padding=1), 0.2)
        return self.head(x.flatten(1))


@family("generative", "discriminator")
def discriminator():
    x, labels = images((3, 32, 32), 2)
    return Case(Discriminator(), {"input": x}, {"labels": labels[:, None].astype(np.float32)}, loss="bce",
                optimizer="sgd:lr=0.005,momentum=0.9")


class Residual(nn.Module):
    def __init__(self, a, b, norm):
        super().__init__()
        self.f = nn.Sequential(norm(a), nn.SiLU(), nn.Conv2d(a, b, 3, padding=1), norm(b), nn.SiLU(), nn.Conv2d(b, b, 3, padding=1))
        self.skip = nn.Conv2d(a, b, 1) if a != b else nn.Identity()

    def forward(self, x):
        return self.skip(x) + self.f(x)


class GroupUnet(nn.Module):
    """Residual blocks with group norms, attention gates on the skips, three outputs that add up (deep supervision)."""

    def __init__(self):
        super().__init__()
        norm = lambda n: nn.GroupNorm(4, n)
        self.inp, self.a, self.b, self.c = nn.Conv2d(3, 8, 3, padding=1), Residual(8, 8, norm), Residual(8, 16, norm), Residual(16, 16, norm)
        self.gate, self.ask, self.psi = nn.Conv2d(16, 8, 1), nn.Conv2d(8, 8, 1), nn.Conv2d(8, 1, 1)
        self.up, self.d, self.out = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True), Residual(24, 8, norm), nn.Conv2d(8, 5, 1)
        self.side = nn.Conv2d(16, 5, 1)

    def forward(self, x):
        a = self.a(self.inp(x))
        b = self.c(self.b(F.avg_pool2d(a, 2)))
        u = self.up(b)
        a = a * torch.sigmoid(self.psi(F.relu(self.gate(u) + self.ask(a))))
        return self.out(self.d(torch.cat([a, u], 1))) + 0.5 * F.interpolate(self.side(b), size=x.shape[2:], mode="bilinear")


family("segmentation", "unet-attention")(lambda: dense(GroupUnet()))


class Hrnet(nn.Module):
    """Two resolutions side by side that exchange what they have; ASPP with image pooling on top."""

    def __init__(self):
        super().__init__()
        conv = lambda a, b, **k: nn.Sequential(nn.Conv2d(a, b, 3, padding=k.get("dilation", 1), bias=False, **k), nn.BatchNorm2d(b), nn.ReLU(True))
        self.stem, self.hi, self.lo, self.down, self.lift = conv(3, 8), conv(8, 8), conv(16, 16), conv(8, 16, stride=2), nn.Conv2d(16, 8, 1)
        self.aspp = nn.ModuleList([conv(24, 8, dilation=d) for d in (1, 2, 4)])
        self.pool, self.out = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(24, 8, 1), nn.ReLU()), nn.Conv2d(32, 5, 1)

    def forward(self, x):
        h = self.stem(x)
        l = self.lo(self.down(h))
        h = self.hi(h)
        h, l = F.relu(h + F.interpolate(self.lift(l), scale_factor=2.0, mode="nearest")), F.relu(l + self.down(h))
        y = torch.cat([h, F.interpolate(l, size=h.shape[-2:], mode="bilinear", align_corners=False)], 1)
        g = F.interpolate(self.pool(y), size=y.shape[-2:], mode="bilinear", align_corners=False)
        return self.out(torch.cat([f(y) for f in self.aspp] + [g], 1))


family("segmentation", "hrnet-aspp")(lambda: dense(Hrnet()))


class Retina(nn.Module):
    """A pyramid of features, heads shared by its levels, focal loss and GIoU as the output."""

    def __init__(self, k=3):
        super().__init__()
        self.k = k
        self.a, self.b, self.lateral = nn.Conv2d(3, 8, 3, 4, 1), nn.Conv2d(8, 16, 3, 2, 1), nn.ModuleList([nn.Conv2d(8, 8, 1), nn.Conv2d(16, 8, 1)])
        self.smooth = nn.Conv2d(8, 8, 3, padding=1)
        self.cls, self.box = nn.Conv2d(8, k, 3, padding=1), nn.Conv2d(8, 4, 3, padding=1)

    def forward(self, x, target_class, target_box):
        a = F.relu(self.a(x))
        b = F.relu(self.b(a))
        top = self.lateral[1](b)
        low = self.smooth(self.lateral[0](a) + F.interpolate(top, size=a.shape[-2:], mode="nearest"))
        flat = lambda y: y.flatten(2).transpose(1, 2)
        logits = torch.cat([flat(self.cls(y)) for y in (low, top)], 1)
        boxes = torch.cat([flat(self.box(y)).sigmoid() for y in (low, top)], 1)
        y = F.one_hot(target_class, self.k + 1)[..., :-1].float()
        p = logits.sigmoid()
        pt = p * y + (1 - p) * (1 - y)
        focal = (0.25 * y + 0.75 * (1 - y)) * (1 - pt) ** 2 * F.binary_cross_entropy_with_logits(logits, y, reduction="none")
        lo, hi = boxes[..., :2], boxes[..., :2] + boxes[..., 2:]
        tlo, thi = target_box[..., :2], target_box[..., :2] + target_box[..., 2:]
        area = lambda u, v: (v - u).clamp(min=0).prod(-1)
        inter = area(torch.max(lo, tlo), torch.min(hi, thi))
        union = area(lo, hi) + area(tlo, thi) - inter
        hull = area(torch.min(lo, tlo), torch.max(hi, thi))
        giou = inter / (union + 1e-7) - (hull - union) / (hull + 1e-7)
        positive = (target_class < self.k).float()
        return focal.sum() / positive.sum().clamp(min=1) + ((1 - giou) * positive).sum() / positive.sum().clamp(min=1)


family("detection", "retina")(lambda: Case(Retina(), {
    "input": normal(3, 32, 32), "target_class": random(3).integers(0, 4, (ROWS, 80)),
    "target_box": random(4).random((ROWS, 80, 4)).astype(np.float32) * 0.5}, loss="output", optimizer=SLOW))


class CenterNet(nn.Module):
    """A heat map's penalty-reduced focal loss, sizes gathered at known places."""

    def __init__(self):
        super().__init__()
        self.a = nn.Conv2d(3, 8, 3, 2, 1)
        self.heat, self.size = nn.Conv2d(8, 2, 1), nn.Conv2d(8, 2, 1)

    def forward(self, x, heat, place, size):
        x = F.relu(self.a(x))
        p = self.heat(x).sigmoid().clamp(1e-4, 1 - 1e-4)
        hit = heat.eq(1).float()
        loss = -((1 - p) ** 2 * p.log() * hit + p ** 2 * (1 - p).log() * (1 - heat) ** 4 * (1 - hit)).mean()
        found = self.size(x).flatten(2).transpose(1, 2).gather(1, place[:, :, None].expand(-1, -1, 2))
        return loss + F.l1_loss(found, size)


@family("detection", "center-points")
def center():
    heat = random(5).random((ROWS, 2, 16, 16)).astype(np.float32)
    return Case(CenterNet(), {"input": normal(3, 32, 32), "heat": np.where(heat > 0.97, 1, heat * 0.5).astype(np.float32),
                              "place": random(6).integers(0, 256, (ROWS, 3)), "size": normal(3, 2)}, loss="output", optimizer=SLOW)


class Bags(nn.Module):
    """nn.EmbeddingBag of fixed bags, three ways to reduce them."""

    def __init__(self):
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(40, 8, mode=mode) for mode in ("sum", "mean", "max"))
        self.out = nn.Linear(24, 1)

    def forward(self, sparse):
        return self.out(torch.cat([bag(sparse[:, i]) for i, bag in enumerate(self.bags)], 1))


family("recommender", "embedding-bags")(lambda: Case(Bags(), {"sparse": random(3).integers(0, 40, (ROWS, 3, 4))}, {
    "labels": (random(8).random((ROWS, 1)) < 0.5).astype("float32")}, loss="bce", batch=6, optimizer="sgd:lr=0.2"))


class Siamese(nn.Module):
    """One network over two images, distances, a margin; an input that nothing reads."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, 8, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8 * 36, 16))

    def forward(self, first, second, same, weight):
        d = F.pairwise_distance(self.net(first), self.net(second))
        return (same * d ** 2 + (1 - same) * F.relu(1.5 - d) ** 2).mean()


family("other", "siamese")(lambda: Case(Siamese(), {
    "first": normal(1, 16, 16), "second": normal(1, 16, 16, seed=2), "same": (random(4).random(ROWS) < 0.5).astype(np.float32),
    "weight": normal(3, seed=9)}, loss="output", optimizer=SLOW))


class Attention(nn.Module):
    """Graph attention with several heads over edges that are data: gathers, a softmax over targets by scatter."""

    def __init__(self, d=6, heads=2):
        super().__init__()
        self.w, self.a, self.b = nn.Linear(5, heads * d, bias=False), nn.Parameter(torch.randn(heads, d) * 0.3), nn.Parameter(torch.randn(heads, d) * 0.3)
        self.head, self.heads, self.d = nn.Linear(heads * d, 3), heads, d

    def forward(self, x, source, target):
        b, n, e = x.shape[0], x.shape[1], source.shape[1]
        h = self.w(x).view(b, n, self.heads, self.d)
        at = lambda index: index[:, :, None, None].expand(b, e, self.heads, self.d)
        hs, ht = h.gather(1, at(source)), h.gather(1, at(target))
        s = F.leaky_relu((hs * self.a).sum(-1) + (ht * self.b).sum(-1), 0.2)
        index = target[:, :, None].expand(b, e, self.heads)
        top = torch.full((b, n, self.heads), -1e9).scatter_reduce(1, index, s, "amax").detach()
        w = torch.exp(s - top.gather(1, index))
        total = torch.zeros(b, n, self.heads).scatter_add(1, index, w)
        w = w / (total.gather(1, index) + 1e-9)
        out = torch.zeros(b, n, self.heads, self.d).scatter_add(1, at(target), hs * w[..., None])
        return self.head(F.elu(out.flatten(2)).mean(1))


family("graph", "attention-over-edges")(lambda: Case(Attention(), {
    "x": normal(7, 5), "source": random(3).integers(0, 7, (ROWS, 12)), "target": random(4).integers(0, 7, (ROWS, 12))},
    {"labels": classes(3)}))


class Chebyshev(nn.Module):
    """Polynomials of a fixed Laplacian, pooling of pairs, jumping knowledge."""

    def __init__(self):
        super().__init__()
        a = torch.rand(8, 8, generator=torch.Generator().manual_seed(5)).round()
        a = torch.maximum(a, a.t())
        d = a.sum(1).clamp(min=1).rsqrt()
        self.register_buffer("laplacian", -d[:, None] * a * d[None])
        self.w, self.v, self.norm, self.head = nn.Linear(3 * 4, 8), nn.Linear(3 * 8, 8), nn.BatchNorm1d(8), nn.Linear(8 + 8, 3)

    def basis(self, x):
        t0, t1 = x, self.laplacian @ x
        return torch.cat([t0, t1, 2 * self.laplacian @ t1 - t0], -1)

    def forward(self, x):
        a = F.relu(self.norm(self.w(self.basis(x)).transpose(1, 2)).transpose(1, 2))
        b = F.relu(self.v(self.basis(a)))
        return self.head(torch.cat([a.view(-1, 4, 2, 8).amax(2).mean(1), b.mean(1)], -1))


family("graph", "chebyshev")(lambda: Case(Chebyshev(), {"x": normal(8, 4)}, {"labels": classes(3)}))


class Equivariant(nn.Module):
    """Coordinates and features of all pairs (EGNN)."""

    def __init__(self):
        super().__init__()
        self.edge, self.move, self.node = nn.Sequential(nn.Linear(9, 12), nn.SiLU()), nn.Linear(12, 1, bias=False), nn.Linear(16, 4)
        self.head = nn.Linear(5, 1)

    def forward(self, x, h):
        n = x.shape[1]
        d = x[:, :, None] - x[:, None]
        r = (d ** 2).sum(-1, keepdim=True)
        pair = torch.cat([h[:, :, None].expand(-1, -1, n, -1), h[:, None].expand(-1, n, -1, -1), r], -1)
        m = self.edge(pair) * (1 - torch.eye(n))[None, :, :, None]
        x = x + (d / (r.sqrt() + 1) * torch.tanh(self.move(m))).sum(2) / (n - 1)
        h = h + self.node(torch.cat([h, m.sum(2)], -1))
        return self.head(torch.cat([h, x.norm(dim=-1, keepdim=True)], -1)).sum(1)


family("graph", "equivariant")(lambda: regression(Equivariant(), {"x": normal(6, 3), "h": normal(6, 4, seed=2)}, 1))


class PerceiverIo(nn.Module):
    """Latents that read, think and are asked."""

    def __init__(self, d=12):
        super().__init__()
        self.latents, self.ask = nn.Parameter(torch.randn(5, d) * 0.2), nn.Parameter(torch.randn(7, d) * 0.2)
        self.read = nn.MultiheadAttention(d, 2, kdim=3, vdim=3, batch_first=True)
        self.think = nn.MultiheadAttention(d, 3, batch_first=True, add_bias_kv=True, add_zero_attn=True)
        self.answer, self.out = nn.MultiheadAttention(d, 2, batch_first=True, bias=False), nn.Linear(d, 2)

    def forward(self, x):
        b = x.shape[0]
        z = self.latents.expand(b, -1, -1)
        z = z + self.read(z, x, x)[0]
        z = z + self.think(z, z, z)[0]
        return self.out(self.answer(self.ask.expand(b, -1, -1), z, z)[0])


family("other", "perceiver-io")(lambda: regression(PerceiverIo(), {"x": normal(10, 3)}, 7, 2))


class Bilinear(nn.Module):
    """Bilinear forms, low-rank pooling, a tensor train, a Fourier mix, a determinant."""

    def __init__(self):
        super().__init__()
        self.b, self.u, self.v = nn.Bilinear(6, 5, 8), nn.Linear(6, 12), nn.Linear(5, 12)
        self.cores = nn.ParameterList(nn.Parameter(torch.randn(*s) * 0.5) for s in ((1, 2, 3), (3, 3, 2), (2, 2, 1)))
        self.m, self.head = nn.Linear(6, 9), nn.Linear(8 + 12 + 1, 4)

    def forward(self, x, y):
        low = F.normalize(torch.sqrt(F.relu(z := self.u(x) * self.v(y)) + 1e-6) - torch.sqrt(F.relu(-z) + 1e-6), dim=-1)
        train = torch.einsum("aib,bjc,ckd->aijkd", *self.cores).reshape(12)
        det = torch.det(self.m(x).view(-1, 3, 3) + 2 * torch.eye(3))
        return self.head(torch.cat([torch.tanh(self.b(x, y)), low * train, det[:, None]], -1))


family("other", "bilinear-forms")(lambda: Case(Bilinear(), {"x": normal(6), "y": normal(5, seed=2)}, {"labels": classes(4)}))


class Packed(nn.Module):
    """Sequences of known lengths, packed."""

    def __init__(self):
        super().__init__()
        self.e, self.lstm, self.out = nn.Embedding(V, 8), nn.LSTM(8, 10, batch_first=True, bidirectional=True), nn.Linear(20, 4)

    def forward(self, ids, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(self.e(ids), lengths, batch_first=True, enforce_sorted=True)
        _, (h, _) = self.lstm(packed)
        return self.out(torch.cat([h[-2], h[-1]], -1))


family("recurrent", "packed")(lambda: Case(Packed(), {"ids": tokens(T, V), "lengths": np.tile(
    np.array([12, 10, 7, 3]), ROWS // 4)}, {"labels": classes(4)}, batch=4))


class Scripted(nn.Module):
    """Loops and conditions that a compiled script keeps as Loop and If."""

    def __init__(self):
        super().__init__()
        self.cell, self.a, self.b, self.out = nn.GRUCell(6, 8), nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, x):
        h = torch.zeros(x.size(0), 8)
        for t in range(x.size(1)):
            h = self.cell(x[:, t], h)
            if t % 2 == 0:
                h = torch.relu(self.a(h))
            else:
                h = h + 0.1 * self.b(h)
        if x.size(1) > 3:
            h = torch.tanh(h)
        return self.out(h)


family("recurrent", "scripted")(lambda: Case(Scripted(), {"x": normal(5, 6)}, {"labels": classes(4)}, script=True))


@model("mobile-vit")
class MobileVit(nn.Module):
    """Convolutions, then attention over places of equal phase in all patches."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 12, 3, 4, 1, bias=False), nn.BatchNorm2d(12), nn.SiLU())
        self.inp, self.back, self.fuse = nn.Conv2d(12, 16, 1, bias=False), nn.Conv2d(16, 12, 1), nn.Conv2d(24, 12, 3, padding=1)
        self.layer, self.head = nn.TransformerEncoderLayer(16, 2, 24, 0.0, F.silu, batch_first=True, norm_first=True), nn.Linear(12, 10)

    def forward(self, x):
        x = self.stem(x)
        b, _, h, w = x.shape
        y = self.inp(x).reshape(b * 16 * h // 2, 2, w // 2, 2).transpose(1, 2).reshape(b, 16, h * w // 4, 4)
        y = y.transpose(1, 3).reshape(b * 4, h * w // 4, 16)
        y = self.layer(y).view(b, 4, h * w // 4, 16).transpose(1, 3)
        y = y.reshape(b * 16 * h // 2, w // 2, 2, 2).transpose(1, 2).reshape(b, 16, h, w)
        return self.head(self.fuse(torch.cat([x, self.back(y)], 1)).mean((-2, -1)))


@model("selective-kernels")
class Selective(nn.Module):
    """Kernels chosen by attention, efficient channel attention, weight standardization, a learned pooling exponent."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(8, 8, 3, padding=1, groups=4), nn.Conv2d(8, 8, 3, padding=2, dilation=2, groups=4)
        self.z, self.pick, self.eca = nn.Linear(8, 4), nn.Linear(4, 16), nn.Conv1d(1, 1, 3, padding=1, bias=False)
        self.p, self.head = nn.Parameter(torch.tensor([2.5])), nn.Linear(8, 10)

    def forward(self, x):
        w = self.a.weight
        w = (w - w.mean((1, 2, 3), keepdim=True)) / (w.std((1, 2, 3), keepdim=True) + 1e-5)
        x = F.relu(F.conv2d(x, w, self.a.bias, 2, 1))
        u, v = self.b(x), self.c(x)
        s = torch.softmax(self.pick(F.relu(self.z((u + v).mean((2, 3))))).view(-1, 2, 8), 1)
        x = u * s[:, 0, :, None, None] + v * s[:, 1, :, None, None]
        g = torch.sigmoid(self.eca(F.adaptive_avg_pool2d(x, 1).squeeze(-1).transpose(-1, -2)).transpose(-1, -2).unsqueeze(-1))
        x = (x * g).clamp(min=1e-6).pow(self.p)
        return self.head(F.avg_pool2d(x, x.shape[-2:]).pow(1.0 / self.p).flatten(1))


class Losses(nn.Module):
    """Three heads and losses weighed by learned uncertainty; labels are inputs, one of them in int32."""

    def __init__(self):
        super().__init__()
        self.body, self.a, self.b, self.c = nn.Linear(8, 16), nn.Linear(16, 5), nn.Linear(16, 1), nn.Linear(16, 3)
        self.log = nn.Parameter(torch.zeros(3))

    def forward(self, x, kind, value, flags):
        h = torch.relu(self.body(x))
        losses = torch.stack([F.cross_entropy(self.a(h), kind.long()), F.mse_loss(self.b(h).squeeze(-1), value),
                              F.binary_cross_entropy_with_logits(self.c(h), flags.float())])
        return (losses * torch.exp(-self.log) + self.log).sum()


family("other", "several-losses")(lambda: Case(Losses(), {
    "x": normal(8), "kind": random(3).integers(0, 5, ROWS).astype(np.int32), "value": normal(seed=4),
    "flags": random(5).random((ROWS, 3)) < 0.5}, loss="output"))


class Spline(nn.Module):
    """A neural spline flow's rational quadratics: cumulative widths, searchsorted, gathers."""

    def __init__(self, k=5):
        super().__init__()
        self.net, self.k = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2 * (3 * k - 1))), k

    def forward(self, x):
        a, b = x.chunk(2, -1)
        w, h, d = self.net(a).view(-1, 2, 3 * self.k - 1).split([self.k, self.k, self.k - 1], -1)
        w, h = (1e-3 + (1 - 1e-3 * self.k) * F.softmax(z, -1) for z in (w, h))
        d = F.pad(F.softplus(d) + 1e-3, (1, 1), value=1.0)
        xs, ys = (F.pad(torch.cumsum(z, -1), (1, 0)) for z in (w, h))
        b = torch.sigmoid(b)
        at = ((b[..., None] >= xs[..., :-1]).sum(-1, keepdim=True) - 1).clamp(0, self.k - 1)
        take = lambda z: z.gather(-1, at).squeeze(-1)
        t, s = (b - take(xs)) / take(w), take(h) / take(w)
        d0, d1 = take(d[..., :-1]), take(d[..., 1:])
        low = s + (d0 + d1 - 2 * s) * t * (1 - t)
        y = take(ys) + take(h) * (s * t ** 2 + d0 * t * (1 - t)) / low
        log = torch.log(s ** 2 * (d1 * t ** 2 + 2 * s * t * (1 - t) + d0 * (1 - t) ** 2)) - 2 * torch.log(low)
        return ((y - 0.5) ** 2).sum(-1).mean() - log.sum(-1).mean()


family("generative", "spline-flow")(lambda: Case(Spline(), {"x": normal(4)}, loss="output"))


class Policy(nn.Module):
    """An actor and a critic: clipped ratios, entropies, a normal with a learned spread (PPO); LSTM states as inputs."""

    def __init__(self):
        super().__init__()
        self.cell, self.mean, self.value, self.spread = nn.LSTMCell(6, 10), nn.Linear(10, 2), nn.Linear(10, 1), nn.Parameter(torch.full((2,), -0.5))

    def forward(self, state, h, c, action, old, advantage, goal):
        h, c = self.cell(state, (h, c))
        n = torch.distributions.Normal(self.mean(h), self.spread.exp(), validate_args=False)
        ratio = (n.log_prob(action).sum(-1) - old).exp()
        gain = torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
        return -gain + 0.5 * (self.value(h).squeeze(-1) - goal).pow(2).mean() - 0.01 * n.entropy().sum(-1).mean()


family("other", "actor-critic")(lambda: Case(Policy(), {
    "state": normal(6), "h": normal(10, seed=2), "c": normal(10, seed=3), "action": normal(2, seed=4),
    "old": -np.abs(normal(seed=5)) - 2, "advantage": normal(seed=6), "goal": normal(seed=7)}, loss="output"))
