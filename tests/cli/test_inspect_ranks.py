"""What each of several ranks takes: the published table of cards for ERNIE-4.5-VL-28B-A3B holds, with 32,768 tokens of
cache; numbers of ranks that cannot share the model are no row, and as a flag one line."""

import json
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TERN = os.environ.get("TERN", str(ROOT / "build" / "release" / "tern"))
GOLDEN = ROOT / "tests" / "data" / "golden"

# Cards by memory: wint4, wint8, bfloat16.
CARDS = {"24GB": (2, 2, 4), "48GB": (1, 1, 2), "144GB": (1, 1, 1), "80GB": (1, 1, 1)}


def tern(*args, status=0):
    done = subprocess.run([TERN, *map(str, args)], capture_output=True, text=True, timeout=120)
    assert done.returncode == status, done.stderr
    return done.stdout if status == 0 else done.stderr


@pytest.fixture
def vl_28b(tmp_path):
    """config.json of that model, as its port writes it; there are no weights."""
    config = json.loads((GOLDEN / "ernie4_5_vl_moe" / "config.json").read_text())
    config["text_config"].update(
        hidden_size=2560,
        intermediate_size=12288,
        max_position_embeddings=131072,
        mlp_layer_types=["dense"] + ["sparse"] * 27,
        moe_intermediate_size=[1536, 512],
        moe_k=6,
        moe_num_experts=64,
        num_attention_heads=20,
        num_hidden_layers=28,
        num_key_value_heads=4,
        vocab_size=103424,
    )
    config["vision_config"].update(depth=32, hidden_size=1280, intermediate_size=5120, num_heads=16)
    (tmp_path / "config.json").write_text(json.dumps(config))
    return tmp_path


@pytest.mark.parametrize("memory", CARDS)
def test_the_published_table_of_cards(vl_28b, memory):
    for quantization, cards in zip(("wint4", "wint8", None), CARDS[memory]):
        asked = ["--quantization", quantization] if quantization else []
        out = json.loads(tern("inspect", vl_28b, "--memory", memory, "--json", *asked))
        assert [r["count"] for r in out["ranks"]] == [1, 2, 4]
        precision = quantization or "bfloat16"
        fit = {r["count"]: r["cache_tokens_that_fit"][precision] for r in out["ranks"]}
        assert fit[cards] >= 32768, (memory, precision, fit)
        if cards > 1 and quantization is None:  # no number of cards too many
            assert fit[cards // 2] < 32768, (memory, fit)
        assert out["ranks"][0]["weight_bytes"] == out["weight_bytes"]
        assert out["ranks"][0]["cache_tokens_that_fit"] == out["cache_tokens_that_fit"]


def test_ranks_take_less_each(vl_28b):
    one, two, four = json.loads(tern("inspect", vl_28b, "--json"))["ranks"]
    for more, fewer in ((one, two), (two, four)):
        assert (
            more["weight_bytes"]["bfloat16"] * 0.49 < fewer["weight_bytes"]["bfloat16"] < more["weight_bytes"]["bfloat16"] * 0.56
        )
        assert fewer["cache_bytes_per_token"]["bfloat16"] * 2 == more["cache_bytes_per_token"]["bfloat16"]
    text = tern("inspect", vl_28b)
    assert "over 2 ranks, in " in text and "over 4 ranks, in " in text and "over 8 ranks" not in text


def test_the_dry_run_says_it_too(vl_28b):
    inspected = json.loads(tern("inspect", vl_28b, "--json"))
    dry = json.loads(tern("serve", "--model", vl_28b, "--tensor-parallel-size", 2, "--deploy-modality", "text", "--dry-run"))
    assert dry["ranks"] == {"count": 2, "expert_parallel": False, "forced": False, "optional": False}
    assert [r["count"] for r in dry["model"]["ranks"]] == [1, 2, 4]
    assert dry["model"]["ranks"][1]["kv_bytes_per_token"] == inspected["ranks"][1]["cache_bytes_per_token"]["bfloat16"]
    error = tern("serve", "--model", vl_28b, "--tensor-parallel-size", 8, "--deploy-modality", "text", "--dry-run", status=2)
    assert error.count("\n") == 1
    assert "8 ranks cannot share 20 heads and 4 KV heads evenly; these numbers of ranks can: 1, 2, 4" in error


def test_what_several_engines_take(vl_28b):
    two = json.loads(tern("inspect", vl_28b, "--data-parallel-size", 2, "--tensor-parallel-size", 2, "--json"))
    each = two["ranks"][0]["weight_bytes"]["bfloat16"]
    taken = two["data_parallel"]
    assert (taken["engines"], taken["cards"]) == (2, 4)
    assert taken["weight_bytes"]["cpu"]["bfloat16"] == 2 * each, "engines of a CPU read the same weights"
    assert taken["weight_bytes"]["cuda"]["bfloat16"] == 4 * each
    assert "data_parallel" not in json.loads(tern("inspect", vl_28b, "--json"))
    text = tern("inspect", vl_28b, "--data-parallel-size", 2)
    assert "engines          2, a cache each; on GPUs 2 cards" in text
    flags = ["--data-parallel-size", 2, "--deploy-modality", "text", "--dry-run"]
    dry = json.loads(tern("serve", "--model", vl_28b, *flags))
    assert dry["model"]["data_parallel"]["cards"] == 2
    assert dry["data_parallel"] == {"size": 2, "first": 0, "count": 2}
