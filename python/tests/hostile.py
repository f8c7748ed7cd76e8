"""Hostile calls of attune: each gives the right answer or one clear error. No crash, no hang, no write outside.

    python hostile.py                  # on a CPU: by PyTorch, and with a double of the library
    python hostile.py --device cuda    # on a Hopper GPU, with an installed wheel
    python hostile.py --direct         # in one process, for compute-sanitizer and AddressSanitizer

It prints a line for each call, and exits with 1 if one crashed, hung, gave a wrong answer or an unclear error.
hostile_calls.py has the list. ../README.md has the commands for the sanitizers.
"""

import argparse
import dataclasses
import faulthandler
import importlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import warnings
from typing import Any, Callable, Optional, Union

GUARD = 4096  # bytes before and behind each tensor
CANARY = 0xA5
LIMIT = 60.0  # seconds of a call


@dataclasses.dataclass(frozen=True)
class Wrong:
    """A mistake of the caller: an exception of these types, whose message names the argument."""

    types: Union[type[BaseException], tuple[type[BaseException], ...]]
    pattern: str


@dataclasses.dataclass(frozen=True)
class Unsupported:
    """What the library refuses with NotImplementedError, and PyTorch computes with fallback=True."""

    pattern: str


RIGHT = "right"  # the answer of float64 attention
SURVIVES = "survives"  # contents that the documentation excludes: any answer, or a clear error, and no write outside

Want = Union[Wrong, Unsupported, str]


@dataclasses.dataclass(frozen=True)
class Call:
    name: str
    want: Want
    run: Callable[[Any], Any]  # of a Scene
    ways: tuple[str, ...] = ("fallback", "library")
    needs: str = ""  # "c": the real library; "cpu"; "gpu"; "caching": PyTorch's allocator of a GPU
    heavy: bool = False  # seconds, or gigabytes


class Failure(Exception):
    """What is wrong with a call."""


class Skip(Exception):
    """Why a call cannot be made here."""


# ---- one call ------------------------------------------------------------------------------------


def perform(call: Call, scene: Any) -> str:
    """Makes a call in a scene and returns what it gave, in one line. Failure: it was not as it should be."""
    try:
        got = call.run(scene)
    except Skip:
        raise
    except Failure:
        raise
    except BaseException as problem:  # KeyboardInterrupt of a test aside, none is expected
        if isinstance(problem, KeyboardInterrupt):
            raise
        text = judge_error(call, scene, problem)
    else:
        text = judge_result(call, scene, got)
    scene.check_guards()
    return text


def judge_error(call: Call, scene: Any, problem: BaseException) -> str:
    text = f"{type(problem).__name__}: {problem}"
    if "\n" in str(problem) or len(str(problem)) > 400 or not str(problem):
        raise Failure(f"the message is no line: {text!r}") from problem
    if re.search("INTERNAL|please report|file an issue|unknown error", str(problem)):
        raise Failure(f"the message is of PyTorch's insides: {text}") from problem
    want = call.want
    if isinstance(want, Wrong):
        if isinstance(problem, want.types) and re.search(want.pattern, str(problem)):
            return text
        if isinstance(problem, NotImplementedError) and scene.may_refuse(want, str(problem)):
            return text
        raise Failure(f"not the error that is wanted, {want}: {text}") from problem
    if isinstance(problem, NotImplementedError) and scene.may_refuse(want, str(problem)):
        return text
    if want == SURVIVES and isinstance(problem, (ValueError, TypeError, NotImplementedError, RuntimeError)):
        return text
    raise Failure(f"unexpected: {text}") from problem


def judge_result(call: Call, scene: Any, got: Any) -> str:
    if isinstance(call.want, Wrong):
        raise Failure(f"no error, where {call.want.types} is wanted: {call.want.pattern}")
    if isinstance(call.want, Unsupported) and scene.must_refuse():
        raise Failure(f"no error, where the library does not support it: {call.want.pattern}")
    if call.want == SURVIVES:
        return "survived"
    return str(scene.check_answer(got))


# ---- all calls, in this process ------------------------------------------------------------------


@dataclasses.dataclass
class Outcome:
    index: int
    name: str
    status: str  # ok, skipped, FAILED, CRASHED or HUNG
    text: str
    seconds: float

    def line(self) -> str:
        return f"{self.status:<8} {self.name:<64} {self.seconds:6.2f} s  {self.text}"[:240]


def jobs(options: argparse.Namespace) -> list[tuple[Call, str]]:
    """Each call by each of its ways."""
    found = []
    for call in calls_of(options.list):
        if options.only and not re.search(options.only, call.name):
            continue
        if call.heavy and not options.heavy:
            continue
        found += [(call, way) for way in call.ways if way in (options.way or way)]
    return found


def calls_of(path: str) -> list[Call]:
    """The list of a file, or the one of this folder."""
    path = path or os.path.join(os.path.dirname(os.path.abspath(__file__)), "hostile_calls.py")
    name = os.path.splitext(os.path.basename(path))[0]
    if name not in sys.modules:
        sys.path.insert(0, os.path.dirname(path))
        importlib.import_module(name)
    return list(sys.modules[name].CALLS)


def run_one(index: int, call: Call, way: str, device: str) -> Outcome:
    import hostile_scene

    start = time.monotonic()
    status, text = "ok", ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with hostile_scene.open_scene(device, way, call) as scene:
                text = perform(call, scene)
        except Skip as reason:
            status, text = "skipped", str(reason)
        except Failure as failure:
            status, text = "FAILED", str(failure)
        except Exception as problem:  # of the comparison
            status, text = "FAILED", f"the answer cannot be compared: {type(problem).__name__}: {problem}"
    return Outcome(index, f"{call.name} [{way}]", status, text.replace("\n", " | "), time.monotonic() - start)


def run_all(options: argparse.Namespace, report: Callable[..., None]) -> list[Outcome]:
    importlib.import_module("hostile_scene")  # PyTorch takes seconds, which are none of a call
    outcomes = []
    for index, (call, way) in enumerate(jobs(options)):
        if index < options.first:
            continue
        report(index, f"{call.name} [{way}]")
        faulthandler.dump_traceback_later(options.limit, exit=True)
        outcome = run_one(index, call, way, options.device)
        faulthandler.cancel_dump_traceback_later()
        print(outcome.line(), flush=True)
        report(index, None, outcome)
        outcomes.append(outcome)
    return outcomes


# ---- a process that watches another --------------------------------------------------------------


def supervise(options: argparse.Namespace) -> list[Outcome]:
    """Runs the calls in another process. If that dies, the call that killed it is reported, and the others follow."""
    outcomes: list[Outcome] = []
    first = options.first
    while True:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "progress")
            command = [sys.executable, os.path.abspath(__file__), *sys.argv[1:], "--direct", "--first", str(first)]
            code = subprocess.call([*command, "--progress", path])
            events = [json.loads(line) for line in open(path)] if os.path.exists(path) else []
        outcomes += [Outcome(**event["outcome"]) for event in events if event.get("outcome")]
        if events and events[-1].get("end"):
            return outcomes
        last = events[-1] if events else {"index": first, "name": "the start of the process"}
        ended = f"signal {-code}" if code < 0 else f"exit status {code}"
        status = "HUNG" if code == 1 and events else "CRASHED"  # 1: dump_traceback_later has ended it
        outcomes.append(Outcome(last["index"], last["name"] or "the end of a call", status, ended, 0.0))
        print(outcomes[-1].line(), flush=True)
        if not events:
            return outcomes
        first = last["index"] + 1


def summary(outcomes: list[Outcome]) -> str:
    count = {status: sum(x.status == status for x in outcomes) for status in ("ok", "skipped", "FAILED", "CRASHED", "HUNG")}
    names = {x.name.rsplit(" [", 1)[0] for x in outcomes if x.status != "skipped"}
    numbers = ", ".join(f"{n} {status}" for status, n in count.items())
    return f"{len(names)} calls in {len(outcomes)} runs: {numbers}; {sum(x.seconds for x in outcomes):.1f} s"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--direct", action="store_true", help="in this process, which a crash ends")
    parser.add_argument("--heavy", action="store_true", help="also calls that take seconds or gigabytes")
    parser.add_argument("--only", default="", help="a regular expression that names of calls have")
    parser.add_argument("--way", choices=("fallback", "library"), default="", help="one way of each call only")
    parser.add_argument("--list", default="", help="a Python file with other CALLS")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds of a call (default %(default)s)")
    parser.add_argument("--first", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--progress", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.direct:
        progress = open(options.progress, "w", buffering=1) if options.progress else None

        def report(index: int, name: Optional[str], outcome: Optional[Outcome] = None) -> None:
            if progress is not None:
                event = {"index": index, "name": name, "outcome": dataclasses.asdict(outcome) if outcome else None}
                progress.write(json.dumps(event) + "\n")

        outcomes = run_all(options, report)
        if progress is not None:
            progress.write(json.dumps({"end": True}) + "\n")
            return 0
    else:
        outcomes = supervise(options)
    bad = [x for x in outcomes if x.status in ("FAILED", "CRASHED", "HUNG")]
    for outcome in bad:
        print(outcome.line())
    print(summary(outcomes))
    return 1 if bad or not outcomes else 0


if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    sys.modules["hostile"] = sys.modules["__main__"]  # the list has the classes of this module
    sys.exit(main())
