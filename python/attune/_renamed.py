"""Keyword arguments that had other names before 0.2, accepted with a warning until 0.3."""

import functools
import warnings
from typing import Callable, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def renamed(**names: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A function that also takes its arguments by their old names: renamed(old="new")."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            for old, new in names.items():
                if old in kwargs:
                    _rename(function.__name__, old, new, kwargs)
            return function(*args, **kwargs)

        return call

    return decorate


def _rename(function: str, old: str, new: str, kwargs: dict[str, object]) -> None:
    if new in kwargs:
        raise TypeError(f"{function}() got {new} and {old}, its old name; pass {new} only")
    message = f"the argument {old} of attune.{function} is now {new}; attune 0.3 will not accept {old}"
    warnings.warn(message, DeprecationWarning, stacklevel=4)
    kwargs[new] = kwargs.pop(old)
