"""The attention backend of vLLM over its own classes, without its engine and without a GPU.

Batches are vLLM's CommonAttentionMetadata, layers its Attention, and caches have its shapes and strides. PyTorch
computes what the kernels would. All results are compared with attention in float64.
"""

import importlib.metadata
import inspect
import itertools
import pathlib
import types
import unittest
from unittest import mock

import package  # noqa: F401 (before attune)
import torch

try:
    import tomllib

    import vllm.config
    import vllm.forward_context
    import vllm.plugins
    from vllm.model_executor.layers.attention import Attention
    from vllm.platforms.interface import DeviceCapability
    from vllm.v1.attention.backend import AttentionCGSupport, CommonAttentionMetadata
    from vllm.v1.attention.backends.registry import AttentionBackendEnum
    from vllm.v1.attention.selector import AttentionSelectorConfig
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheLayout

    import attune.vllm
except ImportError as problem:
    MISSING = f"attune.vllm cannot be imported: {problem}"
else:
    MISSING = ""

PAGE, HEADS, KV_HEADS = 16, 4, 2
FP8 = torch.float8_e4m3fn

# Requests as (keys before this step, new rows). vLLM puts decode steps first.
MIXED = [(40, 1), (16, 1), (5, 1), (0, 21), (30, 6)]
DECODE = [(40, 1), (16, 1), (0, 1)]
PREFILL = [(0, 7), (33, 20)]
VERIFY = [(40, 3), (17, 3), (2, 3)]


def pages(total):
    return -(-total // PAGE)


class Batch:
    """Requests, their rows, and what vLLM's model runner makes of them."""

    def __init__(self, requests, head_dim=64, dtype=torch.bfloat16, padding=0, seed=1):
        random = torch.Generator().manual_seed(seed)
        self.requests, self.rows = requests, sum(n for _, n in requests)
        rows = self.rows + padding
        # q, k and v are slices of one projection.
        qkv = torch.randn(rows, HEADS + 2 * KV_HEADS, head_dim, generator=random).to(dtype)
        self.q, self.k, self.v = qkv.split([HEADS, KV_HEADS, KV_HEADS], dim=1)
        totals = [before + n for before, n in requests]
        self.past = [torch.randn(2, n, KV_HEADS, head_dim, generator=random).to(dtype) for n, _ in requests]
        self.blocks = 1 + sum(map(pages, totals))  # the first one is no request's
        order = (1 + torch.randperm(self.blocks - 1, generator=random)).int()
        self.table = torch.zeros(len(requests), max(map(pages, totals)) + 2, dtype=torch.int32)
        for row, ids in zip(self.table, order.split([pages(n) for n in totals])):
            row[: len(ids)] = ids
        self.starts = torch.tensor([0, *(n for _, n in requests)], dtype=torch.int32).cumsum(0, dtype=torch.int32)
        slots = [self.slots(b, range(*total)) for b, total in enumerate(zip([x for x, _ in requests], totals))]
        self.slot_mapping = torch.cat([*slots, torch.full((padding,), -1)])
        self.common = CommonAttentionMetadata(
            query_start_loc=self.starts, query_start_loc_cpu=self.starts, num_reqs=len(requests),
            seq_lens=torch.tensor(totals, dtype=torch.int32), num_actual_tokens=self.rows,
            max_query_len=max(n for _, n in requests), max_seq_len=max(totals), block_table_tensor=self.table,
            slot_mapping=self.slot_mapping,
        )  # fmt: skip

    def slots(self, b, positions):
        return torch.tensor([int(self.table[b, n // PAGE]) * PAGE + n % PAGE for n in positions], dtype=torch.long)

    def cache(self, dtype, layout):
        """[blocks, kv_heads, PAGE, 2 * head_dim] with the strides of a layout, and NaN where nothing was written."""
        shape = (self.blocks, KV_HEADS, PAGE, 2 * self.q.shape[2])
        order = layout.layer_view_order
        inverse = [order.index(i) for i in range(4)]
        nan = torch.full([shape[i] for i in order], torch.nan).to(dtype)
        return (nan.view(torch.uint8) if dtype == FP8 else nan).permute(inverse)

    def attention(self, scales=None, window=None, sinks=None, softcap=None):
        """In float64. scales: of K and V in a cache in E4M3."""
        out = []
        for b, (_, n) in enumerate(self.requests):
            first = int(self.starts[b])
            new = torch.stack([self.k, self.v])[:, first : first + n]
            keys = torch.cat([self.past[b], new], dim=1)
            if scales is not None:
                keys = torch.stack([(x.float() / s).to(FP8).double() * s for x, s in zip(keys, scales)])
            k, v = keys.double().repeat_interleave(HEADS // KV_HEADS, dim=2)
            scores = torch.einsum("qhd,khd->hqk", self.q[first : first + n].double(), k) * k.shape[2] ** -0.5
            if softcap:
                scores = softcap * torch.tanh(scores / softcap)
            distance = torch.arange(k.shape[0] - n, k.shape[0])[:, None] - torch.arange(k.shape[0])
            hidden = (distance < 0) | (distance >= (window or torch.inf))
            scores = scores.masked_fill(hidden, -torch.inf)
            if sinks is not None:
                scores = torch.cat([scores, sinks.double().view(-1, 1, 1).expand(-1, n, 1)], dim=2)
            out.append(torch.einsum("hqk,khd->qhd", scores.softmax(2)[..., : k.shape[0]], v))
        return torch.cat(out)


@unittest.skipIf(MISSING, MISSING)
class WithVllm(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        device = vllm.config.DeviceConfig(device="cpu")
        cls.config = vllm.config.VllmConfig(device_config=device)

    def builder(self, verify=0):
        spec = FullAttentionSpec(block_size=PAGE, num_kv_heads=KV_HEADS, head_size=64, dtype=torch.bfloat16)
        made = attune.vllm.Builder(spec, ["layer"], self.config, torch.device("cpu"))
        if verify:
            made.reorder_batch_threshold = verify
        return made

    def layer(self, k_scale=1.0, v_scale=1.0):
        return types.SimpleNamespace(_k_scale=torch.tensor(k_scale), _v_scale=torch.tensor(v_scale))

    def run_batch(self, batch, cache_dtype="auto", layout=None, layer=None, verify=0, **options):
        """The rows of the output that are not padding."""
        layout, layer = layout or KVCacheLayout.LBNHC, layer or self.layer()
        head_dim = batch.q.shape[2]
        impl = attune.vllm.Attention(
            HEADS, head_dim, head_dim**-0.5, KV_HEADS, kv_cache_dtype=cache_dtype, **options
        )
        impl.process_weights_after_loading(batch.q.dtype)
        cache = batch.cache(FP8 if cache_dtype.startswith("fp8") else batch.q.dtype, layout)
        for b, (n, _) in enumerate(batch.requests):
            impl.do_kv_cache_update(layer, *batch.past[b], cache, batch.slots(b, range(n)))
        impl.do_kv_cache_update(layer, batch.k, batch.v, cache, batch.slot_mapping)
        metadata = self.builder(verify).build(0, batch.common)
        output = torch.full_like(batch.q, 7, memory_format=torch.contiguous_format)
        result = impl.forward(layer, batch.q, batch.k, batch.v, cache, metadata, output)
        self.assertIs(result, output)
        self.assertTrue((output[batch.rows :] == 7).all())
        return output[: batch.rows]

    def close(self, got, want, tolerance=0.01):
        error = (got.double() - want).pow(2).mean().sqrt() / want.pow(2).mean().sqrt()
        self.assertLess(error, tolerance)


class Forward(WithVllm):
    def test_batches(self):
        """Decode steps, prefills and both, in each physical layout of vLLM's caches."""
        for requests, layout in itertools.product((MIXED, DECODE, PREFILL), KVCacheLayout):
            with self.subTest(requests=requests, layout=layout):
                batch = Batch(requests)
                self.close(self.run_batch(batch, layout=layout), batch.attention())

    def test_head_dims_and_dtypes(self):
        for head_dim, dtype in itertools.product((64, 128, 256), (torch.float16, torch.bfloat16)):
            batch = Batch(MIXED, head_dim, dtype)
            self.close(self.run_batch(batch), batch.attention())

    def test_e4m3(self):
        """A cache in E4M3 with a factor each for K and V; the reference rounds what is in the cache."""
        batch, layer = Batch(MIXED), self.layer(0.02, 0.05)
        for name in ("fp8", "fp8_e4m3"):
            got = self.run_batch(batch, name, layer=layer)
            self.close(got, batch.attention((0.02, 0.05)))
        self.close(got, batch.attention(), 0.06)

    def test_options(self):
        batch, sinks = Batch(MIXED), torch.tensor([0.5, -1.0, 2.0, 0.0])
        self.close(self.run_batch(batch, sliding_window=12), batch.attention(window=12))
        self.close(self.run_batch(batch, sinks=sinks.bfloat16()), batch.attention(sinks=sinks))
        self.close(self.run_batch(batch, logits_soft_cap=5.0), batch.attention(softcap=5.0))

    def test_padding(self):
        """Rows behind the last one have slot -1, and neither cache nor output changes for them."""
        batch = Batch(MIXED, padding=3)
        self.close(self.run_batch(batch), batch.attention())

    def test_verification(self):
        """Several rows of each request, as speculative decoding verifies, are decode rows."""
        batch = Batch(VERIFY)
        metadata = self.builder(verify=4).build(0, batch.common)
        self.assertEqual((metadata.decodes, metadata.decode_rows), (3, 9))
        self.close(self.run_batch(batch, verify=4), batch.attention())
        self.close(self.run_batch(batch, verify=0), batch.attention())

    def test_profile(self):
        """Without metadata vLLM measures its memory."""
        impl = attune.vllm.Attention(HEADS, 64, 0.125, KV_HEADS)
        output = torch.ones(5, HEADS, 64)
        impl.forward(self.layer(), output, output, output, torch.empty(0), None, output)
        self.assertEqual(output.count_nonzero(), 0)

    def test_through_the_layer(self):
        """vLLM's Attention writes the cache and calls the backend, as a model does."""
        batch = Batch(MIXED, padding=2)
        with vllm.config.set_current_vllm_config(self.config):
            layer = Attention(HEADS, 64, 64**-0.5, KV_HEADS, prefix="model.layers.0.attn", attn_backend=attune.vllm.Backend)
            self.assertEqual(layer.backend, AttentionBackendEnum.CUSTOM)
            layer.process_weights_after_loading(torch.bfloat16)
            layer.kv_cache = batch.cache(torch.bfloat16, KVCacheLayout.LBNHC)
            for b, (n, _) in enumerate(batch.requests):
                layer.impl.do_kv_cache_update(layer, *batch.past[b], layer.kv_cache, batch.slots(b, range(n)))
            metadata = {layer.layer_name: self.builder().build(0, batch.common)}
            slots = {layer.layer_name: batch.slot_mapping}
            flat = [x.flatten(1) for x in (batch.q, batch.k, batch.v)]
            with vllm.forward_context.set_forward_context(metadata, self.config, slot_mapping=slots):
                got = layer(*flat)
        self.close(got[: batch.rows].view(-1, HEADS, 64), batch.attention())


class Metadata(WithVllm):
    def test_split(self):
        for requests, want in ((MIXED, (3, 3, [0, 21, 27])), (DECODE, (3, 3, [0])), (PREFILL, (0, 0, [0, 7, 27]))):
            made = self.builder().build(0, Batch(requests).common)
            self.assertEqual((made.decodes, made.decode_rows, made.cu_seqlens_q.tolist()), want)

    def test_padded_graph(self):
        """A graph of decode steps has more requests than there are; those have no keys, and give zero."""
        batch = Batch(DECODE)
        common = batch.common.replace(
            num_reqs=5, num_actual_tokens=5, seq_lens=torch.cat([batch.common.seq_lens, torch.zeros(2).int()]),
            block_table_tensor=torch.cat([batch.table, torch.zeros_like(batch.table[:2])]),
            query_start_loc=torch.tensor([0, 1, 2, 3, 3, 3]).int(), query_start_loc_cpu=torch.tensor([0, 1, 2, 3, 3, 3]).int(),
        )  # fmt: skip
        made = self.builder().build(0, common)
        self.assertEqual((made.decodes, made.decode_rows), (5, 5))
        impl = attune.vllm.Attention(HEADS, 64, 0.125, KV_HEADS)
        cache = batch.cache(torch.bfloat16, KVCacheLayout.LBNHC)
        for b, (n, _) in enumerate(DECODE):
            impl.do_kv_cache_update(self.layer(), *batch.past[b], cache, batch.slots(b, range(n)))
        impl.do_kv_cache_update(self.layer(), batch.k, batch.v, cache, batch.slot_mapping)
        q = torch.cat([batch.q, torch.ones(2, HEADS, 64).bfloat16()])
        got = impl.forward(self.layer(), q, batch.k, batch.v, cache, made, torch.full_like(q, 7))
        self.close(got[:3], batch.attention())
        self.assertEqual(got[3:].count_nonzero(), 0)

    def test_uneven_rows(self):
        """Requests of fewer rows than the first are no decode steps, whatever the batch is padded to."""
        batch = Batch([(9, 4), (20, 4), (3, 0)])
        self.assertEqual(self.builder(verify=4).build(0, batch.common).decodes, 0)
        self.close(self.run_batch(batch, verify=4), batch.attention())

    def test_other_block_table(self):
        made = self.builder().build(0, Batch(MIXED).common)
        table = torch.zeros(5, 9, dtype=torch.int32)
        self.assertIs(self.builder().update_block_table(made, table, None).block_table, table)
        self.assertIs(made.cu_seqlens_q, self.builder().update_block_table(made, table, None).cu_seqlens_q)

    def test_graphs(self):
        self.assertEqual(attune.vllm.Builder.get_cudagraph_support(self.config, None), AttentionCGSupport.UNIFORM_BATCH)

    def test_not_causal(self):
        with self.assertRaisesRegex(NotImplementedError, "causal attention only"):
            self.builder().build(0, Batch(MIXED).common.replace(causal=False))


class Selection(WithVllm):
    def invalid(self, major=9, **changed):
        given = AttentionSelectorConfig(64, torch.bfloat16, "auto", 16)._replace(**changed)
        return attune.vllm.Backend.validate_configuration(
            device_capability=DeviceCapability(major, 0), **given._asdict()
        )

    def test_entry_point(self):
        """vLLM's loader calls register, more than once, and finds the class by the name that it has given."""
        project = tomllib.loads((pathlib.Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
        group = "vllm.general_plugins"
        points = [importlib.metadata.EntryPoint(n, v, group) for n, v in project["entry-points"][group].items()]
        self.addCleanup(AttentionBackendEnum.CUSTOM.clear_override)
        with mock.patch.object(importlib.metadata, "entry_points", lambda group: points):
            plugins = vllm.plugins.load_plugins_by_group(group)
        for _ in range(2):
            plugins["attune"]()
        found = AttentionBackendEnum.CUSTOM.get_class()
        self.assertIs(found, attune.vllm.Backend)
        self.assertEqual(found.get_name(), AttentionBackendEnum.CUSTOM.name)

    def test_supported(self):
        supported = [{}, {"head_size": 128}, {"head_size": 256, "dtype": torch.float16}, {"kv_cache_dtype": "fp8"},
                     {"has_sink": True, "has_sliding_window": True}, {"block_size": 32},
                     {"kv_cache_dtype": "bfloat16"}, {"use_kv_connector": True}]  # fmt: skip
        for changed in supported:
            for major in (8, 9, 10, 12):
                self.assertEqual(self.invalid(major, **changed), [], changed)

    def test_refused(self):
        refused = [{"head_size": 80}, {"dtype": torch.float32}, {"kv_cache_dtype": "fp8_e5m2"}, {"block_size": 24},
                   {"use_mla": True}, {"attn_type": "encoder_only"}, {"use_non_causal": True}, {"use_dcp": True},
                   {"use_mm_prefix": True}, {"major": 7},
                   {"use_adaptive_verification": True}]  # fmt: skip
        for changed in refused:
            self.assertEqual(len(self.invalid(**changed)), 1, changed)
        (reason,) = self.invalid(kv_cache_dtype="float16")
        self.assertEqual(reason, "the cache is in float16, and the model in torch.bfloat16")

    def test_layers(self):
        """What vLLM does not ask before, a layer refuses when it is made."""
        for text, options in (
            ("no ALiBi", {"alibi_slopes": [0.5] * HEADS}),
            ("decoders, not encoder", {"attn_type": "encoder"}),
            ("--kv-cache-dtype auto", {"logits_soft_cap": 5.0, "kv_cache_dtype": "fp8"}),
        ):
            with self.assertRaisesRegex(NotImplementedError, text):
                attune.vllm.Attention(HEADS, 64, 0.125, KV_HEADS, **options)
        impl = attune.vllm.Attention(HEADS, 64, 0.125, KV_HEADS)
        with self.assertRaisesRegex(NotImplementedError, "does not quantise"):
            impl.forward(self.layer(), *[torch.ones(1)] * 3, torch.ones(1), None, torch.ones(1), torch.ones(1))


class Writer(WithVllm):
    def test_arguments(self):
        """On a GPU vLLM's own kernel writes the cache; no GPU is here, so that its arguments are compared only."""
        import vllm._custom_ops

        writes = mock.create_autospec(vllm._custom_ops.reshape_and_cache_flash)
        batch = Batch(MIXED)
        cache = batch.cache(torch.bfloat16, KVCacheLayout.LBHNC)
        impl, layer = attune.vllm.Attention(HEADS, 64, 0.125, KV_HEADS), self.layer()
        key = mock.Mock(is_cuda=True)
        with mock.patch.object(vllm._custom_ops, "reshape_and_cache_flash", writes):
            impl.do_kv_cache_update(layer, key, batch.v, cache, batch.slot_mapping)
        given = inspect.signature(vllm._custom_ops.reshape_and_cache_flash).bind(*writes.call_args.args).arguments
        self.assertIs(given["key"], key)
        for name, rows in (("key_cache", slice(0, 64)), ("value_cache", slice(64, 128))):
            want = cache.transpose(1, 2)[..., rows]  # [blocks, PAGE, kv_heads, head_dim]
            self.assertEqual((given[name].data_ptr(), given[name].shape), (want.data_ptr(), want.shape))
            self.assertEqual(given[name].stride(), want.stride())
        self.assertIs(given["slot_mapping"], batch.slot_mapping)
        self.assertEqual(given["kv_cache_dtype"], "auto")


if __name__ == "__main__":
    unittest.main()
