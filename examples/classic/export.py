#!/usr/bin/env python3
"""Exports a classic model at full size, with weights as PyTorch initializes them and random data.

Usage: export.py NAME -o FOLDER [--samples N]       NAME: alexnet vgg16 resnet50 amoebanet-d gnmt8 gpt2 transformer bert bert-large
Leaves FOLDER/model.onnx (and its weights) and an .npy file for every input; prints how to compile it. Needs torch, torchvision, transformers, onnx.
"""
import argparse
import os

import numpy as np
import torch

from models import MODELS


def data(shape, values, samples, generator):
    if values is None:
        return generator.standard_normal((samples, *shape), dtype=np.float32)
    return generator.integers(0, values, (samples, *shape), dtype=np.int64)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=MODELS)
    parser.add_argument("-o", "--output", required=True, metavar="FOLDER")
    parser.add_argument("--samples", type=int, default=16)
    options = parser.parse_args()
    build, inputs, labels, loss = MODELS[options.name]
    os.makedirs(options.output, exist_ok=True)
    torch.manual_seed(0)
    generator = np.random.default_rng(0)
    arrays = {name: data(*kind, options.samples, generator) for name, kind in inputs.items()}
    model = build().train()
    examples = tuple(torch.from_numpy(array[:2]) for array in arrays.values())
    torch.onnx.export(model, examples, f"{options.output}/model.onnx", dynamo=False, opset_version=17,
                      do_constant_folding=False, training=torch.onnx.TrainingMode.TRAINING, input_names=list(inputs),
                      output_names=["logits"],
                      dynamic_axes={name: {0: "batch"} for name in [*inputs, "logits"]})
    if labels:
        arrays[labels[0]] = data(labels[1], labels[2], options.samples, generator)
    for name, array in arrays.items():
        np.save(f"{options.output}/{name}.npy", array)
    print(f"pipec {options.output}/model.onnx --cpus 1x2 --dim batch=2 --microbatches 2 --loss {loss} --optimizer sgd:lr=0.01")


if __name__ == "__main__":
    main()
