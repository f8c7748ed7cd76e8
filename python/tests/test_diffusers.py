"""The attention backend "attune" in small random transformers of diffusers, on a CPU."""

import importlib
import importlib.util
import sys
import unittest
from unittest import mock

import package  # noqa: F401 (before attune)
import standin
import torch

HAS_DIFFUSERS = importlib.util.find_spec("diffusers") is not None
if HAS_DIFFUSERS:
    import diffusers
    from diffusers.models import attention_dispatch

    import attune.diffusers
    from attune import _calls


def flux():
    torch.manual_seed(1)
    model = diffusers.FluxTransformer2DModel(
        patch_size=1, in_channels=4, num_layers=1, num_single_layers=1, attention_head_dim=64, num_attention_heads=2,
        joint_attention_dim=32, pooled_projection_dim=32, axes_dims_rope=[16, 24, 24])  # fmt: skip
    source = torch.Generator().manual_seed(2)
    inputs = {
        "hidden_states": torch.randn(2, 24, 4, generator=source),
        "encoder_hidden_states": torch.randn(2, 8, 32, generator=source),
        "pooled_projections": torch.randn(2, 32, generator=source),
        "timestep": torch.tensor([0.5, 0.5]),
    }
    inputs = {name: x.bfloat16() for name, x in inputs.items()}
    return model.to(torch.bfloat16).eval(), {**inputs, "img_ids": torch.zeros(24, 3), "txt_ids": torch.zeros(8, 3)}


@unittest.skipUnless(HAS_DIFFUSERS, "no diffusers")
class Diffusers(unittest.TestCase):
    def setUp(self):
        calls = attune.diffusers.calls()
        calls.clear()
        self.addCleanup(calls.clear)  # test_examples counts calls of the same table
        registry = attention_dispatch._AttentionBackendRegistry
        self.addCleanup(registry.set_active_backend, registry._active_backend)

    @torch.no_grad()
    def output(self, model, inputs, backend):
        model.set_attention_backend(backend)
        return model(**inputs, return_dict=False)[0].float()

    def counts(self):
        calls = attune.diffusers.calls()
        return calls.taken, calls.fallback

    def test_transformer(self):
        model, inputs = flux()
        want = self.output(model, inputs, "native")
        with standin.library() as attend:
            got = self.output(model, inputs, "attune")
        self.assertEqual((self.counts(), attend.call_count), ((2, 0), 2))
        self.assertLess(((got - want).pow(2).mean() / want.pow(2).mean()).sqrt().item(), 0.02)
        torch.testing.assert_close(self.output(model, inputs, "attune"), want, rtol=0, atol=0)
        self.assertEqual(self.counts(), (2, 2))
        self.assertIn("2x2x32x64", str(attune.diffusers.calls()))

    def test_context(self):
        model, inputs = flux()
        with attention_dispatch.attention_backend("attune"), standin.library(), torch.no_grad():
            model(**inputs)
        self.assertEqual(self.counts(), (2, 0))

    def test_calls_that_stay(self):
        q = torch.randn(2, 16, 2, 64, generator=torch.Generator().manual_seed(1)).bfloat16()
        dispatch = attention_dispatch.dispatch_attention_fn
        mask = torch.ones(2, 16, dtype=torch.bool)
        mask[1, 9:] = False
        cases = [
            ((q, q, q), {"attn_mask": mask}, "a mask"),
            ((q[:, :8], q, q), {"is_causal": True}, "a causal mask that is not square"),
            ((q.float(),) * 3, {}, "float32: attune takes float16 and bfloat16"),
            ((q[..., :40],) * 3, {}, "head dim 40"),
            ((q, q[:, :, :1], q[:, :, :1]), {"enable_gqa": True}, None),
            ((q, q, q), {"is_causal": True, "scale": 0.3}, None),
        ]
        for tensors, options, reason in cases:
            attune.diffusers.calls().clear()
            with standin.library():
                got = dispatch(*tensors, backend="attune", **options)
            self.assertEqual(self.counts(), (1, 0) if reason is None else (0, 1), reason)
            self.assertIn(reason or "", str(attune.diffusers.calls()))
            want = dispatch(*tensors, backend="native", **options)
            torch.testing.assert_close(got, want, rtol=0.02, atol=0.02)

    def test_precisions(self):
        asked = []

        def sdpa(q, k, v, **options):
            asked.append(options.get("precision"))
            raise NotImplementedError("a test")

        q = torch.zeros(1, 16, 2, 64, dtype=torch.bfloat16)
        with mock.patch.object(attune.diffusers, "sdpa", sdpa):
            for name in ("attune", "attune-fp8", "attune-16"):
                attention_dispatch.dispatch_attention_fn(q, q, q, backend=name)
        self.assertEqual(asked, [None, "fp8", "16"])

    def test_computed_precision(self):
        q = torch.zeros(1, 16, 2, 64, dtype=torch.bfloat16)
        found = attune.Explanation("form", "mixed", "fp8", 1, 0, 0.056, "a test")
        attune.diffusers.calls().clear()
        with standin.library():
            for name in ("attune", "attune-fp8"):
                attention_dispatch.dispatch_attention_fn(q, q, q, backend=name, is_causal=True)
        with mock.patch.object(_calls, "explain", return_value=found) as explain:
            table = str(attune.diffusers.calls())
        self.assertEqual([call.kwargs.get("precision") for call in explain.call_args_list], [None, "fp8"])
        self.assertEqual([call.kwargs["causal"] for call in explain.call_args_list], [True, True])
        self.assertRegex(table, "2 +1x2x16x64 +attune +fp8 +mixed")

    def test_names(self):
        """The enumeration is as if the names had been in it, and a second import changes nothing."""
        names = attention_dispatch.AttentionBackendName
        count = len(names)
        importlib.reload(attune.diffusers)
        self.assertEqual(len(names), count)
        self.assertIs(names("attune"), names.ATTUNE)
        self.assertIn(names.ATTUNE_FP8, list(names))
        self.assertEqual(f"{names.ATTUNE.name} {names.ATTUNE.value}", "ATTUNE attune")
        self.assertTrue(names.ATTUNE == "attune" and isinstance(names.ATTUNE, names))

    def test_missing_package(self):
        name = "attune.diffusers"
        with mock.patch.dict(sys.modules, {name: None, "diffusers.models.attention_dispatch": None}):
            del sys.modules[name]
            with self.assertRaisesRegex(ImportError, "pip install -U diffusers"):
                importlib.import_module(name)


if __name__ == "__main__":
    unittest.main()
