#!/usr/bin/env python3
"""Our CPU kernels beside PyTorch's, call by call in one process.

    ninja kernels_shared
    python test/bench/kernels_vs_torch.py BUILD/test/unit/kernels/libkernels_shared.so \\
        [--threads 1,2] [--only REGEX] [--seconds 1] [--markdown]

For every contraction of a GPT-2 124M step (4 x 128 tokens) and of a ResNet-50
step (8 images) the two libraries take turns, and the least time of each counts:
other work on the machine disturbs both alike. Shapes and how often they occur
come from kernels_shapes.h. PyTorch runs its aten functions without autograd.
Results are compared as well: the largest difference, relative to the largest
value.
"""

import argparse
import ctypes
import os
import re
import sys
import time

try:
    import torch
except ImportError:
    sys.exit("kernels_vs_torch.py: this comparison needs PyTorch; run it with a Python that has torch")

I64x3, I64x4 = ctypes.c_int64 * 3, ctypes.c_int64 * 4


class Matmul(ctypes.Structure):
    _fields_ = ([(n, ctypes.c_int32) for n in ("dtype", "transpose_a", "transpose_b", "accumulate")]
                + [(n, ctypes.c_int64) for n in ("m", "n", "k", "lda", "ldb", "ldc")]
                + [("batch_rank", ctypes.c_int32)]
                + [(n, I64x4) for n in ("batch", "stride_a", "stride_b", "stride_c")])


class Conv(ctypes.Structure):
    _fields_ = ([(n, ctypes.c_int32) for n in ("dtype", "spatial_rank", "groups")]
                + [(n, ctypes.c_int64) for n in ("n", "c", "o")]
                + [(n, I64x3) for n in ("in_", "out", "kernel", "stride", "dilation", "pad_lo", "pad_hi")]
                + [(n, ctypes.c_int32) for n in ("accumulate", "x_layout", "y_layout")]
                + [("prepared", ctypes.c_void_p)])


def read_shapes():
    """The rows of kernels_shapes.h: (matmuls, convolutions)."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "kernels_shapes.h")
    matmuls, convs = [], []
    for name, rest in re.findall(r'\{"([^"]+)",\s*([^}]*)\}', open(path).read()):
        values = [v.strip() for v in rest.split(",") if v.strip()]
        numbers = [{"true": 1, "false": 0}.get(v, v) for v in values]
        (matmuls if "true" in values or "false" in values else convs).append(
            (name, *[int(v) for v in numbers]))
    return matmuls, convs


def pointer(t):
    return ctypes.c_void_p(t.data_ptr())


def versus(ours, theirs, seconds):
    """Least seconds of each over alternating calls."""
    best = [float("inf")] * 2
    ours(), theirs()
    end, rounds = time.perf_counter() + seconds, 0
    while rounds < 5 or time.perf_counter() < end:
        for i, call in enumerate((ours, theirs)):
            start = time.perf_counter()
            call()
            best[i] = min(best[i], time.perf_counter() - start)
        rounds += 1
    return best


def difference(a, b):
    return float((a - b).abs().max() / b.abs().max())


def matmul_case(lib, row):
    """(name, count, operations, ours, theirs, error)"""
    name, m, n, k, ta, tb, batch, count = row
    a = torch.randn(batch, *((k, m) if ta else (m, k)))
    b = torch.randn(batch, *((n, k) if tb else (k, n)))
    c, want = torch.empty(batch, m, n), torch.empty(batch, m, n)
    d = Matmul(transpose_a=ta, transpose_b=tb, m=m, n=n, k=k, lda=m if ta else k, ldb=k if tb else n,
               ldc=n, batch_rank=1, batch=I64x4(batch), stride_a=I64x4(m * k), stride_b=I64x4(k * n),
               stride_c=I64x4(m * n))
    at, bt = (a.transpose(1, 2) if ta else a), (b.transpose(1, 2) if tb else b)
    if batch == 1:  # a linear layer
        at, bt, want = at[0], bt[0], want[0]
    theirs = (lambda: torch.mm(at, bt, out=want)) if batch == 1 else (lambda: torch.bmm(at, bt, out=want))
    ours = lambda: lib.pipec_matmul(ctypes.byref(d), pointer(a), pointer(b), pointer(c))
    ours(), theirs()
    return name, count, 2 * batch * m * n * k, ours, theirs, difference(c.view_as(want), want)


def conv_cases(lib, row):
    """The three directions of a convolution, as matmul_case."""
    name, c, o, size, kernel, stride, pad, groups, count = row
    out = (size + 2 * pad - kernel) // stride + 1
    x, w = torch.randn(8, c, size, size), torch.randn(o, c // groups, kernel, kernel)
    dy = torch.randn(8, o, out, out)
    two = lambda v: I64x3(v, v)
    d = Conv(spatial_rank=2, groups=groups, n=8, c=c, o=o, in_=two(size), out=two(out), kernel=two(kernel),
             stride=two(stride), dilation=two(1), pad_lo=two(pad), pad_hi=two(pad))
    s, p = [stride] * 2, [pad] * 2
    backward = torch.ops.aten.convolution_backward
    torch_calls = (
        lambda: torch.conv2d(x, w, None, s, p, [1, 1], groups),
        lambda: backward(dy, x, w, None, s, p, [1, 1], False, [0, 0], groups, [True, False, False])[0],
        lambda: backward(dy, x, w, None, s, p, [1, 1], False, [0, 0], groups, [False, True, False])[1])
    functions = (lib.pipec_conv_forward, lib.pipec_conv_backward_input, lib.pipec_conv_backward_weight)
    operands = ((x, w), (dy, w), (x, dy))
    for which, kind in enumerate(("forward", "input", "weight")):
        result = torch.empty_like((dy, x, w)[which])
        scratch = torch.empty(lib.pipec_conv_scratch_bytes(ctypes.byref(d), which) // 4 + 16)
        lib.pipec_prepare_conv(ctypes.byref(d), which)
        ours = lambda f=functions[which], q=operands[which], r=result, z=scratch: f(
            ctypes.byref(d), pointer(q[0]), pointer(q[1]), pointer(r), pointer(z))
        ours()
        yield (f"{name} {kind}", count, 2 * dy.numel() * w[0].numel(), ours, torch_calls[which],
               difference(result, torch_calls[which]()))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", help="libkernels_shared.so")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--only", default="", help="regular expression on names")
    parser.add_argument("--seconds", type=float, default=1.0, help="per shape and thread count")
    parser.add_argument("--markdown", action="store_true", help="a table for README.md")
    args = parser.parse_args()
    lib = ctypes.CDLL(os.path.abspath(args.library))
    lib.pipec_conv_scratch_bytes.restype = ctypes.c_int64
    threads = [int(t) for t in args.threads.split(",")]
    matmuls, convs = read_shapes()
    bar, edge = ("|", "|") if args.markdown else ("", "")
    head = "".join(f" {bar} ours T{t} ms {bar} torch T{t} ms {bar} x" for t in threads)
    print(f"{edge}{'shape':28s} {bar} count {head} {bar} difference {edge}")
    if args.markdown:
        print("|" + "---|" * (3 + 3 * len(threads)))
    for family, cases in (("GPT-2 products", (matmul_case(lib, r) for r in matmuls)),
                          ("ResNet-50 convolutions", (c for r in convs for c in conv_cases(lib, r)))):
        total = {t: [0.0, 0.0] for t in threads}
        for name, count, operations, ours, theirs, error in cases:
            if not re.search(args.only, name):
                continue
            line = ""
            for t in threads:
                torch.set_num_threads(t)
                lib.pipec_set_threads(t)
                a, b = versus(ours, theirs, args.seconds)
                total[t][0] += a * count
                total[t][1] += b * count
                line += f" {bar} {a * 1e3:9.3f} {bar} {b * 1e3:9.3f} {bar} {b / a:5.2f}"
            print(f"{edge}{name:28s} {bar} {count:5d}{line} {bar} {error:.1e} {edge}", flush=True)
        line = "".join(f" {bar} {a * 1e3:9.1f} {bar} {b * 1e3:9.1f} {bar} {b / a if a else 0:5.2f}"
                       for a, b in total.values())
        print(f"{edge}{'sum: ' + family:28s} {bar} {'':5s}{line} {bar} {edge}", flush=True)


if __name__ == "__main__":
    main()
