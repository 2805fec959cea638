"""What the program says about weights: an output layer that config.json and the files disagree about."""

import json
import os
import pathlib
import resource
import shutil
import struct
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TERN = os.environ.get("TERN", str(ROOT / "build" / "release" / "tern"))
GOLDEN = ROOT / "tests" / "data" / "golden"


def tern(*arguments):
    done = subprocess.run(
        [TERN, *map(str, arguments)], capture_output=True, text=True, timeout=60, env=os.environ | {"FD_LOG_DIR": "/nonexistent"}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name,tied", [("llama3", False), ("llama_tied", True)])
def test_inspect_and_dry_run_say_which_output_layer_is_used(tmp_path, name, tied):
    folder = tmp_path / name
    shutil.copytree(GOLDEN / name, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": True}))
    inspected = json.loads(tern("inspect", folder, "--json"))
    dry = json.loads(tern("serve", "--model", folder, "--dry-run"))
    assert inspected["tied_embeddings"] is dry["model"]["tied_embeddings"] is tied
    notes = [w for w in dry["warnings"] if "tie_word_embeddings" in w]
    assert inspected["notes"] == notes and len(notes) == (0 if tied else 1)
    assert ("note " in tern("inspect", folder)) is not tied
    # The config that says what is so: no line.
    (folder / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": tied}))
    assert json.loads(tern("inspect", folder, "--json"))["notes"] == []


SHAPES = ROOT / "bench" / "shapes"


# 300B on cards of 80 GB, as FastDeploy's page has it; and what is said is what one device takes alone, in N parts.
@pytest.mark.parametrize("method,cards,gigabytes", [("wint4", 4, 39), ("wint8", 8, 38), ("block_wise_fp8", 8, 38)])
def test_inspect_says_what_each_of_several_cards_holds(method, cards, gigabytes):
    asked = ["inspect", SHAPES / "ernie-4.5-300b-a47b", "--quantization", method, "--memory", "80GB"]
    (each,) = json.loads(tern(*asked, "--tensor-parallel-size", cards, "--json"))["ranks"]
    alone = json.loads(tern(*asked, "--json"))
    assert each in alone["ranks"] and alone["ranks"][0]["count"] == 1 and each["count"] == cards
    # block_wise_fp8 keeps a scale per row and 128 columns in memory: 39.1 GB.
    assert abs(each["weight_bytes"][method] / 1e9 - gigabytes) < 1.2
    assert 1 <= each["weight_bytes"][method] * cards / alone["weight_bytes"][method] < 1.01
    assert each["cache_bytes_per_token"]["bfloat16"] * cards == alone["cache_bytes_per_token"]["bfloat16"]
    assert each["cache_tokens_that_fit"][method] > 131072 and alone["cache_tokens_that_fit"][method] == 0
    assert f"over {cards} ranks, in 80.00 GB of memory each" in tern(*asked, "--tensor-parallel-size", cards)


# A card of 24 GB of which nine tenths are used; and one of 8 GB.
@pytest.mark.parametrize(
    "shape,method,memory,weights,tokens",
    [("ernie-4.5-vl-28b-a3b", "wint4", "24GB", 17e9, 32768), ("paddleocr-vl-0.9b", "none", "8GB", 2e9, 131072)],
)
def test_picture_models_leave_room_for_their_cache(shape, method, memory, weights, tokens):
    said = json.loads(tern("inspect", SHAPES / shape, "--quantization", method, "--memory", memory, "--json"))
    name = "bfloat16" if method == "none" else method
    assert said["vision_parameters"] > 4e8
    assert weights * 0.9 < said["weight_bytes"][name] < weights
    assert said["cache_tokens_that_fit"][name] >= tokens


def tensors_of(path):
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    base = 8 + length
    return {
        name: (t["dtype"], t["shape"], data[base + t["data_offsets"][0] : base + t["data_offsets"][1]])
        for name, t in header.items()
    }


def as_float32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def bf16_values(data):
    return [struct.unpack("<f", b"\0\0" + data[i : i + 2])[0] for i in range(0, len(data), 2)]


def e4m3(code):
    exponent, mantissa = code >> 3 & 15, code & 7
    value = mantissa * 2.0**-9 if exponent == 0 else (8 + mantissa) * 2.0 ** (exponent - 10)
    return -value if code & 128 else value


# By the formats' own definitions, not by this program's reader.
def test_an_export_holds_the_codes_of_its_format(tmp_path):
    name = "model.layers.1.mlp.down_proj"
    _, (rows, cols), data = tensors_of(GOLDEN / "llama3" / "model.safetensors")[name + ".weight"]
    values = bf16_values(data)
    tern("export", GOLDEN / "llama3", tmp_path / "int", "--quantization", '{"quantization":"wint4","group_size":64}')
    exported = tensors_of(tmp_path / "int" / "model.safetensors")
    kind, shape, packed = exported[name + ".weight_packed"]
    assert (kind, shape) == ("I32", [rows, cols // 8])
    assert struct.unpack("<2q", exported[name + ".weight_shape"][2]) == (rows, cols)
    scales = struct.unpack(f"<{rows * cols // 64}f", exported[name + ".weight_scale"][2])
    for row in range(0, rows, 17):
        for col in range(cols):
            group = values[row * cols + col // 64 * 64 :][:64]
            scale = scales[row * (cols // 64) + col // 64]
            assert scale == as_float32(max(map(abs, group)) / 7)
            word = struct.unpack_from("<I", packed, (row * (cols // 8) + col // 8) * 4)[0]
            code = (word >> 4 * (col % 8) & 15) - 8
            assert code == round(as_float32(values[row * cols + col] / scale))
    tern("export", GOLDEN / "llama3", tmp_path / "fp8", "--quantization", "block_wise_fp8", "--quiet")
    exported = tensors_of(tmp_path / "fp8" / "model.safetensors")
    kind, shape, codes = exported[name + ".weight"]
    assert (kind, shape) == ("F8_E4M3", [rows, cols])
    scales = struct.unpack(f"<{-(-rows // 128) * -(-cols // 128)}f", exported[name + ".weight_scale_inv"][2])
    steps = sorted(e4m3(c) for c in range(256) if c & 127 != 127)
    for row in range(0, rows, 31):
        for col in range(cols):
            scale = scales[row // 128 * -(-cols // 128) + col // 128]
            value = as_float32(values[row * cols + col] / scale)
            assert abs(e4m3(codes[row * cols + col]) - value) == min(abs(s - value) for s in steps)


@pytest.mark.parametrize("name,method", [("llama3", "wint8"), ("qwen3_moe", "wint4"), ("deepseek_v3", "block_wise_fp8")])
def test_an_exported_folder_is_verified_like_any_other(tmp_path, name, method):
    out = tmp_path / "out"
    tern("export", GOLDEN / name, out, "--quantization", method)
    # All but files of tensors is taken over; what the case compares with is not the model's.
    assert {p.name for p in (GOLDEN / name).iterdir()} == {p.name for p in out.iterdir()} | {"golden.safetensors"}
    shutil.copy(GOLDEN / name / "golden.safetensors", out)
    said = tern("verify", out)
    assert "FAIL" not in said and "ok" in said.lower(), said
    inspected = json.loads(tern("inspect", out, "--json"))
    made = json.loads(tern("inspect", GOLDEN / name, "--quantization", method, "--json"))
    assert inspected["formats"] == made["formats"]
    dry = json.loads(tern("serve", "--model", out, "--dry-run", "--quantization", "wint8", "--device", "cpu"))
    assert any("--quantization wint8 is not used: config.json says" in w for w in dry["warnings"])


def test_a_full_disk_leaves_nothing_of_an_export(tmp_path):
    source = tmp_path / "source"
    shutil.copytree(GOLDEN / "llama3", source)
    process = subprocess.Popen(
        [TERN, "export", source, tmp_path / "out", "--quantization", "wint8"],
        stderr=subprocess.PIPE,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000)),
        env=os.environ | {"FD_LOG_DIR": "/nonexistent"},
    )
    _, err = process.communicate(timeout=60)
    assert process.returncode > 0 and b"cannot write" in err, err
    assert [p.name for p in tmp_path.iterdir()] == ["source"]


CACHE = '{"quantization":"kvcache","kv_cache_quant_type":"%s"}'


def scale_name(layer, which):
    return f"ernie.layers.{layer}.self_attn.cache{which}_matmul.activation_scale"


@pytest.mark.parametrize("kind", ["int8", "float8_e4m3fn", "block_wise_fp8"])
def test_inspect_and_dry_run_say_what_the_cache_holds(kind):
    model = ROOT / "models" / "tern-demo-ocr"
    wide = json.loads(tern("inspect", model, "--json"))
    made = json.loads(tern("inspect", model, "--quantization", CACHE % kind, "--json"))
    dry = json.loads(tern("serve", "--model", model, "--dry-run", "--quantization", CACHE % kind, "--device", "cpu"))
    assert made["cache_format"] == dry["model"]["kv_cache_format"] == f"{kind}, a scale per token and head"
    (per_token,) = made["cache_bytes_per_token"].values()
    assert per_token == dry["model"]["kv_bytes_per_token"]
    assert wide["cache_bytes_per_token"]["bfloat16"] > 1.8 * per_token
    assert made["cache_tokens_that_fit"]["bfloat16"] > 1.8 * wide["cache_tokens_that_fit"]["bfloat16"]
    assert "kv_cache_format" in json.dumps(dry) and wide["cache_format"] == "bfloat16"


def copy_with_scales(folder, scales):
    shutil.copytree(GOLDEN / "qwen3", folder)
    text = scales if isinstance(scales, str) else json.dumps(scales)
    (folder / "kv_cache_scale.json").write_text(text)
    return json.loads((folder / "config.json").read_text())


def refused(*arguments):
    done = subprocess.run([TERN, *map(str, arguments)], capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and done.stderr.count("\n") == 1, done.stderr
    return done.stderr


def test_scales_of_the_cache_come_from_the_folder_or_end_the_start(tmp_path):
    config = json.loads((GOLDEN / "qwen3" / "config.json").read_text())
    layers, heads = config["num_hidden_layers"], config["num_key_value_heads"]
    dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    full = {scale_name(layer, w): [0.01] * heads for layer in range(layers) for w in "kv"}
    copy_with_scales(tmp_path / "good", full)
    ask = lambda folder, kind="int8": ("inspect", folder, "--json", "--quantization", CACHE % kind)
    said = json.loads(tern(*ask(tmp_path / "good")))["cache_format"]
    assert said == "int8, scales per head from kv_cache_scale.json"
    said = json.loads(tern(*ask(tmp_path / "good", "block_wise_fp8")))["cache_format"]
    assert said == "block_wise_fp8, a scale per token and head"
    copy_with_scales(tmp_path / "channels", {k: [0.01] * (heads * dim) for k in full})
    said = json.loads(tern(*ask(tmp_path / "channels", "float8_e4m3fn")))["cache_format"]
    assert said == "float8_e4m3fn, scales per channel from kv_cache_scale.json"
    first = scale_name(0, "k")
    wrong = {
        "missing": ({k: v for k, v in full.items() if k != first}, "cachek_matmul.activation_scale is missing"),
        "doubled": (json.dumps(full)[:-1] + f', "{first}": {json.dumps(full[first])}}}', "a name is there twice"),
        "misshapen": (full | {first: [0.01] * (heads + 1)}, f"has {heads + 1} values, not {heads} (one per head)"),
        "zero": (full | {first: [0.0] * heads}, "holds 0, which is no scale"),
        "infinite": (full | {first: [1e39] * heads}, "which is no scale"),
        "unknown": (full | {"other": [1.0]}, "other is no scale of a layer of this model"),
        "text": ("{", "kv_cache_scale.json"),
    }
    for name, (scales, message) in wrong.items():
        copy_with_scales(tmp_path / name, scales)
        assert message in refused(*ask(tmp_path / name)), name


def test_types_of_the_cache_that_are_not_built_are_refused():
    ask = lambda model, kind: refused("inspect", model, "--quantization", CACHE % kind)
    assert "kv_cache_quant_type int4_zp is not built; int8, float8_e4m3fn and block_wise_fp8 are" in ask(
        GOLDEN / "qwen3", "int4_zp"
    )
    assert "latent attention (MLA) keeps the activation type" in ask(GOLDEN / "deepseek_v3", "int8")


def test_verify_knows_a_quantized_cache():
    for kind in ("int8", "float8_e4m3fn"):
        for dtype in ("float32", "bfloat16"):
            out = tern("verify", GOLDEN / "qwen3", "--dtype", dtype, "--quantization", CACHE % kind)
            assert "failed" not in out.splitlines()[-1] or " 0 failed" in out.splitlines()[-1], out
