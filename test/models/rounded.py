"""Mixed precision by its definition, as a mode of PyTorch: contractions read operands rounded to bfloat16 and round their
result once; gradients of weights are not rounded. All else stays in the type of the model."""
import math

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode


def rounded(t):
    return t.to(torch.bfloat16).to(t.dtype)


class Contraction(torch.autograd.Function):
    @staticmethod
    def forward(context, f, a, b):
        context.f, context.weight = f, b.is_leaf and b.requires_grad
        operands = rounded(a), rounded(b)
        context.save_for_backward(*operands)
        return rounded(f(*operands))

    @staticmethod
    def backward(context, dy):
        with torch.enable_grad():
            a, b = (t.detach().requires_grad_() for t in context.saved_tensors)
            da, db = torch.autograd.grad(context.f(a, b), (a, b), rounded(dy))
        return None, rounded(da), db if context.weight else rounded(db)


class Rounded(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function is F.linear:
            y = Contraction.apply(lambda x, w: x @ w.mT, *args[:2])
            bias = args[2] if len(args) > 2 else kwargs.get("bias")
            return y if bias is None else y + bias
        if function in (torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__):
            return Contraction.apply(lambda a, b: a @ b, *args)
        if function is F.scaled_dot_product_attention:
            q, k, v = args
            scores = Contraction.apply(lambda a, b: a @ b.mT, q * q.shape[-1] ** -0.25, k * q.shape[-1] ** -0.25)
            future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
            return Contraction.apply(lambda a, b: a @ b, scores.masked_fill(future, -math.inf).softmax(-1), v)
        if function in (torch.conv2d, F.conv_transpose2d):
            x, w, bias, *rest = args
            y = Contraction.apply(lambda x, w: function(x, w, None, *rest), x, w)
            return y if bias is None else y + bias.reshape(-1, 1, 1)
        return function(*args, **kwargs)
