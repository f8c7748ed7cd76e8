"""Decoding with a paged cache in FP8, beside PyTorch with a cache in BF16.

A model in the style of Llama: RMSNorm, RoPE, grouped heads (32 query heads, 8 of K and V, head dim
128) and SwiGLU. The prompt goes through attune.sdpa and attune.append, then one token after the
other through attune.append and attune.decode. Tokens are given, so that all means see the same.
"""

import example
import measure
import torch
import torch.nn.functional as functional

import attune

PAGE = 64
HEADROOM = 1.5  # of the factors over the prompt: later tokens may be larger

SIZES = {
    "cuda": {"batch": 8, "layers": 4, "heads": 32, "kv_heads": 8, "head_dim": 128, "prompt": 4000, "tokens": 64},
    "cpu": {"batch": 2, "layers": 2, "heads": 4, "kv_heads": 1, "head_dim": 128, "prompt": 70, "tokens": 6},
}


class PagedCache:
    """K and V of all layers in E4M3, in pages that a table names in any order."""

    def __init__(self, sizes, device):
        batch, kv_heads, head_dim = sizes["batch"], sizes["kv_heads"], sizes["head_dim"]
        each = -(-(sizes["prompt"] + sizes["tokens"]) // PAGE)
        shape = (batch * each, kv_heads, PAGE, head_dim)
        self.caches = [
            [torch.zeros(shape, device=device).to(torch.float8_e4m3fn) for _ in "kv"] for _ in range(sizes["layers"])
        ]
        order = torch.randperm(batch * each, generator=torch.Generator().manual_seed(5))
        self.table = order.view(batch, each).int().to(device)
        self.lengths = torch.zeros(batch, dtype=torch.int32, device=device)
        self.descale = [None] * sizes["layers"]
        self.options = {"page_table": self.table, "fallback": device == "cpu"}

    def attend(self, layer, q, k, v):
        if q.shape[2] > 1:  # the prompt
            self.descale[layer] = [HEADROOM * x.abs().amax(dim=(2, 3)).float() / 448 for x in (k, v)]
        attune.append(k, v, *self.caches[layer], self.lengths, descale=self.descale[layer], **self.options)
        if q.shape[2] > 1:
            return example.fp8(q, k, v, causal=True)
        return attune.decode(q, *self.caches[layer], self.lengths + 1, descale=self.descale[layer], **self.options)

    def advance(self, tokens):
        self.lengths += tokens


class DenseCache:
    """K and V of all layers in BF16, and a function for attention."""

    def __init__(self, sizes, device, function):
        shape = (sizes["batch"], sizes["kv_heads"], sizes["prompt"] + sizes["tokens"], sizes["head_dim"])
        self.caches = [
            [torch.zeros(shape, device=device, dtype=torch.bfloat16) for _ in "kv"] for _ in range(sizes["layers"])
        ]
        self.length, self.function = 0, function

    def attend(self, layer, q, k, v):
        end = self.length + q.shape[2]
        for cache, new in zip(self.caches[layer], (k, v)):
            cache[:, :, self.length : end] = new
        return self.function(q, *(cache[:, :, :end] for cache in self.caches[layer]), q.shape[2] > 1)

    def advance(self, tokens):
        self.length += tokens


class Layer(torch.nn.Module):
    def __init__(self, sizes, index, with_outliers, source):
        super().__init__()
        self.index, self.heads, self.kv_heads, self.head_dim = (
            index,
            sizes["heads"],
            sizes["kv_heads"],
            sizes["head_dim"],
        )
        dim = self.heads * self.head_dim
        self.first, self.second = torch.nn.RMSNorm(dim), torch.nn.RMSNorm(dim)
        self.q = example.linear(dim, dim, 1.5, source)
        self.k, self.v = (example.linear(dim, self.kv_heads * self.head_dim, gain, source) for gain in (1.5, 1))
        self.out = example.linear(dim, dim, 0.5, source)
        self.gate, self.up, self.down = (
            example.linear(*sizes_, 1, source) for sizes_ in ((dim, 2 * dim), (dim, 2 * dim), (2 * dim, dim))
        )
        if with_outliers:
            self.k.bias.data[:] = example.outliers(self.kv_heads, self.head_dim, index)

    def forward(self, x, rotation, cache):
        batch, tokens, dim = x.shape
        y = self.first(x)
        q, k, v = (f(y).view(batch, tokens, -1, self.head_dim).transpose(1, 2) for f in (self.q, self.k, self.v))
        o = cache.attend(self.index, rotate(q, rotation), rotate(k, rotation), v)
        x = x + self.out(o.transpose(1, 2).reshape(batch, tokens, dim))
        y = self.second(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


class Llama(torch.nn.Module):
    def __init__(self, sizes, with_outliers, vocabulary=1024):
        super().__init__()
        source, dim = torch.Generator().manual_seed(1), sizes["heads"] * sizes["head_dim"]
        self.head_dim, self.vocabulary = sizes["head_dim"], vocabulary
        self.embedding = torch.nn.Parameter(torch.randn(vocabulary, dim, generator=source))
        self.layers = torch.nn.ModuleList(Layer(sizes, i, with_outliers, source) for i in range(sizes["layers"]))
        self.norm = torch.nn.RMSNorm(dim)

    def forward(self, tokens, position, cache):
        """Logits of the last token; `position` is that of the first."""
        x, rotation = (
            self.embedding[tokens],
            rotations(position + torch.arange(tokens.shape[1], device=tokens.device), self.head_dim),
        )
        for layer in self.layers:
            x = layer(x, rotation, cache)
        return self.norm(x[:, -1]) @ self.embedding.T / x.shape[-1] ** 0.5


def rotations(positions, head_dim):
    """The cosines and sines of RoPE, [tokens, head_dim / 2]."""
    frequencies = 500000.0 ** (-torch.arange(0, head_dim, 2, device=positions.device).float() / head_dim)
    angles = positions[:, None] * frequencies
    return angles.cos(), angles.sin()


def rotate(x, rotation):
    cosines, sines = rotation
    a, b = x.float().chunk(2, dim=-1)
    return torch.cat([a * cosines - b * sines, b * cosines + a * sines], dim=-1).to(x.dtype)


class Tap:
    """A cache that keeps what attention of the first layer gave for each token."""

    def __init__(self, cache):
        self.cache, self.outputs = cache, []

    def attend(self, layer, q, k, v):
        o = self.cache.attend(layer, q, k, v)
        if layer == 0 and q.shape[2] == 1:
            self.outputs.append(o.clone())
        return o

    def advance(self, tokens):
        self.cache.advance(tokens)


def generate(model, tokens, prompt, cache):
    """The prompt, then the other tokens one by one: (logits, attention of layer 0) of the latter."""
    tap, logits = Tap(cache), []
    model(tokens[:, :prompt], 0, tap)
    tap.advance(prompt)
    for i in range(prompt, tokens.shape[1]):
        logits.append(model(tokens[:, i : i + 1], i, tap))
        tap.advance(1)
    return torch.stack(logits), torch.stack(tap.outputs)


def step_times(model, tokens, sizes, device):
    """One more step over all keys: attention of a layer with the append before it, and the whole model."""
    last = tokens.shape[1] - 1
    caches = [PagedCache(sizes, device), DenseCache(sizes, device, example.pytorch)]
    for cache in caches:
        model(tokens[:, :last], 0, cache)
        cache.advance(last)
    paged, dense = caches
    q, k, v = (
        torch.randn(sizes["batch"], heads, 1, sizes["head_dim"], device=device, dtype=torch.bfloat16)
        for heads in (sizes["heads"], *[sizes["kv_heads"]] * 2)
    )

    def by(function):
        dense.function = lambda q, k, v, causal: function(q, k, v, enable_gqa=True)
        return dense

    one = tokens[:, last:]
    return {
        "attention": example.times(lambda: paged.attend(0, q, k, v), lambda function: by(function).attend(0, q, k, v)),
        "step": example.times(lambda: model(one, last, paged), lambda function: model(one, last, by(function))),
    }


def case(options):
    sizes = SIZES[options.device]
    model = Llama(sizes, options.outliers).to(options.device, torch.bfloat16)
    tokens = torch.randint(
        model.vocabulary,
        (sizes["batch"], sizes["prompt"] + sizes["tokens"]),
        generator=torch.Generator().manual_seed(2),
    )
    tokens = tokens.to(options.device)
    run = lambda cache: generate(model, tokens, sizes["prompt"], cache)
    want, want_attention = run(DenseCache(sizes, options.device, example.exact))
    errors = []
    for name, cache in (
        ("pytorch", DenseCache(sizes, options.device, example.pytorch)),
        ("attune", PagedCache(sizes, options.device)),
    ):
        got, attention = run(cache)
        same = (got.argmax(-1) == want.argmax(-1)).float().mean().item()
        errors.append(
            {
                "name": name,
                "attention": measure.errors(attention, want_attention),
                "output": measure.errors(got, want),
                "same_next_token": same,
            }
        )
    times = step_times(model, tokens, sizes, options.device) if options.device == "cuda" else {}
    shape = f"{sizes['batch']}x{sizes['heads']}x1x{sizes['head_dim']} kv {sizes['kv_heads']} keys {tokens.shape[1]}"
    return {"shape": shape, "sizes": sizes, "outliers": options.outliers, "errors": errors, "times": times}


@torch.no_grad()
def main(argv=None):
    options = example.arguments(__doc__).parse_args(argv)
    return example.report("llama_decode", options, (case(options) for _ in range(1)))


if __name__ == "__main__":
    main()
