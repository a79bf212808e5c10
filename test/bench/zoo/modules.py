"""Networks on images, sound and points written as papers' repositories write them."""
import math

import numpy as np
import torch
import torch.nn.functional as F
import torchvision.models as tv
from torch import nn

from case import ROWS, Case, classes, family, images, random
from vision import SLOW, C, G, classifier, dense

NEW = "of papers"


def model(name, group=NEW, **more):
    """Registers a module class as a classifier of images."""
    def register(kind):
        family(group, name)(lambda: classifier(kind(), **more))
        return kind
    return register


def regression(net, inputs, *shape, **more):
    target = random(4).standard_normal((ROWS, *shape)).astype("float32") * 0.5
    return Case(net, inputs, {"targets": target}, loss="mse", optimizer=SLOW, **more)


def normal(*shape, seed=1):
    return random(seed).standard_normal((ROWS, *shape)).astype("float32")


# torchvision's others.
family(C, "resnet-18")(lambda: classifier(nn.Sequential(*list(tv.ResNet(
    tv.resnet.BasicBlock, [1, 1, 1, 1], num_classes=10).children())[:6], nn.AdaptiveAvgPool2d(1), nn.Flatten(),
    nn.Linear(128, 10)), 32))
family(C, "resnext")(lambda: classifier(nn.Sequential(*list(tv.ResNet(
    tv.resnet.Bottleneck, [1, 1, 1, 1], groups=8, width_per_group=4).children())[:6], nn.AdaptiveAvgPool2d(1), nn.Flatten(),
    nn.Linear(512, 10)), 32))
family(C, "vgg-plain")(lambda: classifier(nn.Sequential(tv.vgg.make_layers([8, 8, "M", 16, "M"]), nn.AdaptiveAvgPool2d(3),
                                                        nn.Flatten(), nn.Linear(144, 10))))
family("vision transformer", "swinv2-torchvision")(lambda: classifier(tv.SwinTransformer(
    [2, 2], 16, [2, 2], [2, 4], [4, 4], stochastic_depth_prob=0.0, num_classes=10,
    block=tv.swin_transformer.SwinTransformerBlockV2, downsample_layer=tv.swin_transformer.PatchMergingV2)))
family(C, "inception-c")(lambda: classifier(nn.Sequential(
    nn.Conv2d(3, 16, 3, 2), tv.inception.InceptionC(16, 8), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(768 * 49, 10)), 32))


@model("squeeze-excite")
class Attend(nn.Module):
    """Channel and spatial attention (CBAM)."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1)
        self.mlp = nn.Sequential(nn.Conv2d(16, 4, 1), nn.ReLU(), nn.Conv2d(4, 16, 1))
        self.space, self.head = nn.Conv2d(2, 1, 7, padding=3, bias=False), nn.Linear(16, 10)

    def forward(self, x):
        x = F.relu(self.b(F.relu(self.a(x))))
        x = x * torch.sigmoid(self.mlp(F.adaptive_avg_pool2d(x, 1)) + self.mlp(F.adaptive_max_pool2d(x, 1)))
        s = torch.cat((x.mean(1, keepdim=True), x.max(1, keepdim=True)[0]), 1)
        x = x * torch.sigmoid(self.space(s))
        return self.head(x.mean((-2, -1)))


@model("ghost")
class Ghost(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Sequential(nn.Conv2d(3, 8, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        self.b = nn.Sequential(nn.Conv2d(8, 8, 3, 1, 1, groups=8, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        self.head = nn.Linear(12, 10)

    def forward(self, x):
        y = self.a(x)
        y = torch.cat([y, self.b(y)], dim=1)[:, :12, :, :]
        return self.head(F.adaptive_avg_pool2d(y, (1, 1)).view(y.size(0), -1))


@model("stochastic-pyramid")
class Pyramid(nn.Module):
    """Weighted fusion of levels (BiFPN) and pooling at three scales."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Conv2d(3, 12, 3, 2, 1), nn.Conv2d(12, 12, 3, 2, 1), nn.Conv2d(12, 12, 3, 2, 1)
        self.weight = nn.Parameter(torch.rand(3) + 0.5)
        self.out, self.head = nn.Conv2d(12, 12, 3, padding=1, groups=12), nn.Linear(12 * 21, 10)

    def forward(self, x):
        a = F.silu(self.a(x))
        b = F.silu(self.b(a))
        c = F.silu(self.c(b))
        w = F.relu(self.weight)
        w = w / (w.sum() + 1e-4)
        y = self.out(w[0] * F.max_pool2d(a, 3, 2, 1) + w[1] * b + w[2] * F.interpolate(c, scale_factor=2.0))
        return self.head(torch.cat([F.adaptive_avg_pool2d(y, n).flatten(1) for n in (1, 2, 4)], 1))


@model("involution")
class Involution(nn.Module):
    """A kernel for every place, by unfold."""

    def __init__(self):
        super().__init__()
        self.stem, self.kernel, self.head = nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(8, 2 * 9, 1), nn.Linear(8, 10)

    def forward(self, x):
        x = self.stem(x)
        b, c, h, w = x.shape
        k = self.kernel(x).view(b, 2, 9, h, w).unsqueeze(2)
        y = F.unfold(x, 3, padding=1).view(b, 2, c // 2, 9, h, w)
        return self.head((k * y).sum(3).view(b, c, h, w).mean((2, 3)))


@model("spatial-transformer")
class Warp(nn.Module):
    def __init__(self):
        super().__init__()
        self.find = nn.Sequential(nn.Conv2d(3, 8, 5, 4), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 49, 6))
        self.net = nn.Sequential(nn.Conv2d(3, 8, 5, 4), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 49, 10))
        self.register_buffer("unit", torch.tensor([1.0, 0, 0, 0, 1, 0]))

    def forward(self, x):
        theta = (self.unit + 0.1 * self.find(x)).view(-1, 2, 3)
        return self.net(F.grid_sample(x, F.affine_grid(theta, [x.shape[0], 3, 32, 32], align_corners=False),
                                      align_corners=False, padding_mode="border"))


@model("modulated-convolution")
class Style(nn.Module):
    """Weights of a convolution scaled for every sample, as grouped convolution."""

    def __init__(self):
        super().__init__()
        self.weight, self.style = nn.Parameter(torch.randn(8, 3, 3, 3) * 0.3), nn.Linear(3, 3)
        self.head = nn.Linear(8, 10)

    def forward(self, x):
        b, c, h, w = x.shape
        s = self.style(x.mean((2, 3))).view(b, 1, c, 1, 1) + 1
        weight = self.weight[None] * s
        weight = weight * torch.rsqrt(weight.pow(2).sum([2, 3, 4], keepdim=True) + 1e-8)
        y = F.conv2d(x.reshape(1, b * c, h, w), weight.reshape(b * 8, c, 3, 3), padding=1, groups=b)
        return self.head(F.leaky_relu(y.view(b, 8, h, w), 0.2).mean((2, 3)))


@model("capsules")
class Capsules(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.weight = nn.Conv2d(3, 16, 9, 4), nn.Parameter(torch.randn(1, 144, 10, 8, 4) * 0.1)

    @staticmethod
    def squash(s):
        n = (s ** 2).sum(-1, keepdim=True)
        return n / (1 + n) * s / torch.sqrt(n + 1e-8)

    def forward(self, x):
        u = self.squash(self.a(x).flatten(2).reshape(x.shape[0], -1, 4))
        u = (self.weight @ u[:, :, None, :, None]).squeeze(-1)
        b = torch.zeros_like(u[..., :1])
        for _ in range(2):
            c = torch.softmax(b, dim=2)
            v = self.squash((c * u).sum(1, keepdim=True))
            b = b + (u * v).sum(-1, keepdim=True)
        return v.squeeze(1).norm(dim=-1) * 4


@model("partial-convolution")
class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.head = nn.Linear(8, 10)
        mask = torch.ones(8, 8, 3, 3)
        mask[:, :, 1, 2:] = 0
        mask[:, :, 2:] = 0
        self.register_buffer("mask", mask)

    def forward(self, x):
        x = F.elu(self.a(x))
        x = x + F.conv2d(x, self.b.weight * self.mask, self.b.bias, padding=1)
        return self.head(F.avg_pool2d(x, 32).flatten(1))


@model("coordinates")
class Coordinates(nn.Module):
    """Coordinates as channels; instance and group normalization; reflecting pads."""

    def __init__(self):
        super().__init__()
        self.a, self.n, self.b = nn.Conv2d(5, 8, 3), nn.InstanceNorm2d(8, affine=True), nn.Conv2d(8, 8, 3, 2)
        self.m, self.g, self.head = nn.InstanceNorm2d(8), nn.GroupNorm(4, 8), nn.Linear(8, 10)

    def forward(self, x):
        b, _, h, w = x.shape
        ys = torch.linspace(-1, 1, h).view(1, 1, h, 1).expand(b, 1, h, w)
        xs = torch.linspace(-1, 1, w).view(1, 1, 1, w).expand(b, 1, h, w)
        x = torch.cat([x, ys, xs], 1)
        x = F.relu(self.n(self.a(F.pad(x, [1] * 4, mode="reflect"))))
        x = F.relu(self.m(self.b(F.pad(x, [1] * 4, mode="replicate")))) + 0.1
        return self.head(self.g(x).mean((2, 3)))


@model("blur-pool")
class Blur(nn.Module):
    def __init__(self):
        super().__init__()
        a = torch.tensor([1.0, 2, 1])
        self.register_buffer("filter", (a[:, None] * a[None] / 16)[None, None].repeat(8, 1, 1, 1))
        self.a, self.head = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(8 * 64, 10)

    def forward(self, x):
        x = F.relu6(self.a(x))
        x = F.conv2d(F.pad(x, (1, 1, 1, 1), mode="reflect"), self.filter, stride=2, groups=8)
        return self.head(F.lp_pool2d(x, 2, 2).flatten(1))


@model("patches-with-windows")
class Windows(nn.Module):
    """Shifted windows by roll, relative positions by a table."""

    def __init__(self):
        super().__init__()
        self.patch, self.qkv, self.head = nn.Conv2d(3, 16, 4, 4), nn.Linear(16, 48), nn.Linear(16, 10)
        self.table = nn.Parameter(torch.randn(49, 2) * 0.1)
        grid = torch.stack(torch.meshgrid(torch.arange(4), torch.arange(4), indexing="ij")).flatten(1)
        r = grid[:, :, None] - grid[:, None]
        self.register_buffer("index", (r[0] + 3) * 7 + r[1] + 3)

    def forward(self, x):
        x = torch.roll(self.patch(x).permute(0, 2, 3, 1), (-2, -2), (1, 2))
        b = x.shape[0]
        x = x.view(b, 2, 4, 2, 4, 16).permute(0, 1, 3, 2, 4, 5).reshape(-1, 16, 16)
        q, k, v = self.qkv(x).reshape(-1, 16, 3, 2, 8).permute(2, 0, 3, 1, 4).unbind(0)
        bias = self.table[self.index.view(-1)].view(16, 16, 2).permute(2, 0, 1)
        y = (q @ k.transpose(-2, -1) * 8 ** -0.5 + bias).softmax(-1) @ v
        y = (x + y.transpose(1, 2).reshape(-1, 16, 16)).view(b, 2, 2, 4, 4, 16).permute(0, 1, 3, 2, 4, 5).reshape(b, 8, 8, 16)
        return self.head(torch.roll(y, (2, 2), (1, 2)).mean((1, 2)))


@model("outlook")
class Fold(nn.Module):
    """Unfold and fold (VOLO)."""

    def __init__(self):
        super().__init__()
        self.a, self.v, self.w, self.head = nn.Conv2d(3, 8, 4, 4), nn.Linear(8, 8), nn.Linear(8, 81), nn.Linear(8, 10)

    def forward(self, x):
        x = self.a(x).permute(0, 2, 3, 1)
        b, h, w, c = x.shape
        v = F.unfold(self.v(x).permute(0, 3, 1, 2), 3, padding=1).view(b, c, 9, h * w).permute(0, 3, 2, 1)
        y = (self.w(x).view(b, h * w, 9, 9).softmax(-1) @ v).permute(0, 3, 2, 1).reshape(b, c * 9, h * w)
        return self.head(F.fold(y, (h, w), 3, padding=1).mean((2, 3)))


# Detection.

class Detector(nn.Module):
    """Boxes of a grid and classes, as YOLO computes them."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.Mish(), nn.Conv2d(8, 16, 3, 2, 1), nn.Mish())
        self.pool, self.mix, self.head = nn.MaxPool2d(5, 1, 2), nn.Conv2d(64, 16, 1), nn.Conv2d(16, 3 * 9, 1)
        self.register_buffer("anchors", torch.tensor([[10.0, 13], [16, 30], [33, 23]]) / 32)

    def forward(self, x):
        x = self.body(x)
        p = [x]
        for _ in range(3):
            p.append(self.pool(p[-1]))
        x = self.head(self.mix(torch.cat(p, 1)))
        b, _, h, w = x.shape
        x = x.view(b, 3, 9, h, w).permute(0, 1, 3, 4, 2).contiguous()
        ys, xs = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
        grid = torch.stack((xs, ys), -1).float()
        y = x.sigmoid()
        xy = (y[..., 0:2] * 2.0 - 0.5 + grid) / w
        wh = (y[..., 2:4] * 2) ** 2 * self.anchors.view(3, 1, 1, 2)
        return torch.cat((xy, wh, y[..., 4:]), -1).view(b, -1, 9)


family("detection", "yolo")(lambda: regression(Detector(), {"input": normal(3, 32, 32)}, 192, 9))


class Ssd(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 12, 3, 4, 1), nn.Conv2d(12, 12, 3, 2, 1)
        self.scale = nn.Parameter(torch.full((12,), 5.0))
        self.boxes = nn.ModuleList(nn.Conv2d(12, 4 * n, 3, padding=1) for n in (4, 6))

    def forward(self, x):
        a = F.relu(self.a(x))
        b = F.relu(self.b(a))
        a = F.normalize(a, p=2, dim=1) * self.scale.view(1, -1, 1, 1)
        return torch.cat([h(y).permute(0, 2, 3, 1).reshape(x.size(0), -1, 4) for h, y in zip(self.boxes, (a, b))], 1)


family("detection", "ssd")(lambda: regression(Ssd(), {"input": normal(3, 32, 32)}, 352, 4))


# Generative.

class Time(nn.Module):
    def forward(self, t):
        angles = t[:, None].float() * torch.exp(torch.arange(4) * -(math.log(10000) / 3))[None]
        return torch.cat((angles.sin(), angles.cos()), -1)


class Block(nn.Module):
    def __init__(self, a, b):
        super().__init__()
        self.n, self.c, self.t = nn.GroupNorm(4, a), nn.Conv2d(a, b, 3, padding=1), nn.Linear(16, b)
        self.m, self.d = nn.GroupNorm(4, b), nn.Conv2d(b, b, 3, padding=1)
        self.skip = nn.Conv2d(a, b, 1) if a != b else nn.Identity()

    def forward(self, x, t):
        h = self.c(F.silu(self.n(x))) + self.t(F.silu(t))[:, :, None, None]
        return self.d(F.silu(self.m(h))) + self.skip(x)


class Diffusion(nn.Module):
    def __init__(self):
        super().__init__()
        self.time = nn.Sequential(Time(), nn.Linear(8, 16), nn.SiLU(), nn.Linear(16, 16))
        self.inp, self.a, self.b, self.c = nn.Conv2d(3, 8, 3, padding=1), Block(8, 8), Block(8, 16), Block(24, 8)
        self.down, self.up = nn.Conv2d(8, 8, 3, 2, 1), nn.Conv2d(16, 16, 3, padding=1)
        self.norm, self.qkv, self.proj = nn.GroupNorm(4, 16), nn.Conv1d(16, 48, 1), nn.Conv1d(16, 16, 1)
        self.last, self.out = nn.GroupNorm(4, 8), nn.Conv2d(8, 3, 3, padding=1)

    def forward(self, x, t):
        t = self.time(t)
        a = self.a(self.inp(x), t)
        b = self.b(self.down(a), t)
        n, c, h, w = b.shape
        q, k, v = self.qkv(self.norm(b).view(n, c, h * w)).chunk(3, 1)
        s = torch.einsum("bct,bcs->bts", q * 4 ** -0.5, k).softmax(-1)
        b = b + self.proj(torch.einsum("bts,bcs->bct", s, v)).view(n, c, h, w)
        y = self.c(torch.cat([a, self.up(F.interpolate(b, scale_factor=2, mode="nearest"))], 1), t)
        return self.out(F.silu(self.last(y)))


family("generative", "diffusion")(lambda: regression(
    Diffusion(), {"input": normal(3, 16, 16), "t": random(3).integers(0, 1000, ROWS)}, 3, 16, 16))


class Patches(nn.Module):
    """A diffusion transformer: normalization modulated by the time and the class."""

    def __init__(self):
        super().__init__()
        self.time, self.label = nn.Sequential(Time(), nn.Linear(8, 16)), nn.Embedding(11, 16)
        self.patch, self.pos = nn.Conv2d(3, 16, 4, 4), nn.Parameter(torch.randn(1, 16, 16) * 0.1)
        self.norm, self.ada = nn.LayerNorm(16, elementwise_affine=False), nn.Linear(16, 96)
        self.qkv, self.mlp = nn.Linear(16, 48), nn.Sequential(nn.Linear(16, 32), nn.GELU("tanh"), nn.Linear(32, 16))
        self.out = nn.Linear(16, 48)

    def forward(self, x, t, y):
        c = self.time(t) + self.label(y)
        x = self.patch(x).flatten(2).transpose(1, 2) + self.pos
        a, b, g, d, e, f = self.ada(F.silu(c)).unsqueeze(1).chunk(6, -1)
        q, k, v = (z.unflatten(-1, (2, 8)).transpose(1, 2) for z in self.qkv(self.norm(x) * (1 + b) + a).chunk(3, -1))
        x = x + g * F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = x + f * self.mlp(self.norm(x) * (1 + e) + d)
        x = self.out(x).view(-1, 4, 4, 4, 4, 3)
        return torch.einsum("nhwpqc->nchpwq", x).reshape(-1, 3, 16, 16)


family("generative", "diffusion-transformer")(lambda: regression(
    Patches(), {"input": normal(3, 16, 16), "t": random(3).integers(0, 1000, ROWS), "y": random(5).integers(0, 11, ROWS)},
    3, 16, 16))


class Vae(nn.Module):
    """The noise is an input; the model computes its loss."""

    def __init__(self):
        super().__init__()
        self.encode, self.decode = nn.Sequential(nn.Linear(24, 16), nn.ReLU(), nn.Linear(16, 8)), \
            nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 24))

    def forward(self, x, noise):
        mean, log = self.encode(x).chunk(2, dim=1)
        z = mean + torch.exp(0.5 * log) * noise
        recon = F.binary_cross_entropy_with_logits(self.decode(z), torch.sigmoid(x), reduction="sum")
        kl = -0.5 * torch.sum(1 + log - mean.pow(2) - log.exp())
        return (recon + kl) / x.shape[0]


family("generative", "vae")(lambda: Case(Vae(), {"x": normal(24), "noise": normal(4, seed=6)}, loss="output",
                                         optimizer="sgd:lr=0.01"))


class VectorQuantizer(nn.Module):
    """Nearest codes with a straight-through gradient."""

    def __init__(self):
        super().__init__()
        self.a, self.codes, self.b = nn.Linear(24, 8), nn.Embedding(12, 8), nn.Linear(8, 24)

    def forward(self, x):
        z = self.a(x)
        distance = z.pow(2).sum(1, keepdim=True) + self.codes.weight.pow(2).sum(1) - 2 * z @ self.codes.weight.t()
        q = self.codes(distance.argmin(1))
        loss = F.mse_loss(q, z.detach()) + 0.25 * F.mse_loss(q.detach(), z)
        return F.mse_loss(self.b(z + (q - z).detach()), x) + loss


family("generative", "vq-vae-codes")(lambda: Case(VectorQuantizer(), {"x": normal(24)}, loss="output",
                                                  optimizer="sgd:lr=0.01"))


class Flow(nn.Module):
    """Affine couplings with masks, the log-likelihood as the loss (RealNVP)."""

    def __init__(self):
        super().__init__()
        net = lambda: nn.Sequential(nn.Linear(6, 16), nn.LeakyReLU(), nn.Linear(16, 6))
        self.s, self.t = nn.ModuleList(net() for _ in range(3)), nn.ModuleList(net() for _ in range(3))
        self.register_buffer("masks", torch.tensor([[0.0, 1] * 3, [1, 0] * 3, [1, 1, 1, 0, 0, 0]]))
        self.log_scale = nn.Parameter(torch.randn(6) * 0.1)

    def forward(self, x):
        logdet, z = self.log_scale.sum() + x.new_zeros(x.shape[0]), x * torch.exp(self.log_scale)
        for i in range(3):
            m = self.masks[i]
            kept = m * z
            s, t = torch.tanh(self.s[i](kept)) * (1 - m), self.t[i](kept) * (1 - m)
            z = kept + (1 - m) * (z - t) * torch.exp(-s)
            logdet = logdet - s.sum(1)
        return (0.5 * (z ** 2).sum(1) + 3 * math.log(2 * math.pi) - logdet).mean()


family("generative", "flow")(lambda: Case(Flow(), {"x": normal(6)}, loss="output", optimizer="sgd:lr=0.01"))


class Points(nn.Module):
    """PointNet with its learned rotation."""

    def __init__(self):
        super().__init__()
        self.t, self.f = nn.Sequential(nn.Conv1d(3, 16, 1), nn.ReLU()), nn.Linear(16, 9)
        self.a, self.b = nn.Conv1d(3, 16, 1), nn.Conv1d(16, 32, 1)
        self.n, self.head = nn.BatchNorm1d(16), nn.Linear(32, 6)

    def forward(self, x):
        r = self.f(torch.max(self.t(x), 2, keepdim=True)[0].view(-1, 16)) + torch.eye(3).flatten()[None].repeat(x.size(0), 1)
        x = torch.bmm(x.transpose(2, 1), r.view(-1, 3, 3)).transpose(2, 1)
        x = self.b(F.relu(self.n(self.a(x))))
        return F.log_softmax(self.head(torch.max(x, 2)[0]), dim=1)


family(NEW, "pointnet")(lambda: Case(Points(), {"points": normal(3, 20)}, {"labels": classes(6)}))


class Edges(nn.Module):
    """DGCNN: a graph of the nearest points, found by top-k and gathered."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.head = nn.Conv2d(6, 16, 1), nn.Conv2d(32, 16, 1), nn.Linear(16, 6)

    @staticmethod
    def neighbours(x, k=4):
        inner = -2 * torch.matmul(x.transpose(2, 1), x)
        square = torch.sum(x ** 2, dim=1, keepdim=True)
        index = (-square - inner - square.transpose(2, 1)).topk(k=k, dim=-1)[1]
        b, c, n = x.shape
        index = (index + torch.arange(b)[:, None, None] * n).view(-1)
        x = x.transpose(2, 1).contiguous()
        near = x.view(b * n, -1)[index, :].view(b, n, k, c)
        x = x.view(b, n, 1, c).repeat(1, 1, k, 1)
        return torch.cat((near - x, x), dim=3).permute(0, 3, 1, 2)

    def forward(self, x):
        x = F.leaky_relu(self.a(self.neighbours(x)), 0.2).max(dim=-1)[0]
        x = F.leaky_relu(self.b(self.neighbours(x)), 0.2).max(dim=-1)[0]
        return self.head(x.mean(-1))


family(NEW, "edge-convolutions")(lambda: Case(Edges(), {"points": normal(3, 12)}, {"labels": classes(6)}))


class Residual3d(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Conv3d(2, 8, 3, 1, 1), nn.Conv3d(8, 16, 3, 2, 1), nn.ConvTranspose3d(16, 8, 2, 2)
        self.n, self.out = nn.InstanceNorm3d(8, affine=True), nn.Conv3d(16, 2, 1)

    def forward(self, x):
        a = F.leaky_relu(self.n(self.a(x)))
        return self.out(torch.cat((a, self.c(F.relu(self.b(a)))), 1))


family(G, "unet-3d")(lambda: regression(Residual3d(), {"input": normal(2, 8, 8, 8)}, 2, 8, 8, 8))


class Matting(nn.Module):
    """Pyramid pooling, a strided deconvolution with groups, align_corners off and on (PSPNet, ICNet)."""

    def __init__(self):
        super().__init__()
        self.a, self.pools = nn.Conv2d(3, 12, 3, 2, 1), nn.ModuleList(
            nn.Sequential(nn.AdaptiveAvgPool2d(n), nn.Conv2d(12, 4, 1, bias=False), nn.ReLU()) for n in (1, 2, 4, 8))
        self.b, self.up = nn.Conv2d(28, 12, 3, padding=2, dilation=2), nn.ConvTranspose2d(12, 5, 4, 2, 1)

    def forward(self, x):
        x = F.relu(self.a(x))
        levels = [F.interpolate(p(x), x.shape[2:], mode="bilinear", align_corners=True) for p in self.pools]
        return self.up(F.dropout2d(F.relu(self.b(torch.cat([x, *levels], 1))), 0.0))


family(G, "pyramid-pooling")(lambda: dense(Matting()))


# Sound and time.

class Wavenet(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Conv1d(1, 8, 1)
        self.filters = nn.ModuleList(nn.Conv1d(8, 16, 2, dilation=2 ** i) for i in range(4))
        self.res, self.skips = nn.ModuleList(nn.Conv1d(8, 8, 1) for _ in range(4)), nn.ModuleList(nn.Conv1d(8, 12, 1) for _ in range(4))
        self.out = nn.Conv1d(12, 1, 1)

    def forward(self, x):
        x, total = self.inp(x), 0
        for i, (f, r, s) in enumerate(zip(self.filters, self.res, self.skips)):
            a, b = f(F.pad(x, (2 ** i, 0))).chunk(2, 1)
            y = torch.tanh(a) * torch.sigmoid(b)
            x, total = x + r(y), total + s(y)
        return self.out(F.relu(total))


family("audio", "wavenet")(lambda: regression(Wavenet(), {"wave": normal(1, 64)}, 1, 64))


class Conformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp, self.n1, self.n2, self.n3 = nn.Linear(10, 16), nn.LayerNorm(16), nn.LayerNorm(16), nn.LayerNorm(16)
        self.attention = nn.MultiheadAttention(16, 4, batch_first=True)
        self.p, self.d, self.bn, self.q = nn.Conv1d(16, 32, 1), nn.Conv1d(16, 16, 5, padding=2, groups=16), \
            nn.BatchNorm1d(16), nn.Conv1d(16, 16, 1)
        self.ff, self.head = nn.Sequential(nn.Linear(16, 32), nn.SiLU(), nn.Linear(32, 16)), nn.Linear(16, 12)

    def forward(self, x):
        x = self.inp(x)
        x = x + 0.5 * self.ff(self.n1(x))
        y = self.n2(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        y = F.glu(self.p(self.n3(x).transpose(1, 2)), dim=1)
        return self.head(x + self.q(F.silu(self.bn(self.d(y)))).transpose(1, 2))


family("audio", "conformer")(lambda: Case(Conformer(), {"features": normal(20, 10)}, {
    "labels": random(2).integers(0, 12, (ROWS, 20))}))


class Crnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, 8, 3, 1, 1), nn.ReLU(True), nn.MaxPool2d(2, 2), nn.Conv2d(8, 16, 3, 1, 1),
                                 nn.BatchNorm2d(16), nn.ReLU(True), nn.MaxPool2d((2, 2), (2, 1), (0, 1)),
                                 nn.Conv2d(16, 16, (4, 2)), nn.ReLU(True))
        self.lstm, self.head = nn.LSTM(16, 12, bidirectional=True, num_layers=2), nn.Linear(24, 11)

    def forward(self, x):
        y = self.net(x).squeeze(2).permute(2, 0, 1)
        return self.head(self.lstm(y)[0]).transpose(0, 1)


family("recurrent", "crnn")(lambda: Case(Crnn(), {"input": normal(1, 16, 24)}, {
    "labels": random(2).integers(0, 11, (ROWS, 12))}))


class ConvLstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.gates, self.out = nn.Conv2d(2 + 6, 24, 3, padding=1), nn.Conv2d(6, 2, 1)

    def forward(self, x):
        h = c = torch.zeros(x.size(0), 6, 8, 8)
        for t in range(x.size(1)):
            i, f, o, g = torch.split(self.gates(torch.cat([x[:, t], h], dim=1)), 6, dim=1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
        return self.out(h)


family("recurrent", "conv-lstm")(lambda: regression(ConvLstm(), {"frames": normal(4, 2, 8, 8)}, 2, 8, 8))
