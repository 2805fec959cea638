"""A hub on loopback, a small model on it, and `tern pull` with an environment of its own."""

import os
import subprocess

import pytest
from hub_server import running_hub
from tern_server import TERN


@pytest.fixture
def hub():
    with running_hub() as made:
        yield made


@pytest.fixture
def model_files():
    """Not a model that could be served; a hub does not know."""
    return {
        "config.json": b'{"architectures": ["X"]}',
        "tokenizer.json": b"{}" * 3000,
        "model-00001-of-00002.safetensors": os.urandom(300_000),
        "model-00002-of-00002.safetensors": os.urandom(200_000),
        "model.safetensors.index.json": b'{"weight_map": {"a": "model-00001-of-00002.safetensors"}}',
    }


class Puller:
    def __init__(self, hub, folder, source="HUGGINGFACE"):
        self.models, self.home = folder / "models", folder / "home"
        self.environment = {"PATH": os.environ["PATH"], "HOME": str(self.home), "FD_MODEL_CACHE": str(self.models),
                            "FD_MODEL_SOURCE": source, **hub.environment()}  # fmt: skip

    def start(self, *words, kib=None, **env):
        """`kib`: no file may become larger."""
        limited = ["bash", "-c", f'ulimit -f {kib}; exec "$@"', "-"] if kib else []
        command = [*limited, TERN, *map(str, words)]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, env={**self.environment, **env}, stdout=pipe, stderr=pipe, text=True)

    def run(self, *words, status=0, kib=None, **env):
        process = self.start(*words, kib=kib, **env)
        out, err = process.communicate(timeout=60)
        assert process.returncode == status, err
        return out if status == 0 else err

    def pull(self, name="some/model", *words, **more):
        return self.run("pull", name, *words, **more)


@pytest.fixture
def puller(hub, tmp_path):
    return Puller(hub, tmp_path)


def same_files(folder, files):
    """Whether the folder has these files, no others beside our own, and nothing that was left over."""
    there = {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    ours = {name for name in there if name.startswith(".tern-hub/")}
    assert ours <= {".tern-hub/lock", ".tern-hub/record.json"}
    return {name: body for name, body in there.items() if name not in ours} == files
