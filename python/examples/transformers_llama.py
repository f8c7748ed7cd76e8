"""A small Llama of Hugging Face transformers with attn_implementation="attune": a padded prompt, then tokens.

Without a Hopper GPU transformers' own attention computes all calls, and the table says so.
"""

import doors
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import attune.transformers


@torch.no_grad()
def main(argv=None):
    device = doors.device(__doc__, argv)
    torch.manual_seed(1)
    config = LlamaConfig(hidden_size=512, intermediate_size=1024, num_hidden_layers=2, num_attention_heads=8,
                         num_key_value_heads=2, vocab_size=1000, pad_token_id=0, eos_token_id=None)  # fmt: skip
    model = LlamaForCausalLM(config).to(device, torch.bfloat16).eval()
    tokens = torch.randint(1, 1000, (2, 64), device=device)
    mask = torch.ones_like(tokens)
    mask[1, :20] = 0  # left padding
    inputs = {"input_ids": tokens, "attention_mask": mask}

    model.set_attn_implementation("sdpa")
    want = model(**inputs).logits[mask.bool()]
    model.set_attn_implementation("attune")  # or attn_implementation="attune" in from_pretrained
    got = model(**inputs).logits[mask.bool()]
    model.generate(input_ids=tokens, max_new_tokens=4, do_sample=False)
    doors.report(got, want, attune.transformers.calls())


if __name__ == "__main__":
    main()
