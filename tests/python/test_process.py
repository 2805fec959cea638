"""The child: how it starts, ends, and what a caller sees of it."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest
from conftest import FLAGS, MODEL, ROOT
from tern import LLM, EngineDied, SamplingParams


def wait_gone(pid, seconds=20):
    deadline = time.monotonic() + seconds
    while pathlib.Path(f"/proc/{pid}/stat").exists():
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        if state == "Z":
            return True
        assert time.monotonic() < deadline, "the program is still there"
        time.sleep(0.02)
    return True


def script(text, **kw):
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    return subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True, env=environment, **kw)


MAKE = f"from tern import LLM; llm = LLM({str(MODEL)!r}, max_model_len=512); print(llm._process.pid, flush=True);"


def test_import_loads_nothing():
    text = "import sys, tern; print(sorted(m for m in sys.modules if m in ('http.client', 'tern.llm', 'numpy', 'socket')))"
    done = script(text)
    assert done.communicate()[0].strip() == "[]"


def test_close_and_with():
    with LLM(MODEL, **FLAGS) as llm:
        pid, folder = llm._process.pid, llm._process.folder
        assert (folder / "socket").stat().st_mode & 0o777 == 0o600
        assert folder.stat().st_mode & 0o777 == 0o700
    assert wait_gone(pid) and not folder.exists()
    llm.close()
    with pytest.raises(RuntimeError, match="closed"):
        llm.generate("a")


def test_a_wrong_flag_says_so():
    with pytest.raises(EngineDied, match="no-such-flag"):
        LLM(MODEL, no_such_flag=3)
    with pytest.raises(EngineDied, match="status"):
        LLM("/no/such/model")


def test_it_ends_when_the_script_ends():
    run = script(MAKE)
    pid = int(run.stdout.readline())
    assert run.wait(30) == 0 and wait_gone(pid)


def test_it_ends_when_the_script_is_killed():
    run = script(MAKE + "import time; time.sleep(60)")
    pid = int(run.stdout.readline())
    run.kill()
    run.wait()
    assert wait_gone(pid)


def test_it_ends_when_a_script_with_forks_is_killed():
    run = script(MAKE + "import os, time; child = os.fork(); os.write(1, b'%d\\n' % child); time.sleep(60)")
    pid = int(run.stdout.readline())
    children = {int(run.stdout.readline()), int(run.stdout.readline())} - {0}
    run.kill()
    run.wait()
    try:
        assert wait_gone(pid)
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)


def test_a_fork_is_told(llm):
    text = MAKE + (
        "import os\nif os.fork() == 0:\n try:\n  llm.generate('a')\n except RuntimeError as e:\n  print(e, flush=True)\n"
        " os._exit(0)\nos.wait()"
    )
    run = script(text)
    assert "before a fork" in run.communicate(timeout=60)[0]


def test_a_killed_program_is_an_exception_with_its_last_lines():
    llm = LLM(MODEL, **FLAGS)
    stream = llm.generate("a", SamplingParams(max_tokens=500, ignore_eos=True), stream=True, use_tqdm=False)
    next(stream)
    os.kill(llm._process.pid, signal.SIGKILL)
    with pytest.raises(EngineDied, match=r"status -9:\n(.|\n)*unix:"):
        for _ in stream:
            pass
    with pytest.raises(EngineDied):
        llm.generate("a", use_tqdm=False)
    llm.close()


def test_control_c_ends_the_call_and_not_the_engine():
    text = MAKE + (
        "from tern import SamplingParams as P\ntry:\n llm.generate(['a'] * 40, P(max_tokens=400, ignore_eos=True))\n"
        "except KeyboardInterrupt:\n pass\n"
        "print(llm.chat([{'role': 'user', 'content': '1+1='}], P(temperature=0, max_tokens=4))[0].outputs.text)"
    )
    run = script(text, stderr=subprocess.DEVNULL, start_new_session=True)
    run.stdout.readline()
    time.sleep(0.5)
    os.killpg(run.pid, signal.SIGINT)
    assert run.communicate(timeout=60)[0].strip() == "2"


def test_folders_of_killed_scripts_are_removed():
    run = script(MAKE + "print(llm._process.folder, flush=True); import time; time.sleep(60)")
    pid, folder = int(run.stdout.readline()), pathlib.Path(run.stdout.readline().strip())
    run.kill()
    run.wait()
    assert wait_gone(pid) and folder.exists()
    LLM(MODEL, **FLAGS).close()
    assert not folder.exists()
