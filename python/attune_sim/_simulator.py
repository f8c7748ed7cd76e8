"""The simulator of `attune exec`, for this process: a server that runs kernels, and attune's libcuda.so.1."""

import atexit
import ctypes
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

_SOCKET = "ATTUNE_EXEC_SOCKET"
_FOLDERS = "LD_LIBRARY_PATH"
_DEVICE, _MANAGED = 0, 1  # kinds of memory
_REPORT_BYTES = 1 << 21


class Simulator:
    """A device with memory and kernels. Each process has its own, also a child of fork."""

    def __init__(self, flags: Sequence[str]) -> None:
        self._server: subprocess.Popen[str] | None = None
        self._environment: dict[str, str | None] = {}
        if _SOCKET not in os.environ:  # else this process runs below `attune exec`
            self._start(flags)
        self._driver = ctypes.CDLL(_library())
        self._process = os.getpid()
        self.session = self._process  # changes when the kernels of a session are gone
        os.register_at_fork(after_in_child=self._reconnect)
        self._reported = 0
        self._text = ctypes.create_string_buffer(_REPORT_BYTES)
        self._check(self._driver.cuInit(0), "start")
        self._reported = self.reports()[1]

    def _start(self, flags: Sequence[str]) -> None:
        command = [program(), "exec", "--serve", *flags]
        self._said = tempfile.TemporaryFile("w+")
        self._server = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
            start_new_session=True,  # an interrupt of this process must not end it
        )
        assert self._server.stdout is not None
        ready = self._server.stdout.readline()
        if not ready:
            self._server.communicate()
            raise RuntimeError(f"attune exec --serve does not start: {self._said_so_far().strip()}")
        for name, value in json.loads(ready).items():
            self._environment[name] = os.environ.get(name)
            os.environ[name] = value
        atexit.register(self.close)

    def _said_so_far(self) -> str:
        with self._said:
            self._said.seek(0)
            return self._said.read()

    def _reconnect(self) -> None:
        if self._server is not None:
            self._driver.attuneDisconnect()
            self.session = os.getpid()

    def close(self) -> None:
        """Ends the server, which writes its files then."""
        if self._process != os.getpid():
            return
        self._driver.attuneDisconnect()
        if self._server is None:
            return
        assert self._server.stdin is not None and self._server.stdout is not None
        self._server.stdin.close()
        self._server.wait()
        self._server.stdout.close()
        for line in self._said_so_far().splitlines():
            if line.startswith("::"):  # an annotation of GitHub Actions
                print(line, file=sys.stderr)
        self._server = None
        for name, value in self._environment.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
        atexit.unregister(self.close)

    def _check(self, status: int, what: str) -> None:
        if status != 0:
            raise RuntimeError(f"{what}: {self.error(status)}")

    def allocate(self, size: int, index: int, name: str, written: bool) -> int:
        """Memory for an argument, by its size in bytes. This process may access it at the same address."""
        address = ctypes.c_uint64()
        kind = _MANAGED if written else _DEVICE
        call = self._driver.attuneAllocate
        status = call(ctypes.byref(address), ctypes.c_size_t(max(size, 1)), kind, index, name.encode())
        self._check(status, f"allocate {size} bytes for {name}")
        return address.value

    def free(self, address: int) -> None:
        self._check(self._driver.cuMemFree_v2(ctypes.c_uint64(address)), "free memory")

    def load(self, ptx: str, name: str) -> ctypes.c_void_p:
        """A kernel of a module."""
        module, kernel = ctypes.c_void_p(), ctypes.c_void_p()
        self._check(self._driver.cuModuleLoadData(ctypes.byref(module), ptx.encode()), f"load kernel {name}")
        status = self._driver.cuModuleGetFunction(ctypes.byref(kernel), module, name.encode())
        if status != 0:
            reports = self.reports()[0]
            raise RuntimeError("\n".join([f"attune cannot load kernel {name}", *(r.get("line", "") for r in reports)]))
        return kernel

    def set_shared(self, kernel: ctypes.c_void_p, size: int) -> None:
        """Allows a launch to have so many bytes of dynamic shared memory, and clusters of 16 blocks."""
        self._check(self._driver.cuFuncSetAttribute(kernel, 8, size), "set shared memory")
        self._check(self._driver.cuFuncSetAttribute(kernel, 14, 1), "allow clusters")

    def parameter_sizes(self, kernel: ctypes.c_void_p) -> list[int]:
        sizes: list[int] = []
        offset, size = ctypes.c_size_t(), ctypes.c_size_t()
        where = ctypes.byref(offset), ctypes.byref(size)
        while self._driver.cuFuncGetParamInfo(kernel, ctypes.c_size_t(len(sizes)), *where) == 0:
            sizes.append(size.value)
        return sizes

    def launch(
        self,
        kernel: ctypes.c_void_p,
        grid: Sequence[int],
        threads: int,
        shared: int,
        cluster: int,
        cooperative: bool,
        params: Sequence[bytes],
    ) -> int:
        """Runs a launch to its end; the status of the driver."""
        attributes = (_LaunchAttribute * 2)()
        attributes[0].id, attributes[0].value[0] = 2, int(cooperative)
        attributes[1].id, attributes[1].value[:3] = 4, [cluster, 1, 1]
        config = _LaunchConfig((grid[0] * cluster, *grid[1:]), (threads, 1, 1), shared, None, attributes)
        config.count = 2 if cluster > 1 else 1
        values = [ctypes.create_string_buffer(p, max(len(p), 1)) for p in params]
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(v) for v in values))
        status = self._driver.cuLaunchKernelEx(ctypes.byref(config), kernel, pointers, None)
        # What the kernel has printed is written here; a kernel that failed must not fail later launches.
        failed = self._driver.cuCtxSynchronize()
        if failed:
            self._driver.cuDevicePrimaryCtxReset_v2(0)
        return status or failed

    def error(self, status: int) -> str:
        """The driver's text of a status that is no success."""
        text = ctypes.c_char_p()
        self._driver.cuGetErrorString(status, ctypes.byref(text))
        return text.value.decode() if text.value else f"error {status}"

    def tensor_map(
        self,
        kind: int,
        address: int,
        shape: Sequence[int],
        strides: Sequence[int],
        box: Sequence[int],
        swizzle: int,
        nan: bool,
    ) -> bytes:
        """A tensor map. Extents go from the innermost outwards, strides are in bytes and begin with the second."""
        rank = len(shape)
        encoded = ctypes.create_string_buffer(128)
        call: Callable[..., int] = self._driver.cuTensorMapEncodeTiled
        status = call(
            encoded,
            kind,
            rank,
            ctypes.c_void_p(address),
            (ctypes.c_uint64 * rank)(*shape),
            (ctypes.c_uint64 * rank)(*strides),
            (ctypes.c_uint32 * rank)(*box),
            (ctypes.c_uint32 * rank)(*[1] * rank),
            0,
            swizzle,
            2,
            int(nan),
        )
        self._check(status, f"make a tensor map of shape {list(reversed(shape))}")
        return encoded.raw

    def attribute(self, number: int) -> int:
        value = ctypes.c_int()
        self._check(self._driver.cuDeviceGetAttribute(ctypes.byref(value), number, 0), "read an attribute")
        return value.value

    def reports(self, since: int | None = None) -> tuple[list[dict[str, Any]], int]:
        """What was reported about launches of this server's processes since a place, and the place behind it.

        Without a place: since the last call without one.
        """
        found: list[dict[str, Any]] = []
        place = self._reported if since is None else since
        while True:
            answer = self._answer(place)
            found += answer["reports"] or []
            if answer["next"] == place:
                break
            place = answer["next"]
        if since is None:
            self._reported = place
        return found, place

    def warp_instructions(self) -> int:
        """Those of all launches so far."""
        return int(self._answer(1 << 62)["warp_instructions"])

    def _answer(self, place: int) -> dict[str, Any]:
        size = ctypes.c_size_t()
        capacity = ctypes.c_size_t(_REPORT_BYTES)
        status = self._driver.attuneReports(ctypes.c_uint64(place), self._text, capacity, ctypes.byref(size))
        self._check(status, "read reports")
        answer: dict[str, Any] = json.loads(self._text.raw[: size.value])
        return answer


def program() -> str:
    """The path of attune: ATTUNE_PROGRAM, or that of PATH."""
    named = os.environ.get("ATTUNE_PROGRAM")
    path = shutil.which(named or "attune")
    if path is None:
        where = f"ATTUNE_PROGRAM names {named}, which is no program" if named else "there is no attune in PATH"
        raise RuntimeError(f"{where}; build it by `make build` in attune's repository, or name it by ATTUNE_PROGRAM")
    return path


def _library() -> str:
    folder = os.environ.get(_FOLDERS, "").split(":")[0]
    path = os.path.join(folder, "libattune-exec.so")
    if not os.path.exists(path):
        raise RuntimeError(f"{_SOCKET} is set, and {_FOLDERS} does not begin with the folder of attune's libraries")
    return path


class _LaunchAttribute(ctypes.Structure):
    _fields_ = [("id", ctypes.c_int), ("padding", ctypes.c_int), ("value", ctypes.c_uint32 * 16)]


class _LaunchConfig(ctypes.Structure):
    _fields_ = [
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("shared", ctypes.c_uint32),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_LaunchAttribute)),
        ("count", ctypes.c_uint32),
    ]
