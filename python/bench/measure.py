"""Errors, device times and PyTorch's backends, for the benchmark and the examples."""

import contextlib
import functools
import random
import statistics
import warnings

import torch
import torch.nn.functional as functional
from torch.nn.attention import SDPBackend, sdpa_kernel

BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "math": SDPBackend.MATH,
}

CALLS = 20  # of a graph


def errors(got, want):
    """Cosine of all elements, RMSE over the RMS of the reference, and the largest difference."""
    got, want = got.double().flatten(), want.double().flatten()
    difference = got - want
    norm = torch.linalg.vector_norm
    return {
        "cosine": (got @ want / (norm(got) * norm(want))).item(),
        "relative": (norm(difference) / norm(want)).item(),
        "max_err": difference.abs().max().item(),
    }


def reference(q, k, v, causal=False, scale=None):
    """Attention in float64, one head at a time; query i is at key i + keys - queries."""
    heads, queries, keys = q.shape[1], q.shape[2], k.shape[2]
    scale = q.shape[3] ** -0.5 if scale is None else scale
    group = heads // k.shape[1]
    o = torch.empty(q.shape, dtype=torch.float64, device=q.device)
    hidden = torch.ones(queries, keys, dtype=torch.bool, device=q.device).triu(1 + keys - queries) if causal else None
    for b in range(q.shape[0]):
        for h in range(heads):
            scores = q[b, h].double() @ k[b, h // group].double().T * scale
            if causal:
                scores.masked_fill_(hidden, -torch.inf)
            o[b, h] = scores.softmax(-1) @ v[b, h // group].double()
    return o


# ---- device time ---------------------------------------------------------------------------------


class Graph:
    """A CUDA graph of several calls of a function."""

    def __init__(self, call, calls=CALLS):
        self.calls = calls
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):
                call()
        torch.cuda.current_stream().wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            for _ in range(calls):
                self.result = call()

    def sample(self):
        """Events around a replay."""
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        self.graph.replay()
        end.record()
        return start, end


def microseconds(graph, events):
    start, end = events
    return 1e3 * start.elapsed_time(end) / graph.calls


def in_turns(graphs, rounds=30):
    """Device time of a call of each graph in us, sampled in turns: A B, B A, A B and so on."""
    for graph in graphs:
        graph.graph.replay()
    torch.cuda.synchronize()
    samples = [[] for _ in graphs]
    for i in range(rounds):
        order = range(len(graphs)) if i % 2 == 0 else reversed(range(len(graphs)))
        taken = [(j, graphs[j].sample()) for j in order]
        torch.cuda.synchronize()
        for j, events in taken:
            samples[j].append(microseconds(graphs[j], events))
    return samples


def summary(samples, repeats=1000):
    """The median of samples and the 95 % interval of it, by bootstrap."""
    source = random.Random(1)
    medians = sorted(statistics.median(source.choices(samples, k=len(samples))) for _ in range(repeats))
    return {
        "p50_us": statistics.median(samples),
        "low_us": medians[int(0.025 * repeats)],
        "high_us": medians[int(0.975 * repeats)],
    }


def ratio(slow, fast, repeats=1000):
    """The ratio of medians of samples that were taken in the same rounds, and its 95 % interval."""
    source = random.Random(2)
    rounds, ratios = range(len(slow)), []
    for _ in range(repeats):
        chosen = source.choices(rounds, k=len(slow))
        ratios.append(statistics.median(slow[i] for i in chosen) / statistics.median(fast[i] for i in chosen))
    ratios.sort()
    return {
        "ratio": statistics.median(slow) / statistics.median(fast),
        "ratio_low": ratios[int(0.025 * repeats)],
        "ratio_high": ratios[int(0.975 * repeats)],
    }


# ---- PyTorch -------------------------------------------------------------------------------------


def sdpa_by(backend):
    """PyTorch's function with one of its backends."""

    def call(*tensors, **options):
        with sdpa_kernel(BACKENDS[backend]):
            return functional.scaled_dot_product_attention(*tensors, **options)

    return call


def fastest(calls):
    """(name, graph) of the fastest of named calls; those that PyTorch refuses are left out."""
    times = {}
    for name, call in calls.items():
        with contextlib.suppress(RuntimeError), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch says why a backend does not take a problem
            graph = Graph(call, calls=3)
            samples = in_turns([graph], rounds=3)[0]
            times[name] = statistics.median(samples)
    if not times:
        raise RuntimeError("no backend of PyTorch takes this problem")
    name = min(times, key=times.get)
    return name, Graph(calls[name])


def of_backends(call, score_bytes=0):
    """The named calls of `call(function)` with each backend; math only if its scores fit."""
    names = [name for name in BACKENDS if name != "math" or score_bytes < 8 << 30]
    return {name: functools.partial(call, sdpa_by(name)) for name in names}
