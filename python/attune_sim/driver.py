"""The driver that Triton chooses if the variable ATTUNE_SIM is set. The script needs no change."""

import os
from typing import Any

from triton.backends.driver import DriverBase

import attune_sim

if attune_sim.is_asked():
    os.environ.setdefault("TRITON_DEFAULT_BACKEND", "attune")  # where there is a GPU too
    # Scripts make tensors before the first launch. Triton is not complete here, so its driver comes later.
    from attune_sim import _cuda

    _cuda.mapping.start()


class SimulatorDriver(DriverBase):
    """Gives its place to attune's driver when Triton makes it."""

    def __new__(cls) -> Any:
        from attune_sim import _install, _triton

        _install.install_from_environment()
        return _triton.active()

    @classmethod
    def is_active(cls) -> bool:
        return attune_sim.is_asked()

    def map_python_to_cpp_type(self, ty: str) -> str:
        raise NotImplementedError

    def get_current_target(self) -> Any:
        raise NotImplementedError

    def get_active_torch_device(self) -> Any:
        raise NotImplementedError

    def get_benchmarker(self) -> Any:
        raise NotImplementedError
