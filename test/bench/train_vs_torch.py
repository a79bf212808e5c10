#!/usr/bin/env python3
"""Whole training steps, pipec beside PyTorch in the same run: GPT-2 124M and ResNet-50 on CPU.

Usage: train_vs_torch.py [--models gpt2,resnet50] [--threads 1,2] [--steps 3] [--compile] [--ranks 2]
Needs torch, transformers, torchvision, numpy (PyPI) and this tree's build/bin (or PIPEC_BIN). Prints one line a
measurement: samples/s (median step), the ratio to PyTorch eager with the same threads, and the peak memory.
GPT-2: 12 layers, width 768, T = 128, vocabulary 50257, microbatch 4 x 4, AdamW, next-token loss. ResNet-50:
224 x 224, microbatch 8 x 2, SGD with momentum, cross-entropy. Both sides take turns, so that a busy machine
disturbs them alike; on a machine that does other work the numbers are worth little.
"""
import argparse, json, os, statistics, subprocess, sys, tempfile, time

SHAPES = {"gpt2": (4, 4, 32), "resnet50": (8, 2, 32)}  # microbatch, microbatches, samples
ARGUMENTS = {"gpt2": ["--loss", "next-token", "--optimizer", "adamw:lr=1e-3"],
             "resnet50": ["--loss", "cross-entropy", "--optimizer", "sgd:lr=0.01,momentum=0.9"]}


def model_of(name):
    import torch
    torch.manual_seed(0)
    if name == "resnet50":
        import torchvision
        return torchvision.models.resnet50()
    from transformers import GPT2Config, GPT2LMHeadModel

    class Logits(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = GPT2LMHeadModel(GPT2Config(n_positions=128, tie_word_embeddings=False, use_cache=False,
                                                    resid_pdrop=0, embd_pdrop=0, attn_pdrop=0))

        def forward(self, input_ids):
            return self.model(input_ids=input_ids).logits
    return Logits()


def arrays_of(name):
    import numpy as np
    random, rows = np.random.default_rng(1), SHAPES[name][2]
    if name == "gpt2":
        return {"input_ids": random.integers(0, 50257, (rows, 128))}
    return {"input": random.standard_normal((rows, 3, 224, 224)).astype("float32"),
            "labels": random.integers(0, 1000, rows)}


def export(name, folder):
    import numpy as np, torch
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


def torch_steps(name, threads, steps, compiled):
    """Runs in a process of its own; prints the seconds of every step and the peak memory."""
    import resource, torch, torch.nn.functional as F
    torch.set_num_threads(threads)
    arrays = {k: torch.from_numpy(v) for k, v in arrays_of(name).items()}
    size, count, rows = SHAPES[name]
    model = model_of(name).train()
    optimizer = (torch.optim.AdamW(model.parameters(), lr=1e-3) if name == "gpt2" else
                 torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9))
    run = torch.compile(model) if compiled else model
    seconds = []
    for step in range(steps + 1):
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        for k in range(count):
            pick = [((step * count + k) * size + i) % rows for i in range(size)]
            x = arrays[next(iter(arrays))][pick]
            y = run(x)
            loss = (F.cross_entropy(y[:, :-1].flatten(0, 1), x[:, 1:].flatten()) if name == "gpt2" else
                    F.cross_entropy(y, arrays["labels"][pick]))
            (loss / count).backward()
        optimizer.step()
        seconds.append(time.perf_counter() - start)
    print(json.dumps({"seconds": seconds[1:], "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))


def time_torch(name, threads, steps, compiled=False):
    command = [sys.executable, __file__, "--torch-steps", name, "--threads", str(threads), "--steps", str(steps)]
    out = subprocess.run(command + ["--compile"] * compiled, check=True, capture_output=True, text=True,
                         env={**os.environ, "OMP_NUM_THREADS": str(threads)}).stdout
    result = json.loads(out.splitlines()[-1])
    return statistics.median(result["seconds"]), result["peak"]


def time_pipec(name, folder, bin_folder, threads, steps, ranks=1):
    size, count, _ = SHAPES[name]
    plan = f"{folder}/{ranks}.plan"
    start = time.perf_counter()
    subprocess.run([f"{bin_folder}/pipec", f"{folder}/model.onnx", "--cpus", str(ranks), "--strategy", "1f1b", "--dim",
                    f"batch={size}", "--microbatches", str(count), *ARGUMENTS[name], "--quiet", "-o", plan], check=True)
    compile_seconds = time.perf_counter() - start
    data = [part for key in arrays_of(name) for part in ("--data", f"{key}={folder}/{key}.npy")]
    subprocess.run([f"{bin_folder}/pipec-run", plan, *data, "--steps", str(steps + 1), "--quiet", "--metrics",
                    f"{folder}/metrics.jsonl"], check=True, env={**os.environ, "OMP_NUM_THREADS": str(threads)})
    lines = [json.loads(line) for line in open(f"{folder}/metrics.jsonl")]
    summary = lines[-1]["summary"]
    return (statistics.median(line["seconds"] for line in lines[1:-1]),
            max(rank["rss_bytes"] for rank in summary["ranks"]), compile_seconds)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="gpt2,resnet50")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--compile", action="store_true", help="also torch.compile")
    parser.add_argument("--ranks", type=int, default=0, help="also a pipeline of so many ranks, one thread each")
    parser.add_argument("--torch-steps", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.torch_steps:
        return torch_steps(options.torch_steps, int(options.threads), options.steps, options.compile)
    bin_folder = os.environ.get("PIPEC_BIN", os.path.join(os.path.dirname(__file__), "../../build/bin"))
    for name in options.models.split(","):
        samples = SHAPES[name][0] * SHAPES[name][1]
        with tempfile.TemporaryDirectory() as folder:
            export(name, folder)
            show = lambda who, s, peak, base: print(f"{name:9} {who:28} {samples / s:7.3f} samples/s  {base / s:5.2f}x eager"
                                                    f"  {peak / 2**30:5.2f} GiB a process", flush=True)
            for threads in map(int, options.threads.split(",")):
                eager, peak = time_torch(name, threads, options.steps)
                show(f"PyTorch eager, {threads} thread(s)", eager, peak, eager)
                if options.compile:
                    show(f"torch.compile, {threads} thread(s)", *time_torch(name, threads, options.steps, True), eager)
                ours, peak, seconds = time_pipec(name, folder, bin_folder, threads, options.steps)
                show(f"pipec, {threads} thread(s)", ours, peak, eager)
                print(f"{name:9} pipec compiled it in {seconds:.1f} s", flush=True)
            if options.ranks > 1:
                ours, peak, _ = time_pipec(name, folder, bin_folder, 1, options.steps, options.ranks)
                show(f"pipec, {options.ranks} ranks x 1 thread", ours, peak, eager)


if __name__ == "__main__":
    main()
