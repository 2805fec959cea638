"""Static exports: what they hold is what the checkpoint they were made from holds, bit by bit, whatever the ranks, the program's
form and the layout of codes; and a server runs them."""

import json
import os
import shutil
import struct
import subprocess

import pytest
import static_export as se
import static_tensors as st
from tern_server import MODEL, ROOT, TERN

DATA = ROOT / "tests" / "data"
GOLDEN = DATA / "golden"


def tern(*arguments, code=0):
    env = os.environ | {"FD_LOG_DIR": "/nonexistent"}
    done = subprocess.run([TERN, *map(str, arguments)], capture_output=True, text=True, timeout=300, env=env, check=False)
    assert done.returncode == code, done.stderr + done.stdout
    return done.stderr if code else done.stdout


def convert(folder, out):
    tern("convert-static", folder, out, "--quiet")
    return st.read_safetensors(out / "model.safetensors")


def verify_converted(case, out):
    shutil.copy(case / "golden.safetensors", out)
    tern("verify", out)


def unpacked(words, bits, n, k):
    """Codes [n][k] of weight_packed."""
    per, out = 32 // bits, []
    values = struct.unpack(f"<{len(words) // 4}I", words)
    for r in range(n):
        row = values[r * (k // per) : (r + 1) * (k // per)]
        out.append([(w >> bits * i & (1 << bits) - 1) - (1 << bits - 1) for w in row for i in range(per)])
    return out


@pytest.mark.parametrize("program", ["pir", "desc"])
@pytest.mark.parametrize(
    "case,ranks", [("qwen2", 1), ("llama3", 2), ("llama_tied", 2), ("mixtral", 2), ("deepseek_v3", 1), ("deepseek_v3", 2)]
)
def test_values_are_those_of_the_checkpoint(tmp_path, case, ranks, program):
    folder = se.export_of(GOLDEN / case, tmp_path / "static", program, ranks=ranks)
    tern("verify", folder)
    kept, want = convert(folder, tmp_path / "out"), st.read_safetensors(GOLDEN / case / "model.safetensors")
    # Routers are float32 in exports, and layers that only a draft model has are not exported.
    layers = json.loads((folder / "config.json").read_text())["num_hidden_layers"]
    want = {name: t for name, t in want.items() if f"layers.{layers}." not in name}
    assert sorted(kept) == sorted(want)
    for name, tensor in want.items():
        assert kept[name] == st.converted(tensor, kept[name][0]), name
        assert kept[name][0] == tensor[0] or ".gate." in name


@pytest.mark.parametrize("name", ["bfloat16", "weight_only_int8", "weight_only_int4"])
def test_exports_that_paddle_wrote(tmp_path, name):
    """tests/data/static, made by tools/golden/make_static.py with Paddle itself."""
    source = DATA / (DATA / "static" / name / "case.txt").read_text().strip()
    folder = tmp_path / name
    shutil.copytree(DATA / "static" / name, folder)
    for file in ("golden.json", "golden.safetensors"):
        shutil.copy(source / file, folder)
    tern("verify", folder)
    kept, want = convert(folder, tmp_path / "out"), st.read_safetensors(source / "model.safetensors")
    kind = "F16" if name == "weight_only_int4" else "BF16"
    for module in {n.removesuffix(".weight") for n in want if n.endswith(".weight")}:
        tensor = st.converted(want[module + ".weight"], kind)
        if module + ".weight" in kept:
            assert kept[module + ".weight"] == tensor
            continue
        bits, (n, k) = int(name[-1]), tensor[1]
        codes, scales = st.quantized(tensor, bits)
        assert unpacked(kept[module + ".weight_packed"][2], bits, n, k) == codes
        assert st.floats(kept[module + ".weight_scale"]) == scales[0]
    verify_converted(source, tmp_path / "out")


@pytest.mark.parametrize("case", ["llama3", "mixtral"])
@pytest.mark.parametrize(
    "quant,arch,group,ranks", [("int8", 80, 0, 1), ("int8", 70, 64, 2), ("int4", 90, 0, 2), ("int4", 70, 0, 1)]
)
def test_weight_only_codes_are_taken_as_they_are(tmp_path, case, quant, arch, group, ranks):
    if case == "mixtral" and ranks == 2:
        ranks = 1  # its experts are too narrow for codes of two ranks
    group = 0 if case == "mixtral" else group
    options = {"quant": "weight_only_" + quant, "arch": arch, "group": group, "ranks": ranks}
    folder = se.export_of(GOLDEN / case, tmp_path / "static", "desc", **options)
    tern("verify", folder)
    summary = json.loads(tern("inspect", folder, "--json"))
    width = "" if ranks == 1 or case == "mixtral" else "-64"
    assert f"wint{quant[-1]}" in summary["formats"] and (not width or f"wint{quant[-1]}{width}" in summary["formats"])
    kept, want = convert(folder, tmp_path / "out"), st.read_safetensors(GOLDEN / case / "model.safetensors")
    bits = int(quant[-1])
    for name in sorted(n for n in kept if n.endswith(".weight_packed")):
        module = name.removesuffix(".weight_packed")
        tensor = want[module + ".weight"]
        n, k = tensor[1]
        parts = ranks if module.endswith(("o_proj", "down_proj")) else 1
        codes, scales = [[] for _ in range(n)], [[] for _ in range(n)]
        for part in range(parts):  # each rank's columns were quantized on their own
            own = st.columns_of(tensor, part * k // parts, (part + 1) * k // parts)
            part_codes, part_scales = st.quantized(own, bits, group)
            for r in range(n):
                codes[r] += part_codes[r]
                scales[r] += [s[r] for s in part_scales]
        assert unpacked(kept[name][2], bits, n, k) == codes, name
        got = st.floats(kept[module + ".weight_scale"])
        repeat = len(got) // n // len(scales[0])
        assert got == [s for row in scales for s in row for _ in range(repeat)], name
    verify_converted(GOLDEN / case, tmp_path / "out")


@pytest.mark.parametrize("quant", ["a8w8_fp8", "a8w8_fp8_wint4"])
def test_float8_exports(tmp_path, quant):
    tern("export", GOLDEN / "deepseek_v3", tmp_path / "fp8", "--quantization", "block_wise_fp8", "--quiet")
    stored = st.read_safetensors(tmp_path / "fp8" / "model.safetensors")
    values = st.read_safetensors(GOLDEN / "deepseek_v3" / "model.safetensors")
    config = json.loads((GOLDEN / "deepseek_v3" / "config.json").read_text())
    folder = se.write_export(tmp_path / "static", se.Export(config, stored, quant=quant, values=values))
    for file in ("golden.json", "golden.safetensors"):
        shutil.copy(GOLDEN / "deepseek_v3" / file, folder)
    tern("verify", folder)
    summary = json.loads(tern("inspect", folder, "--json"))
    assert "block_wise_fp8" in summary["formats"] and ("wint4" in summary["formats"]) == (quant != "a8w8_fp8")
    assert any("activations in 8 bits" in n for n in summary["notes"])
    kept = convert(folder, tmp_path / "out")
    for name in sorted(n for n in stored if n in kept):
        if ".gate." not in name:
            assert kept[name] == stored[name], name
    config = json.loads((tmp_path / "out" / "config.json").read_text())["quantization_config"]
    assert config["quant_method"] == ("fp8" if quant == "a8w8_fp8" else "compressed-tensors")
    verify_converted(GOLDEN / "deepseek_v3", tmp_path / "out")


def text_model(tmp_path, **config):
    """The text decoder of the shipped model as a Llama checkpoint, and its tokenizer's files."""
    folder = tmp_path / "llama"
    folder.mkdir()
    keep = json.loads((MODEL / "config.json").read_text())
    for key in ("vision_config", "rope_scaling", "model_type", "text_config"):
        keep.pop(key, None)
    (folder / "config.json").write_text(json.dumps({**keep, "architectures": ["LlamaForCausalLM"], **config}))
    for file in MODEL.iterdir():
        if "safetensors" not in file.name and file.name not in ("config.json", "preprocessor_config.json"):
            (folder / file.name).symlink_to(file)
    tensors = {n: t for file in MODEL.glob("*.safetensors") for n, t in st.read_safetensors(file).items()}
    return folder, {n: t for n, t in tensors.items() if n.startswith(("model.", "lm_head."))}


def test_a_server_runs_an_export_of_two_ranks(start, tmp_path):
    folder, tensors = text_model(tmp_path, architectures=["LlamaForCausalLMBlockInferenceModel"])
    config = json.loads((folder / "config.json").read_text()) | {"architectures": ["LlamaForCausalLM"]}
    (folder / "config.json").unlink()
    extra = {"architectures": ["LlamaForCausalLMBlockInferenceModel"], "infer_model_max_seq_len": 512}
    se.write_export(folder, se.Export(config, tensors, ranks=2), extra=extra)
    answers = []
    for model in (folder, MODEL):
        server = start(model=model, MP_NUM="2" if model is folder else "1")
        server.wait_ready()
        status, answer = server.post({"text": "Hello", "max_dec_len": 16, "temperature": 0})
        assert status == 200 and answer["error_code"] == 0
        answers.append(answer["tokens_all"])
    assert answers[0] == answers[1]
