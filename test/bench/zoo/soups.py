"""Functions of PyTorch that models are written with, a few in each network, every one behind weights of its own."""
import torch
import torch.nn.functional as F
from torch import nn

from case import Case, family, random
from modules import normal

GROUP = "functions"


class Soup(nn.Module):
    """The mean square of each function of scaled and shifted inputs, added up."""

    def __init__(self, functions, shape):
        super().__init__()
        self.functions = functions
        n = len(functions)
        self.mix = nn.ModuleList(nn.Linear(shape[-1], shape[-1]) for _ in range(n))
        self.scale = nn.ParameterList(nn.Parameter(torch.randn(shape[-1]) * 0.3 + 1) for _ in range(n))

    def forward(self, x):
        total = 0.0
        for f, mix, scale in zip(self.functions, self.mix, self.scale):
            y = f(mix(x) * scale)
            parts = y if isinstance(y, (tuple, list)) else [y]
            for i, part in enumerate(parts):
                total = total + (i + 1) * (part.float() - 0.3).pow(2).mean()
        return total


def soup(name, *functions, shape=(6, 8), newer=()):
    """`newer`: places of those that only the dynamo exporter has; they are a family of their own."""
    for ending, chosen in (("", [f for i, f in enumerate(functions) if i not in newer]),
                           ("-newer", [functions[i] for i in newer])):
        if chosen:
            family(GROUP, name + ending)(lambda chosen=chosen: Case(
                Soup(chosen, shape), {"x": normal(*shape)}, loss="output", optimizer="sgd:lr=0.02,momentum=0.9"))


soup("activations-1", F.logsigmoid, F.tanhshrink, F.softshrink, F.hardshrink, F.hardtanh, F.relu6, F.softsign,
     lambda x: F.softplus(x, beta=2.0, threshold=10.0), lambda x: F.threshold(x, 0.1, -0.5), lambda x: F.glu(x, -1), newer=(8,))
soup("activations-2", F.selu, F.elu, lambda x: F.celu(x, 0.7), F.mish, F.silu, F.hardsigmoid, F.hardswish,
     lambda x: F.gelu(x, approximate="tanh"), lambda x: F.leaky_relu(x, 0.3), lambda x: F.softmin(x, 1))
soup("elementwise-1", torch.expm1, lambda x: torch.log1p(x.abs()), lambda x: torch.log2(x.abs() + 0.5),
     lambda x: torch.log10(x.abs() + 0.5), torch.erf, torch.atan, torch.sinh, torch.cosh,
     lambda x: torch.asinh(x), lambda x: torch.rsqrt(x * x + 0.3), newer=(0, 6, 7, 8))
soup("elementwise-2", lambda x: torch.atan2(x, x.roll(1, -1) + 2.5), lambda x: torch.fmod(x * 3 + 0.05, 2.0),
     lambda x: torch.remainder(x * 3 + 0.05, 2.0), lambda x: torch.logaddexp(x, x.flip(-1)),
     lambda x: torch.lerp(x, x.flip(1), 0.3), lambda x: torch.addcmul(x, x.flip(-1), x, value=0.5),
     lambda x: torch.addcdiv(x, x.flip(-1), x * x + 1, value=0.5), torch.sign,
     lambda x: torch.clamp(x, -0.7, 0.9), lambda x: torch.nan_to_num(x / (x > -1).float(), 0.2, 0.5, -0.5), newer=(3, 6))
soup("elementwise-3", lambda x: torch.maximum(x, x.flip(-1)), lambda x: torch.minimum(x, x.flip(1)),
     lambda x: torch.where(x > 0, x, x * x), lambda x: x.masked_fill(x < -0.5, 0.25), lambda x: torch.frac(x * 2.3),
     lambda x: torch.trunc(x * 2) * x, lambda x: torch.pow(x.abs() + 0.5, 1.7), lambda x: 1.5 ** x,
     lambda x: torch.square(x) - torch.reciprocal(x.abs() + 1), lambda x: torch.hypot(x, x.flip(-1) + 2), newer=(4, 5, 9))
soup("elementwise-4", lambda x: torch.special.erfc(x), lambda x: torch.floor_divide(x.detach() * 4, 1.5) * x,
     lambda x: torch.heaviside(x.detach(), torch.tensor(0.5)) * x, lambda x: torch.sinc(x * 0.3 + 0.7),
     lambda x: torch.xlogy(x, x.abs() + 1), lambda x: torch.logit(torch.sigmoid(x) * 0.9 + 0.05),
     lambda x: torch.copysign(x, x.flip(-1)), lambda x: torch.exp2(x * 0.5), lambda x: torch.deg2rad(x * 50), newer=(0, 2, 3, 4, 6, 7, 8))
soup("reductions-1", lambda x: x.var(1), lambda x: x.std((1, 2)), lambda x: torch.var_mean(x, -1, unbiased=False),
     lambda x: x.norm(dim=1), lambda x: x.norm(p=1, dim=-1), lambda x: torch.linalg.vector_norm(x, 3, dim=-1),
     lambda x: torch.logsumexp(x, (1, 2)), lambda x: x.amax(1), lambda x: x.amin((1, 2)), lambda x: x.prod(1))
soup("reductions-2", lambda x: x.max(1).values, lambda x: x.min(-1)[0], lambda x: x.cumsum(1), lambda x: x.median(-1)[0],
     lambda x: x.nanmean(1), lambda x: x.mean((0, 2)), lambda x: x.sum(), lambda x: x.flatten(1).std(1), newer=(3, 4))
soup("reductions-3", lambda x: torch.cumprod(x * 0.5 + 1, 1), lambda x: torch.logcumsumexp(x, 1),
     lambda x: x.kthvalue(2, -1)[0], lambda x: torch.linalg.norm(x, dim=(1, 2)), lambda x: x.norm(p=float("inf"), dim=1), newer=(0, 1, 2))
soup("ordering", lambda x: x.topk(3, -1)[0], lambda x: x.sort(-1)[0], lambda x: x.sort(1, descending=True)[0],
     lambda x: x.gather(1, x.argsort(1)), lambda x: x.take_along_dim(x.argmax(-1, keepdim=True), -1),
     lambda x: x * (x >= x.topk(3, -1)[0][..., -1:]).float(), newer=(4,))
soup("shapes-1", lambda x: x.flip(1), lambda x: x.roll((1, -2), (1, 2)), lambda x: torch.rot90(x, 1, (1, 2)),
     lambda x: x.repeat_interleave(2, 1), lambda x: x.repeat(1, 2, 1), lambda x: x.unfold(1, 3, 2),
     lambda x: x.tril(), lambda x: x.triu(1), lambda x: x.diagonal(0, 1, 2), lambda x: x.movedim(1, 2), newer=(2,))
soup("shapes-2", lambda x: torch.tensor_split(x, (2, 5), -1), lambda x: x.chunk(3, 1), lambda x: x.split([1, 2, 3], 1),
     lambda x: x.unflatten(-1, (2, 4)).flatten(1, 2), lambda x: torch.stack([x, x.flip(1)], 2), lambda x: x.unbind(1),
     lambda x: x[:, ::2, 1:-1], lambda x: x[..., -1], lambda x: x[:, [0, 2, 2, 5]], lambda x: x[:, :, None].expand(-1, -1, 3, -1))
soup("shapes-3", lambda x: torch.cat([x[:, :2], x.new_zeros(x.shape[0], 1, 8), x[:, 3:]], 1), lambda x: torch.narrow(x, 1, 2, 3),
     lambda x: x.index_select(2, torch.tensor([7, 0, 0])), lambda x: x.swapaxes(1, 2).contiguous().view(x.shape[0], -1),
     lambda x: torch.hstack([x, x[:, :1]]), lambda x: x.tile((1, 1, 2)), lambda x: torch.block_diag(x[0], x[1]),
     lambda x: torch.diag_embed(x), newer=(6, 7))
soup("writes", lambda x: x.scatter(1, torch.zeros_like(x[:, :1]).long() + 3, x[:, 1:2] * 2),
     lambda x: x.scatter_add(2, (torch.arange(8) % 3).expand_as(x), x),
     lambda x: x.index_add(1, torch.tensor([0, 2]), x[:, 4:]),
     lambda x: x.index_copy(1, torch.tensor([1, 3]), x[:, 4:] * 3),
     lambda x: x.index_fill(1, torch.tensor([1, 3]), 0.5),
     lambda x: x.index_put((torch.arange(2)[:, None], torch.tensor([[1, 2], [0, 5]])), x[:2, :2], accumulate=True))
soup("products", lambda x: torch.einsum("bij,bkj->bik", x, x), lambda x: torch.baddbmm(x[:, :, :6], x, x.transpose(1, 2), beta=0.5),
     lambda x: torch.matmul(x.unsqueeze(1), x.transpose(1, 2).unsqueeze(1)), lambda x: torch.tensordot(x, x, ([0, 2], [0, 2])),
     lambda x: torch.outer(x[0, 0], x[0, 1]), lambda x: torch.cross(x[..., :3], x[..., 3:6], dim=-1),
     lambda x: torch.cdist(x, x[:, :3]), lambda x: torch.kron(x[0, :2, :2].contiguous(), x[1, :2, :2].contiguous()),
     lambda x: torch.einsum("bij,bij,j->bi", x, x, x[0, 0]), lambda x: torch.addmm(x[0], x[0] @ x[0].t(), x[1]), newer=(7,))
soup("integers", lambda x: x * F.one_hot((x.detach() > 0).long().sum(1) % 8, 8).sum(1, keepdim=True),
     lambda x: x * torch.bucketize(x.detach(), torch.tensor([-1.0, 0.0, 1.0])).float(),
     lambda x: x * ((torch.arange(8) // 3) % 2 == 0), lambda x: x * (torch.arange(6)[:, None] & 3).float(),
     lambda x: x * torch.isfinite(x).float() * (x == x), lambda x: x.gather(2, (x.detach() * 3).long().abs() % 8),
     lambda x: x * torch.logical_xor(x > 0, x.flip(1) > 0), lambda x: x * (x.detach().int() ** 2).float())
soup("losses-1", lambda x: F.kl_div(x.log_softmax(-1), x.flip(-1).softmax(-1), reduction="batchmean"),
     lambda x: F.poisson_nll_loss(x, torch.full_like(x, 0.7)), lambda x: F.gaussian_nll_loss(x, x.flip(1), x.exp()),
     lambda x: F.hinge_embedding_loss(x, torch.ones_like(x)), lambda x: F.soft_margin_loss(x, -torch.ones_like(x)),
     lambda x: F.l1_loss(x, x.flip(-1) + 0.1), lambda x: F.smooth_l1_loss(x, x.flip(-1), beta=0.5),
     lambda x: F.huber_loss(x, x.flip(1), delta=0.7), lambda x: F.cosine_embedding_loss(x[:, 0], x[:, 1], torch.ones(x.shape[0])),
     lambda x: F.margin_ranking_loss(x[:, 0], x[:, 1], torch.ones_like(x[:, 0]), margin=0.1), newer=(1, 3, 4, 5, 6, 7, 8, 9))
soup("losses-2", lambda x: F.cross_entropy(x.transpose(1, 2), torch.arange(6).expand(x.shape[0], 6), label_smoothing=0.1),
     lambda x: F.cross_entropy(x.transpose(1, 2), torch.arange(6).expand(x.shape[0], 6), ignore_index=2),
     lambda x: F.nll_loss(F.log_softmax(x[:, 0], 1), torch.zeros(x.shape[0], dtype=torch.long), weight=torch.arange(8) + 1.0),
     lambda x: F.binary_cross_entropy(torch.sigmoid(x), torch.ones_like(x) * 0.3),
     lambda x: F.binary_cross_entropy_with_logits(x, torch.ones_like(x), pos_weight=torch.tensor(2.0)),
     lambda x: F.cross_entropy(x[:, 0], torch.full_like(x[:, 1], 0.125)),
     lambda x: F.triplet_margin_loss(x[:, 0], x[:, 1], x[:, 2]), newer=(0, 3, 6))
soup("images-1", lambda x: F.pad(x, (1, 2, 0, 1), mode="circular"), lambda x: F.pad(x, (2, 1, 0, 1), mode="replicate"),
     lambda x: F.pad(x, (-1, 2, 1, -1), value=0.5), lambda x: F.pixel_unshuffle(x, 2), lambda x: F.pixel_shuffle(x, 2),
     lambda x: F.max_pool2d(x, 3, 2, 1, ceil_mode=True), lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
     lambda x: F.avg_pool2d(x, 2, 1, 1, count_include_pad=False), lambda x: F.unfold(x, (2, 3), 1, 1, 2),
     lambda x: F.local_response_norm(x, 3), shape=(4, 6, 6))
soup("images-2", lambda x: F.interpolate(x, size=(9, 4), mode="bilinear", align_corners=False),
     lambda x: F.interpolate(x, scale_factor=1.5, mode="bicubic", align_corners=True),
     lambda x: F.interpolate(x, scale_factor=2, mode="nearest-exact"), lambda x: F.interpolate(x, size=(3, 4), mode="area"),
     lambda x: F.adaptive_avg_pool2d(x, (3, 2)), lambda x: F.adaptive_max_pool2d(x, 3),
     lambda x: F.channel_shuffle(x, 2), lambda x: F.instance_norm(x), lambda x: F.group_norm(x, 2),
     lambda x: F.normalize(x, dim=1), shape=(4, 6, 6), newer=(2, 3, 6))
soup("images-3", lambda x: F.interpolate(x, scale_factor=0.5, mode="bilinear", antialias=True, align_corners=False),
     lambda x: F.fold(F.unfold(x, 2, stride=2), (6, 6), 2, stride=2), lambda x: F.lp_pool2d(x + 3, 3, 2),
     lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2), shape=(4, 6, 6), newer=(0, 1, 3))
soup("sequences", lambda x: F.max_pool1d(x, 3, 2, 1, 2), lambda x: F.avg_pool1d(x, 3, 1, 1), lambda x: F.pad(x, (2, 0)),
     lambda x: F.interpolate(x, scale_factor=2.0, mode="linear"), lambda x: F.adaptive_avg_pool1d(x, 4),
     lambda x: F.layer_norm(x, (8,)), lambda x: F.layer_norm(x, (6, 8)), lambda x: F.pad(x, (3, 3), mode="reflect"),
     lambda x: F.rms_norm(x, (8,)), lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True), newer=(8,))
