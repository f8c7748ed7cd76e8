"""The structs of attune_sdpa.h, to read what the double of the library has received."""

import ctypes


def _fields(**kinds):
    types = {
        "size": ctypes.c_size_t,
        "pointer": ctypes.c_void_p,
        "int": ctypes.c_int32,
        "float": ctypes.c_float,
        "strides": ctypes.c_int64 * 3,
    }
    return [(name, types[kind]) for name, kind in kinds.items()]


def _all(kind, names):
    return dict.fromkeys(names.split(), kind)


class Forward(ctypes.Structure):
    _fields_ = _fields(
        struct_size="size",
        **_all("int", "batch heads kv_heads queries keys head_dim dtype q_dtype out_dtype"),
        **_all("int", "causal has_window window_left window_right"),
        scale="float",
        **_all("pointer", "sinks q k v o"),
        **_all("strides", "q_stride k_stride v_stride o_stride"),
        **_all("pointer", "lse descale_q descale_k descale_v cu_queries cu_keys"),
        **_all("int", "total_queries total_keys"),
        **_all("pointer", "key_lengths page_table"),
        **_all("int", "max_pages page_size pages smooth_k hadamard"),
        workspace="pointer",
        **_all("size", "workspace_bytes flags"),
        precision="int",
        softcap="float",
        **_all("int", "v_head_dim reserved"),
        alibi_slopes="pointer",
        alibi_stride="size",
        tree_mask="pointer",
        **_all("int", "arch multiprocessors"),
    )


class Quantize(ctypes.Structure):
    _fields_ = _fields(
        struct_size="size",
        **_all("pointer", "q k v y_q y_k y_v descale_q descale_k descale_v mean_k"),
        **_all("int", "batch heads kv_heads queries keys head_dim"),
        **_all("strides", "q_stride k_stride v_stride"),
        **_all("int", "dtype smooth_k hadamard"),
        workspace="pointer",
        **_all("size", "workspace_bytes flags"),
    )


class Append(ctypes.Structure):
    _fields_ = _fields(
        struct_size="size",
        **_all("pointer", "k v"),
        **_all("strides", "k_stride v_stride"),
        **_all("pointer", "descale_k descale_v lengths page_table k_cache v_cache"),
        **_all("int", "batch kv_heads rows head_dim capacity page_size max_pages pages dtype"),
        flags="size",
    )
