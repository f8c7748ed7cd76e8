"""Doors of pytest and Triton to attune's simulator. They import attune only if the simulator is asked for."""

import os

VARIABLE = "ATTUNE_SIM"


def is_asked() -> bool:
    """Whether the environment asks for the simulator."""
    return os.environ.get(VARIABLE, "") not in ("", "0")
