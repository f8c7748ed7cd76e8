"""The attention backend "CUSTOM" of vLLM. Its plugin loader calls register(), which is an entry point of the package.

vllm serve MODEL --attention-backend CUSTOM

A batch has decode rows first, as many for each request, which attune.decode computes; attune.prefill computes the rest.
Both read vLLM's paged cache where it is, in 16 bits or in E4M3.
"""

import dataclasses
import importlib
from typing import Any, Optional

import torch
from torch import Tensor

from attune import _check, _library
from attune._cache import decode, prefill
from attune._explain import explain

try:
    _base: Any = importlib.import_module("vllm.v1.attention.backend")
    _backends: Any = importlib.import_module("vllm.v1.attention.backends.utils")
    _registry: Any = importlib.import_module("vllm.v1.attention.backends.registry")
    _base.AttentionBackend.supported_kv_cache_layouts  # since K and V of a cache are one tensor
except (ImportError, AttributeError) as problem:
    raise ImportError(
        f"attune.vllm needs vLLM with packed K/V caches, as 0.33 has ({problem}): pip install -U vllm"
    ) from problem

_E4M3 = ("fp8", "fp8_e4m3")  # vLLM's names of a cache in E4M3
_HEAD_DIMS = [64, 128, 256]
_AMPERE = 8


def register() -> None:
    """Makes Backend vLLM's attention backend CUSTOM. vLLM may call it more than once."""
    _registry.register_backend(_registry.AttentionBackendEnum.CUSTOM, f"{__name__}.{Backend.__qualname__}")


class Backend(_base.AttentionBackend):  # type: ignore[misc]
    """What vLLM asks before it chooses the backend. It refuses the rest, such as MLA, ALiBi and encoders, by default."""

    supported_dtypes = list(_check.HALVES)
    supported_kv_cache_dtypes = ["auto", "float16", "bfloat16", *_E4M3]
    forward_includes_kv_cache_update = False

    @staticmethod
    def get_name() -> str:
        return "CUSTOM"  # a member of vLLM's enumeration of backends

    @staticmethod
    def get_impl_cls() -> type["Attention"]:
        return Attention

    @staticmethod
    def get_builder_cls() -> type["Builder"]:
        return Builder

    @staticmethod
    def get_supported_kernel_block_sizes(kv_cache_spec: Any = None) -> list[Any]:
        return [_base.MultipleOf(16)]

    @classmethod
    def get_supported_head_sizes(cls) -> list[int]:
        return _HEAD_DIMS

    @classmethod
    def supports_compute_capability(cls, capability: Any) -> bool:
        return bool(capability.major >= _AMPERE)

    @classmethod
    def supports_sink(cls) -> bool:
        return True

    @classmethod
    def supports_sliding_window(cls) -> bool:
        return True

    @classmethod
    def supports_device_cpu_query_lens_mismatch(cls) -> bool:
        return False  # the builder finds the decode rows on the CPU

    @classmethod
    def supports_combination(
        cls, head_size: int, dtype: torch.dtype, kv_cache_dtype: Optional[str], *others: Any, **named: Any
    ) -> Optional[str]:
        halves = {"float16": torch.float16, "bfloat16": torch.bfloat16}
        if halves.get(kv_cache_dtype or "auto", dtype) != dtype:
            return f"the cache is in {kv_cache_dtype}, and the model in {dtype}"
        cache = _check.FP8 if kv_cache_dtype in _E4M3 else dtype
        gpus = (x for x in (*others, *named.values()) if hasattr(x, "major"))
        return next((reason for gpu in gpus if (reason := _unsupported(head_size, dtype, cache, gpu))), None)


def _unsupported(head_size: int, dtype: torch.dtype, cache: torch.dtype, gpu: Any) -> Optional[str]:
    """Why the library has no kernel for prefills over pages on a GPU; None if it has one, or is not there to be asked."""
    if _library._call is None:
        return None

    def new(*shape: int, dtype: torch.dtype = torch.int32) -> Tensor:
        return torch.empty(shape, dtype=dtype, device="meta")

    pages = new(2, 1, 16, head_size, dtype=cache)
    factors = (new(1, 1, dtype=torch.float32),) * 2 if cache == _check.FP8 else None
    found = explain(new(20, 1, head_size, dtype=dtype), pages, pages, cu_seqlens_q=new(2), max_seqlen_q=20, lengths=new(1),
                    page_table=new(1, 2), descale=factors, arch=f"sm_{gpu.major}{gpu.minor}", multiprocessors=1)  # fmt: skip
    return None if found.form is not None else found.reason.partition("; fallback=True")[0]


@dataclasses.dataclass
class Metadata(_base.AttentionMetadata):  # type: ignore[misc]
    """A batch: decode rows of the first requests, and then rows of prefills."""

    tokens: int  # rows of q and of the output that are not padding
    decodes: int  # requests
    decode_rows: int  # of all these requests, which have as many each
    seq_lens: Tensor  # int32 [requests]: the keys of each, with those of this step
    block_table: Tensor  # int32 [requests, blocks]
    cu_seqlens_q: Tensor  # int32, of the prefills
    max_seqlen_q: int


class Builder(_base.AttentionMetadataBuilder):  # type: ignore[misc]
    """Makes the metadata of a batch, once for all layers."""

    # A graph has the decode rows of a batch in which all requests have as many. Lengths are read on the device.
    _cudagraph_support = _base.AttentionCGSupport.UNIFORM_BATCH
    supports_update_block_table = True

    def __init__(self, kv_cache_spec: Any, layer_names: list[str], vllm_config: Any, device: torch.device) -> None:
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)
        self._init_reorder_batch_threshold(1, supports_spec_as_decode=True)

    def build(self, common_prefix_len: int, common_attn_metadata: Any, fast_build: bool = False) -> Metadata:
        common = common_attn_metadata
        if common.causal is not True:
            raise NotImplementedError("attune.vllm computes causal attention only, and this batch is not causal")
        decodes, rows = _decodes(common, self.reorder_batch_threshold or 1)
        cu_seqlens_q = common.query_start_loc
        return Metadata(
            tokens=common.num_actual_tokens,
            decodes=decodes,
            decode_rows=rows,
            seq_lens=common.seq_lens,
            block_table=common.block_table_tensor,
            cu_seqlens_q=cu_seqlens_q[decodes:] - rows if decodes else cu_seqlens_q,
            max_seqlen_q=common.max_query_len,
        )

    def update_block_table(self, metadata: Metadata, blk_table: Tensor, slot_mapping: Tensor) -> Metadata:
        return dataclasses.replace(metadata, block_table=blk_table)


def _decodes(common: Any, most: int) -> tuple[int, int]:
    """How many requests are at their decode steps, and their rows. They come first in a batch."""
    decodes, _, rows, _ = _backends.split_decodes_and_prefills(common, most, require_uniform=True)
    each = int(common.query_start_loc_cpu[1]) if decodes else 0
    return (decodes, rows) if rows == decodes * each else (0, 0)


class Attention(_base.AttentionImpl):  # type: ignore[misc]
    """Attention of a layer. Its cache is [blocks, kv_heads, block_size, 2 * head_dim] with any strides: K, then V."""

    def __init__(
        self,
        num_heads: int,
        head_size: int,
        scale: float,
        num_kv_heads: Optional[int] = None,
        alibi_slopes: Optional[list[float]] = None,
        sliding_window: Optional[int] = None,
        kv_cache_dtype: str = "auto",
        logits_soft_cap: Optional[float] = None,
        attn_type: str = "decoder",
        kv_sharing_target_layer_name: Optional[str] = None,
        sinks: Optional[Tensor] = None,
    ) -> None:
        _refuse(alibi_slopes, kv_cache_dtype, logits_soft_cap, attn_type)
        self.num_heads, self.head_size, self.scale = num_heads, head_size, float(scale)
        self.num_kv_heads = num_kv_heads or num_heads
        self.kv_cache_dtype = kv_cache_dtype
        self.kv_sharing_target_layer_name = kv_sharing_target_layer_name
        self.sinks = sinks
        self.options: dict[str, Any] = {
            "scale": self.scale,
            "window_size": None if sliding_window is None else (sliding_window - 1, 0),
            "softcap": logits_soft_cap,
            "sinks": sinks,
        }

    def process_weights_after_loading(self, act_dtype: torch.dtype) -> None:
        if self.sinks is not None:  # loaded since, in the dtype of the model
            self.options["sinks"] = self.sinks.detach().float()

    def do_kv_cache_update(self, layer: Any, key: Tensor, value: Tensor, kv_cache: Tensor, slot_mapping: Tensor) -> None:
        """Writes new rows, [tokens, kv_heads, head_dim], to their slots; a negative slot is that of padding."""
        scales = layer._k_scale, layer._v_scale
        if not key.is_cuda:
            return _write(key, value, *self._caches(kv_cache), slot_mapping, scales)
        operators: Any = importlib.import_module("vllm._custom_ops")
        k_cache, v_cache = (x.transpose(1, 2) for x in self._halves(kv_cache))
        operators.reshape_and_cache_flash(key, value, k_cache, v_cache, slot_mapping, self.kv_cache_dtype, *scales)

    def forward(
        self,
        layer: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        kv_cache: Tensor,
        attn_metadata: Optional[Metadata],
        output: Tensor,
        output_scale: Optional[Tensor] = None,
        output_block_scale: Optional[Tensor] = None,
    ) -> Tensor:
        """Attention of query, [tokens, heads, head_dim], over the cache, which has key and value already."""
        if output_scale is not None or output_block_scale is not None:
            raise NotImplementedError("attune.vllm does not quantise the output")
        if attn_metadata is None:  # vLLM measures its memory
            return output.fill_(0)
        caches, batch = self._caches(kv_cache), attn_metadata
        requests, rows = slice(0, batch.decodes), slice(0, batch.decode_rows)
        if batch.decodes:
            self._decode(query[rows], *caches, output[rows], batch, self._arguments(layer, batch, requests, query))
        requests, rows = slice(batch.decodes, None), slice(batch.decode_rows, batch.tokens)
        if batch.decode_rows < batch.tokens:
            options = self._arguments(layer, batch, requests, query)
            prefill(query[rows], *caches, batch.seq_lens[requests], batch.cu_seqlens_q, batch.max_seqlen_q,
                    out=output[rows], **options)  # fmt: skip
        return output

    def _decode(self, query: Tensor, k_cache: Tensor, v_cache: Tensor, output: Tensor, batch: Metadata,
                options: dict[str, Any]) -> None:  # fmt: skip
        q, out = (x.view(batch.decodes, -1, *x.shape[1:]).transpose(1, 2) for x in (query, output))
        lengths = batch.seq_lens[: batch.decodes]
        if q.shape[2] == 1:
            decode(q, k_cache, v_cache, lengths, out=out, **options)
        else:  # the kernel writes contiguous rows only, and these lie between those of other heads
            out.copy_(decode(q, k_cache, v_cache, lengths, **options))

    def _halves(self, kv_cache: Tensor) -> tuple[Tensor, Tensor]:
        return kv_cache[..., : self.head_size], kv_cache[..., self.head_size :]

    def _caches(self, kv_cache: Tensor) -> tuple[Tensor, Tensor]:
        """K and V as [blocks, kv_heads, block_size, head_dim]."""
        k_cache, v_cache = self._halves(kv_cache)
        if self.kv_cache_dtype in _E4M3:
            return k_cache.view(_check.FP8), v_cache.view(_check.FP8)
        return k_cache, v_cache

    def _arguments(self, layer: Any, batch: Metadata, requests: slice, query: Tensor) -> dict[str, Any]:
        """The named arguments that attune.decode and attune.prefill share."""
        table = batch.block_table[requests]
        options = {**self.options, "page_table": table, "fallback": not query.is_cuda}
        if self.kv_cache_dtype in _E4M3:
            size = table.shape[0], self.num_kv_heads
            options["descale"] = tuple(x.expand(size).contiguous() for x in (layer._k_scale, layer._v_scale))
        return options


def _refuse(alibi: Optional[list[float]], dtype: str, softcap: Optional[float], kind: str) -> None:
    """Raises for what a backend is not asked about before."""
    if alibi is not None:
        raise NotImplementedError("attune.vllm has no ALiBi: use another --attention-backend")
    if kind != _base.AttentionType.DECODER:
        raise NotImplementedError(f"attune.vllm computes decoders, not {kind}: use another --attention-backend")
    if softcap and dtype in _E4M3:
        raise NotImplementedError(f"the softcap is {softcap}, and the cache is in {dtype}: use --kv-cache-dtype auto")


def _write(key: Tensor, value: Tensor, k_cache: Tensor, v_cache: Tensor, slots: Tensor,
           scales: tuple[Tensor, Tensor]) -> None:  # fmt: skip
    """reshape_and_cache_flash of vLLM, which has it for GPUs only, with PyTorch's operators."""
    kept = slots >= 0
    block, row = slots[kept] // k_cache.shape[2], slots[kept] % k_cache.shape[2]
    for x, cache, scale in zip((key, value), (k_cache, v_cache), scales):
        rows = x[: slots.shape[0]][kept]
        if cache.dtype == _check.FP8:
            rows = (rows.float() / scale).clamp(-448, 448).to(_check.FP8).view(torch.uint8)
            cache = cache.view(torch.uint8)
        cache[block, :, row] = rows
