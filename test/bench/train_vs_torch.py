#!/usr/bin/env python3
"""Whole training steps, pipec beside PyTorch in the same run: GPT-2 124M and ResNet-50 on CPU.

Usage: train_vs_torch.py [--models gpt2,resnet50] [--threads 1,2] [--steps 3] [--compile] [--bf16] [--ranks 2]
                         [--markdown]
Needs torch, transformers, torchvision, numpy (PyPI) and this tree's build/bin (or PIPEC_BIN). Prints one line a
measurement: samples/s (median step), the ratio to PyTorch eager with the same threads, and the peak memory.
--compile adds torch.compile; --bf16 adds PyTorch under autocast and ours with --precision bf16; --ranks R adds R
processes of one thread each: PyTorch's DDP and pipelining (1F1B), and ours, with the pipeline's own overhead: step time
beyond what the schedule's bubble and the measured busy time explain.
GPT-2: 12 layers, width 768, T = 128, vocabulary 50257, microbatch 4 x 4, AdamW, next-token loss. ResNet-50:
224 x 224, microbatch 8 x 2, SGD with momentum, cross-entropy. Both sides take turns; on a machine that does other
work the numbers are worth little.
"""
import argparse, json, os, statistics, subprocess, sys, tempfile, time

SHAPES = {"gpt2": (4, 4), "resnet50": (8, 2)}  # microbatch, microbatches; as in torch_steps.py
ARGUMENTS = {"gpt2": ["--loss", "next-token", "--optimizer", "adamw:lr=1e-3"],
             "resnet50": ["--loss", "cross-entropy", "--optimizer", "sgd:lr=0.01,momentum=0.9"]}
TORCH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch_steps.py")


def time_torch(name, threads, steps, mode="eager", ranks=1):
    command = [sys.executable, TORCH, "run", name, "--threads", str(threads), "--steps", str(steps), "--mode", mode,
               "--ranks", str(ranks)]
    out = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                         env={**os.environ, "OMP_NUM_THREADS": str(threads)}).stdout
    result = json.loads(out.splitlines()[-1])
    return statistics.median(result["seconds"]), result["peak"]


def time_pipec(name, folder, bin_folder, threads, steps, ranks=1, precision="fp32"):
    size, count = SHAPES[name]
    plan = f"{folder}/{ranks}-{precision}.plan"
    start = time.perf_counter()
    subprocess.run([f"{bin_folder}/pipec", f"{folder}/model.onnx", "--cpus", str(ranks), "--strategy", "1f1b", "--dim",
                    f"batch={size}", "--microbatches", str(count), *ARGUMENTS[name], "--precision", precision, "--quiet", "-o", plan]
                   + (["--stages", str(ranks)] if ranks > 1 else []), check=True)
    compile_seconds = time.perf_counter() - start
    data = [part for file in sorted(os.listdir(folder)) if file.endswith(".npy")
            for part in ("--data", f"{file[:-4]}={folder}/{file}")]
    subprocess.run([f"{bin_folder}/pipec-run", plan, *data, "--steps", str(steps + 1), "--quiet", "--metrics",
                    f"{folder}/metrics.jsonl"], check=True, env={**os.environ, "OMP_NUM_THREADS": str(threads)})
    lines = [json.loads(line) for line in open(f"{folder}/metrics.jsonl")]
    return {"seconds": statistics.median(line["seconds"] for line in lines[1:-1]), "compile": compile_seconds,
            "summary": lines[-1]["summary"], "plan": json.load(open(f"{plan}/plan.json"))}


class Table:
    def __init__(self, markdown):
        self.markdown = markdown
        if markdown:
            print("| model | program | samples/s | against eager | memory of a process |\n|---|---|---|---|---|")

    def row(self, name, who, samples, seconds, peak, eager):
        cells = [name, who, f"{samples / seconds:.2f}", f"{eager / seconds:.2f} x", f"{peak / 2**30:.2f} GiB"]
        print("| " + " | ".join(cells) + " |" if self.markdown else
              f"{cells[0]:9} {cells[1]:36} {cells[2]:>8} samples/s  {cells[3]:>7} eager  {cells[4]}", flush=True)


def largest(summary):
    return max(rank["rss_bytes"] for rank in summary["ranks"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="gpt2,resnet50")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--compile", action="store_true", help="also torch.compile")
    parser.add_argument("--bf16", action="store_true", help="also mixed precision")
    parser.add_argument("--ranks", type=int, default=0, help="also R processes of one thread each")
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    bin_folder = os.environ.get("PIPEC_BIN", os.path.join(os.path.dirname(__file__), "../../build/bin"))
    table, notes = Table(options.markdown), []
    for name in options.models.split(","):
        samples = SHAPES[name][0] * SHAPES[name][1]
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([sys.executable, TORCH, "export", name, folder], check=True, stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL)
            for threads in map(int, options.threads.split(",")):
                plural = f"{threads} thread" + "s" * (threads > 1)
                eager, peak = time_torch(name, threads, options.steps)
                table.row(name, f"PyTorch eager, {plural}", samples, eager, peak, eager)
                if options.compile:
                    table.row(name, f"torch.compile, {plural}", samples,
                              *time_torch(name, threads, options.steps, "compile"), eager)
                ours = time_pipec(name, folder, bin_folder, threads, options.steps)
                table.row(name, f"pipec, {plural}", samples, ours["seconds"], largest(ours["summary"]), eager)
                notes.append(f"{name}: pipec compiled it in {ours['compile']:.1f} s")
                if options.bf16:
                    table.row(name, f"PyTorch autocast bf16, {plural}", samples,
                              *time_torch(name, threads, options.steps, "autocast"), eager)
                    ours = time_pipec(name, folder, bin_folder, threads, options.steps, precision="bf16")
                    table.row(name, f"pipec --precision bf16, {plural}", samples, ours["seconds"],
                              largest(ours["summary"]), eager)
            if options.ranks > 1:
                ranks, what = options.ranks, f"{options.ranks} processes"
                for mode, who in (("ddp", "PyTorch DDP"), ("pipeline", "PyTorch pipelining 1F1B")):
                    table.row(name, f"{who}, {what}", samples,
                              *time_torch(name, 1, options.steps, mode, ranks), eager)
                ours = time_pipec(name, folder, bin_folder, 1, options.steps, ranks)
                table.row(name, f"pipec 1f1b, {what}", samples, ours["seconds"], largest(ours["summary"]), eager)
                steps = ours["summary"]["steps"]
                busy = [rank["busy_s"] / steps for rank in ours["summary"]["ranks"]]
                notes.append(f"{name}: {what}, step {ours['seconds']:.3f} s, busy "
                             + ", ".join(f"{b:.3f}" for b in busy) + " s a step, predicted bubble "
                             f"{ours['plan']['predicted']['bubble']:.3f}")
    print("\n" + "\n".join(dict.fromkeys(notes)))


if __name__ == "__main__":
    main()
