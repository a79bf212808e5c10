#!/usr/bin/env python3
"""Gives cases of elsewhere.py the losses of the file instead of the model's, where an exporter folded batch norms.

Usage: file_reference.py CASE...      onnx2torch makes a PyTorch module of CASE/model.onnx, every tensor of which trains.
Needs onnx, onnx2torch, torch (PyPI).
"""
import json
import pathlib
import sys

import numpy as np
import onnx
import torch
import torch.nn.functional as F
from onnx2torch import convert

from elsewhere import MICROBATCHES, STEPS, rows_of


def module_of(path):
    model = onnx.load(path)
    del model.opset_import[1:] # ai.onnx.ml, of which tf2onnx uses nothing
    net = convert(model)
    for part in net.modules():
        for name, tensor in list(part.named_buffers(recurse=False)):
            if tensor.is_floating_point() and tensor.numel() > 1:
                delattr(part, name)
                part.register_parameter(name, torch.nn.Parameter(tensor.clone()))
    return net


def reference(folder):
    path = pathlib.Path(folder)
    facts = json.loads((path / "case.json").read_text())
    net, losses = module_of(path / "model.onnx"), []
    arrays = {name: torch.from_numpy(np.load(path / f"{name}.npy")) for name in [*facts["inputs"], "labels"]}
    optimizer = torch.optim.SGD(net.parameters(), facts["rate"], 0.9)
    for step in range(STEPS):
        optimizer.zero_grad()
        total = 0.0
        for k in range(MICROBATCHES):
            rows = torch.from_numpy(rows_of(step, k))
            out = net(*(arrays[name][rows] for name in facts["inputs"]))
            loss = F.cross_entropy(out, arrays["labels"][rows]) / MICROBATCHES
            loss.backward()
            total += loss.item()
        optimizer.step()
        losses.append(total)
    facts["losses"], facts["of"] = losses, "the file by onnx2torch"
    facts["elements"] = sum(p.numel() for p in net.parameters() if p.grad is not None)
    (path / "case.json").write_text(json.dumps(facts, indent=1) + "\n")


for case in sys.argv[1:]:
    reference(case)
    print(f"{case}: made")
