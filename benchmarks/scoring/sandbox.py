"""Runs a Python program that a model wrote, with limits, and says whether its tests passed.

This limits accidents: endless loops, exhausted memory, deleted files, requests to the network. It
is no jail for a program that looks for a way out; where that is a worry, use a virtual machine.

Every run is a process of its own, and always has (`sandbox_child` sets these up):

* a wall time after which it and its process group are killed, and limits on CPU time, address
  space, file size, open files, processes and core dumps. Linux counts the processes of a user
  all together, and does not count those of root: see below;
* an empty working folder, an environment without the caller's variables, empty input, no output;
* a hook in the interpreter that refuses sockets, other processes, signals, and changes to files
  outside the working folder. It stops ordinary Python code, not `ctypes`;
* under root on Linux, the user `nobody` with root's right to read, since the interpreter may lie in
  root's home. Where `nobody` does not exist or cannot read the interpreter, it stays root.

Where the Linux kernel allows it, it also has the layers that `Outcome.layers` names:

* `network`: a network namespace without an interface;
* `processes`: a process namespace, where it sees only its own processes, and all of them die with
  it. Without this layer one that leaves the process group outlives the run;
* `files`: all file systems are read-only, but for a small one in memory as the working folder.
  Files stay as readable as for the caller.

A program passes only if a random token comes back after its last test, so that neither its output
nor its exit status counts. The tests run in the program's own interpreter: a program can still pass
by searching its callers' frames for the token, or by objects that are equal to everything.

Cost: about 40 ms per run on an idle core. Tried on Linux only; elsewhere it needs POSIX.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

_CHILD = Path(__file__).with_name("sandbox_child.py")
_MAX_REPORT_BYTES = 1 << 16
_SIGNAL_BASE = 128

Status = Literal["passed", "failed", "timed out"]


@dataclass(frozen=True, kw_only=True)
class Source:
    """A part of a program; all parts run in one namespace, in order.

    Attributes:
        label: What it is, for messages: `answer`, `tests`.
        text: Python code.
    """

    label: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a run may use.

    Attributes:
        wall_s: Seconds until it is killed, the start of the interpreter included; above 0.
        memory_bytes: Address space of each process; at least 64 MiB, which the interpreter needs.
        file_bytes: Size of each file, and of the working folder where it is in memory.
        num_processes: Processes and threads of the user.
    """

    wall_s: float = 5.0
    memory_bytes: int = 1 << 30
    file_bytes: int = 1 << 24
    num_processes: int = 32

    def __post_init__(self) -> None:
        if not self.wall_s > 0:
            raise ValueError(f"wall_s must be > 0, got {self.wall_s}")
        if self.memory_bytes < 1 << 26:
            raise ValueError(f"memory_bytes must be ≥ {1 << 26}, got {self.memory_bytes}")
        for name in ("file_bytes", "num_processes"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be ≥ 1, got {getattr(self, name)}")


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a run ended.

    Attributes:
        status: `passed` if every part ran to its end.
        detail: For people: `passed`, `failed: AssertionError in line 3 of the tests`.
        layers: Which of `network`, `processes`, `files` the kernel granted; empty if the program
            ended without a report.
    """

    status: Status
    detail: str
    layers: tuple[str, ...] = field(default=())


def run_program(sources: Sequence[Source], limits: Limits | None = None) -> Outcome:
    """Runs the parts of a program one after the other in a process of its own.

    Raises:
        OSError: If no process or no temporary folder can be made.
    """
    limits = limits or Limits()
    token = secrets.token_hex(16)
    reader, writer = os.pipe()
    try:
        with TemporaryDirectory(prefix="sandbox-", ignore_cleanup_errors=True) as folder:
            job = {
                "sources": [asdict(source) for source in sources],
                "limits": asdict(limits),
                "token": token,
                "result_fd": writer,
            }
            returncode = _run_child(json.dumps(job).encode(), folder, writer, limits.wall_s)
        os.set_blocking(reader, False)
        # Whatever the program itself may have written there, nobody waits for more of it.
        content = _read_available(reader)
    finally:
        os.close(reader)
        os.close(writer)
    if returncode is None:
        return Outcome(status="timed out", detail=f"timed out after {limits.wall_s:g} s")
    return _outcome(_find_report(content, token), returncode)


def _run_child(job: bytes, folder: str, writer: int, wall_s: float) -> int | None:
    """The exit status, or None if the time was up; no process of the group is left."""
    # Without -I, which would ignore the seed of hashes: the order of sets has to be the same
    # in every run.
    process = subprocess.Popen(
        [sys.executable, "-s", "-S", "-B", str(_CHILD)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=folder,
        env=_environment(folder),
        pass_fds=(writer,),
        start_new_session=True,
    )
    try:
        process.communicate(job, timeout=wall_s)
    except subprocess.TimeoutExpired:
        return None
    finally:
        _kill_group(process)
    return process.returncode


def _environment(folder: str) -> dict[str, str]:
    return {
        "PATH": os.defpath,
        "LANG": "C.UTF-8",
        "HOME": folder,
        "TMPDIR": folder,
        "PYTHONHASHSEED": "0",
        "PYTHONUTF8": "1",
    }


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):  # Usually nobody is left in it.
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def _read_available(reader: int) -> bytes:
    try:
        return os.read(reader, _MAX_REPORT_BYTES)
    except BlockingIOError:
        return b""


def _find_report(content: bytes, token: str) -> dict[str, Any] | None:
    """The line that begins with the token, if there is one."""
    prefix = f"{token} ".encode()
    for line in content.split(b"\n"):
        if line.startswith(prefix):
            report: dict[str, Any] = json.loads(line[len(prefix) :])
            return report
    return None


def _outcome(report: dict[str, Any] | None, returncode: int) -> Outcome:
    if report is None:
        return Outcome(status="failed", detail=f"failed: {_describe_end(returncode)}")
    layers = tuple(report["layers"])
    if report["error"] is None:
        return Outcome(status="passed", detail="passed", layers=layers)
    return Outcome(status="failed", detail=f"failed: {report['error']}", layers=layers)


def _describe_end(returncode: int) -> str:
    """How a process ended that did not report."""
    number = -returncode if returncode < 0 else returncode - _SIGNAL_BASE
    if number in signal.valid_signals():
        return f"killed by {signal.Signals(number).name} before the tests ended"
    return f"ended with exit status {returncode} before the tests did"
