"""attn_implementation="attune" in small random models of transformers, on a CPU.

A stand-in computes what the kernels would, so that the ways through attune run, and outputs are compared with those of
the models' eager functions. Without it every call must be that of transformers' own implementation.
"""

import importlib.util
import sys
import unittest
from unittest import mock

import package  # noqa: F401 (before attune)
import standin
import torch

HAS_TRANSFORMERS = importlib.util.find_spec("transformers") is not None
if HAS_TRANSFORMERS:
    import transformers

    import attune.transformers
    from attune import _calls

TEXT = {
    "hidden_size": 128,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "vocab_size": 96,
    "max_position_embeddings": 256,
    "initializer_range": 0.15,
    "pad_token_id": 0,
    "eos_token_id": None,
}


def made(kind, **options):
    """A model of random weights: in large ones attention is far from uniform, so that a wrong mask is seen."""
    torch.manual_seed(3)
    config = getattr(transformers, kind + "Config")(**{**TEXT, **options})
    name = {"ViT": "ViTModel", "Bert": "BertModel", "T5": "T5EncoderModel"}.get(kind, kind + "ForCausalLM")
    return getattr(transformers, name)(config).to(torch.bfloat16).eval()


def tokens(batch=2, length=24, seed=1):
    return torch.randint(1, 96, (batch, length), generator=torch.Generator().manual_seed(seed))


def mask_of(lengths, length=24, side="left"):
    """1 for tokens; sequences of these lengths are padded on a side."""
    rows = torch.arange(length)[None]
    n = torch.tensor(lengths)[:, None]
    return (rows >= length - n if side == "left" else rows < n).long()


@unittest.skipUnless(HAS_TRANSFORMERS, "no transformers")
class WithTransformers(unittest.TestCase):
    def setUp(self):
        attune.transformers.calls().clear()

    def paths(self):
        """{path: calls}, and the reasons of those that attune left."""
        rows = attune.transformers.calls().rows
        counts = {}
        for row, n in rows.items():
            counts[row.path] = counts.get(row.path, 0) + n
        return counts, {row.reason for row in rows if row.reason}

    @torch.no_grad()
    def output(self, model, implementation, with_library=True, **inputs):
        model.set_attn_implementation(implementation)
        if implementation.startswith("attune") and with_library:
            with standin.library():
                return model(**inputs)[0].float()
        return model(**inputs)[0].float()

    def close(self, got, want, tolerance=0.03):
        self.assertFalse(got.isnan().any())
        error = (got - want).pow(2).mean().sqrt() / want.pow(2).mean().sqrt()
        self.assertLess(error.item(), tolerance)

    def same(self, model, rows=..., expected=None, **inputs):
        """attune's output is that of eager attention in some rows; without the library it is that of sdpa."""
        attune.transformers.calls().clear()
        got = self.output(model, "attune", **inputs)
        counts, reasons = self.paths()
        self.assertEqual(counts, {"attune": 2} if expected is None else expected, reasons)
        self.close(got[rows], self.output(model, "eager", **inputs)[rows])
        plain = "sdpa" if model._supports_sdpa else "eager"
        without = self.output(model, "attune", with_library=False, **inputs)
        torch.testing.assert_close(without[rows], self.output(model, plain, **inputs)[rows], rtol=0, atol=0)


class Decoders(WithTransformers):
    def test_prefill(self):
        for kind in ("Llama", "Qwen3"):
            self.same(made(kind), input_ids=tokens())

    def test_padding(self):
        model = made("Llama")
        for side in ("left", "right"):
            mask = mask_of([24, 9], side=side)
            self.same(model, rows=mask.bool(), input_ids=tokens(), attention_mask=mask)
        holes = mask_of([24, 20])
        holes[1, 9:13] = 0
        positions = (holes.cumsum(1) - 1).clamp(min=0)
        self.same(model, rows=holes.bool(), input_ids=tokens(), attention_mask=holes, position_ids=positions)

    def test_mask_without_padding(self):
        self.same(made("Llama"), input_ids=tokens(), attention_mask=torch.ones(2, 24, dtype=torch.long))

    def test_windows(self):
        for kind in ("Mistral", "Gemma3"):
            options = {"sliding_window": 7}
            if kind == "Gemma3":
                options |= {"layer_types": ["sliding_attention", "full_attention"], "query_pre_attn_scalar": 64}
                kind = "Gemma3Text"
            model = made(kind, **options) if kind == "Mistral" else self.gemma3(**options)
            self.same(model, input_ids=tokens())
            for side in ("left", "right"):
                mask = mask_of([24, 17], side=side)
                self.same(model, rows=mask.bool(), input_ids=tokens(), attention_mask=mask)
            holes = mask_of([24, 20])
            holes[1, 9:13] = 0  # packing would shorten distances
            full = 1 if kind == "Gemma3Text" else 0
            expected = {"sdpa": 2 - full, **({"attune": full} if full else {})}
            self.same(model, rows=holes.bool(), expected=expected, input_ids=tokens(), attention_mask=holes)

    def gemma3(self, **options):
        torch.manual_seed(3)
        config = transformers.Gemma3TextConfig(**{**TEXT, **options})
        return transformers.Gemma3ForCausalLM(config).to(torch.bfloat16).eval()

    def test_softcap(self):
        model = made("Gemma2", query_pre_attn_scalar=64, attn_logit_softcapping=5.0, sliding_window=7)
        self.same(model, input_ids=tokens())
        mask = mask_of([24, 9])
        self.same(model, rows=mask.bool(), input_ids=tokens(), attention_mask=mask)

    def test_softcap_that_attune_refuses(self):
        """The model's eager function has it, and sdpa has not."""
        model = made("Gemma2", query_pre_attn_scalar=64, attn_logit_softcapping=5.0)
        got = self.output(model, "attune-fp8", input_ids=tokens())
        self.assertEqual(self.paths()[0], {"eager": 2})
        torch.testing.assert_close(got, self.output(model, "eager", input_ids=tokens()), rtol=0, atol=0)

    def test_sinks(self):
        model = made("GptOss", sliding_window=7, num_local_experts=1, num_experts_per_tok=1)
        for layer in model.model.layers:
            layer.self_attn.sinks.data.normal_(1, 1)
        self.same(model, input_ids=tokens())
        mask = mask_of([24, 15])
        self.same(model, rows=mask.bool(), input_ids=tokens(), attention_mask=mask)

    def test_head_dims_of_no_kernel(self):
        model = made("Llama", head_dim=32)
        self.same(model, expected={"sdpa": 2}, input_ids=tokens())
        self.assertEqual(self.paths()[1], {"head dim 32: the kernels have 64, 128 and 256"})

    def test_gradients(self):
        """Training takes the implementation of transformers, which has a backward pass."""
        model = made("Llama")
        model.set_attn_implementation("attune")
        with standin.library() as attend:
            model(input_ids=tokens(), labels=tokens()).loss.backward()
        self.assertEqual(attend.call_count, 0)
        self.assertEqual(self.paths(), ({"sdpa": 2}, {"a gradient is wanted, and there is no backward pass"}))
        self.assertGreater(model.model.layers[0].self_attn.q_proj.weight.grad.abs().sum().item(), 0)

    def test_custom_masks(self):
        """Packed training samples, and a mask that the caller has made: sdpa, which has masks of all kinds."""
        model = made("Llama")
        positions = torch.cat([torch.arange(10), torch.arange(14)])[None].expand(2, -1)
        self.same(model, expected={"sdpa": 2}, input_ids=tokens(), position_ids=positions,
                  use_cache=False)  # fmt: skip
        model.set_attn_implementation("attune")
        mask = torch.ones(24, 24, dtype=torch.bool).tril()[None, None].expand(2, 1, -1, -1)
        with standin.library():
            self.close(self.output(model, "attune", input_ids=tokens(), attention_mask=mask),
                       self.output(model, "sdpa", input_ids=tokens()))  # fmt: skip


class Generation(WithTransformers):
    @torch.no_grad()
    def generated(self, model, implementation, with_library, **options):
        model.set_attn_implementation(implementation)
        context = standin.library() if with_library else mock.MagicMock()
        with context:
            result = model.generate(do_sample=False, max_new_tokens=8, return_dict_in_generate=True,
                                    output_logits=True, **options)  # fmt: skip
        return torch.stack(result.logits).float()  # a step that took another token is far off from then on

    def check(self, model, expected, **options):
        logits = self.generated(model, "attune", True, **options)
        self.assertEqual(self.paths()[0], expected, self.paths()[1])
        self.close(logits, self.generated(model, "eager", False, **options))
        plain = "sdpa" if model._supports_sdpa else "eager"
        logits = self.generated(model, "attune", False, **options)
        torch.testing.assert_close(logits, self.generated(model, plain, False, **options), rtol=0, atol=0)

    def test_cache(self):
        """A prefill and 7 decode steps of 2 layers, all by attune."""
        self.check(made("Llama"), {"attune": 16}, input_ids=tokens())

    def test_left_padding(self):
        """The prefill is packed; decode steps have a mask that the decode kernel does not take."""
        expected = {"attune": 2, "sdpa": 14}
        self.check(made("Llama"), expected, input_ids=tokens(), attention_mask=mask_of([24, 9]))

    def test_window(self):
        """The cache of a window keeps its keys only."""
        self.check(made("Mistral", sliding_window=7), {"attune": 16}, input_ids=tokens())

    def test_static_cache(self):
        self.check(made("Llama"), {"attune": 2, "sdpa": 14}, input_ids=tokens(), cache_implementation="static",
                   disable_compile=True)  # fmt: skip

    def test_softcap(self):
        """Decode steps too. With padding those of a full layer go to eager, and a window of 7 keys has no padding."""
        model = made("Gemma2", query_pre_attn_scalar=64, attn_logit_softcapping=5.0, sliding_window=7)
        self.check(model, {"attune": 16}, input_ids=tokens())
        attune.transformers.calls().clear()
        self.check(model, {"attune": 9, "eager": 7}, input_ids=tokens(), attention_mask=mask_of([24, 9]))

    def test_sinks(self):
        model = made("GptOss", sliding_window=7, num_local_experts=1, num_experts_per_tok=1)
        self.check(model, {"attune": 16}, input_ids=tokens())

    @torch.no_grad()
    def test_second_turn(self):
        """New queries over a cache are causal from the last key."""
        model, ids = made("Llama"), tokens(length=48)
        results = {}
        for implementation in ("attune", "eager"):
            model.set_attn_implementation(implementation)
            with standin.library():
                cache = model(input_ids=ids[:, :24], use_cache=True).past_key_values
                results[implementation] = model(input_ids=ids[:, 24:], past_key_values=cache).logits.float()
        self.assertEqual(self.paths()[0], {"attune": 4}, self.paths()[1])
        self.close(results["attune"], results["eager"])


class Encoders(WithTransformers):
    def test_vit(self):
        model = made("ViT", image_size=64, patch_size=16)
        images = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(1)).bfloat16()
        self.assertEqual(model.config.hidden_size // model.config.num_attention_heads, 32)
        model = made("ViT", image_size=64, patch_size=16, num_attention_heads=2)
        self.same(model, pixel_values=images)

    def test_bert(self):
        """Padding is packed away for keys only, so that all rows are those of eager."""
        model = made("Bert", num_attention_heads=2)
        self.same(model, input_ids=tokens())
        for side in ("left", "right"):
            self.same(model, input_ids=tokens(), attention_mask=mask_of([24, 9], side=side))

    def test_position_bias(self):
        model = made("T5", d_model=128, d_kv=64, num_heads=2, num_layers=2, d_ff=96)
        if "attune" not in transformers.modeling_utils.ALL_ATTENTION_FUNCTIONS:
            self.fail("not registered")
        got, want = (self.output(model, name, input_ids=tokens()) for name in ("attune", "sdpa"))
        torch.testing.assert_close(got, want, rtol=0, atol=0)


class Door(WithTransformers):
    def test_precisions(self):
        """The name of the implementation says what attune.sdpa is asked for."""
        model, asked = made("Llama"), []

        def sdpa(q, k, v, **options):
            asked.append(options.get("precision"))
            raise NotImplementedError("a test; and more")

        with mock.patch.object(attune.transformers, "sdpa", sdpa):
            for name in ("attune", "attune-fp8", "attune-16"):
                self.output(model, name, input_ids=tokens())
        self.assertEqual(asked, [None, None, "fp8", "fp8", "16", "16"])
        self.assertEqual(self.paths()[1], {"a test"})

    def test_record(self):
        model = made("Llama")
        found = attune.Explanation("form", "native", "16", 1, 0, 0.0045, "a test")
        calls = attune.transformers.calls()
        with mock.patch.object(_calls, "explain", return_value=found) as explain:
            self.output(model, "attune", input_ids=tokens())
            self.output(model, "attune", with_library=False, input_ids=tokens())
            self.assertEqual(explain.call_count, 0)  # until the table is read
            lines = str(calls).splitlines()
        self.assertEqual(explain.call_count, 1)  # the layers have one problem
        self.assertEqual((calls.taken, calls.fallback), (2, 2))
        self.assertRegex(lines[0], r"^calls +layer +shape +path +precision +kernel +reason$")
        self.assertRegex(lines[1], r"^1 +LlamaAttention 0 +2x4x24x64 +attune +16 +native$")
        self.assertRegex(lines[3], r"^1 +LlamaAttention 0 +2x4x24x64 +sdpa +bfloat16 +q is on cpu: attune runs on CUDA")

    def test_padding_is_explained_as_packed(self):
        """A packed prefill is another problem than the one of the model's shape."""
        model, asked = made("Llama"), []

        def explain(q, k, v, **options):
            asked.append((tuple(q.shape), options.get("max_seqlen_q"), options["precision"]))
            return attune.Explanation("form", "prefill", "fp8", 1, 0, 0.056, "a test")

        self.output(model, "attune-fp8", input_ids=tokens(), attention_mask=mask_of([24, 9]))
        with mock.patch.object(_calls, "explain", explain):
            table = str(attune.transformers.calls())
        self.assertEqual(asked, [((33, 4, 64), 24, "fp8")])
        self.assertRegex(table, "2x4x24x64 +attune +fp8 +prefill")

    def test_compiled(self):
        """The graph has no break, and computes what sdpa computes."""
        model = made("Llama")
        model.set_attn_implementation("attune")
        compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
        with torch.no_grad():
            got = compiled(input_ids=tokens(), use_cache=False).logits.float()
        self.close(got, self.output(model, "sdpa", input_ids=tokens(), use_cache=False))

    def test_missing_package(self):
        name = "attune.transformers"
        with mock.patch.dict(sys.modules, {name: None, "transformers.masking_utils": None}):
            del sys.modules[name]
            with self.assertRaisesRegex(ImportError, "pip install -U transformers"):
                importlib.import_module(name)


class Records(WithTransformers):
    @torch.no_grad()
    def test_on_meta(self):
        """The table of a model without memory is that of a Hopper GPU, as attune.explain has it."""
        with torch.device("meta"):
            model = made("Llama")
            model.set_attn_implementation("attune")
            model(torch.zeros(1, 20, dtype=torch.long))
        rows = attune.transformers.calls().rows
        self.assertEqual({(row.path, row.kernel, row.reason) for row in rows}, {("attune", "kernel", "")})

    @torch.no_grad()
    def test_autocast(self):
        """The tensors of a model in float32 are converted as PyTorch converts them."""
        model, ids = made("Llama").float(), torch.zeros(1, 20, dtype=torch.long)
        model.set_attn_implementation("attune")
        with standin.library(), torch.autocast("cpu", torch.bfloat16):
            model(ids)
        self.assertEqual(self.paths()[0], {"attune": 2})

    def test_reasons(self):
        """A mask that attune does not compute says why."""
        describe, masks = attune.transformers._describe, attune.transformers._masks
        sizes, padded = {"q_length": 4, "kv_length": 20, "q_offset": 16}, torch.ones(1, 20, dtype=torch.bool)
        padded[0, :3] = False
        causal = masks.causal_mask_function
        for want, given in (
            ("a mask that is neither causal nor a window", {"mask_function": lambda *x: True}),
            ("a static cache", {"mask_function": causal, "q_offset": torch.tensor(16)}),
            ("a mask whose last query is not at the last key", {"mask_function": causal, "kv_length": 9}),
            ("padding in a decode step", {"mask_function": causal, "attention_mask": padded}),
        ):
            self.assertEqual(describe(**{**sizes, **given}), want)
        q = torch.zeros(1, 2, 4, 64)
        says = attune.transformers._description
        self.assertRegex(says(q, q, torch.ones(1, 1, 4, 4), True), "that the model or the caller made")
        self.assertRegex(says(q, q[:, :, :2], None, True), "more queries than keys")


if __name__ == "__main__":
    unittest.main()
