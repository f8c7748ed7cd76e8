"""A vision transformer, ViT-B/16, whose attention attune.patch() takes over, beside PyTorch's.

Images of 224 x 224 with a class token have 197 tokens: attention is 16x12x197x64. Images of 256 x
512 without one have 512: 16x12x512x64.
"""

import example
import torch
import torch.nn.functional as functional

import attune

PATCH = 16

# batch, heads, head_dim, layers, height, width, class token
CASES = {
    "cuda": [(16, 12, 64, 12, 224, 224, True), (16, 12, 64, 12, 256, 512, False)],
    "cpu": [(1, 2, 64, 2, 112, 112, True), (1, 2, 64, 2, 64, 128, False)],
}


class Layer(torch.nn.Module):
    def __init__(self, heads, head_dim, with_outliers, source, seed):
        super().__init__()
        dim = heads * head_dim
        self.heads = heads
        self.first, self.second = torch.nn.LayerNorm(dim), torch.nn.LayerNorm(dim)
        self.qkv, self.out = example.linear(dim, 3 * dim, 1.5, source), example.linear(dim, dim, 0.5, source)
        self.up, self.down = example.linear(dim, 4 * dim, 1, source), example.linear(4 * dim, dim, 0.5, source)
        if with_outliers:
            self.qkv.bias.data[dim : 2 * dim] = example.outliers(heads, head_dim, seed)

    def forward(self, x, attend):
        batch, tokens, dim = x.shape
        q, k, v = self.qkv(self.first(x)).view(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        x = x + self.out(attend(q, k, v).transpose(1, 2).reshape(batch, tokens, dim))
        return x + self.down(functional.gelu(self.up(self.second(x))))


class ViT(torch.nn.Module):
    def __init__(self, heads, head_dim, layers, tokens, with_class, with_outliers):
        super().__init__()
        source, dim = torch.Generator().manual_seed(1), heads * head_dim
        self.patches = torch.nn.Conv2d(3, dim, PATCH, PATCH)
        torch.nn.init.normal_(self.patches.weight, std=1 / (3 * PATCH**2) ** 0.5, generator=source)
        torch.nn.init.zeros_(self.patches.bias)
        self.token = torch.nn.Parameter(torch.randn(1, int(with_class), dim, generator=source))
        self.position = torch.nn.Parameter(0.5 * torch.randn(1, tokens, dim, generator=source))
        self.layers = torch.nn.ModuleList(Layer(heads, head_dim, with_outliers, source, seed) for seed in range(layers))
        self.norm = torch.nn.LayerNorm(dim)

    def forward(self, images, attend=None):
        # Without another function this is the plain model, which calls PyTorch's by its module.
        attend = attend or (lambda q, k, v: functional.scaled_dot_product_attention(q, k, v))
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1) + self.position
        for layer in self.layers:
            x = layer(x, attend)
        return self.norm(x)


def case(sizes, options):
    batch, heads, head_dim, layers, height, width, with_class = sizes
    tokens = height * width // PATCH**2 + with_class
    model = ViT(heads, head_dim, layers, tokens, with_class, options.outliers).to(options.device, torch.bfloat16)
    images = torch.randn(batch, 3, height, width, generator=torch.Generator().manual_seed(2)).to(
        options.device, torch.bfloat16
    )
    run = lambda attend: model(images, attend)
    errors, times, patched = example.study(run), {}, None
    if options.device == "cuda":
        with attune.patch() as calls:
            model(images)
        patched = {"taken": calls.taken, "fallback": calls.fallback}
        times = example.model_times(run, "model")
    shape = f"{batch}x{heads}x{tokens}x{head_dim}"
    return {
        "shape": shape,
        "layers": layers,
        "outliers": options.outliers,
        "errors": errors,
        "times": times,
        "patched_calls": patched,
    }


@torch.no_grad()
def main(argv=None):
    options = example.arguments(__doc__).parse_args(argv)
    return example.report("vit", options, (case(sizes, options) for sizes in CASES[options.device]))


if __name__ == "__main__":
    main()
