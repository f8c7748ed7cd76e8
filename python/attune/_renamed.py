"""Keyword arguments that had other names before 0.2, accepted with a warning until 0.3.

A function takes what it does not know as `**old`, which costs 0.03 us, and calls itself by the new names.
"""

import warnings
from typing import Any, Callable

from attune._check import Result

_NAMES = {
    "window": "window_size",
    "cu_queries": "cu_seqlens_q",
    "cu_keys": "cu_seqlens_k",
    "max_queries": "max_seqlen_q",
    "max_keys": "max_seqlen_k",
}

# The default of an argument that is required: an old name may stand for it.
REQUIRED: Any = None


def renamed(function: Callable[..., Any], old: dict[str, Any], arguments: dict[str, Any]) -> Result:
    """Calls a function with its arguments, the old ones by their new names."""
    del arguments["old"]
    for name, value in old.items():
        new = _NAMES.get(name)
        if new not in arguments:
            raise TypeError(f"{function.__name__}() got an unexpected keyword argument '{name}'")
        if arguments[new] is not None:
            raise TypeError(f"{function.__name__}() got {new} and {name}, its old name; pass {new} only")
        message = f"the argument {name} of attune.{function.__name__} is now {new}; attune 0.3 will not accept {name}"
        warnings.warn(message, DeprecationWarning, stacklevel=3)
        arguments[new] = value
    result: Result = function(**arguments)
    return result
