"""The program behind an LLM: a child process that listens on a Unix socket in a private folder."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import time
import weakref

_PREFIX = "tern-python-"


class EngineDied(RuntimeError):
    """The program ended, or could not start. The message holds the last lines it printed."""


def find_program():
    """The program: TERN, the one of this package, PATH, or the build folder of the repository this file is in."""
    here = pathlib.Path(__file__).resolve().parent
    for place in (os.environ.get("TERN"), here / "bin" / "tern"):
        if place and os.access(place, os.X_OK):
            return str(place)
    import shutil  # this and others are imported where they are needed: LLM() starts the program soon

    for place in (shutil.which("tern"), here.parents[1] / "build/release/tern"):
        if place and os.access(place, os.X_OK):
            return str(place)
    raise FileNotFoundError("the program `tern` was not found: set TERN to its path or put it on PATH")


def demo_model():
    """The folder of the small model that ships with the program."""
    here = pathlib.Path(find_program()).resolve().parent
    for place in (here / "model", here.parents[1] / "models/tern-demo-ocr"):
        if place.is_dir():
            return str(place)
    raise FileNotFoundError(f"there is no model beside {here}")


def environment():
    """The program's variables. NVIDIA's packages are looked for beside this one, too, whether or not somebody activated
    the environment that both are in."""
    site = pathlib.Path(__file__).resolve().parents[1]
    if not (site / "nvidia").is_dir():
        return dict(os.environ)
    folders = [os.environ.get("TERN_CUDA_LIBRARY"), str(site)]
    return {**os.environ, "TERN_CUDA_LIBRARY": ":".join(filter(None, folders))}


def main():
    """The command `tern`: becomes the program with this process's arguments."""
    program = find_program()
    os.execve(program, [program, *sys.argv[1:]], environment())


def flags_of(arguments):
    """Keyword arguments as flags: max_model_len=8192 is --max-model-len 8192. None leaves a flag out."""
    out = []
    for name, value in arguments.items():
        if value is None:
            continue
        flag = "--" + name.replace("_", "-")
        if isinstance(value, bool):
            value = "true" if value else "false"
        elif isinstance(value, (dict, list, tuple)):
            import json

            value = json.dumps(value)
        out += [flag, str(value)]
    return out


def _private_folder():
    """In memory where there is such a place. Folders of processes that were killed are removed on the way."""
    parent = "/dev/shm"
    if not os.access(parent, os.W_OK):
        import tempfile

        parent = tempfile.gettempdir()
    for old in pathlib.Path(parent).glob(_PREFIX + "*"):
        owner = old.name[len(_PREFIX) :].partition("-")[0]
        try:
            if owner.isdigit() and old.stat().st_uid == os.getuid() and not pathlib.Path("/proc", owner).exists():
                _remove(old)
        except OSError:
            pass  # somebody else removed it
    folder = pathlib.Path(parent, f"{_PREFIX}{os.getpid()}-{os.urandom(8).hex()}")
    folder.mkdir(0o700)
    return folder


def _remove(folder):
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


class Process:
    """Starts `tern serve`; wait() waits until it answers."""

    def __init__(self, model, arguments):
        """`arguments`: flags by name."""
        self._program = find_program()
        self.folder = _private_folder()
        self.media = self.folder / "media"
        self.media.mkdir()
        # Addresses in messages come from this process, which reaches its own network anyway.
        own = {"allowed_local_media_path": str(self.media), "allow_private_media_addresses": True}
        arguments = {**own, **arguments}
        self.socket = str(self.folder / "socket")
        self._owner = os.getpid()
        self._output = self.folder / "output.txt"
        command = [self._program, "serve", "--model", str(model), "--uds", self.socket, "--exit-with-stdin", "true"]
        command += flags_of(arguments)
        try:
            with open(self._output, "wb") as output:
                # A session of its own: Ctrl-C at the terminal is this process's affair. Its standard input ends with this
                # process, however that ends, and the program with it.
                self._child = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=output, stderr=output, start_new_session=True, env=environment()
                )
        except OSError as error:
            _remove(self.folder)
            raise EngineDied(f"{command[0]} does not start: {error}") from error
        self._end = weakref.finalize(self, _end, self._child, self.folder, self._owner)
        os.register_at_fork(after_in_child=_forget(self._child))

    def wait(self, ready):
        """`ready(path of the socket)` is called until it returns true."""
        try:
            while not ready(self.socket):
                if self._child.poll() is not None:
                    raise self.died()
                time.sleep(0.002)
        except BaseException:
            self.close()
            raise

    def check(self):
        """Raises where this process is a fork of the one that started the program, or the program was ended."""
        if os.getpid() != self._owner:
            raise RuntimeError("this LLM was made before a fork and belongs to the parent process; make one in this process")
        if not self._end.alive:
            raise RuntimeError("this LLM was closed")

    def died(self):
        """The exception for a program that ended."""
        try:
            self._child.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return EngineDied("the program does not answer:\n" + self.last_lines())
        return EngineDied(f"the program ended with status {self._child.returncode}:\n" + self.last_lines())

    def last_lines(self, count=20):
        try:
            return "\n".join(self._output.read_text(errors="replace").splitlines()[-count:])
        except OSError:
            return "(its output is gone)"

    @property
    def pid(self):
        return self._child.pid

    def alive(self):
        return self._child.poll() is None

    def close(self):
        """Ends the program and removes the folder. Harmless when repeated."""
        self._end()


def _end(child, folder, owner):
    if os.getpid() != owner:
        return
    if child.stdin is not None:
        child.stdin.close()  # the program ends with its standard input
    try:
        child.wait(timeout=20)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
    _remove(folder)


def _forget(child):
    """In a fork: its copy of the pipe would keep the program alive when the parent is killed."""
    known = weakref.ref(child)

    def close():
        found = known()
        if found is not None and found.stdin is not None:
            try:
                os.close(found.stdin.fileno())
            except (OSError, ValueError):
                pass

    return close
