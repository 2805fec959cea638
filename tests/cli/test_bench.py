"""`tern bench latency` and `throughput`: the engine without a server, with FastDeploy's options and result files."""

import json
import os
import subprocess

import pytest
from tern_server import MODEL, TERN

SMALL = ("--model", MODEL, "--max-num-seqs", "4", "--max-model-len", "256")


def bench(*args, status=0):
    done = subprocess.run([TERN, "bench", *map(str, args)], check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout if status == 0 else done.stderr


def test_latency(tmp_path):
    file = tmp_path / "latency.json"
    words = ("--input_len=5", "--output-len", 6, "--batch-size", 3, "--n", 2, "--num-iters-warmup", 1, "--num-iters", 4)
    out = bench("latency", *words, "--output-json", file, *SMALL)
    result = json.loads(file.read_text())
    assert set(result) == {"avg_latency", "latencies", "percentiles"}
    assert len(result["latencies"]) == 4 and all(value > 0 for value in result["latencies"])
    assert result["avg_latency"] == pytest.approx(sum(result["latencies"]) / 4)
    assert list(result["percentiles"]) == ["10", "25", "50", "75", "90", "99"]
    low, *_, high = sorted(result["latencies"])
    assert low <= result["percentiles"]["10"] <= result["percentiles"]["50"] <= result["percentiles"]["99"] <= high
    assert f"Avg latency: {result['avg_latency']} seconds" in out and "99% percentile latency: " in out


def test_profile_traces_one_batch_behind_the_warm_up(tmp_path):
    trace = tmp_path / "trace.json"
    words = ("--input-len", 4, "--output-len", 3, "--batch-size", 1, "--num-iters-warmup", 2, "--profile", *SMALL)
    assert str(trace) in bench("latency", *words, "--trace", trace)
    spans = [event for event in json.loads(trace.read_text()) if event.get("ph") == "X"]
    steps = {event["args"]["step"] for event in spans if "step" in event.get("args", {})}
    assert spans and len(steps) <= 5 and min(steps) >= 4  # the warm-up's steps came before
    assert "--profile needs --trace" in bench("latency", *words, status=2)


def test_throughput_of_random_prompts(tmp_path):
    file = tmp_path / "throughput.json"
    words = ("--input-len", 8, "--output-len", 4, "--prefix-len", 2, "--num-prompts", 6, "--n", 2)
    out = bench("throughput", *words, "--output-json", file, *SMALL)
    result = json.loads(file.read_text())
    assert set(result) == {"elapsed_time", "num_requests", "total_num_tokens", "requests_per_second", "tokens_per_second"}
    assert result["num_requests"] == 6 and result["total_num_tokens"] == 6 * 10 + 12 * 4
    assert result["requests_per_second"] == pytest.approx(6 / result["elapsed_time"])
    assert result["tokens_per_second"] == pytest.approx(108 / result["elapsed_time"])
    assert "Total num prompt tokens:  60\nTotal num output tokens:  48\n" in out and "Throughput: " in out


CHAT = [{"role": "user", "content": "What is 12 + 30?"}]


def write(path, lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_throughput_of_data_sets(tmp_path):
    chats = write(tmp_path / "chats.jsonl", [{"messages": CHAT, "max_tokens": 16}, CHAT])
    common = ("throughput", "--num-prompts", 3, *SMALL)
    # The model ends these answers itself, long before 16 tokens.
    out = bench(*common, "--dataset-name", "EBChat", "--dataset-path", chats, "--backend", "fastdeploy-chat")
    assert 3 < int(out.rsplit("output tokens:  ", 1)[1]) < 100
    chat = int(out.split("prompt tokens:  ")[1].split()[0])
    out = bench(*common, "--dataset-name", "EBChat", "--dataset", chats, "--output-len", 2)
    assert int(out.split("prompt tokens:  ")[1].split()[0]) < chat  # the text alone, without the template
    assert 3 <= int(out.rsplit("output tokens:  ", 1)[1]) <= 6
    texts = write(tmp_path / "texts.jsonl", [{"text": "One two", "max_dec_len": 3, "temperature": 1, "topp": 0.5}])
    assert "output tokens:  " in bench(*common, "--dataset-name", "EB", "--dataset-path", texts)
    talk = [{"from": "human", "value": "Count the letters of tern."}, {"from": "gpt", "value": "There are four letters."}]
    (tmp_path / "share.json").write_text(json.dumps([{"conversations": talk}, {"conversations": talk[:1]}]))
    out = bench(*common, "--dataset-name", "sharegpt", "--dataset-path", tmp_path / "share.json")
    assert "output tokens:  " in out


@pytest.mark.parametrize(
    "args, words",
    [
        (["latency", "--use-beam-search"], "no beam search"),
        (["latency", "--port", "1"], "--port has no meaning here"),
        (["latency", "--input-len", "300"], "--max-model-len is 256"),
        (["latency", "--no-such"], "unknown flag --no-such"),
        (["throughput"], "--input-len is needed"),
        (["throughput", "--input-len", "4", "--backend", "hf"], "--backend hf"),
        (["throughput", "--input-len", "4", "--lora-path", "x"], "loads no adapters"),
        (["throughput", "--input-len", "4", "--hf-split", "x"], "local files"),
        (["throughput", "--input-len", "4", "--trust-remote-code"], "no Python code"),
        (["throughput", "--input-len", "300", "--output-len", "4"], "more than --max-model-len 256"),
        (["throughput", "--dataset-path", "x"], "needs --dataset-name"),
        (["throughput", "--dataset-name", "EBChat"], "needs --dataset-path"),
        (["throughput", "--dataset-name", "EB", "--dataset-path", "x", "--prefix-len", "3"], "for random prompts"),
    ],
)
def test_what_has_no_effect_is_refused_in_one_line(args, words):
    said = bench(*args, *SMALL, status=2)
    assert words in said.splitlines()[-1] and said.splitlines()[-1].startswith("tern: ")


def test_files_that_are_no_data_sets(tmp_path):
    file = tmp_path / "lines"
    common = ("throughput", "--dataset-name", "EBChat", "--dataset-path", file, *SMALL)
    assert "cannot be read" in bench(*common, status=1)
    for text, words in (("{\n", "request 1 is no JSON"), ("{}\n", "request 1 has no messages")):
        file.write_text(text)
        assert words in bench(*common, status=1)
    file.write_text("\n")
    assert "has no requests" in bench(*common, status=2)
    seen = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:x"}}]}]
    write(file, [{"messages": seen}])
    assert "tern bench serve sends pictures" in bench(*common, "--backend", "fastdeploy-chat", status=2)


def test_called_as_fastdeploy(tmp_path):
    program = tmp_path / "fastdeploy"
    program.symlink_to(os.path.abspath(TERN))

    def said(*args):
        return subprocess.run([program, *args], capture_output=True, text=True, timeout=60, check=True).stdout

    assert "Usage: fastdeploy COMMAND" in said("--help") and "ocr" not in said("--help")
    assert said("--version") == said("-v") == said("version") and said("-v")[0].isdigit()
    groups = said("serve", "--help=listgroup")
    assert "Parallel Configuration" in groups and "Performance Tuning" in groups and "Router" in groups
    narrowed = said("serve", "--help=Parallel Configuration")
    assert "\n  --max-num-seqs" in narrowed and "\n  --block-size" not in narrowed
    assert said("serve", "--help=ModelConfiguration").count("\nModel Configuration:") == 1
    assert said("serve", "--help=max_num_seqs").count("\n  --") == 1
    assert said("serve", "--help=page") == said("serve", "--help")
