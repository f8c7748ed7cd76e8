"""The ways into other libraries on a Hopper GPU, with the kernels of the installed wheel."""

import importlib.util
import inspect
import unittest

import package  # noqa: F401 (before attune)
import test_gpu
import test_transformers
import torch
import torch.nn.functional as functional
from torch.nn.attention import SDPBackend, sdpa_kernel

import attune


def relative(got, want):
    return ((got.float() - want.float()).pow(2).mean() / want.float().pow(2).mean()).sqrt().item()


@unittest.skipUnless(hasattr(torch.nn.attention, "register_flash_attention_impl"), "PyTorch is older than 2.11")
class Register(test_gpu.OnGPU):
    def setUp(self):
        self.calls = attune.register()
        self.addCleanup(lambda: torch.nn.attention.restore_flash_attention_impl(_raise_warn=False))

    def test_flash_backend(self):
        q, k, v = test_gpu.tensors(1, 8, 2, 512, 512, 128)
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            got = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            self.assertEqual((self.calls.taken, self.calls.fallback), (1, 0), str(self.calls))
            self.compare(got, q, k, v, causal=True)
            q.requires_grad_()
            functional.scaled_dot_product_attention(q, k, v, enable_gqa=True).sum().backward()
        self.assertEqual((self.calls.taken, self.calls.fallback), (1, 1), str(self.calls))
        self.assertGreater(q.grad.abs().sum().item(), 0)

    def test_packed(self):
        from torch.nn.attention import varlen

        groups = "enable_gqa" in inspect.signature(varlen.varlen_attn).parameters  # PyTorch 2.11 has none
        grouped = {"enable_gqa": True} if groups else {}
        q, k = test_gpu.randn(300, 8, 128), test_gpu.randn(300, 2 if groups else 8, 128, seed=2)
        offsets = torch.tensor([0, 100, 300], dtype=torch.int32, device="cuda")
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            got = varlen.varlen_attn(q, k, k, offsets, offsets, 200, 200, window_size=(-1, 0), **grouped)
        self.assertEqual((self.calls.taken, self.calls.fallback), (1, 0), str(self.calls))
        for rows in (slice(0, 100), slice(100, 300)):
            each = (x[rows].transpose(0, 1)[None] for x in (q, k, k))
            self.compare(got[rows].transpose(0, 1)[None], *each, causal=True)


@unittest.skipUnless(test_transformers.HAS_TRANSFORMERS, "no transformers")
class Transformers(test_gpu.OnGPU):
    @torch.no_grad()
    def check(self, kind, mask=None, **options):
        """In 16 bits a wrong mask is seen. FP8, which "attune" takes for masks, makes an error of 0.08 to 0.13 in the
        logits of these models, whose attention is far from uniform."""
        model = test_transformers.made(kind, **options).cuda()
        tokens = test_transformers.tokens().cuda()
        mask = torch.ones_like(tokens) if mask is None else mask.cuda()
        outputs = {}
        for name in ("attune-16", "attune", "eager"):
            model.set_attn_implementation(name)
            attune.transformers.calls().clear()
            outputs[name] = model(input_ids=tokens, attention_mask=mask).logits[mask.bool()]
            if name != "eager":
                calls = attune.transformers.calls()
                self.assertEqual((calls.taken, calls.fallback), (2, 0), str(calls))
        self.assertLess(relative(outputs["attune-16"], outputs["eager"]), 0.03)
        self.assertLess(relative(outputs["attune"], outputs["eager"]), 0.2)

    def test_models(self):
        self.check("Llama")
        for side in ("left", "right"):
            self.check("Llama", mask=test_transformers.mask_of([24, 9], side=side))
        self.check("Mistral", sliding_window=7)
        self.check("GptOss", sliding_window=7, num_local_experts=1, num_experts_per_tok=1)

    @torch.no_grad()
    def test_generate(self):
        model = test_transformers.made("Llama").cuda()
        model.set_attn_implementation("attune")
        attune.transformers.calls().clear()
        model.generate(input_ids=test_transformers.tokens().cuda(), max_new_tokens=4, do_sample=False)
        calls = attune.transformers.calls()
        self.assertEqual((calls.taken, calls.fallback), (8, 0), str(calls))


@unittest.skipIf(importlib.util.find_spec("diffusers") is None, "no diffusers")
class Diffusers(test_gpu.OnGPU):
    @torch.no_grad()
    def test_transformer(self):
        import test_diffusers

        model, inputs = test_diffusers.flux()
        model, inputs = model.cuda(), {name: x.cuda() for name, x in inputs.items()}
        outputs = {}
        for name in ("native", "attune"):
            attune.diffusers.calls().clear()
            model.set_attention_backend(name)
            outputs[name] = model(**inputs, return_dict=False)[0]
        calls = attune.diffusers.calls()
        self.assertEqual((calls.taken, calls.fallback), (2, 0), str(calls))
        self.assertLess(relative(outputs["attune"], outputs["native"]), 0.05)
        model.set_attention_backend("native")


if __name__ == "__main__":
    unittest.main()
