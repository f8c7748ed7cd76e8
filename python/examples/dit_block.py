"""A block of a diffusion transformer with FP8 attention, beside PyTorch's.

Self-attention and an MLP, both modulated by a conditioning vector (adaLN). The sizes are those of
two image models: 2x10x4096x64 and 1x24x4608x128 (batch x heads x tokens x head dim).
"""

import example
import torch
import torch.nn.functional as functional

SHAPES = {"cuda": [(2, 10, 4096, 64), (1, 24, 4608, 128)], "cpu": [(1, 2, 96, 64), (1, 2, 64, 128)]}


class Block(torch.nn.Module):
    def __init__(self, heads, head_dim, with_outliers):
        super().__init__()
        source, dim = torch.Generator().manual_seed(1), heads * head_dim
        self.heads = heads
        self.norm = torch.nn.LayerNorm(dim, elementwise_affine=False)
        self.modulation = example.linear(dim, 6 * dim, 0.5, source)
        self.qkv = example.linear(dim, 3 * dim, 1.5, source)  # scores then spread as in trained models
        self.out = example.linear(dim, dim, 1, source)
        self.up, self.down = example.linear(dim, 4 * dim, 1, source), example.linear(4 * dim, dim, 1, source)
        if with_outliers:
            self.qkv.bias.data[dim : 2 * dim] = example.outliers(heads, head_dim)

    def forward(self, x, condition, attend):
        shift_a, scale_a, gate_a, shift_m, scale_m, gate_m = self.modulation(functional.silu(condition))[:, None].chunk(
            6, -1
        )
        batch, tokens, dim = x.shape
        y = self.norm(x) * (1 + scale_a) + shift_a
        q, k, v = self.qkv(y).view(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)  # views, no copies
        y = attend(q, k, v).transpose(1, 2).reshape(batch, tokens, dim)
        x = x + gate_a * self.out(y)
        y = self.norm(x) * (1 + scale_m) + shift_m
        return x + gate_m * self.down(functional.gelu(self.up(y), approximate="tanh"))


def case(shape, options):
    batch, heads, tokens, head_dim = shape
    block = Block(heads, head_dim, options.outliers).to(options.device, torch.bfloat16)
    source = torch.Generator().manual_seed(2)
    x, condition = (
        torch.randn(batch, tokens, heads * head_dim, generator=source),
        torch.randn(batch, heads * head_dim, generator=source),
    )
    x, condition = x.to(options.device, torch.bfloat16), condition.to(options.device, torch.bfloat16)
    run = lambda attend: block(x, condition, attend)
    errors = example.study(run)
    times = example.model_times(run, "block") if options.device == "cuda" else {}
    return {"shape": "x".join(map(str, shape)), "outliers": options.outliers, "errors": errors, "times": times}


@torch.no_grad()
def main(argv=None):
    options = example.arguments(__doc__).parse_args(argv)
    return example.report("dit_block", options, (case(shape, options) for shape in SHAPES[options.device]))


if __name__ == "__main__":
    main()
