"""Static exports that are not read: each ends in one line that says why and what to do; and no half folder is left."""

import json
import os
import resource
import shutil
import signal
import subprocess
import time

import pytest
import static_export as se
import static_tensors as st
from test_static import GOLDEN, TERN, tern

CASE = GOLDEN / "qwen2"


@pytest.fixture
def made(tmp_path):
    config = json.loads((CASE / "config.json").read_text())

    def make(ranks=1, program="pir", change=None, extra=None, **options):
        export = se.Export(config, st.read_safetensors(CASE / "model.safetensors"), ranks=ranks, **options)
        for parameters in export.out:
            if change is not None:
                change(parameters)
        return se.write_export(tmp_path / "static", export, program, extra)

    return make


def refusal(folder):
    lines = tern("convert-static", folder, folder.parent / "refused", code=1).strip().split("\n")
    return lines[0] if len(lines) == 1 else "\n".join(lines)


def renamed(old, new):
    def change(parameters):
        for name in [n for n in parameters if old in n]:
            parameters[name.replace(old, new)] = parameters.pop(name)

    return change


def added(name, kind="F32", shape=(4,)):
    def change(parameters):
        parameters[name] = (kind, list(shape), bytes(4 * (shape[0] if shape else 1)))

    return change


@pytest.mark.parametrize(
    "change,why",
    [
        (renamed("fuseqwen2.", "fusechatglm."), "static exports of the family chatglm are not read; those of llama, qwen2"),
        (renamed("fuseqwen2.1", "fusellama.1"), "two families, llama and qwen2"),
        (renamed("fuseqwen2.", "block."), "no parameters named fuse<family>"),
        (
            added("fuseqwen2.0.qkv_out_scale"),
            "needs products of int8 activations with calibrated scales (a8w8), which are not built",
        ),
        (added("fuseqwen2.0.linear_shift"), "needs shifted and smoothed activations"),
        (added("fuseqwen2.0.ffn_ln_bias"), "needs shifted activations"),
        (added("fuseqwen2.0.ffn1_0_weight"), "one scale per tensor"),
        (added("fuseqwen2.0.other"), "a parameter fuseqwen2.0.other, which is not known"),
        (added("fuseqwen2.2.ln_scale", shape=(128,)), "fuseqwen2.2.ln_scale is of a layer beyond the last"),
        (added("another_norm", "F32", (128,)), "several tensors that may be the last norm"),
        (lambda p: p.pop("embedding_0.w_0"), "no tensor for the embedding"),
        (lambda p: p.pop("linear_0.w_0"), "the output layer is not the embedding, and the export has no other"),
        (lambda p: p.pop("fuseqwen2.1.ffn2_weight"), "missing fuseqwen2.1.ffn2_weight (model.layers.1.mlp.down_proj.weight)"),
        (
            lambda p: p.update({"fuseqwen2.0.ffn2_weight": ("BF16", [64, 128], bytes(64 * 256))}),
            "has shape [64, 128] in each of 1 ranks",
        ),
        (lambda p: p.update({"fuseqwen2.0.ffn2_weight": ("I8", [128, 256], bytes(128 * 256))}), "holds I8 without scales"),
        (
            lambda p: p.update({"fuseqwen2.0.ffn2_weight": ("F8_E4M3", [128, 256], bytes(128 * 256))}),
            "holds F8_E4M3 without scales",
        ),
    ],
)
def test_exports_of_other_kinds_are_refused_by_name(made, change, why):
    line = refusal(made(change=change, extra={"_name_or_path": "Qwen/Qwen2-1.5B-Instruct"}))
    assert why in line
    if "read;" in line or "not built" in line:
        assert line.endswith("take the original checkpoint (safetensors), Qwen/Qwen2-1.5B-Instruct")


def test_files_that_do_not_fit_each_other(made):
    folder = made(ranks=2)
    rank = folder / "rank_1"
    whole = (rank / "model.pdiparams").read_bytes()
    (rank / "model.pdiparams").write_bytes(whole[:-1])
    assert "rank_1/model.pdiparams: tensor" in refusal(folder) and "truncated" in refusal(folder)
    shutil.copy(folder / "rank_0" / "model.pdiparams", rank)
    program = json.loads((rank / "model.json").read_text())
    program["program"]["regions"][0]["blocks"][0]["ops"].pop(0)
    (rank / "model.json").write_text(json.dumps(program))
    assert "holds 17 tensors, but its program has 16 parameters" in refusal(folder)
    program["base_code"]["magic"] = "onnx"
    (rank / "model.json").write_text(json.dumps(program))
    assert 'rank_1/model.json: base_code.magic is "onnx", not "pir"' in refusal(folder)
    (rank / "model.json").unlink()
    assert "neither model.json nor model.pdmodel" in refusal(folder)
    (rank / "model.pdmodel").write_bytes(b"\xff\xff\xff")
    assert "rank_1/model.pdmodel: the program is cut off, or no ProgramDesc" in refusal(folder)
    shutil.rmtree(rank)
    assert "config.json says that there are 2 ranks, and 1 is there" in refusal(folder)
    shutil.move(folder / "rank_0", rank)
    assert "rank_0/model.pdiparams is not there, and all ranks are needed" in refusal(folder)


def test_codes_need_their_architecture(made):
    folder = made(quant="weight_only_int8", change=None)
    text = (folder / "rank_0" / "model.json").read_text()
    (folder / "rank_0" / "model.json").write_text(text.replace("weight_only_linear", "custom_linear"))
    assert "no weight_only_linear says for which architecture" in refusal(folder)


def test_the_root_is_a_rank_where_there_is_no_other_and_safetensors_win(made, tmp_path):
    folder = made(program="desc")
    for file in (folder / "rank_0").iterdir():
        shutil.move(file, folder)
    (folder / "rank_0").rmdir()
    tern("inspect", folder)
    shutil.copy(CASE / "model.safetensors", folder)
    (folder / "model.pdiparams").write_bytes(b"no longer read")
    tern("inspect", folder)
    assert "there are safetensors" in tern("convert-static", folder, tmp_path / "out", code=2)


def test_float16_and_a_quantized_cache_are_said(made):
    def change(parameters):
        parameters["fuseqwen2.0.cache_k_scale"] = ("F32", [1], bytes(4))

    folder = made(dtype="F16", change=change)
    notes = json.loads(tern("inspect", folder, "--json"))["notes"]
    assert any("float16 and are rounded to bfloat16" in n for n in notes) and any("quantized cache" in n for n in notes)


def test_no_half_folder_is_left(made, tmp_path):
    folder, out = made(), tmp_path / "out"
    limit = 200_000
    done = subprocess.run(
        [TERN, "convert-static", folder, out],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    assert done.returncode == 1 and "cannot write" in done.stderr and "File too large" in done.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == ["static"]
    out.mkdir()
    (out / "mine").write_text("")
    assert "is there already and not an empty folder" in tern("convert-static", folder, out, code=2)
    shutil.rmtree(out)
    # Killed at any moment: the folder is whole, or not there.
    for wait in (0.0, 0.005, 0.01, 0.02):
        process = subprocess.Popen([TERN, "convert-static", folder, out], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(wait)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        if out.exists():
            assert (out / "model.safetensors").exists() and (out / "config.json").exists()
            shutil.rmtree(out)
