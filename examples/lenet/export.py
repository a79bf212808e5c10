#!/usr/bin/env python3
"""Makes model.onnx: LeNet-5 for 28x28 pictures, as PyTorch exports it.

    pip install torch==2.9.1 onnx onnxscript
    python export.py

Only needed to change the model; model.onnx is in the repository.
"""
import pathlib

import onnx
import torch
from torch import nn


def drop_stack_traces(path):
    """Takes the places in the exporter's Python files out of the model."""
    model = onnx.load(path)
    graph = model.graph
    for item in [graph, *graph.node, *graph.value_info, *graph.initializer]:
        kept = [p for p in item.metadata_props
                if not p.key.endswith("stack_trace")]
        del item.metadata_props[:]
        item.metadata_props.extend(kept)
    onnx.save(model, path)


def main():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(),
        nn.Linear(84, 10)).eval()
    path = pathlib.Path(__file__).parent / "model.onnx"
    torch.onnx.export(
        model, (torch.randn(4, 1, 28, 28),), str(path), input_names=["image"],
        output_names=["logits"], opset_version=18, dynamo=True,
        external_data=False,
        dynamic_shapes=({0: torch.export.Dim("batch")},))
    drop_stack_traces(path)
    print(path, path.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
