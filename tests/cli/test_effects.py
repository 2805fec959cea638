"""What docs/flags.md calls acting acts: code outside the table reads it, and a start with another value comes to other
settings, as --dry-run shows them. Every row is tried; TERN names the program (default build/release/tern)."""

import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest
from certificates import Authority

ROOT = pathlib.Path(__file__).resolve().parents[2]
TERN = os.environ.get("TERN", str(ROOT / "build" / "release" / "tern"))
MODEL = ROOT / "models" / "tern-demo-ocr"  # it reads pictures, so that the flags for them act
TABLES = re.compile(r"flags_.*\.cc|variables.*\.cc")

LEGACY = {"ENABLE_V1_KVCACHE_SCHEDULER": "0"}
# Keys of --dry-run that repeat what was given, whether it acts or not.
ECHOES = ("flags", "sources", "environment", "warnings", "inert")


class Row:
    def __init__(self, cells):
        name, self.value, self.default, _, self.status = cells
        self.name = re.match(r"`([^`]+)`", name)[1]
        self.flag = self.name.startswith("--")


def rows():
    for line in (ROOT / "docs" / "flags.md").read_text().splitlines():
        cells = [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) == 5 and cells[0].startswith("`"):
            yield Row(cells)


ACTING = [row for row in rows() if row.status.startswith("acts")]


# How a row is tried where "the default, changed" (see another()) is not enough: its other value, what is given in both
# starts besides, and files it needs. A value may be a function of a folder.
def copied_model(folder, name="other"):
    place = folder / name
    shutil.copytree(MODEL, place, dirs_exist_ok=True)
    return place


def written(name, text=""):
    def write(folder):
        (folder / name).write_text(text)
        return folder / name

    return write


def folder_named(name):
    def make(folder):
        (folder / name).mkdir(exist_ok=True)
        return folder / name

    return make


def python_home(folder):
    (folder / "python" / "lib" / "python3.11" / "site-packages").mkdir(parents=True, exist_ok=True)
    return folder / "python"


def hub(folder):
    copied_model(folder / "hub" / "baidu", "m")
    return folder / "hub"


def renamed_config(folder):
    place = copied_model(folder)
    (place / "other.json").write_text((place / "config.json").read_text())
    return ["--model", place]


def certificates(folder):
    """Of a server, with its key; made once."""
    place = folder / "certificates"
    if not place.exists():
        Authority(place).sign("server")
        shutil.copy(place / "ca.pem", place / "other.pem")
    return place


def asks_clients(folder):
    place = certificates(folder)
    return ["--ssl-certfile", place / "server.both.pem", "--ssl-ca-certs", place / "ca.pem", "--ssl-cert-reqs", "1"]


HUB_MODEL = ["--model", "baidu/m"]  # where it is not here, --dry-run tells from where it would be fetched


def of_hub(name):
    return HUB_MODEL, {"FD_MODEL_SOURCE": name}


SAMPLES = {
    # flag or variable: (other value, arguments in both starts, variables in both starts)
    "--host": ("127.0.0.1",),
    "--uds": ("tern.socket",),
    "--api-key": ("k",),
    "--admin-api-key": ("k",),
    "--load-strategy": ("meta",),
    "--weights-root": (folder_named("weights"),),
    "--api-key-file": (written("keys", "k\n"),),
    "--ssl-certfile": (lambda folder: certificates(folder) / "server.both.pem",),
    "--ssl-keyfile": (
        lambda folder: certificates(folder) / "server.key",
        lambda folder: ["--ssl-certfile", certificates(folder) / "server.both.pem"],
    ),
    "--ssl-ca-certs": (lambda folder: certificates(folder) / "other.pem", asks_clients),
    "--ssl-cert-reqs": ("2", asks_clients),
    "--model": (copied_model,),
    "--served-model-name": ("m",),
    "--model-config-name": ("other.json", renamed_config),
    "--tokenizer": (copied_model,),
    "--max-model-len": ("100",),
    "--task": ("embed",),
    "--runner": ("pooling",),
    "--convert": ("embed",),
    "--override-pooler-config": ('{"normalize": false}', ["--convert", "embed"]),
    "--chat-template": ("{{ messages }}",),
    "--limit-mm-per-prompt": ('{"image": 3}',),
    "--mm-processor-kwargs": ('{"max_pixels": 50176}',),
    "--graph-optimization-config": ('{"cudagraph_capture_sizes": [3]}',),
    "--guided-decoding-backend": ("off",),
    "--logits-processors": ("LogitBiasLogitsProcessor",),
    "FD_LIMIT_THINKING_CONTENT_TRUNCATE_STR": ("\n</think>\n",),
    "--logprobs-mode": ("raw_logits",),
    "--max-logprobs": ("5",),
    "--early-stop-config": ('{"window_size": 7}',),
    "--max-num-batched-tokens": ("512",),
    "--load-choices": ("dummy",),
    "--kv-cache-ratio": ("0.5", [], LEGACY),
    "--static-decode-blocks": ("5", [], LEGACY),
    "--max-num-partial-prefills": ("3", [], LEGACY),
    "--max-long-partial-prefills": ("2", ["--max-num-partial-prefills", "3"], LEGACY),
    "--long-prefill-token-threshold": ("99", [], LEGACY),
    "--enable-chunked-prefill": ("false",),
    "--allowed-origins": ('["https://a.example"]',),
    "--allow-credentials": ("true", ["--allowed-origins", '["https://a.example"]']),
    "--allowed-methods": ('["GET"]', ["--allowed-origins", '["*"]']),
    "--allowed-headers": ('["X-Thing"]', ["--allowed-origins", '["*"]']),
    "--config": (written("c.yaml", "max_num_seqs: 3\n"),),
    "--device": ("cpu",),
    "--model-override": ('{"num_hidden_layers": 2}',),
    "--quantization": ('{"quantization": "wint4", "group_size": 64}',),
    "--trace": ("t.json",),
    "--data-parallel-size": ("2",),
    "--local-data-parallel-id": ("1", ["--data-parallel-size", "2"]),
    "FD_ENABLE_MULTI_API_SERVER": ("1", ["--data-parallel-size", "2"]),
    "--scripted": ("answers.jsonl",),
    "--reasoning-parser": ("qwen3",),
    "--tool-call-parser": ("hermes",),
    "--max-body-bytes": ("4096",),
    "--max-grpc-message-bytes": ("4096",),
    "--block-size": ("32",),
    "--num-gpu-blocks-override": ("500",),
    "--trusted-proxies": ("10.0.0.0/8",),
    "--max-request-memory": ("2147483648",),
    "--allowed-local-media-path": (folder_named("pictures"),),
    "--allowed-media-domains": ("example.org",),
    "--media-ca-file": (written("ca.pem"),),
    "--video-decoder": (written("decoder"),),
    "--video-font": (written("font.ttf"),),
    "FD_LOG_DIR": ("elsewhere",),
    "FD_LOG_LEVEL": ("ERROR",),
    "TRACES_EXPORTER": ("otlp", [], {"EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}),
    "EXPORTER_OTLP_ENDPOINT": ("http://127.0.0.1:4318", [], {"TRACES_EXPORTER": "otlp"}),
    "EXPORTER_OTLP_HEADERS": ("a=b",),
    "FD_SERVICE_NAME": ("s",),
    "FD_HOST_NAME": ("h",),
    "FD_MODEL_CACHE": (hub, HUB_MODEL),
    "HOME": (hub, HUB_MODEL),
    "--revision": ("v1", HUB_MODEL),
    "--download": ("false", HUB_MODEL),
    "FD_MODEL_SOURCE": ("HUGGINGFACE", HUB_MODEL),
    "DOWNLOAD_SOURCE": ("modelscope", HUB_MODEL),
    "HF_ENDPOINT": ("http://mirror.example", *of_hub("HUGGINGFACE")),
    "HF_TOKEN": ("hf_x", *of_hub("HUGGINGFACE")),
    "HUGGING_FACE_HUB_TOKEN": ("hf_x", *of_hub("HUGGINGFACE")),
    "HF_HOME": (folder_named("hf"), HUB_MODEL),
    "HF_HUB_CACHE": (folder_named("hf"), HUB_MODEL),
    "HUGGINGFACE_HUB_CACHE": (folder_named("hf"), HUB_MODEL),
    "HF_HUB_OFFLINE": ("1", HUB_MODEL),
    "TRANSFORMERS_OFFLINE": ("1", HUB_MODEL),
    "MODELSCOPE_ENDPOINT": ("http://mirror.example", *of_hub("MODELSCOPE")),
    "MODELSCOPE_DOMAIN": ("mirror.example", *of_hub("MODELSCOPE")),
    "MODELSCOPE_API_TOKEN": ("ms-x", *of_hub("MODELSCOPE")),
    "MODELSCOPE_CACHE": (folder_named("ms"), HUB_MODEL),
    "MODELSCOPE_OFFLINE": ("1", HUB_MODEL),
    "AISTUDIO_ENDPOINT": ("http://mirror.example", *of_hub("AISTUDIO")),
    "STUDIO_GIT_HOST": ("http://mirror.example", *of_hub("AISTUDIO")),
    "AISTUDIO_ACCESS_TOKEN": ("ai-x", *of_hub("AISTUDIO")),
    "AISTUDIO_OFFLINE": ("1", HUB_MODEL),
    "FD_API_KEY": ("k",),
    "FD_ENC_DEC_BLOCK_NUM": ("5",),
    "MAX_PREFILL_NUM": ("5", [], LEGACY),
    "FD_USE_GET_SAVE_OUTPUT_V1": ("1", ["--max-logprobs", "30"]),
    "FD_FP8_QUANT_WITH_POW2SCALE": ("1", ["--quantization", "block_wise_fp8"]),
    "TERN_CPU_ISA": ("scalar",),
    "TERN_MAX_SEQUENCES": ("512", ["--max-num-seqs", "300"]),
    "TERN_CUDA_LIBRARY": ("/some/folder",),
    "TERN_CUDA_MICROBATCHES": ("2",),
    "TERN_FAULT": ("trap@3",),
    "XDG_CACHE_HOME": (folder_named("cache"),),
    "VIRTUAL_ENV": (python_home,),
    "CONDA_PREFIX": (python_home,),
}
# The only row whose effect is not a setting, and why.
NO_SETTING = {"--dry-run": "asks for the page that this test reads"}


def another(row):
    """A value that is not the default: the other switch, one more, half, the next choice."""
    if row.value == "switch":
        return "false" if row.default in ("true", "1") else "true"
    number = re.match(r"-?\d+(\.\d+)?$", row.default)
    if row.value == "`N`":
        return str(int(row.default) + 1) if number else "3"
    if row.value == "`X`":
        default = float(row.default) if number else 0
        return str(default / 2 if default > 0 else default + 1)
    choices = row.value.strip("`").split("|")
    assert len(choices) > 1, f"{row.name} needs a line in SAMPLES"
    return next(choice for choice in choices if choice != row.default)


def sample(row):
    value, *besides = SAMPLES[row.name] if row.name in SAMPLES else (another(row),)
    return value, *(besides + [[], {}][len(besides) :])


def settings(folder, arguments, variables):
    """What a start comes to; its error line when it ends."""
    keep = {"PATH": os.environ.get("PATH", ""), "HOME": str(folder)}
    done = subprocess.run(
        [TERN, "serve", "--dry-run", *map(str, arguments)],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        cwd=folder,
        env={**keep, **variables},
    )
    if done.returncode != 0:
        return done.stderr
    page = json.loads(done.stdout)
    return {key: value for key, value in page.items() if key not in ECHOES}


def test_the_page_has_rows():
    assert len(ACTING) > 120
    assert {row.name for row in ACTING} >= set(SAMPLES) | set(NO_SETTING), "rows that no longer act"


@pytest.mark.parametrize("row", [row for row in ACTING if row.name not in NO_SETTING], ids=lambda row: row.name)
def test_another_value_comes_to_other_settings(row, tmp_path):
    value, arguments, variables = sample(row)
    value = value(tmp_path) if callable(value) else value
    arguments = arguments(tmp_path) if callable(arguments) else arguments
    if "--model" not in arguments and row.name != "--model":
        arguments = ["--model", MODEL, *arguments]
    plain = settings(tmp_path, arguments, variables)
    given = [f"{row.name}={value}"] if row.flag else []
    other = settings(tmp_path, [*arguments, *given], variables if row.flag else {**variables, row.name: str(value)})
    assert isinstance(other, dict), other
    assert other != plain


def test_what_acts_is_read_outside_the_table():
    sources = "".join(
        path.read_text()
        for path in [*(ROOT / "src" / "app").rglob("*.cc"), *(ROOT / "src" / "cli").rglob("*.cc")]
        if not TABLES.match(path.name) and path.parent.name != "tests"
    )
    unread = [row.name for row in ACTING if f'"{row.name.removeprefix("--")}"' not in sources]
    assert unread == []


@pytest.mark.parametrize("row", [row for row in rows() if row.status.startswith(("harmless", "inert"))], ids=lambda row: row.name)
def test_what_does_not_act_changes_nothing(row, tmp_path):
    """The other side: a row that is called harmless or inert comes to the same settings."""
    asking = {"--speculative-config": '{"method": "mtp"}'}
    if "*" in row.name:
        value = "1"
    elif row.name in asking:
        value = asking[row.name]
    elif row.value in ("`TEXT`", "any", "`A,B,...`"):
        value = "7"
    elif row.value in ("`JSON`", "`TEXT|JSON`"):
        value = '{"a": 1}'
    elif row.value == "`N,N,...`":
        value = "7"
    else:
        value = another(row)
    refused = re.search(r"refused: `([^`]+)`", row.status)
    if refused and value in refused[1].split("|"):
        return
    arguments = ["--model", MODEL, "--allow-inert-flags"]
    name = row.name.replace("*", "_X")
    plain = settings(tmp_path, arguments, {})
    other = settings(tmp_path, [*arguments, *([f"{name}={value}"] if row.flag else [])], {} if row.flag else {name: value})
    assert other == plain
