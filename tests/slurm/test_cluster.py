"""The cluster that the other tests use: it comes up, goes down, and says why it cannot."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import socket
import tempfile
from pathlib import Path

import pytest
from cluster import (
    START_S,
    STOP_S,
    Cluster,
    ClusterError,
    free_port,
    reason_against,
    wait_for,
)

pytestmark = pytest.mark.slurm


@pytest.fixture
def folder():
    if reason := reason_against():
        pytest.skip(reason)
    # pytest's own folders are closed to munge's user.
    path = Path(tempfile.mkdtemp(prefix="sd-slurm-"))
    path.chmod(0o755)
    yield path / "cluster"
    Cluster(path / "cluster").stop()
    shutil.rmtree(path)


def pids_of(folder):
    files = [folder / "slurmd.pid", folder / "slurmctld.pid", folder / "munge" / "munged.pid"]
    return [int(file.read_text()) for file in files]


def is_running(pid):
    # Not by /proc/PID/cmdline: that is empty for a moment while a process becomes another program.
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def have_ended(pids):
    # A signal returns before the process has ended, and a busy machine takes its time.
    return wait_for(lambda: not any(map(is_running, pids)), STOP_S)


def test_a_start_ends_what_an_earlier_one_left_behind(folder):
    Cluster(folder).start()
    first = pids_of(folder)
    assert all(map(is_running, first))
    os.kill(first[1], signal.SIGKILL)
    assert have_ended([first[1]])
    cluster = Cluster(folder, num_cpus=3)
    assert cluster.status() == "stopped"
    cluster.start()
    second = pids_of(folder)
    assert cluster.status() == "idle"
    assert cluster.command("sinfo", "--noheader", "--format=%c") == "3"
    assert have_ended(first)
    cluster.stop()
    cluster.stop()
    assert cluster.status() == "stopped"
    assert have_ended(second)


def test_stop_ends_running_jobs(folder):
    cluster = Cluster(folder)
    cluster.start()
    pid_file = folder / "job.pid"
    script = f"echo $$ > {pid_file}.new; mv {pid_file}.new {pid_file}; sleep 3600"
    command = ["srun", "--job-name=sleeper", "bash", "-c", f"'{script}'"]
    cluster.command("sbatch", f"--output={folder}/job.log", f"--wrap={' '.join(command)}")
    wait_for(lambda: pid_file.exists() or not cluster.command("squeue", "--noheader"), START_S)
    assert pid_file.exists(), cluster.logs()
    pid = int(pid_file.read_text())
    assert is_running(pid)
    cluster.stop()
    assert have_ended([pid])


def test_a_folder_that_munge_cannot_enter_is_refused(folder):
    folder.parent.chmod(0o700)
    with pytest.raises(ClusterError, match=f"'munge' must be able to enter {folder.parent}$"):
        Cluster(folder).start()


def test_a_start_that_fails_shows_the_logs_and_leaves_no_daemon(folder, monkeypatch):
    def down(self):
        assert wait_for((folder / "slurmctld.log").exists, START_S)
        return "down"

    monkeypatch.setattr("cluster.START_S", 1.0)
    monkeypatch.setattr(Cluster, "status", down)
    with pytest.raises(ClusterError, match=r"the node is down after \d+ s: .*slurmctld\.log:"):
        Cluster(folder).start()
    monkeypatch.undo()
    assert Cluster(folder).status() == "stopped"
    assert Cluster(folder).daemons() == []


@pytest.mark.parametrize("place", [0, 1], ids=["slurmctld", "slurmd"])
def test_a_port_that_is_taken_meanwhile_is_replaced(folder, monkeypatch, place):
    chosen = itertools.count()
    with socket.socket() as other:
        other.bind(("", 0))
        other.listen()
        taken = other.getsockname()[1]

        def port(sockets):
            return taken if next(chosen) == place else free_port(sockets)

        monkeypatch.setattr("cluster.free_port", port)
        cluster = Cluster(folder)
        cluster.start()
        assert cluster.status() == "idle"
    assert next(chosen) >= 4
    assert f"Port={taken}\n" not in cluster.conf.read_text()


def test_no_root(monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert reason_against() == "a SLURM cluster for tests is started by root, this is user 1000"


def test_missing_packages(monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("shutil.which", lambda name, path: (name != "munged" and name) or None)
    assert reason_against() == "munged not found: apt-get install slurm-wlm munge"
