#!/usr/bin/env python3
"""Makes model.onnx: a small GPT-2 with random weights, as PyTorch exports it.

    pip install torch==2.9.1 transformers onnx onnxscript
    python export.py

Four layers of width 128 over bytes, 64 positions, the embedding tied to the
output. Only needed to change the model; model.onnx is in the repository.
"""
import pathlib

import onnx
import torch
import transformers


class Logits(torch.nn.Module):
    """The logits alone, without the cache that generation uses."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids):
        return self.model(input_ids=input_ids, use_cache=False).logits


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
    config = transformers.GPT2Config(
        vocab_size=256, n_positions=64, n_embd=128, n_layer=4, n_head=4,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
        bos_token_id=0, eos_token_id=0)
    model = transformers.GPT2LMHeadModel(config).eval()
    # The exporter makes equal tensors one and drops zero biases; in a model that
    # was never trained that would tie all norms. A little noise keeps them apart.
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.01 * torch.randn_like(parameter))
    ids = torch.randint(0, 256, (3, 64))
    path = pathlib.Path(__file__).parent / "model.onnx"
    torch.onnx.export(
        Logits(model), (ids,), str(path), input_names=["input_ids"],
        output_names=["logits"], opset_version=18, dynamo=True,
        external_data=False,
        dynamic_shapes={"input_ids": {0: torch.export.Dim("batch", min=2)}})
    drop_stack_traces(path)
    print(path, path.stat().st_size, "bytes,",
          sum(p.numel() for p in model.parameters()), "parameters")


if __name__ == "__main__":
    main()
