"""A one-node SLURM cluster on this machine, for tests: started and stopped in seconds, by root.

    python tests/slurm/cluster.py start|stop|status FOLDER

Needs Debian's packages `slurm-wlm` and `munge`. Keys, state, logs and pid files lie in FOLDER; what
an earlier process left running there is ended first. SLURM's own commands find the cluster by
`export SLURM_CONF=FOLDER/slurm.conf`.
"""

from __future__ import annotations

import argparse
import os
import platform
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from string import Template

TEMPLATE = Path(__file__).with_name("slurm.conf.template")
DAEMONS = ("slurmd", "slurmctld", "munged")
"""In the order in which they are stopped."""
CLIENTS = ("sbatch", "srun", "squeue", "scancel", "scontrol", "sinfo")
MUNGE_USER = "munge"
START_S = 120.0
STOP_S = 60.0
NUM_STARTS = 3
"""Another program may take a port between its choice and the daemon that gets it."""
NUM_LOOKS = 3
PORT_TAKEN = "Address already in use"
MAX_SOCKET_PATH = 100
"""In bytes; the kernel's limit is 107."""


class ClusterError(RuntimeError):
    """The cluster cannot be started."""


def reason_against() -> str | None:
    """Why no cluster can be started on this machine; None if one can."""
    if sys.platform != "linux":
        return f"a SLURM cluster needs Linux, this is {sys.platform}"
    if os.geteuid() != 0:
        return f"a SLURM cluster for tests is started by root, this is user {os.geteuid()}"
    path = _path_of_daemons()
    if missing := [name for name in (*DAEMONS, *CLIENTS) if not shutil.which(name, path=path)]:
        return f"{', '.join(missing)} not found: apt-get install slurm-wlm munge"
    return None


class Cluster:
    """A cluster in a folder; one at a time per folder.

    Attributes:
        folder: Where everything lies; other users must be able to enter it.
        num_cpus: CPUs that jobs are given, at least 1; more than the machine has share them.
        requeue_wait_s: How long a requeued job waits, in seconds, at least 5.
    """

    def __init__(
        self, folder: Path, *, num_cpus: int | None = None, requeue_wait_s: int = 5
    ) -> None:
        self.folder = folder.resolve()
        self.num_cpus = num_cpus or os.cpu_count() or 1
        self.requeue_wait_s = requeue_wait_s

    @property
    def conf(self) -> Path:
        """The cluster's `slurm.conf`."""
        return self.folder / "slurm.conf"

    def start(self) -> None:
        """Ends leftovers, starts the daemons, and waits until the node is idle.

        Raises:
            ClusterError: If it cannot be started, with the ends of the daemons' logs.
        """
        if reason := reason_against():
            raise ClusterError(reason)
        for num_left in reversed(range(NUM_STARTS)):
            self.stop()
            try:
                self._start_daemons()
                return
            except BaseException as error:
                self.stop()
                if not num_left or PORT_TAKEN not in str(error):
                    raise

    def _start_daemons(self) -> None:
        self._lay_out()
        munged = ["munged", "--force", f"--socket={self.folder}/munge/socket", "--num-threads=2"]
        munged += [f"--{kind}-file={self.folder}/munge/munged.{kind}" for kind in ("pid", "log")]
        munged += [f"--seed-file={self.folder}/munge/seed", f"--key-file={self.folder}/munge/key"]
        self._daemon(munged, user=MUNGE_USER)
        self._daemon(["slurmctld", "-c", "-f", str(self.conf)])
        self._daemon(["slurmd", "-c", "-f", str(self.conf), "-N", platform.node()])
        self._wait_until_idle()

    def stop(self) -> None:
        """Ends all jobs and daemons; does nothing where there are none."""
        if self._pid("slurmctld") and self._pid("slurmd"):
            self.command("scancel", "--full", "--signal=KILL", "--user=root", check=False)
            self.command("scancel", "--user=root", check=False)
            wait_for(lambda: not self.command("squeue", "--noheader", check=False), STOP_S)
        for name in DAEMONS:
            self._end(name)

    def daemons(self, name: str | None = None) -> list[int]:
        """Process ids of all daemons or of one, with those that have no pid file yet."""
        wanted = DAEMONS if name is None else (name,)
        found: list[int] = []
        # One that forks and ends during a look is seen at another: it forks twice.
        for _ in range(NUM_LOOKS):
            found = found or [pid for pid, words in _commands() if self._is_own(words, wanted)]
        return found

    def _is_own(self, words: Sequence[str], names: Sequence[str]) -> bool:
        return Path(words[0]).name in names and any(f"{self.folder}/" in word for word in words)

    def status(self) -> str:
        """`idle`, `mixed`, `down`, ... as SLURM calls the node; `stopped` without daemons."""
        if not all(self._pid(name) for name in DAEMONS):
            return "stopped"
        return self.command("sinfo", "--noheader", "--format=%T", check=False) or "starting"

    def command(self, *words: str, check: bool = True) -> str:
        """Output of one of SLURM's commands on this cluster, stripped.

        Raises:
            ClusterError: If it fails and `check` is set.
        """
        done = subprocess.run(
            words,
            env=self.environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        if check and done.returncode:
            raise ClusterError(f"{' '.join(words)}: {done.stderr.strip()}")
        return done.stdout.strip()

    def environment(self) -> Mapping[str, str]:
        """This process's environment, in which SLURM's commands find the cluster."""
        # Left over from an outer job, these would change what sbatch asks for.
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "SBATCH_"))}
        return kept | {"SLURM_CONF": str(self.conf)}

    def _lay_out(self) -> None:
        if len(f"{self.folder}/munge/socket.lock") > MAX_SOCKET_PATH:
            raise ClusterError(f"the folder's path is too long for a socket: {self.folder}")
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True, mode=0o755)
        for path in (self.folder, *self.folder.parents):
            if not path.stat().st_mode & stat.S_IXOTH:
                raise ClusterError(f"user '{MUNGE_USER}' must be able to enter {path}")
        for name in ("state", "spool"):
            (self.folder / name).mkdir()
        munge = self.folder / "munge"
        munge.mkdir(mode=0o711)
        (munge / "key").write_bytes(secrets.token_bytes(128))
        (munge / "key").chmod(0o400)
        for path in (munge, munge / "key"):
            shutil.chown(path, MUNGE_USER, MUNGE_USER)
        self.conf.write_text(self._filled_template())

    def _filled_template(self) -> str:
        memory_mb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
        with ExitStack() as sockets:
            # Both are open at once, so that the two ports differ.
            ports = [free_port(sockets) for _ in range(2)]
        return Template(TEMPLATE.read_text()).substitute(
            host=platform.node(),
            folder=self.folder,
            slurmctld_port=ports[0],
            slurmd_port=ports[1],
            requeue_wait_s=self.requeue_wait_s,
            num_cpus=self.num_cpus,
            memory_mb=memory_mb,
            memory_per_cpu_mb=memory_mb // self.num_cpus,
        )

    def _daemon(self, words: list[str], user: str | None = None) -> None:
        output = self.folder / f"{words[0]}.out"
        with output.open("wb") as stream:
            done = subprocess.run(
                words,
                env={**self.environment(), "PATH": _path_of_daemons()},
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                user=user,
                group=user,
                extra_groups=None if user is None else [],
                check=False,
            )
        if done.returncode:
            raise ClusterError(f"{words[0]} ended with {done.returncode}: {self.logs()}")

    def _wait_until_idle(self) -> None:
        began = time.monotonic()
        # One that has ended will not come up any more.
        wait_for(lambda: self.status() == "idle" or not self._all_run(), START_S)
        if (status := self.status()) != "idle":
            seconds = time.monotonic() - began
            raise ClusterError(f"the node is {status} after {seconds:.0f} s: {self.logs()}")

    def _all_run(self) -> bool:
        return all(self.daemons(name) for name in DAEMONS)

    def logs(self) -> str:
        """The ends of the logs in the folder: the daemons' and those of jobs."""
        files = sorted([*self.folder.glob("*.log"), *self.folder.glob("*.out")])
        files.append(self.folder / "munge" / "munged.log")
        ends = {file: file.read_text(errors="replace")[-1500:] for file in files if file.exists()}
        return "\n".join(f"{file}:\n{end}" for file, end in ends.items() if end)

    def _pid(self, name: str) -> int | None:
        """The daemon's process id; None if it does not run."""
        folder = self.folder / "munge" if name == "munged" else self.folder
        try:
            pid = int((folder / f"{name}.pid").read_text())
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError, ValueError):
            return None
        # The number may have gone to another process since the file was written.
        return pid if str(self.folder).encode() in words else None

    def _end(self, name: str) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            for pid in self.daemons(name):
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
            if wait_for(lambda: not self.daemons(name), STOP_S):
                return


@contextmanager
def running_cluster(folder: Path, *, num_cpus: int | None = None) -> Iterator[Cluster]:
    """A cluster inside a `with` block, which ends it however the block ends.

    Raises:
        ClusterError: If it cannot be started.
    """
    cluster = Cluster(folder, num_cpus=num_cpus)
    cluster.start()
    try:
        yield cluster
    finally:
        cluster.stop()


def _commands() -> Iterator[tuple[int, list[str]]]:
    """Id and words of every process that has some."""
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(FileNotFoundError, ProcessLookupError):
            if words := file.read_bytes().decode(errors="replace").split("\0")[:-1]:
                yield int(file.parent.name), words


def _path_of_daemons() -> str:
    # Daemons lie where a user's PATH does not look.
    return os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin"])


def free_port(sockets: ExitStack) -> int:
    """One that nobody uses, nor is given again while the sockets are open."""
    probe = sockets.enter_context(socket.socket())
    probe.bind(("127.0.0.1", 0))
    port: int = probe.getsockname()[1]
    return port


def wait_for(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Whether the condition holds within the time; it is looked at ten times a second."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="a one-node SLURM cluster for tests")
    parser.add_argument("action", choices=("start", "stop", "status"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--num-cpus", type=int, help="more than the machine has are shared")
    args = parser.parse_args()
    cluster = Cluster(args.folder, num_cpus=args.num_cpus)
    try:
        if args.action == "start":
            cluster.start()
        elif args.action == "stop":
            cluster.stop()
    except ClusterError as error:
        sys.exit(f"error: {error}")
    sys.stdout.write(f"{cluster.status()}; export SLURM_CONF={cluster.conf}\n")


if __name__ == "__main__":
    main()
