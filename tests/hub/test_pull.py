"""`tern pull` from each hub: which files, where to, how they are checked, and what a second run does."""

import json
import os
import subprocess
from urllib.parse import urlsplit

import pytest
from conftest import Puller, same_files
from hub_server import git_sha1
from tern_server import TERN, wait_for

SOURCES = ("HUGGINGFACE", "MODELSCOPE", "AISTUDIO")


@pytest.mark.parametrize("source", SOURCES)
def test_a_model_is_fetched_once_and_whole(source, hub, model_files, tmp_path):
    puller = Puller(hub, tmp_path, source)
    unused = {"pytorch_model.bin": b"\x80pickle", "modeling_x.py": b"import os", "README.md": b"#", "sub/config.json": b"{}"}
    commit = hub.publish("some/model", {**model_files, **unused})
    folder = puller.models / "some" / "model"
    assert puller.pull() == f"{folder}\n"
    assert same_files(folder, model_files)
    for path in unused:
        assert hub.fetched("/" + path) == []
    record = json.loads((folder / ".tern-hub" / "record.json").read_text())
    assert record["hub"] == source and record["repository"] == "some/model"
    if source != "MODELSCOPE":  # which does not tell it
        assert record["commit"] == commit
        files = [a.path for a in hub.asked if "safetensors" in a.path]
        assert all(commit in path for path in files)  # not main: that could move meanwhile
    hub.asked.clear()
    assert puller.pull() == f"{folder}\n"
    assert [a for a in hub.asked if a.store or (a.method == "GET" and ".safetensors" in a.path)] == []


@pytest.mark.parametrize("source", SOURCES)
def test_how_an_embedding_model_pools_comes_along(source, hub, model_files, tmp_path):
    puller = Puller(hub, tmp_path, source)
    pooling = b'{"pooling_mode_lasttoken": true}'
    hub.publish("some/model", {**model_files, "1_Pooling/config.json": pooling, "2_Dense/config.json": b"{}"})
    folder = puller.models / "some" / "model"
    assert puller.pull() == f"{folder}\n"
    assert (folder / "1_Pooling" / "config.json").read_bytes() == pooling and not (folder / "2_Dense").exists()
    hub.asked.clear()
    assert puller.pull() == f"{folder}\n" and hub.fetched("1_Pooling/config.json") == []
    hub.publish("some/model", model_files)
    puller.pull()
    assert not (folder / "1_Pooling" / "config.json").exists()


@pytest.mark.parametrize("source", SOURCES)
def test_a_moved_revision_brings_what_has_changed(source, hub, model_files, tmp_path):
    puller = Puller(hub, tmp_path, source)
    hub.publish("some/model", model_files)
    puller.pull()
    changed = {**model_files, "model-00001-of-00002.safetensors": os.urandom(300_000), "tokenizer_config.json": b"{}"}
    del changed["tokenizer.json"]  # and takes away what is no longer there
    hub.publish("some/model", changed)
    hub.asked.clear()
    puller.pull()
    assert same_files(puller.models / "some" / "model", changed)
    assert hub.fetched("model-00001-of-00002.safetensors") and not hub.fetched("model-00002-of-00002.safetensors")


def test_revisions_and_spellings(hub, model_files, tmp_path):
    first = hub.publish("baidu/m", model_files, revisions=("main", "v1"))
    puller = Puller(hub, tmp_path)
    folder = puller.models / "baidu" / "m"  # Hugging Face has Baidu's models under this name
    assert puller.pull("PaddlePaddle/m") == f"{folder}\n" == puller.pull("baidu/m", "--revision", "master")
    later = {**model_files, "config.json": b'{"later": 1}'}
    hub.publish("baidu/m", later, revisions=("main",))
    puller.pull("baidu/m", "--revision", first)
    assert same_files(folder, model_files)
    puller.pull("baidu/m")
    assert same_files(folder, later)
    error = puller.pull("baidu/m", "--revision", "v9", status=1)
    assert "The v9 of baidu/m is not exist. Please check the model name or revision." in error
    assert "is not exist" in puller.pull("baidu/none", status=1)
    hub.publish("PaddlePaddle/n", model_files)
    hub.tags.add("v2")
    hub.publish("PaddlePaddle/n", later, revisions=("v2",))
    for source in ("MODELSCOPE", "AISTUDIO"):
        other = Puller(hub, tmp_path / source, source)
        assert other.pull("baidu/n") == f"{other.models / 'PaddlePaddle' / 'n'}\n"
        other.pull("baidu/n", "--revision", "v2")
        assert same_files(other.models / "PaddlePaddle" / "n", later)


def test_ai_studio_lists_in_pages(hub, model_files, tmp_path):
    hub.page_size = 2
    hub.publish("some/model", model_files)
    puller = Puller(hub, tmp_path, "AISTUDIO")
    puller.pull()
    assert same_files(puller.models / "some" / "model", model_files)
    assert sum("page=3" in a.path for a in hub.asked) == 1


@pytest.mark.parametrize("bad", ["../out.json", "/etc/out.json", "a/../../out.json", "x\\..\\y.json", "a//b.json"])
@pytest.mark.parametrize("source", SOURCES)
def test_names_that_lead_out_of_the_folder(source, bad, hub, model_files, tmp_path):
    hub.publish("some/model", {**model_files, bad: b"{}"})
    puller = Puller(hub, tmp_path, source)
    assert "not below the model's folder" in puller.pull(status=1)
    assert not puller.models.exists()


@pytest.mark.parametrize("name", ["model", "a/b/c", "../b", "a/..", "-a/b", "a/b?c", "a/b#c", ".a/b", "a/b%2f"])
def test_names_that_no_hub_has(name, puller):
    assert "no name of a hub" in puller.run("pull", "--", name, status=2)


def test_repositories_without_weights_that_are_read(hub, puller, model_files):
    hub.publish("some/model", {"config.json": b"{}", "pytorch_model.bin": b"\x80"})
    assert "no weights in safetensors" in puller.pull(status=1)
    hub.publish("some/model", {"model.safetensors": b"x"})
    assert "no config.json" in puller.pull(status=1)
    # One file of weights beside others: the one that is read.
    hub.publish("some/model", {"config.json": b"{}", "model.safetensors": b"x", "model.fp16.safetensors": b"y"})
    puller.pull()
    assert not hub.fetched("fp16.safetensors") and (puller.models / "some" / "model" / "model.safetensors").exists()


@pytest.mark.parametrize("source", SOURCES)
def test_the_token_goes_to_the_hub_alone(source, hub, model_files, tmp_path):
    hub.token = "s3cret"
    hub.publish("some/model", model_files)
    puller = Puller(hub, tmp_path, source)
    variable = {"HUGGINGFACE": "HF_TOKEN", "MODELSCOPE": "MODELSCOPE_API_TOKEN", "AISTUDIO": "AISTUDIO_ACCESS_TOKEN"}[source]
    error = puller.pull(status=1)
    assert "HTTP status 401" in error and variable in error
    hub.asked.clear()
    puller.pull(**{variable: "s3cret"})
    assert same_files(puller.models / "some" / "model", model_files)
    asked = {a.store: set() for a in hub.asked}
    for a in hub.asked:
        asked[a.store].add(a.token)
    scheme = "token" if source == "AISTUDIO" else "Bearer"
    assert asked[False] == {f"{scheme} s3cret"}
    if source == "HUGGINGFACE":
        assert asked[True] == {None}  # the redirect to the store


def test_a_token_that_hugging_faces_client_keeps(hub, puller, model_files):
    hub.token = "kept"
    hub.publish("some/model", model_files)
    place = puller.home / ".cache" / "huggingface"
    place.mkdir(parents=True)
    (place / "token").write_text("kept\n")
    puller.pull()


@pytest.mark.parametrize("variable", ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "MODELSCOPE_OFFLINE", "AISTUDIO_OFFLINE"])
def test_offline(variable, hub, puller, model_files):
    hub.publish("some/model", model_files)
    assert variable in puller.pull(status=1, **{variable: "1"})
    assert "no model folder" in (error := puller.run("tokenize", "-m", "some/model", status=1, **{variable: "1"}))
    assert variable in error and hub.asked == []


def test_two_starts_fetch_once(hub, puller, model_files):
    hub.publish("some/model", model_files)
    shard = "model-00001-of-00002.safetensors"
    hub.faults.hold = {shard: 1000}
    first = puller.start("pull", "some/model")
    wait_for(lambda: hub.fetched(shard))
    second = puller.start("pull", "some/model")
    assert "another process fetches some/model" in second.stderr.readline()
    hub.faults.release.set()
    for process in (first, second):
        out, err = process.communicate(timeout=30)
        assert process.returncode == 0 and out == f"{puller.models / 'some' / 'model'}\n", err
    assert len([a for a in hub.fetched(shard) if a.store]) == 1


def test_a_proxy_of_the_environment_is_used(hub, puller, model_files):
    """The hub as the proxy: it is then asked with whole addresses, of a host that there is not."""
    hub.publish("some/model", model_files)
    puller.pull(HF_ENDPOINT="http://hub.invalid", http_proxy=hub.url)
    assert same_files(puller.models / "some" / "model", model_files)
    assert {urlsplit(a.path).netloc for a in hub.asked} == {"hub.invalid", urlsplit(hub.store).netloc}


def test_progress_in_lines_and_as_a_bar(hub, puller, model_files):
    hub.publish("some/model", model_files)
    process = puller.start("pull", "some/model")
    error = process.communicate(timeout=30)[1]
    assert "100 %" in error and "/s" in error and "\r" not in error
    hub.publish("some/model", {**model_files, "config.json": b'{"new": 1}'})
    master, slave = os.openpty()
    subprocess.run([TERN, "pull", "some/model"], env=puller.environment, stdout=subprocess.PIPE, stderr=slave, check=True)
    os.close(slave)
    shown = os.read(master, 65536).decode()
    os.close(master)
    assert "\r" in shown and "[####" in shown and "left" in shown


def test_digests_of_the_test_hub_are_gits():
    assert git_sha1(b"") == "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"
