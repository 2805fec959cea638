"""`tern models` and `tern rm`."""

import json

import pytest
from conftest import Puller


@pytest.fixture
def filled(hub, model_files, tmp_path):
    """A model fetched, one put there by hand, one in each cache of others, one half fetched, and what is no model."""
    puller = Puller(hub, tmp_path)
    hub.publish("some/model", model_files)
    puller.pull()
    cache = tmp_path / "hf" / "models--their--model" / "snapshots" / ("a" * 40)
    for folder in (puller.models / "by" / "hand", cache, tmp_path / "ms" / "models" / "their--other" / "snapshots" / "master"):
        folder.mkdir(parents=True)
        (folder / "config.json").write_text("{}")
        (folder / "model.safetensors").write_bytes(b"x" * 100)
    hub.publish("half/model", model_files)
    hub.faults.status = {"tokenizer.json": [404]}
    puller.pull("half/model", status=1)
    (puller.models / "no" / "model").mkdir(parents=True)
    puller.environment |= {"HF_HUB_CACHE": str(tmp_path / "hf"), "MODELSCOPE_CACHE": str(tmp_path / "ms")}
    return puller


def names(puller):
    return {m["name"]: m for m in json.loads(puller.run("models", "--json"))}


def test_what_is_here(filled, model_files):
    listed = names(filled)
    assert list(listed) == ["by/hand", "half/model", "some/model", "their/model", "their/other"]
    assert listed["some/model"]["where"] == "HUGGINGFACE" and listed["some/model"]["revision"] == "main"
    assert listed["some/model"]["bytes"] >= sum(map(len, model_files.values()))
    assert listed["half/model"]["state"] == "unfinished" and listed["some/model"]["state"] == "whole"
    assert listed["by/hand"]["where"] == "folder" and listed["by/hand"]["bytes"] == 102
    assert "cache" in listed["their/model"]["where"] and listed["their/other"]["revision"] == "master"
    table = filled.run("models").splitlines()
    assert table[0].split() == ["MODEL", "WHERE", "REVISION", "SIZE", "FOLDER"] and len(table) == 6


def test_what_may_be_removed(filled):
    own = filled.models / "some" / "model" / "notes.txt"
    own.write_text("mine")
    out = filled.run("rm", "some/model", "half/model")
    assert "some/model: 5" in out and "removed" in out
    assert [p.name for p in own.parent.iterdir()] == ["notes.txt"]  # of somebody else
    assert not (filled.models / "half").exists()
    assert set(names(filled)) == {"by/hand", "their/model", "their/other"}
    for name in ("by/hand", "their/model", "their/other"):
        assert "was not fetched by tern" in filled.run("rm", name, status=2)
    for name in ("no/model", "../x", "/etc"):
        assert "there is no model" in filled.run("rm", "--", name, status=1)
    assert set(names(filled)) == {"by/hand", "their/model", "their/other"}


def test_the_other_spelling_of_baidu(hub, model_files, tmp_path):
    puller = Puller(hub, tmp_path)
    hub.publish("baidu/m", model_files)
    puller.pull("PaddlePaddle/m")
    puller.run("rm", "PaddlePaddle/m")
    assert names(puller) == {}
