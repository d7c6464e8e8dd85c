"""Programs that models write: found in answers, run in the sandbox, and not believed."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from benchmarks.datasets.base import Prompt, Task
from benchmarks.scoring import SCORERS
from benchmarks.scoring.python_code import continue_function, find_definition
from benchmarks.scoring.sandbox import Limits, Source, run_program

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.name != "posix", reason="the sandbox needs a POSIX system"),
]

DOUBLE = "def f(x):\n    return 2 * x\n"
WALL_S = 60.0
"""For programs that end by themselves, on a machine that is busy with other things."""
LIBC = "import ctypes\nlibc = ctypes.CDLL(None)\n"


def run(text, tests="assert f(2) == 4\n", *, wall_s=WALL_S, **limits):
    sources = [Source(label="answer", text=text), Source(label="tests", text=tests)]
    return run_program(sources, Limits(wall_s=wall_s, **limits))


def test_a_right_program_passes_and_a_wrong_one_names_the_line():
    assert run(DOUBLE).detail == "passed"
    wrong = run(DOUBLE, "x = 1\nassert f(2) == 5\n")
    assert (wrong.status, wrong.detail) == (
        "failed", "failed: AssertionError in line 2 of the tests",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ("x = 1\ndef f(:", "failed: SyntaxError in line 2 of the answer"),
        ("def f(x):\n    return x[0]", "failed: TypeError in line 2 of the answer"),
        ("x = 1\n" + "f = bytearray(100 << 30)", "failed: MemoryError in line 2 of the answer"),
        ("import sys\nsys.exit(0)", "failed: SystemExit in line 2 of the answer"),
        ("import os\nos._exit(0)", "failed: ended with exit status 0 before the tests did"),
        ("print('passed')\nraise KeyboardInterrupt", "failed: KeyboardInterrupt in line 2"),
        ("input()", "failed: EOFError in line 1 of the answer"),
        ("import socket\nsocket.socket()", "failed: PermissionError in line 2 of the answer"),
        ("import os\nos.kill(os.getppid(), 9)", "failed: PermissionError in line 2"),
        ("import os\nwhile True: os.fork()", "failed: PermissionError in line 2"),
        ("import os\nos.system('true')", "failed: PermissionError in line 2"),
        ("import ctypes\nctypes.string_at(0)", "failed: killed by SIGSEGV before the tests ended"),
        ("x = '\ud800'", "failed: UnicodeEncodeError"),
    ],
)
def test_how_programs_fail(text, detail):
    outcome = run(text)
    assert outcome.status == "failed"
    assert outcome.detail.startswith(detail)


def test_an_endless_loop_is_killed():
    outcome = run("while True: pass", wall_s=0.4)
    assert (outcome.status, outcome.detail) == ("timed out", "timed out after 0.4 s")


def test_success_cannot_be_written_by_the_program():
    # Every open descriptor, the one of the report included.
    forged = "import os\nfor fd in range(3, 64):\n    try:\n        os.write(fd, {!r})\n"
    forged += "    except OSError:\n        pass\nos._exit(0)\n"
    for message in (b'\npassed {"error": null, "layers": []}\n', b'{"error": null}\n', b"x" * 99):
        assert run(forged.format(message)).status == "failed"
    flood = "import os\nfor fd in range(3, 64):\n    try:\n        while True: os.write(fd, b'x')\n"
    assert run(f"{flood}    except OSError: pass\n", wall_s=0.4).status == "timed out"


def test_what_a_program_leaves_behind_does_not_undo_its_success():
    text = "import atexit, os, threading, time\natexit.register(os._exit, 1)\n"
    text += f"threading.Thread(target=time.sleep, args=(600,)).start()\n{DOUBLE}"
    assert run(text).status == "passed"


def test_files_are_limited_to_the_working_folder(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("kept")
    os.chmod(tmp_path, 0o777)
    for action in (f"open({str(victim)!r}, 'w')", f"os.remove({str(victim)!r})",
                   f"os.rename({str(victim)!r}, 'mine')", f"os.mkdir({str(tmp_path / 'new')!r})",
                   f"os.open({str(victim)!r}, os.O_WRONLY)"):  # fmt: skip
        assert "PermissionError in line 2" in run(f"import os\n{action}").detail
    assert [path.name for path in tmp_path.iterdir()] == ["victim"]
    assert victim.read_text() == "kept"
    own = "import os\nopen('x', 'w').write('hello')\nos.rename('x', 'y')\n"
    assert run(f"{own}assert os.listdir() == ['y']\nos.remove('y')\n{DOUBLE}").status == "passed"
    large = run("stream = open('x', 'wb', 0)\nwhile True: stream.write(b'1' * 4096)",
                file_bytes=1 << 16)  # fmt: skip
    assert large.detail == "failed: OSError in line 2 of the answer"


def test_the_environment_is_not_the_callers_and_sets_have_one_order(monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", "x")
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    text = "import os, sys\nassert 'SECRET_TOKEN' not in os.environ\n"
    text += "assert os.environ['PYTHONHASHSEED'] == '0' and sys.flags.hash_randomization == 0\n"
    text += "assert not [path for path in sys.path if path.endswith(('scoring', 'site-packages'))]"
    assert run(f"{text}\n{DOUBLE}").detail == "passed"


def test_modules_look_like_modules():
    text = "from __future__ import annotations\nfrom dataclasses import dataclass\n"
    text += "import pickle\n@dataclass\nclass P:\n    x: int\n"
    text += "if __name__ == '__main__': raise SystemExit\ndef f(x): return 4\n"
    tests = "assert f(2) == 4 and pickle.loads(pickle.dumps(P(1))) == P(1)"
    assert run(text, tests).detail == "passed"


def layers():
    return run(DOUBLE).layers if sys.platform == "linux" else ()


def test_the_kernel_stops_what_goes_round_the_interpreter(tmp_path):
    if "files" not in layers():
        pytest.skip("this kernel grants no namespaces")
    os.chmod(tmp_path, 0o777)
    text = f"{LIBC}assert libc.creat({bytes(tmp_path / 'x')!r}, 0o644) < 0\n"
    text += "import os\nassert os.getpid() == 1 and not os.listdir('/proc')\n"
    # AF_INET, SOCK_DGRAM; an address of 16 bytes: family 2, port 53, 192.0.2.1.
    text += "address = bytes([2, 0, 0, 53, 192, 0, 2, 1]) + bytes(8)\n"
    text += "assert libc.connect(libc.socket(2, 2, 0), address, 16) < 0\n"
    assert run(f"{text}{DOUBLE}").detail == "passed"
    assert not (tmp_path / "x").exists()


def test_processes_end_with_the_run():
    if "processes" not in layers():
        pytest.skip("this kernel grants no namespaces")
    name = f"stray{os.getpid()}"
    # 15 is PR_SET_NAME; a session of its own takes it out of the process group.
    text = f"{LIBC}if libc.fork() == 0:\n    libc.setsid()\n    libc.prctl(15, {name.encode()!r})\n"
    text += f"    libc.sleep(600)\n{DOUBLE}"
    assert run(text).status == "passed"
    assert not [path for path in Path("/proc").glob("[0-9]*/comm") if read(path) == name]


def read(path):
    try:
        return path.read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


@pytest.mark.skipif(sys.platform != "linux", reason="counts of processes are Linux's here")
def test_the_number_of_processes_is_limited():
    text = f"import os\n{LIBC}pids = []\nfor _ in range(40):\n    pids.append(libc.fork())\n"
    text += "    if pids[-1] == 0:\n        libc.sleep(600)\n        libc._exit(0)\n"
    text += f"assert os.getuid() == 0 or min(pids) < 0\n{DOUBLE}"
    assert run(text, num_processes=16).detail == "passed"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"wall_s": 0}, "wall_s must be > 0, got 0"),
        ({"memory_bytes": 1}, "memory_bytes must be ≥ 67108864, got 1"),
        ({"file_bytes": 0}, "file_bytes must be ≥ 1, got 0"),
    ],
)
def test_limits_refuse_bad_values(fields, message):
    with pytest.raises(ValueError, match=message):
        Limits(**fields)


F = "def f(x):\n    return 1"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (F, F),
        (f"Sure!\n```python\n{F}\n```\nIt returns 1.", F + "\n"),
        (f"```\nprint(1)\n```\n```py\n{F}\n```\n```\nf(1)\n```", F + "\n"),
        (f"1. So:\n   ```python\n   {F[:9]}\n       return 1\n   ```", F + "\n"),
        (f"```python\r\n{F}\r\n", F + "\n"),
        (f"Here is from me:\n\nimport re\n{F}\n\nThis is it, isn't it?", f"import re\n{F}\n"),
        (f"```python\n{F}\n\nprint(f(1", F + "\n"),
        (f"{F}\n\ndef g(x):\n    return (1,", F + "\n"),
        (f"class f:\n    y = 1\n{F[:5]}", "class f:\n    y = 1"),
        ("def f(x):\n    y = 1\n    return (", "def f(x):\n    y = 1\n    return ("),
        ("def f(x):\n    return '\0'", "def f(x):\n    return '\0'"),
        ("def ff(x):\n    return 1", None),
        ("```python\nprint(1)\n```", None),
        ("I cannot.", None),
        ("", None),
    ],
)
def test_code_is_found_in_an_answer(text, code):
    found = find_definition(text, ["f"])
    assert (found if found is None else found.rstrip()) == (code if code is None else code.rstrip())


SIGNATURE = 'def f(x):\n    """Twice."""\n'


@pytest.mark.parametrize(
    ("text", "body"),
    [
        ("    return 2 * x", "    return 2 * x"),
        ("return 2 * x", "    return 2 * x"),
        ("y = x\n    return x + y", "    y = x\n    return x + y"),
        ("y = x\nreturn x + y", "    y = x\n    return x + y"),
        ("    return 2 * x\n\n\ndef main():\n    pri", "    return 2 * x"),
        ("    return 2 * x\n\nThis doubles x.", "    return 2 * x"),
        ("So:\n```python\nreturn 2 * x\n```", "    return 2 * x"),
    ],
)
def test_a_body_is_joined_with_its_prompt(text, body):
    assert continue_function(SIGNATURE, text).rstrip() == (SIGNATURE + body).rstrip()


@pytest.mark.parametrize("text", ["", " \n ", "I cannot do that.", "    return (", "```\n```"])
def test_what_is_no_body_is_not_joined(text):
    assert continue_function(SIGNATURE, text) is None


def humaneval():
    data = {
        "prompt": f"import math\n\ndef half(x):\n    return x / 2\n\n{SIGNATURE}",
        "test": "def check(candidate):\n    assert candidate(2) == 4\n    assert candidate(0) == 0",
        "entry_point": "f",
    }
    task = Task(scorer="humaneval", data=data)
    return Prompt(prompt_id="p", category="c", turns=("complete it", "again"), task=task)


@pytest.mark.parametrize(
    ("text", "value", "detail"),
    [
        ("    return 2 * x", 1, "passed"),
        ("```python\ndef f(x):\n    return math.floor(half(4 * x))\n```", 1, "passed"),
        ("    return 2 * x\n\ndef f(x):\n    return 0", 1, "passed"),
        ("    return 4", 0, "failed: AssertionError in line 3 of the tests"),
        ("def f(x):\n    return", 0, "failed: AssertionError in line 2 of the tests"),
        ("I am not able to.", 0, "no code in the answer"),
    ],
)
def test_humaneval(text, value, detail):
    score = SCORERS.create("humaneval", timeout_s=WALL_S).score(humaneval(), 0, text)
    assert (score.value, score.detail) == (value, detail)


def test_only_the_first_turn_of_a_programming_task_is_scored():
    assert SCORERS.create("humaneval").score(humaneval(), 1, "    return 2 * x") is None


def mbpp(tests, setup=""):
    task = Task(scorer="mbpp", data={"setup": setup, "tests": tests})
    return Prompt(prompt_id="p", category="c", turns=("write it",), task=task)


@pytest.mark.parametrize(
    ("tests", "text", "value"),
    [
        (["assert set(f(2)) == {2}"], "```python\ndef f(x):\n    return [x]\n```", 1),
        (["assert f(2) == 2", "assert f(3) == 4"], "def f(x):\n    return x", 0),
        (["assert sum(1, 2) == 4"], "def sum(a, b):\n    return 4", 1),
        (["assert f(2) == 2"], "def g(x):\n    return x", 0),
    ],
)
def test_mbpp(tests, text, value):
    assert SCORERS.create("mbpp", timeout_s=WALL_S).score(mbpp(tests), 0, text).value == value


def test_mbpp_setup_uses_what_the_answer_defines():
    one = mbpp(["assert f(node) == 7"], setup="node = Node(7)")
    answer = (
        "class Node:\n    def __init__(self, x):\n        self.x = x\ndef f(node): return node.x"
    )
    assert SCORERS.create("mbpp", timeout_s=WALL_S).score(one, 0, answer).detail == "passed"


@pytest.mark.parametrize(
    ("fields", "message"),
    [({"timeout_s": -1.0}, "timeout_s must be > 0, got -1.0"), ({"memory_mb": 1}, "≥ 64, got 1")],
)
def test_options_are_checked(fields, message):
    with pytest.raises(ValueError, match=message):
        SCORERS.create("mbpp", **fields)
