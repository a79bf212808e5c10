"""Writes torch_gradients.json: PyTorch's gradients of the cases of GradientCases.cpp, in float64.

Usage: python torch_gradients.py > torch_gradients.json      (needs torch; the tests read the committed file)
Operands are operand(i)[j] = low + (high - low) * frac(golden * (j + 1 + 17 * i)), the loss is sum(y * c) with
c[j] = 0.25 * (j % 7 + 1) - 0.8, as in GradientTest.cpp.
"""
import json, math, sys
import torch, torch.nn.functional as F

torch.set_default_dtype(torch.float64)
GOLDEN = (math.sqrt(5) - 1) / 2

def operand(i, shape, low, high):
    n = math.prod(shape)
    x = [low + (high - low) * math.fmod(GOLDEN * (j + 1 + 17 * i), 1.0) for j in range(n)]
    return torch.tensor(x).reshape(shape).requires_grad_()

def loss(y):
    c = torch.tensor([0.25 * (j % 7 + 1) - 0.8 for j in range(y.numel())])
    return (y.reshape(-1) * c).sum()

U = lambda f, low=-2, high=2: ([(3, 5)], f, low, high)
cases = {
    "abs": U(torch.abs), "exp": U(torch.exp), "log": U(torch.log, 0.2, 3), "log1p": U(torch.log1p, -0.7, 3),
    "sqrt": U(torch.sqrt, 0.2, 3), "rsqrt": U(torch.rsqrt, 0.2, 3), "reciprocal": U(torch.reciprocal, 0.3, 3),
    "tanh": U(torch.tanh, -3, 3), "erf": U(torch.erf), "sigmoid": U(torch.sigmoid, -4, 4), "relu": U(torch.relu),
    "sin": U(torch.sin, -3, 3), "cos": U(torch.cos, -3, 3), "neg": U(torch.neg),
    "mul": ([(3, 5), (3, 5)], torch.mul, -2, 2), "max": ([(3, 5), (3, 5)], torch.maximum, -2, 2),
    "min": ([(3, 5), (3, 5)], torch.minimum, -2, 2), "div": ([(3, 5), (3, 5)], torch.div, 0.3, 2),
    "pow": ([(3, 5), (3, 5)], torch.pow, 0.3, 2), "same_operand_twice": ([(4,)], lambda x: x * x, -2, 2),
    "select": ([(4, 2), (4, 2)], lambda a, b: torch.where(a > 0, a, b), -2, 2),
    "gather_repeated_and_negative": ([(2, 5, 3)], lambda x: x[:, torch.tensor([[1, 1], [4, 0]])], -2, 2),
    "reduce_max": ([(2, 3, 4)], lambda x: x.amax((0, 2), True), -2, 2),
    "reduce_min": ([(2, 3, 4)], lambda x: x.amin((0, 2), True), -2, 2),
    "reduce_prod": ([(2, 3, 4)], lambda x: x.prod(0, True).prod(2, True), -2, 2),
    "softmax": U(lambda x: F.softmax(x, -1)),
    "matmul_tt": ([(2, 4, 3), (2, 5, 4)], lambda a, b: a.mT @ b.mT, -2, 2),
    "conv_strided_padded": ([(2, 3, 5, 6), (4, 3, 3, 2)], lambda x, w: F.conv2d(F.pad(x, (0, 2, 1, 1)), w, stride=2), -2, 2),
    "conv_grouped_dilated": ([(1, 4, 7), (6, 2, 2)], lambda x, w: F.conv1d(x, w, dilation=2, groups=2), -2, 2),
    "conv_depthwise": ([(2, 3, 4, 4), (3, 1, 3, 3)], lambda x, w: F.conv2d(x, w, groups=3), -2, 2),
    "conv_transposed": ([(2, 4, 3), (4, 2, 3)], lambda x, w: F.conv_transpose1d(x, w, stride=2)[:, :, 1:], -2, 2),
    "max_pool": ([(2, 2, 5, 4)], lambda x: F.max_pool2d(F.pad(x, (0, 1, 1, 1), value=-math.inf), (3, 2), (2, 1)), -2, 2),
    "avg_pool__count_pad": ([(2, 2, 5, 4)], lambda x: F.avg_pool2d(F.pad(x, (0, 1, 1, 1)), (3, 2), (2, 1)), -2, 2),
    # compositions, as the importer and the loss write them
    "layer_norm": ([(4, 6), (6,), (6,)], lambda x, w, b: F.layer_norm(x, (6,), w, b, 1e-5), -2, 2),
    "batch_norm": ([(4, 3, 5), (3,), (3,)], lambda x, w, b: F.batch_norm(x, None, None, w, b, True, 0.1, 1e-5), -2, 2),
    "gelu_tanh": U(lambda x: F.gelu(x, approximate="tanh")),
    "masked_softmax": ([(3, 4)], lambda x: F.softmax(torch.where(torch.tensor([[1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]], dtype=torch.bool), x, torch.finfo(torch.float32).min), -1), -2, 2),
}
out = {}
for name, (shapes, f, low, high) in cases.items():
    xs = [operand(i, s, low, high) for i, s in enumerate(shapes)]
    y = f(*xs)
    loss(y).backward()
    out[name] = {"value": loss(y).item(), "gradients": [x.grad.reshape(-1).tolist() for x in xs]}
json.dump(out, sys.stdout, indent=0)
sys.stdout.write("\n")
