"""Triton's driver interface on the simulator: what kernel[grid](...) calls to launch."""

import ctypes
import gc
import os
import re
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase
from triton.runtime import _allocation
from triton.runtime.cache import get_cache_manager
from triton.runtime.jit import JITFunction

from attune_sim import _cuda
from attune_sim._simulator import Simulator

_FIRST_ADDRESS, _LAST_ADDRESS = 1 << 32, 1 << 48  # of what may be an address in a table of integers
_TMA_TYPES = {8: 10, 9: 8, 10: 9}  # the numbers in kernels that differ from those of the driver
_TMA_TF32 = 11


class Finding(RuntimeError):
    """A defect that a launch has shown. `launch_findings` has all of the launch, this one first."""

    def __init__(self, report: dict[str, Any], kernel: str) -> None:
        finding = report["finding"]
        self.kind: str = finding["kind"]
        self.severity: str = finding["severity"]
        self.kernel = kernel
        at = report.get("at", {})
        self.file: str = at.get("file", "")
        self.line: int = at.get("line", 0)
        self.detail: str = finding["detail"]
        self.help: str = report.get("help", "")
        place = re.search(r"thread (\d+) of block \[(\d+) (\d+) (\d+)\]", self.detail)
        self.thread = int(place[1]) if place else None
        self.block = (int(place[2]), int(place[3]), int(place[4])) if place else None
        self.launch_findings: list[Finding] = [self]
        super().__init__(report["text"].rstrip())

    def __str__(self) -> str:
        return "\n".join(str(f.args[0]) for f in self.launch_findings)


Finding.__module__ = "attune.triton"


class _Argument(NamedTuple):
    position: int
    name: str
    type: str  # Triton's, such as *fp32 or i32; tensormap for bytes
    value: Any


class Launcher:
    """Launches a kernel. Triton makes one for each compiled kernel."""

    def __init__(self, src: Any, metadata: Any) -> None:
        self._signature = src.signature
        self._metadata = metadata
        self._maps: list[Any] = list(getattr(metadata, "tensordesc_meta", None) or [])
        self._driver = active()
        self._ptx = _ptx(src, metadata)
        self._load()

    def _load(self) -> None:
        simulator, metadata = self._driver.simulator, self._metadata
        self._session = simulator.session
        self._kernel = simulator.load(self._ptx, metadata.name)
        if metadata.shared <= self._driver.utils.get_device_properties(0)["max_shared_mem"]:
            simulator.set_shared(self._kernel, metadata.shared)
        self._sizes = simulator.parameter_sizes(self._kernel)

    def __call__(
        self,
        x: int,
        y: int,
        z: int,
        stream: Any,
        function: Any,
        packed: Any,
        launch_metadata: Any,
        enter: Callable[[Any], None] | None,
        leave: Callable[[Any], None] | None,
        *args: Any,
    ) -> None:
        __tracebackhide__ = True  # of pytest: a finding is at the launch
        if enter is not None:
            enter(launch_metadata)
        if x * y * z > 0:
            with self._driver.lock:
                self._launch((x, y, z), stream, args)
        if leave is not None:
            leave(launch_metadata)

    def _launch(self, grid: Sequence[int], stream: Any, args: Sequence[Any]) -> None:
        __tracebackhide__ = True
        simulator, m = self._driver.simulator, self._metadata
        if self._session != simulator.session:
            self._load()
        flat = list(self._flatten(self._signature.items(), args, iter(self._maps)))
        memory = _Memory(simulator, flat)
        try:
            params = [self._pack(memory, a, size) for a, size in zip(flat, self._sizes)]
            blocks = grid[0] * grid[1] * grid[2] * m.num_ctas
            for kind in ("global", "profile")[: len(self._sizes) - len(flat)]:
                params.append(struct.pack("<Q", self._scratch(memory, kind, blocks, stream)))
            if len(params) != len(self._sizes):
                raise RuntimeError(f"kernel {m.name} has {len(self._sizes)} parameters, and Triton gives {len(params)}")
            cooperative = bool(getattr(m, "launch_cooperative_grid", False))
            threads = 32 * m.num_warps
            status = simulator.launch(self._kernel, grid, threads, m.shared, m.num_ctas, cooperative, params)
            memory.copy_back()
        finally:
            memory.free()
        self._driver.judge(m.name, status)

    def _flatten(self, signature: Any, args: Sequence[Any], maps: Iterator[Any]) -> Iterator[_Argument]:
        """The arguments as parameters: without constants, and with the parts of tuples and descriptors."""
        for position, ((name, kind), value) in enumerate(zip(signature, args)):
            if isinstance(kind, tuple):
                parts = self._flatten(((f"{name}[{i}]", k) for i, k in enumerate(kind)), value, maps)
                yield from (part._replace(position=position) for part in parts)
            elif kind.startswith("tensordesc"):
                parts = _descriptor(name, value, next(maps) if self._maps else None)
                yield from (part._replace(position=position) for part in parts)
            elif kind != "constexpr":
                yield _Argument(position, str(name), kind, value)  # Triton's IR has numbers for names

    def _pack(self, memory: "_Memory", a: _Argument, size: int) -> bytes:
        if a.type == "tensormap":
            return _tensor_map(self._driver.simulator, memory, *a.value)
        if a.type.startswith("*"):
            return struct.pack("<Q", memory.address(a.value))
        if a.type in ("fp16", "bf16", "fp32", "f32", "fp64"):
            return _pack_float(a.type, float(a.value))
        value = memory.translate(int(a.value), a.position, a.name) if size == 8 else int(a.value)
        return (value & (1 << 8 * size) - 1).to_bytes(size, "little")

    def _scratch(self, memory: "_Memory", kind: str, blocks: int, stream: Any) -> int:
        """Scratch memory. What Triton's allocator returns is not used: its contents are undefined anyway."""
        size = getattr(self._metadata, f"{kind}_scratch_size", 0)
        if size == 0:
            return 0
        if kind == "global":
            _allocation._allocator.get()(size * blocks, self._metadata.global_scratch_align, stream)
        return memory.scratch(size * blocks, f"the {kind} scratch")


def _ptx(src: Any, metadata: Any) -> str:
    """The PTX of a compiled kernel, which Triton keeps beside the machine code."""
    name = src.name[:150]
    files = get_cache_manager(metadata.hash).get_group(f"{name}.json") or {}
    if f"{name}.ptx" not in files:
        raise RuntimeError(f"Triton has kept no PTX of kernel {metadata.name}; unset TRITON_STORE_BINARY_ONLY")
    with open(files[f"{name}.ptx"]) as file:
        return re.sub(r"// begin inline asm\n.*?// end inline asm", _one_line, file.read(), flags=re.DOTALL)


def _one_line(asm: re.Match[str]) -> str:
    """Inline assembly with the source line of its first instruction: LLVM adds one for each further instruction."""
    first, loc, rest = asm[0].partition("\t.loc\t")
    return first + loc + re.sub(r"\t\.loc\t[^\n]*", "", rest)


def _descriptor(name: str, value: Any, info: Any) -> Iterator[_Argument]:
    shape, strides = list(value.shape), list(value.strides)
    if info is None:  # the kernel makes addresses of it
        yield _Argument(0, name, "*", value.base)
        yield from (_Argument(0, name, "i64", n) for n in shape + strides)
        yield _Argument(0, name, "i1", value.padding == "nan")
        yield _Argument(0, name, "i1", getattr(value, "round_f32_to_tf32", False))
    else:
        if info.get("is_im2col"):
            raise RuntimeError(f"{name}: the simulator has no tensor maps for im2col")
        yield _Argument(0, name, "tensormap", (value, info))
    yield from (_Argument(0, name, "i32", n) for n in shape)
    yield from (_Argument(0, name, "i64", n) for n in strides)


def _tensor_map(simulator: Simulator, memory: "_Memory", value: Any, info: dict[str, Any]) -> bytes:
    size, kind = info["elem_size"], info["elem_type"]
    shape, strides = list(value.shape), list(value.strides)
    if info["fp4_padded"]:
        shape[-1] *= 2
    kind = _TMA_TF32 if getattr(value, "round_f32_to_tf32", False) else _TMA_TYPES.get(kind, kind)
    return simulator.tensor_map(
        kind,
        memory.address(value.base),
        shape[::-1],
        [size * s for s in strides[-2::-1]] + [0],
        list(info["block_size"])[::-1],
        info["swizzle"],
        value.padding == "nan",
    )


def _pack_float(kind: str, value: float) -> bytes:
    if kind == "bf16":
        bits = struct.unpack("<I", struct.pack("<f", value))[0]
        rounded = bits if value != value else bits + 0x7FFF + (bits >> 16 & 1)
        return struct.pack("<H", rounded >> 16 & 0xFFFF)
    code = {"fp16": "<e", "fp64": "<d"}.get(kind, "<f")
    try:
        return struct.pack(code, value)
    except OverflowError:
        return struct.pack(code, float("inf") if value > 0 else float("-inf"))


class _Copy(NamedTuple):
    host: int
    size: int
    allocation: int
    address: int  # in the allocation: as far from a multiple of 16 as the host's


class _Memory:
    """Copies of the storages that a launch accesses. Tensors that share a storage share its copy."""

    def __init__(self, simulator: Simulator, arguments: Sequence[_Argument]) -> None:
        self._simulator = simulator
        self._copies: dict[int, _Copy] = {}  # by the address of the host
        self._tables: list[tuple[int, int, int]] = []  # the place of an address, that of the host, that of the copy
        self._scratch: list[int] = []
        self._live: list[tuple[int, int]] | None = None
        users: dict[tuple[int, int], dict[str, int]] = {}  # the arguments of a storage, with their indices
        tables: dict[tuple[int, int], _Argument] = {}
        empty: set[tuple[int, int]] = set()
        for a in arguments:
            value = a.value[0].base if a.type == "tensormap" else a.value
            if not hasattr(value, "data_ptr"):
                continue
            place = _storage(value)
            users.setdefault(place, {})[a.name] = a.position
            if isinstance(value, torch.Tensor) and _cuda.is_empty(value) and value.nbytes == place[1]:
                empty.add(place)
            if a.type in ("*i64", "*u64") and place[1] > 0:
                tables[place] = a
        for place, names in users.items():
            self._add(place, min(names.values()), ", ".join(names), written=place not in empty)
        for place, a in tables.items():
            self._translate_table(a, self._copies[place[0]])

    def _add(self, place: tuple[int, int], index: int, name: str, written: bool = True) -> _Copy | None:
        host, size = place
        if size == 0:
            return None
        shift = host % 16
        allocation = self._simulator.allocate(size + shift, index, name, written)
        copy = self._copies[host] = _Copy(host, size, allocation, allocation + shift)
        if written:
            ctypes.memmove(copy.address, host, size)
        return copy

    def address(self, value: Any) -> int:
        """The address in simulated memory of a tensor, or of an address as a number."""
        if value is None:
            return 0
        if not hasattr(value, "data_ptr"):
            return self.translate(int(value), 0, "pointer")
        host, size = _storage(value)
        return self._copies[host].address + value.data_ptr() - host if size > 0 else 0

    def translate(self, value: int, index: int, name: str) -> int:
        """The address of the copy, if a number is an address in the storage of a tensor."""
        if not _FIRST_ADDRESS <= value < _LAST_ADDRESS:
            return value
        if self._live is None:
            self._live = _live_storages()
        for host, size in self._live:
            if host <= value < host + size:
                copy = self._copies.get(host) or self._add((host, size), index, name)
                return copy.address + value - host if copy else value
        return value

    def _translate_table(self, a: _Argument, copy: _Copy) -> None:
        count = copy.size // 8
        words = (ctypes.c_int64 * count).from_address(copy.address)
        view = memoryview(words).cast("B").cast("q")
        if max(view, default=0) < _FIRST_ADDRESS:
            return
        for i, value in enumerate(view.tolist()):
            moved = self.translate(value, a.position, f"{a.name}[{i}]")
            if moved != value:
                words[i] = moved
                self._tables.append((copy.address + 8 * i, value, moved))

    def scratch(self, size: int, name: str) -> int:
        self._scratch.append(self._simulator.allocate(size, 0, name, written=False))
        return self._scratch[-1]

    def copy_back(self) -> None:
        """Copies what the kernel has changed: a storage that it reads may be read-only."""
        for place, host, moved in self._tables:
            word = ctypes.c_int64.from_address(place)
            if word.value == moved:
                word.value = host
        for copy in self._copies.values():
            if _memcmp(copy.host, copy.address, copy.size) != 0:
                ctypes.memmove(copy.host, copy.address, copy.size)

    def free(self) -> None:
        for allocation in [*(c.allocation for c in self._copies.values()), *self._scratch]:
            self._simulator.free(allocation)
        self._copies, self._scratch = {}, []


_memcmp = ctypes.CDLL(None).memcmp
_memcmp.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]


def _storage(value: Any) -> tuple[int, int]:
    """The address and the size in bytes of all of the memory that a tensor is a part of."""
    tensor = getattr(value, "base", value) if not isinstance(value, torch.Tensor) else value
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"a {type(value).__name__} as an argument of a kernel; want a CPU tensor or a numpy array")
    with torch._C.DisableTorchFunction():
        if tensor.device.type != "cpu":
            raise TypeError(f"a tensor on {tensor.device}; the simulator takes CPU tensors")
        storage = tensor.untyped_storage()
        return storage.data_ptr(), storage.nbytes()


def _live_storages() -> list[tuple[int, int]]:
    """Those of all tensors that Python holds: a table of addresses names tensors that are no arguments."""
    found = set()
    for value in gc.get_objects():
        if issubclass(type(value), torch.Tensor) and value.layout == torch.strided:
            try:
                found.add(_storage(value))
            except (RuntimeError, TypeError, NotImplementedError):
                continue
    return [place for place in found if place[1] > 0]


def forget_kernels() -> None:
    """Drops the compiled kernels, whose launchers are of another driver."""
    for value in gc.get_objects():
        if issubclass(type(value), JITFunction):
            value.device_caches.clear()


class _Utilities:
    """What Triton asks about the device."""

    def __init__(self, simulator: Simulator) -> None:
        names = {"max_shared_mem": 97, "max_num_regs": 12, "multiprocessor_count": 16, "warpSize": 10}
        names |= {"sm_clock_rate": 13, "mem_clock_rate": 36, "mem_bus_width": 37}
        self._properties = {name: simulator.attribute(number) for name, number in names.items()}

    def get_device_properties(self, device: int) -> dict[str, int]:
        return dict(self._properties)

    def load_binary(self, name: str, binary: bytes, shared: int, device: int) -> tuple[str, str, int, int, int]:
        """The module, the function, registers, spilled registers and threads: the launcher has the module."""
        return name, name, 32, 0, 1024

    def unload_module(self, module: Any) -> None:
        pass

    def set_printf_fifo_size(self, size: int) -> None:
        pass


class Driver(DriverBase):
    """The simulator as Triton's active driver."""

    launcher_cls = Launcher

    def __init__(self, simulator: Simulator, strict: bool, maps_cuda: bool, autotune: str) -> None:
        super().__init__()
        self.simulator = simulator
        self.utils = _Utilities(simulator)
        self.lock = threading.RLock()
        self._strict = strict
        self._maps_cuda = maps_cuda
        self._autotune = autotune

    @classmethod
    def is_active(cls) -> bool:
        return False  # install makes it active

    def judge(self, kernel: str, status: int) -> None:
        """Raises what a launch has shown."""
        __tracebackhide__ = True
        reports = [r for r in self.simulator.reports()[0] if r.get("process", os.getpid()) == os.getpid()]
        findings = [Finding(r, kernel) for r in reports if self.fails(r)]
        if findings:
            findings[0].launch_findings = findings
            raise findings[0]
        if status != 0:
            lines = [r["line"] for r in reports if "line" in r] or [self.simulator.error(status)]
            raise RuntimeError("\n".join([f"attune cannot run kernel {kernel}", *lines]))

    def fails(self, report: dict[str, Any]) -> bool:
        """Whether a report is of a defect that nobody has accepted."""
        severities = ("error", "strict") if self._strict else ("error",)
        finding = report.get("finding", {})
        return finding.get("severity") in severities and not finding.get("reason")

    def map_python_to_cpp_type(self, ty: str) -> str:
        raise NotImplementedError("attune runs no launcher in C")

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", _cuda.Device.number(), 32)

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cuda", 0) if self._maps_cuda else torch.device("cpu")

    def get_current_device(self) -> int:
        return 0

    def set_current_device(self, device: int) -> None:
        pass

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_device_capability(self, device: int = 0) -> tuple[int, int]:
        return _cuda.Device.get_device_capability()

    def get_device_interface(self) -> Any:
        return _cuda.Device

    def get_empty_cache_for_benchmark(self) -> torch.Tensor:
        return torch.empty(0)

    def clear_cache(self, cache: torch.Tensor) -> None:
        pass

    def get_benchmarker(self) -> Callable[..., Any]:
        return self._count

    def _count(self, call: Callable[[], Any], *, quantiles: Sequence[float] | None = None, **options: Any) -> Any:
        """The measure by which autotune compares configurations: warp instructions, in millions. Runs each once."""
        if self._autotune == "first":
            return 0 if quantiles is None else [0] * len(quantiles)
        before = self.simulator.warp_instructions()
        call()
        count = (self.simulator.warp_instructions() - before) / 1e6
        return count if quantiles is None else [count] * len(quantiles)


_active: Driver | None = None


def active() -> Driver:
    assert _active is not None
    return _active


def set_active(driver: Driver | None) -> None:
    global _active
    _active = driver
