"""Writes torch_losses.json: PyTorch's losses and gradients for LossTest.cpp, in float64.

Usage: python torch_losses.py > torch_losses.json      (needs torch; the tests read the committed file)
"""
import json, sys
import torch, torch.nn.functional as F

torch.set_default_dtype(torch.float64)
g = torch.Generator().manual_seed(3)
draw = lambda *shape: torch.randn(*shape, generator=g).mul(2)
weights = torch.tensor([1, 2, 0.5, 0, 3])
cases = {
    "cross_entropy": (draw(4, 5), torch.tensor([1, -100, 4, 0]), F.cross_entropy),
    "cross_entropy_sequence": (draw(2, 3, 5), torch.tensor([[1, -100, 4], [0, 2, 2]]), lambda x, t: F.cross_entropy(x.flatten(0, 1), t.flatten())),
    "cross_entropy_image": (draw(2, 5, 2, 3), torch.randint(0, 5, (2, 2, 3), generator=g), F.cross_entropy),
    "next_token": (draw(2, 4, 6), torch.tensor([[1, 5, 0, 3], [2, 2, 4, 1]]), lambda x, t: F.cross_entropy(x[:, :-1].reshape(-1, 6), t[:, 1:].reshape(-1))),
    "mse": (draw(2, 3), draw(2, 3), F.mse_loss),
    "bce": (draw(2, 3), torch.tensor([[0., 1, 0.5], [1, 0, 1]]), F.binary_cross_entropy_with_logits),
    "cross_entropy_smooth": (draw(4, 5), torch.tensor([1, -100, 4, 0]), lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1)),
    "cross_entropy_weighted": (draw(4, 5), torch.tensor([1, -100, 4, 0]), lambda x, t: F.cross_entropy(x, t, weight=weights)),
    "cross_entropy_both": (draw(2, 5, 2, 3), torch.tensor([0, -100, 4, 1, 3, 2, 2, 2, 0, 4, -100, 1]).reshape(2, 2, 3), lambda x, t: F.cross_entropy(x, t, weight=weights, label_smoothing=0.2)),
    "next_token_smooth": (draw(2, 4, 6), torch.tensor([[1, 5, 0, 3], [2, 2, 4, 1]]), lambda x, t: F.cross_entropy(x[:, :-1].reshape(-1, 6), t[:, 1:].reshape(-1), label_smoothing=0.1)),
    "bce_weighted": (draw(2, 3), torch.tensor([[0., 1, 0.5], [1, 0, 1]]), lambda x, t: F.binary_cross_entropy_with_logits(x, t, pos_weight=torch.tensor(2.5))),
}
out = {}
for name, (x, t, f) in cases.items():
    x.requires_grad_()
    loss = f(x, t)
    loss.backward()
    out[name] = {"logits": x.detach().reshape(-1).tolist(), "label": t.reshape(-1).tolist(), "loss": loss.item(), "gradient": x.grad.reshape(-1).tolist()}
json.dump(out, sys.stdout, indent=0)
sys.stdout.write("\n")
