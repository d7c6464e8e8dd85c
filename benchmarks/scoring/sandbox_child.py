"""The process in which a program runs: takes a job from stdin, limits itself, runs it, reports.

`sandbox` starts this file as a script; what each layer is good for is said there. It imports
nothing of the project. A layer that the kernel refuses is left out of the report's `layers`.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import resource
import sys
from collections.abc import Mapping, Sequence
from types import ModuleType, TracebackType
from typing import Any

_NOBODY = 65534
_CAP_DAC_READ_SEARCH = 2
_CAPABILITY_VERSION = 0x20080522
_PR_SET_PDEATHSIG, _PR_SET_KEEPCAPS, _PR_SET_NO_NEW_PRIVS = 1, 8, 38
_SIGKILL = 9
_CLONE_NEWNS, _CLONE_NEWIPC, _CLONE_NEWUSER = 0x20000, 0x8000000, 0x10000000
_CLONE_NEWPID, _CLONE_NEWNET = 0x20000000, 0x40000000
_MS_NOSUID_NODEV, _MS_PRIVATE_REC, _MS_RDONLY = 2 | 4, (1 << 18) | (1 << 14), 1
_SYS_MOUNT_SETATTR, _AT_FDCWD, _AT_RECURSIVE, _MOUNT_ATTR_RDONLY = 442, -100, 0x8000, 1

_REFUSED = (
    "socket.", "subprocess.", "pty.", "os.exec", "os.fork", "os.kill", "os.posix_spawn", "os.spawn",
    "os.system", "signal.pthread_kill", "resource.",
)  # fmt: skip
"""Beginnings of audit events that no program may cause."""
_CHANGES = (
    "os.chflags", "os.chmod", "os.chown", "os.link", "os.mkdir", "os.remove", "os.removexattr",
    "os.rename", "os.rmdir", "os.setxattr", "os.symlink", "os.truncate", "os.utime",
)  # fmt: skip
"""Audit events with paths that must lie in the working folder."""
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def main() -> None:
    """Runs the job of stdin, and ends the process."""
    sys.path.pop(0)  # The folder of this file.
    job = json.load(sys.stdin)
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    layers = _isolate(job["limits"]) if sys.platform == "linux" else []
    _set_limits(job["limits"])
    # Bound before the program runs, which may replace what modules offer.
    write, leave, dump = os.write, os._exit, json.dumps
    _install_hook(os.getcwd())
    error = _run(job["sources"])
    report = dump({"error": error, "layers": layers})
    write(job["result_fd"], f"\n{job['token']} {report}\n".encode())
    leave(0)  # Threads and exit handlers of the program have no say any more.


def _run(sources: Sequence[Mapping[str, str]]) -> str | None:
    """What went wrong, or None."""
    # Registered, since dataclasses and pickle look their module up; not __main__, so that what
    # an answer does when run as a script is left out.
    module = sys.modules["program"] = ModuleType("program")
    for source in sources:
        try:
            code = compile(source["text"], f"<{source['label']}>", "exec", dont_inherit=True)
            exec(code, vars(module))
        # All that a program raises is its failure, SystemExit and KeyboardInterrupt included.
        except BaseException as error:
            labels = [source["label"] for source in sources]
            return f"{type(error).__name__[:80]}{_place(error, labels, source['label'])}"
    return None


def _place(error: BaseException, labels: Sequence[str], label: str) -> str:
    """` in line 3 of the tests`: the innermost line that belongs to the program."""
    if isinstance(error, SyntaxError) and error.filename == f"<{label}>":
        return f" in line {error.lineno} of the {label}"
    place, trace = "", error.__traceback__
    while isinstance(trace, TracebackType):
        name = trace.tb_frame.f_code.co_filename[1:-1]
        if name in labels:
            place = f" in line {trace.tb_lineno} of the {name}"
        trace = trace.tb_next
    return place


def _set_limits(limits: Mapping[str, Any]) -> None:
    cpu_s = math.ceil(limits["wall_s"]) + 1
    for kind, value in (
        (resource.RLIMIT_CPU, cpu_s),
        (resource.RLIMIT_AS, limits["memory_bytes"]),
        (resource.RLIMIT_FSIZE, limits["file_bytes"]),
        (resource.RLIMIT_NPROC, limits["num_processes"]),
        (resource.RLIMIT_NOFILE, 64),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(kind)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))


def _install_hook(folder: str) -> None:
    realpath, fsdecode, inside = os.path.realpath, os.fsdecode, os.path.join(folder, "")

    def check_path(event: str, path: object) -> None:
        if isinstance(path, str | bytes | os.PathLike):
            name = realpath(fsdecode(path))
            if name not in (folder, os.devnull) and not name.startswith(inside):
                raise PermissionError(f"{event} outside the working folder: {name}")

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event.startswith(_REFUSED):
            raise PermissionError(f"{event} is not allowed")
        if event in _CHANGES:
            for path in args:
                check_path(event, path)
        elif event == "open" and args[2] & _WRITING:
            check_path(event, args[0])

    sys.addaudithook(hook)


def _isolate(limits: Mapping[str, Any]) -> list[str]:
    """Gives up root and enters namespaces, the last of them in a new process."""
    libc = ctypes.CDLL(None, use_errno=True)
    folder, is_root = os.getcwd(), os.geteuid() == 0
    becomes_nobody = is_root and _can_become_nobody(libc)
    if becomes_nobody:
        os.chown(folder, _NOBODY, _NOBODY)
    layers = _enter_namespaces(libc, is_root)
    if layers and _make_read_only(libc, folder, limits["file_bytes"]):
        layers.append("files")
    if becomes_nobody:
        _become_nobody(libc)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    libc.prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)
    if "processes" in layers:
        _continue_in_child()
        libc.prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)
    return layers


def _enter_namespaces(libc: ctypes.CDLL, is_root: bool) -> list[str]:
    user, group = os.geteuid(), os.getegid()
    flags = _CLONE_NEWNS | _CLONE_NEWPID | _CLONE_NEWNET | _CLONE_NEWIPC
    if libc.unshare(flags if is_root else flags | _CLONE_NEWUSER) != 0:
        return []
    if not is_root:
        # A file can only be made by a user that the namespace knows.
        maps = {"setgroups": "deny", "uid_map": f"{user} {user} 1", "gid_map": f"{group} {group} 1"}
        for name, line in maps.items():
            with open(f"/proc/self/{name}", "w", encoding="ascii") as stream:
                stream.write(line)
    return ["network", "processes"]


def _make_read_only(libc: ctypes.CDLL, folder: str, num_bytes: int) -> bool:
    """Everything read-only, an empty file system in memory over the folder, and no /proc."""
    attributes = (ctypes.c_uint64 * 4)(_MOUNT_ATTR_RDONLY, 0, 0, 0)
    number, root, flags = ctypes.c_long(_SYS_MOUNT_SETATTR), b"/", ctypes.c_uint(_AT_RECURSIVE)
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    # Private first: a mount must not travel to the namespace outside.
    if libc.mount(None, root, None, ctypes.c_ulong(_MS_PRIVATE_REC), None) != 0:
        return False
    if libc.syscall(number, ctypes.c_int(_AT_FDCWD), root, flags, attributes, size) != 0:
        return False
    for place, kind, options in (
        (os.fsencode(folder), _MS_NOSUID_NODEV, f"mode=777,size={num_bytes}"),
        # It shows the processes outside, with their environments.
        (b"/proc", _MS_NOSUID_NODEV | _MS_RDONLY, "size=4k"),
    ):
        if libc.mount(b"tmpfs", place, b"tmpfs", ctypes.c_ulong(kind), options.encode()) != 0:
            return False
    os.chdir(folder)
    return True


def _can_become_nobody(libc: ctypes.CDLL) -> bool:
    """Whether there is such a user here, and the standard library can be read as that."""
    try:
        os.seteuid(_NOBODY)
    except OSError:  # A user namespace without it.
        return False
    can_read = os.access(os.__file__, os.R_OK, effective_ids=True)
    os.seteuid(0)
    return can_read or bool(_capabilities(libc) >> _CAP_DAC_READ_SEARCH & 1)


def _become_nobody(libc: ctypes.CDLL) -> None:
    """Gives up root, but for the right to read if there is one."""
    kept = _capabilities(libc) & 1 << _CAP_DAC_READ_SEARCH
    libc.prctl(_PR_SET_KEEPCAPS, 1, 0, 0, 0)
    os.setgroups([])
    os.setresgid(_NOBODY, _NOBODY, _NOBODY)
    os.setresuid(_NOBODY, _NOBODY, _NOBODY)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    if libc.capset(header, (ctypes.c_uint32 * 6)(kept, kept, 0, 0, 0, 0)) != 0:
        raise OSError(ctypes.get_errno(), "capset")


def _capabilities(libc: ctypes.CDLL) -> int:
    """The first 32 permitted capabilities, one bit each."""
    header, data = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0), (ctypes.c_uint32 * 6)()
    return int(data[1]) if libc.capget(header, data) == 0 else 0


def _continue_in_child() -> None:
    """Returns in the new namespace's first process; this one waits for its end and shares it."""
    child = os.fork()
    if child:
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        os._exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main()
