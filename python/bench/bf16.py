"""BF16 in, BF16 out: attune with its quantisers beside PyTorch's best backend, and decoding.

The device time of a call in a CUDA graph of 20 calls, sampled in turns; inputs that fit stay in L2.
attune computes in FP8, so the errors of both stand beside the times. A decode row compares a cache
in E4M3 with one in BF16: GB/s are of the bytes of K and V that each of them reads.
"""

import argparse
import json
import sys

import measure
import torch

import attune

# batch, heads, kv_heads, rows, head_dim, causal
DENSE = [
    (2, 10, 10, 4096, 64, False),
    (1, 24, 24, 4608, 128, False),
    (1, 32, 8, 2048, 128, True),
    (16, 12, 12, 512, 64, False),
]

# batch, heads, kv_heads, keys, head_dim
DECODE = [
    (8, 32, 8, 8192, 128),
    (64, 32, 8, 4096, 128),
    (128, 64, 8, 2048, 128),
    (1, 32, 8, 65536, 128),
]

PAGE = 64

DEVICE = "cuda"  # tests take a CPU, and no times

# What FP8 may cost: 5.3 % on normal inputs (docs/accuracy.md), and a half more.
LARGEST_ERROR = 0.08


def tensors(*shapes):
    random = torch.Generator(DEVICE).manual_seed(1)
    return [torch.randn(shape, generator=random, device=DEVICE, dtype=torch.bfloat16) for shape in shapes]


def row(shape, kind, ours, peer, errors, peer_errors, work):
    """A row of the table: times of both, their ratio, and what `work(us)` makes of a time."""
    name, theirs = peer
    samples = measure.in_turns([ours, theirs])
    times = [measure.summary(x) for x in samples]
    return {
        "shape": shape,
        "kind": kind,
        "attune": {**times[0], **errors, **work(times[0]["p50_us"], 1)},
        "pytorch": {"backend": name, **times[1], **peer_errors, **work(times[1]["p50_us"], 2)},
        "speedup": measure.ratio(samples[1], samples[0]),
    }


def dense(batch, heads, kv_heads, rows, head_dim, causal):
    q, k, v = tensors((batch, heads, rows, head_dim), *((batch, kv_heads, rows, head_dim),) * 2)
    want = measure.reference(q, k, v, causal)
    ours = measure.Graph(lambda: attune.sdpa(q, k, v, causal=causal))
    call = lambda function: function(q, k, v, is_causal=causal, enable_gqa=heads != kv_heads)
    peer = measure.fastest(measure.of_backends(call, 4 * batch * heads * rows * rows))
    for graph in (ours, peer[1]):
        graph.graph.replay()
    flops = 4 * batch * heads * rows * rows * head_dim / (2 if causal else 1)
    shape = (
        f"{batch}x{heads}x{rows}x{head_dim}"
        + (f" kv {kv_heads}" if kv_heads != heads else "")
        + (" causal" if causal else "")
    )
    work = lambda us, size: {"tflops": flops / us / 1e6}
    return row(
        shape, "dense", ours, peer, measure.errors(ours.result, want), measure.errors(peer[1].result, want), work
    )


def paged(cache):
    """The cache in pages of a random order, and its page table."""
    batch, kv_heads, keys, head_dim = cache.shape
    order = torch.randperm(batch * keys // PAGE, generator=torch.Generator().manual_seed(2)).to(DEVICE)
    rows = cache.view(torch.uint8).view(batch, kv_heads, keys // PAGE, PAGE, head_dim).transpose(1, 2).flatten(0, 1)
    pages = torch.empty_like(rows)
    pages[order] = rows
    return pages.view(cache.dtype), order.view(batch, -1).int()


def decode(batch, heads, kv_heads, keys, head_dim):
    """The rows of a shape: a contiguous cache, and one in pages."""
    q, k, v = tensors((batch, heads, 1, head_dim), *((batch, kv_heads, keys, head_dim),) * 2)
    (k8, dk), (v8, dv) = attune.quantize(k), attune.quantize(v)
    lengths = torch.full((batch,), keys, dtype=torch.int32, device=DEVICE)
    (k_pages, table), (v_pages, _) = paged(k8), paged(v8)
    want = measure.reference(q, k, v)
    grouped = q.view(batch, kv_heads, heads // kv_heads, head_dim)  # the heads of a K/V head as rows
    calls = measure.of_backends(lambda function: function(q, k, v, enable_gqa=True))
    rows = measure.of_backends(lambda function: function(grouped, k, v).view(q.shape))
    peer = measure.fastest({**calls, **{name + ", heads as rows": call for name, call in rows.items()}})
    peer[1].graph.replay()
    moved = 2 * batch * kv_heads * keys * head_dim
    results = []
    for name, caches, options in (("", (k8, v8), {}), (" paged", (k_pages, v_pages), {"page_table": table})):
        ours = measure.Graph(lambda: attune.decode(q, *caches, lengths, descale=(dk, dv), **options))
        ours.graph.replay()
        errors = [measure.errors(graph.result, want) for graph in (ours, peer[1])]
        shape = f"{batch}x{heads}x1x{head_dim} kv {kv_heads} keys {keys}{name}"
        results.append(row(shape, "decode", ours, peer, *errors, lambda us, size: {"gb_s": size * moved / us / 1e3}))
    return results


def line(r):
    ours, theirs, speedup = r["attune"], r["pytorch"], r["speedup"]
    unit = "tflops" if r["kind"] == "dense" else "gb_s"
    return (
        f"{r['shape']:<34} {ours['p50_us']:>8.1f} {theirs['p50_us']:>8.1f} {speedup['ratio']:>6.3f}x "
        f"{speedup['ratio_low']:.3f}-{speedup['ratio_high']:.3f} {ours[unit]:>7.0f} {theirs[unit]:>7.0f} "
        f"{ours['relative']:.4f} {theirs['relative']:.4f}  {theirs['backend']}"
    )


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    parser.add_argument("--only", choices=("dense", "decode"), help="these rows only")
    arguments = parser.parse_args(argv)
    if not torch.cuda.is_available():
        sys.exit("bf16.py: no GPU: the benchmark measures device time")
    rows, show = [], (lambda r: None) if arguments.json else (lambda r: print(line(r), flush=True))
    if not arguments.json:
        print(f"{torch.cuda.get_device_name()}, attune {attune.version()}, PyTorch {torch.__version__}")
        print("us of both, speedup with 95 % interval, TFLOP/s or GB/s of both, relative errors of both, backend")
    with torch.no_grad():
        for shape in DENSE if arguments.only != "decode" else ():
            rows.append(dense(*shape))
            show(rows[-1])
        for shape in DECODE if arguments.only != "dense" else ():
            for r in decode(*shape):
                rows.append(r)
                show(r)
            torch.cuda.empty_cache()
    if arguments.json:
        device = torch.cuda.get_device_name()
        head = {"schema_version": 1, "device": device, "attune": attune.version(), "pytorch": torch.__version__}
        print(json.dumps({**head, "graph_calls": measure.CALLS, "rounds": 30, "rows": rows}, indent=1))
    wrong = [r["shape"] for r in rows if not r["attune"]["relative"] < LARGEST_ERROR]
    if wrong:
        sys.exit(f"bf16.py: the relative error of attune is over {LARGEST_ERROR}: {', '.join(wrong)}")


if __name__ == "__main__":
    main()
