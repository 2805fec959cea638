"""What docs/paddlenlp.md calls acting acts: a start with another value of the variable comes to other settings."""

import json
import os
import pathlib
import re
import subprocess

import pytest
from pn_server import exported_model
from tern_server import MODEL, TERN

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "paddlenlp.md"
PORTS = {"HEALTH_HTTP_PORT": "8110", "SERVICE_HTTP_PORT": "9965", "SERVICE_GRPC_PORT": "8811"}
# Names whose value is seen elsewhere: by a fetch or by start_server (test_lifecycle.py), or as an error (the C++ tests).
ELSEWHERE = {
    "model_name", "tag", "PADDLENLP_STATIC_MODEL_URL", "MD5_CHECK", "DEVICE", "OUTPUT_LOG_TO_CONSOLE", "POD_IPS", "POD_0_IP",
    "HOST_IP", "MP_NNODE",
}  # fmt: skip
LEGACY = {"BLOCK_RATIO", "ENC_DEC_BLOCK_NUM", "MAX_PREFILL_BATCH"}
SAMPLES = {"DTYPE": "float32", "BLOCK_SIZE": "32", "MAX_SEQ_LEN": "4096", "MP_NUM": "2", "DISABLE_CAPACITY_CHECKER": "1"}


def rows():
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) == 6 and cells[0].startswith("`"):
            yield cells[0].strip("`"), cells[1], cells[2], cells[5]


def settings(**variables):
    env = {**os.environ, "MODEL_DIR": str(MODEL), **PORTS, **variables}
    out = json.loads(subprocess.run([TERN, "serve-paddlenlp", "--dry-run"], env=env, capture_output=True, check=True).stdout)
    return {k: v for k, v in out.items() if k not in ("environment", "sources", "paddlenlp_columns")}


def another(name, value, fallback, folder):
    if name in SAMPLES:
        return SAMPLES[name]
    if name == "MODEL_DIR":
        return str(exported_model(folder / "other", x=1))
    if name in ("CONFIG_JSON_FILE", "FD_MODEL_CONFIG_PATH"):
        place = exported_model(folder / "renamed")
        (place / "other.json").write_text((place / "config.json").read_text())
        return {"MODEL_DIR": str(place), name: "other.json" if name == "CONFIG_JSON_FILE" else str(place / "other.json")}
    if value == "switch":
        return "0" if fallback == "1" else "1"
    return {"none": "7001", "-1": "7001"}.get(fallback) or str(int(float(fallback)) + 1)


@pytest.mark.parametrize("row", [r for r in rows() if r[3].startswith("acts") and r[0] not in ELSEWHERE], ids=lambda row: row[0])
def test_what_acts_acts(row, tmp_path):
    name, value, fallback, _ = row
    base = {"ENABLE_V1_KVCACHE_SCHEDULER": "0"} if name in LEGACY else {}
    if name == "DISABLE_CAPACITY_CHECKER":
        base = {"BLOCK_BS": "1.1"}
    other = another(name, value, fallback, tmp_path)
    assert settings(**base) != settings(**base, **(other if isinstance(other, dict) else {name: other}))


def test_every_row_is_looked_at():
    names = {row[0] for row in rows()}
    assert len(names) > 60 and ELSEWHERE <= names and LEGACY <= names and set(SAMPLES) <= names
