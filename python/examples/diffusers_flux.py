"""A small Flux transformer of Hugging Face diffusers with the attention backend "attune".

Without a Hopper GPU diffusers' backend "native" computes all calls, and the table says so.
"""

import doors
import torch
from diffusers import FluxTransformer2DModel

import attune.diffusers


@torch.no_grad()
def main(argv=None):
    device = doors.device(__doc__, argv)
    torch.manual_seed(1)
    model = FluxTransformer2DModel(
        patch_size=1, in_channels=16, num_layers=1, num_single_layers=2, attention_head_dim=128,
        num_attention_heads=4, joint_attention_dim=64, pooled_projection_dim=64)  # fmt: skip
    model = model.to(device, torch.bfloat16).eval()
    inputs = {
        "hidden_states": torch.randn(1, 256, 16),
        "encoder_hidden_states": torch.randn(1, 32, 64),
        "pooled_projections": torch.randn(1, 64),
        "timestep": torch.tensor([0.5]),
        "img_ids": torch.zeros(256, 3),
        "txt_ids": torch.zeros(32, 3),
    }
    inputs = {name: x.to(device, torch.bfloat16) for name, x in inputs.items()}

    model.set_attention_backend("native")
    want = model(**inputs).sample
    model.set_attention_backend("attune")  # of a pipeline: pipe.transformer.set_attention_backend
    got = model(**inputs).sample
    doors.report(got, want, attune.diffusers.calls())


if __name__ == "__main__":
    main()
