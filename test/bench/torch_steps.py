#!/usr/bin/env python3
"""PyTorch's side of train_vs_torch.py: the models, their ONNX files and data, and timed training steps.

Usage: torch_steps.py export NAME FOLDER
       torch_steps.py run NAME [--threads T] [--steps N] [--mode eager|compile|autocast|ddp|pipeline] [--ranks R]
NAME is gpt2 or resnet50; `run` prints {"seconds": [per step], "peak": bytes of the largest process}.
Needs torch, transformers, torchvision, numpy (PyPI).
"""
import argparse, json, os, resource, sys, time
import numpy as np
import torch
import torch.nn.functional as F

SHAPES = {"gpt2": (4, 4, 32), "resnet50": (8, 2, 32)}  # microbatch, microbatches, samples


class Gpt2(torch.nn.Module):
    def __init__(self):
        super().__init__()
        from transformers import GPT2Config, GPT2LMHeadModel
        self.model = GPT2LMHeadModel(GPT2Config(n_positions=128, tie_word_embeddings=False, use_cache=False,
                                                resid_pdrop=0, embd_pdrop=0, attn_pdrop=0))

    def forward(self, input_ids):
        return self.model(input_ids=input_ids).logits


def model_of(name):
    torch.manual_seed(0)
    if name == "resnet50":
        import torchvision
        return torchvision.models.resnet50()
    return Gpt2()


def arrays_of(name):
    random, rows = np.random.default_rng(1), SHAPES[name][2]
    if name == "gpt2":
        return {"input_ids": random.integers(0, 50257, (rows, 128))}
    return {"input": random.standard_normal((rows, 3, 224, 224)).astype("float32"),
            "labels": random.integers(0, 1000, rows)}


def export(name, folder):
    arrays, model = arrays_of(name), model_of(name)
    first = next(iter(arrays))
    for key, array in arrays.items():
        np.save(f"{folder}/{key}.npy", array)
    example = torch.from_numpy(arrays[first][:2])
    if name == "resnet50":
        torch.onnx.export(model, (example,), f"{folder}/model.onnx", dynamo=False, opset_version=17,
                          do_constant_folding=False, training=torch.onnx.TrainingMode.PRESERVE, input_names=[first],
                          output_names=["logits"], dynamic_axes={first: {0: "batch"}, "logits": {0: "batch"}})
    else:
        torch.onnx.export(model.eval(), (example,), f"{folder}/model.onnx", dynamo=True, opset_version=18,
                          external_data=True, input_names=[first], output_names=["logits"],
                          dynamic_shapes=({0: torch.export.Dim("batch", min=2, max=4096)},))


def loss_of(name, output, target):
    if name == "gpt2":
        return F.cross_entropy(output[:, :-1].flatten(0, 1), target[:, 1:].flatten())
    return F.cross_entropy(output, target)


def optimizer_of(name, model):
    if name == "gpt2":
        return torch.optim.AdamW(model.parameters(), lr=1e-3)
    return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)


class Layer(torch.nn.Module):
    """A block of transformers whose output may be a tuple."""
    def __init__(self, block):
        super().__init__()
        self.block = block

    def forward(self, x):
        y = self.block(x)
        return y[0] if isinstance(y, tuple) else y


class Embedding(torch.nn.Module):
    def __init__(self, transformer):
        super().__init__()
        self.tokens, self.positions = transformer.wte, transformer.wpe

    def forward(self, ids):
        return self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))


def pipeline_parts(name, model):
    """Two stages as even as whole layers allow: the best cut of those tried by hand for each model."""
    if name == "resnet50":
        m = model
        return [torch.nn.Sequential(m.conv1, m.bn1, m.relu, m.maxpool, m.layer1, m.layer2),
                torch.nn.Sequential(m.layer3, m.layer4, m.avgpool, torch.nn.Flatten(1), m.fc)]
    t = model.model.transformer
    blocks = [Layer(block) for block in t.h]
    return [torch.nn.Sequential(Embedding(t), *blocks[:8]),
            torch.nn.Sequential(*blocks[8:], t.ln_f, model.model.lm_head)]


def make_schedule(name, model, rank, count, example):
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B
    # PyTorch 2.9.1 opens its links by sending an int64 into a float32 buffer, which gloo refuses.
    PipelineStage._get_init_p2p_neighbors_ops = lambda self: []
    parts, x = pipeline_parts(name, model), example
    with torch.no_grad():
        for part in parts[:rank]:
            x = part(x)
        stage = PipelineStage(parts[rank], rank, len(parts), torch.device("cpu"), input_args=(x,),
                              output_args=(parts[rank](x),))
    return parts[rank], Schedule1F1B(stage, count, loss_fn=lambda out, target: loss_of(name, out, target))


def steps_of(rank, options, results):
    name, mode, ranks = options.name, options.mode, options.ranks
    torch.set_num_threads(options.threads)
    if ranks > 1:
        torch.distributed.init_process_group("gloo", rank=rank, world_size=ranks)
    arrays = {k: torch.from_numpy(v) for k, v in arrays_of(name).items()}
    first, last = next(iter(arrays)), next(reversed(arrays))
    size, count, rows = SHAPES[name]
    model = model_of(name).train()
    schedule = None
    if mode == "pipeline":
        model, schedule = make_schedule(name, model, rank, count, arrays[first][:size])
    run = {"compile": torch.compile, "ddp": torch.nn.parallel.DistributedDataParallel}.get(mode, lambda m: m)(model)
    optimizer, seconds = optimizer_of(name, model), []
    for step in range(options.steps + 1):
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        pick = [[((step * count + k) * size + i) % rows for i in range(size)] for k in range(count)]
        if schedule:
            whole = sum(pick, [])
            schedule.step(*([arrays[first][whole]] if rank == 0 else []),
                          **({"target": arrays[last][whole]} if rank == ranks - 1 else {}))
        else:
            for k in range(rank, count, ranks):
                with torch.autocast("cpu", torch.bfloat16, enabled=mode == "autocast"):
                    loss = loss_of(name, run(arrays[first][pick[k]]), arrays[last][pick[k]])
                (loss * ranks / count).backward()
        optimizer.step()
        seconds.append(time.perf_counter() - start)
    results.put({"seconds": seconds[1:], "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["export", "run"])
    parser.add_argument("name", choices=list(SHAPES))
    parser.add_argument("folder", nargs="?")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--mode", default="eager", choices=["eager", "compile", "autocast", "ddp", "pipeline"])
    parser.add_argument("--ranks", type=int, default=1)
    options = parser.parse_args()
    if options.what == "export":
        return export(options.name, options.folder)
    import torch.multiprocessing as mp
    results = mp.get_context("spawn").SimpleQueue()
    if options.ranks == 1:
        import queue
        results = queue.SimpleQueue()
        steps_of(0, options, results)
    else:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(20000 + os.getpid() % 20000))
        mp.spawn(steps_of, args=(options, results), nprocs=options.ranks)
    every = [results.get() for _ in range(options.ranks)]
    print(json.dumps({"seconds": [max(times) for times in zip(*(e["seconds"] for e in every))],
                      "peak": max(e["peak"] for e in every)}))


if __name__ == "__main__":
    main()
