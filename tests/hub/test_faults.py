"""What goes wrong between a hub and the disk: cuts, statuses, wrong bytes, lengths, kills, a full disk."""

import os
import signal

import pytest
from conftest import Puller, same_files
from hub_server import git_sha1, lfs_pointer, sha256
from tern_server import wait_for

SHARD = "model-00001-of-00002.safetensors"
SOURCES = ("HUGGINGFACE", "MODELSCOPE", "AISTUDIO")


@pytest.fixture
def published(hub, model_files):
    hub.publish("some/model", model_files)
    return model_files


def folder_of(puller):
    return puller.models / "some" / "model"


@pytest.mark.parametrize("source", SOURCES)
def test_cut_connections_go_on_where_they_were(source, hub, published, tmp_path):
    puller = Puller(hub, tmp_path, source)
    hub.faults.cut = {SHARD: [1, 100_000, 150_000], "config.json": [0, 5], "tokenizer.json": [4096]}
    puller.pull()
    assert same_files(folder_of(puller), published)
    assert [a.range for a in hub.fetched(SHARD) if a.store == (source == "HUGGINGFACE")] == [
        None, "bytes=1-", "bytes=100001-", "bytes=250001-",
    ]  # fmt: skip


def test_a_hub_without_ranges_begins_anew(hub, puller, published):
    hub.faults.cut, hub.faults.no_ranges = {SHARD: [200_000]}, True
    puller.pull()
    assert same_files(folder_of(puller), published)


def test_statuses_that_pass(hub, puller, published):
    hub.faults.status = {SHARD: [429, 503], "config.json": [500]}
    hub.faults.headers = {SHARD: {"Retry-After": "0"}}
    hub.faults.api = [502]
    puller.pull()
    assert same_files(folder_of(puller), published)


def test_statuses_that_do_not_pass(hub, puller, published):
    hub.faults.status = {SHARD: [404]}
    assert "HTTP status 404" in puller.pull(status=1)
    hub.faults.status, hub.faults.headers = {SHARD: [503] * 5}, {SHARD: {"Retry-After": "0"}}
    assert "HTTP status 503" in puller.pull(status=1)
    assert not (folder_of(puller) / SHARD).exists()
    # A folder that is not whole is no model: serving it goes on with the fetch, or says that it may not.
    assert "no such model under FD_MODEL_CACHE" in puller.run("inspect", "some/model", status=1, HF_HUB_OFFLINE="1")
    puller.pull()
    assert same_files(folder_of(puller), published)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("path", [SHARD, "config.json"])
def test_wrong_bytes_get_no_name(source, path, hub, published, tmp_path):
    puller = Puller(hub, tmp_path, source)
    hub.faults.swap = {path: published[path][:-1] + b"!"}
    error = puller.pull(status=1)
    assert "its digest is not the one that the hub tells" in error and path in error
    assert not (folder_of(puller) / path).exists()
    assert not any(p.stat().st_size == len(published[path]) for p in folder_of(puller).rglob("*.incomplete"))
    hub.faults.swap = {}
    puller.pull()
    assert same_files(folder_of(puller), published)


def test_lengths_that_lie(hub, puller, published):
    hub.faults.length = {SHARD: 299_999}
    assert "it has 299999 bytes, the hub's list says 300000" in puller.pull(status=1)
    hub.faults.length = {}
    hub.faults.swap = {SHARD: published[SHARD] + b"more"}
    assert "300004 bytes" in puller.pull(status=1)
    assert not (folder_of(puller) / SHARD).exists()


def test_a_hub_that_answers_with_another_commit(hub, puller, published):
    """config.json comes from the hub itself, with the commit in its headers."""
    hub.faults.commit = {"config.json": "0" * 40}
    assert "the hub answers with another commit" in puller.pull(status=1)
    assert not folder_of(puller).exists()


def test_a_hub_that_tells_no_digest(hub, puller, published):
    hub.faults.tag = {"config.json": "no digest"}
    assert "the hub tells no digest" in puller.pull(status=1)
    assert not folder_of(puller).exists()


@pytest.mark.parametrize("source", SOURCES)
def test_what_an_earlier_run_left_of_other_bytes(source, hub, published, tmp_path):
    """Of the right name but of wrong bytes, as a disk may leave it: fetched anew."""
    puller, body = Puller(hub, tmp_path, source), published[SHARD]
    digest = git_sha1(lfs_pointer(body)) if source == "AISTUDIO" else sha256(body)
    left = sha256(f"{SHARD}\n{digest}".encode())[:32]
    place = folder_of(puller) / ".tern-hub"
    place.mkdir(parents=True)
    (place / f"{left}.incomplete").write_bytes(b"?" * 1000)
    (place / f"{'0' * 32}.incomplete").write_bytes(b"of another commit")
    puller.pull()
    assert same_files(folder_of(puller), published)
    assert [a.range for a in hub.fetched(SHARD) if a.store == (source == "HUGGINGFACE")] == ["bytes=1000-", None]


def test_a_killed_run_is_continued(hub, puller, published):
    hub.faults.hold = {SHARD: 250_000}
    process = puller.start("pull", "some/model")
    place = folder_of(puller) / ".tern-hub"
    wait_for(lambda: any(p.stat().st_size == 250_000 for p in place.glob("*.incomplete")))
    process.send_signal(signal.SIGKILL)
    process.communicate()
    hub.faults.release.set()
    assert not (folder_of(puller) / SHARD).exists()
    hub.asked.clear()
    puller.pull()
    assert same_files(folder_of(puller), published)
    assert [a.range for a in hub.fetched(SHARD) if a.store] == ["bytes=250000-"]


def test_a_full_disk_is_told_and_what_came_stays(hub, puller):
    files = {"config.json": b"{}", "model.safetensors": os.urandom(300_000)}
    hub.publish("some/model", files)
    assert "File too large" in puller.pull(status=1, kib=100)
    assert any(p.stat().st_size == 102_400 for p in folder_of(puller).rglob("*.incomplete"))
    puller.pull()
    assert same_files(folder_of(puller), files)
    assert [a.range for a in hub.fetched("model.safetensors") if a.store] == [None, "bytes=102400-"]


@pytest.mark.parametrize("where", ["file:///etc/passwd", "ftp://127.0.0.1/x", "gopher://127.0.0.1/"])
def test_redirects_to_what_is_no_web_address(where, hub, puller, published):
    hub.faults.redirect = where
    assert "is not followed" in puller.pull(status=1)
    hub.faults.redirect = f"{hub.url}/some/model/resolve/main/{SHARD}"  # round and round
    assert "redirects too often" in puller.pull(status=1)


def test_room_is_looked_for_first(hub, puller, published):
    """A hub that claims a file of a petabyte: nothing is asked for."""
    hub.faults.length = {"config.json": 1 << 50}
    error = puller.pull(status=1)
    assert "needs" in error and "the disk has" in error
    assert not any(a.store for a in hub.asked) and os.listdir(folder_of(puller)) == [".tern-hub"]


def test_no_hub_there(puller):
    error = puller.pull(status=1, HF_ENDPOINT="http://127.0.0.1:9")
    assert "127.0.0.1" in error and error.count("\n") == 1
    assert "no address of a hub" in puller.pull(status=2, HF_ENDPOINT="ftp://x")
