"""Where a model's name leads: a folder, FD_MODEL_CACHE, the caches of other clients, the hub; for every command."""

import json
import pathlib
import shutil

import pytest
from conftest import Puller
from tern_server import MODEL, Server

NAME = "some/model"


@pytest.fixture(scope="module")
def real_files():
    return {path.name: path.read_bytes() for path in MODEL.iterdir() if path.is_file()}


def folder_that(puller, name=NAME, *flags, **env):
    """The folder that --dry-run finds, or what it would fetch."""
    page = json.loads(puller.run("serve", name, "--dry-run", *flags, **env))
    return page["model"]["folder"] or page["model"]["source"]


def test_serve_by_name(hub, real_files, tmp_path):
    hub.publish(NAME, real_files)
    puller = Puller(hub, tmp_path)
    error = puller.run("serve", NAME, "--block-size", "7", status=2)
    assert "block-size" in error and hub.asked == []  # wrong flags are told before anything is fetched
    assert puller.run("serve", NAME, "--no-download", status=1).count("--no-download") == 1
    assert folder_that(puller)["folder"] == str(puller.models / NAME) and hub.asked == []
    server = Server(tmp_path, "--max-num-seqs", "4", model=NAME, env=puller.environment).wait_ready()
    try:
        answer = server.client().chat.completions.create(
            model="default", messages=[{"role": "user", "content": "Hi"}], max_tokens=3
        )
        assert answer.usage.completion_tokens > 0
        assert f"fetching {NAME} (main) from {hub.url}" in server.text()
    finally:
        server.stop()
    asked = len(hub.asked)
    assert folder_that(puller) == str(puller.models / NAME)
    # Other commands find it by the same name, and ask nobody.
    assert "architecture" in puller.run("inspect", NAME).lower()
    assert "vocab" in puller.run("tokenizer", "-m", NAME, "-vs").lower()
    assert folder_that(puller, NAME, HF_HUB_OFFLINE="1") == str(puller.models / NAME)
    assert len(hub.asked) == asked
    # Of another revision it is not: that one is fetched.
    assert folder_that(puller, NAME, "--revision", "main") == folder_that(puller, NAME, "--revision", "master")
    assert folder_that(puller, NAME, "--revision", "v2")["revision"] == "v2"


def test_caches_of_other_clients(hub, tmp_path, real_files):
    puller = Puller(hub, tmp_path)
    commit = "0123456789" * 4
    cache = tmp_path / "hf"
    snapshot = cache / "models--some--model" / "snapshots" / commit
    shutil.copytree(MODEL, snapshot)
    (cache / "models--some--model" / "refs").mkdir()
    (cache / "models--some--model" / "refs" / "main").write_text(commit)
    assert folder_that(puller, HF_HUB_CACHE=str(cache)) == str(snapshot)
    assert folder_that(puller, NAME, "--revision", commit, HUGGINGFACE_HUB_CACHE=str(cache)) == str(snapshot)
    (tmp_path / "home2").mkdir()
    (tmp_path / "home2" / "hub").symlink_to(cache)
    assert folder_that(puller, HF_HOME=str(tmp_path / "home2")).endswith("home2/hub/models--some--model/snapshots/" + commit)
    assert isinstance(folder_that(puller, NAME, "--revision", "v1", HF_HUB_CACHE=str(cache)), dict)
    (snapshot / "model-00002-of-00002.safetensors").unlink()  # a fetch of that client that has not ended
    assert isinstance(folder_that(puller, HF_HUB_CACHE=str(cache)), dict)
    for place in ("models/some--model.x/snapshots/master", "models/some/model___x", "hub/models/some/model___x", "some/model.x"):
        folder = tmp_path / "ms" / place
        shutil.copytree(MODEL, folder)
        assert folder_that(puller, "some/model.x", MODELSCOPE_CACHE=str(tmp_path / "ms")) == str(folder)
        shutil.rmtree(tmp_path / "ms")
    default = puller.home / ".cache" / "modelscope" / "models" / "some--model" / "snapshots" / "master"
    shutil.copytree(MODEL, default)
    assert folder_that(puller) == str(default)
    assert hub.asked == []


def test_a_folder_comes_first(hub, tmp_path, monkeypatch):
    puller = Puller(hub, tmp_path)
    monkeypatch.chdir(tmp_path)
    shutil.copytree(MODEL, tmp_path / "some" / "model")
    assert folder_that(puller) == NAME
    other = puller.models / "PaddlePaddle" / "m"
    shutil.copytree(MODEL, other)  # by a person, and by the other spelling
    assert pathlib.Path(folder_that(puller, "baidu/m")) == other


def test_which_hub(hub, tmp_path):
    puller = Puller(hub, tmp_path)
    assert folder_that(puller, "PaddlePaddle/m")["repository"] == "baidu/m"
    assert folder_that(puller)["revision"] == "main"
    del puller.environment["FD_MODEL_SOURCE"]
    assert folder_that(puller)["hub"] == "AISTUDIO" and folder_that(puller)["revision"] == "master"
    assert folder_that(puller, DOWNLOAD_SOURCE="modelscope")["hub"] == "MODELSCOPE"
    both = folder_that(puller, "baidu/m", DOWNLOAD_SOURCE="huggingface", FD_MODEL_SOURCE="MODELSCOPE")
    assert both["hub"] == "MODELSCOPE" and both["repository"] == "PaddlePaddle/m"
    assert (
        folder_that(puller, MODELSCOPE_DOMAIN="mirror.example", MODELSCOPE_ENDPOINT="", FD_MODEL_SOURCE="MODELSCOPE")["endpoint"]
        == "https://mirror.example"
    )
