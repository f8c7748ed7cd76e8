"""What the examples share: arguments, attention by different means, K with outliers, the report."""

import argparse
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "bench"))

import measure
import torch
import torch.nn.functional as functional

import attune

# Options of attune's quantiser.
RECIPES = {
    "plain": {},
    "smooth_k": {"smooth_k": True},
    "hadamard": {"hadamard": True},
    "both": {"smooth_k": True, "hadamard": True},
}


def arguments(description):
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    found = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument(
        "--device",
        default=found,
        choices=("cuda", "cpu"),
        help=f"default: {found}; a CPU takes small sizes and no time",
    )
    parser.add_argument("--outliers", action="store_true", help="a few channels of K are large in all tokens")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    return parser


def fp8(q, k, v, causal=False, **options):
    """attune.sdpa. On a CPU the same quantisation, and PyTorch for the rest."""
    if q.is_cuda:
        return attune.sdpa(q, k, v, causal=causal, **options)
    q8, k8, v8, descale = attune.quantize(q, k, v, **options)
    return attune.sdpa(q8, k8, v8, causal=causal, descale=descale, out=torch.empty_like(q), fallback=True)


def pytorch(q, k, v, causal=False):
    return functional.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1])


def exact(q, k, v, causal=False):
    return measure.reference(q, k, v, causal).to(q.dtype)


def recipe(options):
    return lambda q, k, v, causal=False: fp8(q, k, v, causal, **options)


def means():
    """The ways to compute attention that the reports compare with exact(), by name."""
    return {"pytorch": pytorch, **{"attune " + name: recipe(options) for name, options in RECIPES.items()}}


def outliers(heads, head_dim, seed=3):
    """A bias of K with four large channels in each head: such channels are large in all tokens."""
    source = torch.Generator().manual_seed(seed)
    bias = torch.zeros(heads, head_dim)
    channels = torch.randint(head_dim, (heads, 4), generator=source)
    bias.scatter_(1, channels, 10 * torch.randn(heads, 4, generator=source))
    return bias.flatten()


def linear(inputs, outputs, gain, source):
    layer = torch.nn.Linear(inputs, outputs)
    torch.nn.init.normal_(layer.weight, std=gain / inputs**0.5, generator=source)
    torch.nn.init.zeros_(layer.bias)
    return layer


class Recorder:
    """Computes attention, and keeps the arguments and the output of the first call."""

    def __init__(self, attend):
        self.attend, self.first = attend, None

    def __call__(self, q, k, v, causal=False):
        o = self.attend(q, k, v, causal)
        if self.first is None:
            self.first = (q.clone(), k.clone(), v.clone(), o.clone(), causal)
        return o


def study(run):
    """Errors of `run(attend)` for each means: of its first attention, and of what it returns."""
    want = run(exact)
    rows = []
    for name, attend in means().items():
        recorder = Recorder(attend)
        got = run(recorder)
        q, k, v, o, causal = recorder.first
        rows.append(
            {
                "name": name,
                "attention": measure.errors(o, measure.reference(q, k, v, causal)),
                "output": measure.errors(got, want),
            }
        )
    return rows


def times(ours, theirs):
    """Device times of a call of both: theirs(function) is PyTorch's with one of its backends."""
    name, peer = measure.fastest(measure.of_backends(theirs))
    samples = measure.in_turns([measure.Graph(ours), peer])
    ratio = measure.ratio(samples[1], samples[0])
    return {
        "attune": measure.summary(samples[0]),
        "pytorch": {"backend": name, **measure.summary(samples[1])},
        "speedup": ratio,
    }


def model_times(run, label):
    """Times of the first attention of `run(attend)`, and of all of it."""
    recorder = Recorder(pytorch)
    run(recorder)
    q, k, v = recorder.first[:3]
    return {
        "attention": times(lambda: fp8(q, k, v), lambda function: function(q, k, v)),
        label: times(lambda: run(fp8), lambda function: run(lambda q, k, v: function(q, k, v))),
    }


def show_times(label, t):
    ours, theirs, speedup = t["attune"], t["pytorch"], t["speedup"]
    print(
        f"  {label}: attune {ours['p50_us']:.1f} us, PyTorch ({theirs['backend']}) {theirs['p50_us']:.1f} us: "
        f"{speedup['ratio']:.3f}x ({speedup['ratio_low']:.3f} to {speedup['ratio_high']:.3f})"
    )


def show(case):
    print(f"{case['shape']}, random weights{', outliers in K' if case['outliers'] else ''}")
    print(f"  {'':<18} {'attention':>10} {'':>10} {'output':>10}")
    print(f"  {'':<18} {'cosine':>10} {'relative':>10} {'cosine':>10} {'relative':>10}")
    for row in case["errors"]:
        a, o = row["attention"], row["output"]
        print(
            f"  {row['name']:<18} {a['cosine']:>10.6f} {a['relative']:>10.4f} "
            f"{o['cosine']:>10.6f} {o['relative']:>10.4f}"
        )
    if not case["times"]:
        print("  time: no GPU")
    for label, t in case["times"].items():
        show_times(label, t)


def report(name, options, cases):
    """Prints the cases, as text while they come or as one document."""
    head = {"schema_version": 1, "example": name, "weights": "random", "device": device_name(options.device)}
    if options.device == "cuda":
        head["attune"] = attune.version()
    if not options.json:
        print(f"{name} on {head['device']}")
    done = []
    for case in cases:
        done.append(case)
        if not options.json:
            show(case)
    document = {**head, "pytorch": torch.__version__, "cases": done}
    if options.json:
        print(json.dumps(document, indent=1))
    return document


def device_name(device):
    return torch.cuda.get_device_name() if device == "cuda" else "CPU"
