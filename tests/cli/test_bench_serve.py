"""`tern bench serve` with FastDeploy's options and result files, and `tern bench eval`."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
from tern_server import MODEL, TERN, Server

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHAT = [{"role": "user", "content": "What is 12 + 30?"}]
ALL = "ttft,tpot,itl,e2el,s_ttft,s_itl,s_e2el,s_decode,input_len,s_input_len,output_len"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    s = Server(tmp_path_factory.mktemp("server"), "--max-num-seqs", "8", "--max-model-len", "2048").wait_ready()
    yield s
    s.stop()


def bench(*args, status=0, **kw):
    done = subprocess.run([TERN, "bench", *map(str, args)], check=False, capture_output=True, text=True, timeout=120, **kw)
    assert done.returncode == status, done.stdout + done.stderr
    return done


def write(path, lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_the_documented_line(server, tmp_path):
    chats = write(tmp_path / "chats.jsonl", [{"messages": CHAT, "max_tokens": 8}, {"messages": CHAT}])
    done = bench(
        *("serve", "--backend", "openai-chat", "--model", "baidu/x", "--served-model-name", "default"),
        *("--endpoint", "/v1/chat/completions", "--host", "127.0.0.1", "--port", server.port, "--dataset-name", "EBChat"),
        *("--dataset-path", chats, "--percentile-metrics", ALL, "--metric-percentiles", "80,95,99.9", "--num-prompts", 5),
        *("--max-concurrency", 2, "--save-result", "--result-dir", tmp_path / "results", "--metadata", "gpu=none"),
        *("--goodput", "ttft:60000", "e2el:60000", "--pd-metrics", "--ready-check-timeout-sec", 60),
    )
    (file,) = (tmp_path / "results").iterdir()
    assert file.name.startswith("openai-chat-infqps-concurrency2-x-20") and file.suffix == ".json"
    result = json.loads(file.read_text())
    assert (result["endpoint_type"], result["model_id"], result["gpu"]) == ("openai-chat", "baidu/x", "none")
    assert (result["request_rate"], result["max_concurrency"], result["num_prompts"]) == ("inf", 2, 5)
    assert result["completed"] == 5 and result["total_output_tokens"] >= 5 and "ttfts" not in result
    assert result["request_goodput:"] == result["request_throughput"] > 0
    for name in ALL.split(","):
        key = name if name.endswith("_len") or name == "s_decode" else name + "_ms"
        for word in ("mean", "median", "std", "p80", "p95", "p99.9"):
            assert result[f"{word}_{key}"] >= 0, (word, key)
        assert result[f"p80_{key}"] <= result[f"p95_{key}"] <= result[f"p99.9_{key}"]
    assert 0 < result["mean_s_ttft_ms"] <= result["mean_ttft_ms"] and 0 < result["mean_s_e2el_ms"] <= result["mean_e2el_ms"]
    assert result["mean_preprocess_cost_time"] >= 0 and result["mean_prefill_first_token_infer_cost_time"] > 0
    assert "============ Serving Benchmark Result ============" in done.stdout
    assert f"{'Successful requests:':<40} 5 " in done.stdout and "P99.9 S_TTFT (ms):" in done.stdout


def test_details_of_requests_and_files_that_grow(server, tmp_path):
    chats = write(tmp_path / "chats.jsonl", [{"messages": CHAT}])
    words = ("serve", "--base-url", server.url, "--dataset-path", chats, "--num-prompts", 3, "--no-oversample")
    words += ("--save-detailed", "--append-result", "--result-filename", tmp_path / "all.json", "--output-len", 12)
    bench(*words)
    bench(*words, "--backend", "openai", "--request-rate", 1000, "--burstiness", 0.5)
    chat, text = map(json.loads, (tmp_path / "all.json").read_text().splitlines())
    assert chat["num_prompts"] == 1 and "42" in chat["generated_texts"][0] and chat["errors"] == [""]
    assert len(chat["ttfts"]) == len(chat["itls"]) == len(chat["input_lens"]) == len(chat["output_lens"]) == 1
    assert chat["infer_input_lens"][0] > text["infer_input_lens"][0]  # by the template
    assert chat["input_texts"] == text["input_texts"] == ["What is 12 + 30?"]
    assert (text["request_rate"], text["burstiness"], text["endpoint_type"]) == (1000.0, 0.5, "openai")


@pytest.mark.parametrize("rate", ["0", "-1", "-inf", "nan"])
def test_a_rate_is_above_0(rate, tmp_path):
    chats = write(tmp_path / "chats.jsonl", [{"messages": CHAT}])
    done = bench("serve", "--dataset-path", chats, f"--request-rate={rate}", status=2)
    assert done.stderr.splitlines() == ["tern: --request-rate: above 0, or inf for no spacing"]


def test_what_requests_hold(server, tmp_path):
    (tmp_path / "hyper.yaml").write_text("top_p: 0.5\nnote: {a: [1, two]}\n")
    texts = write(tmp_path / "texts.jsonl", [{"text": "Hi", "max_dec_len": 3, "temperature": 0.5, "penalty_score": 1.1}])
    talk = [{"from": "human", "value": "Say one, two, three, four."}, {"from": "gpt", "value": "One, two, three, four."}]
    (tmp_path / "share.json").write_text(json.dumps([{"conversations": talk}]))
    common = ("serve", "--url", server.url, "--num-prompts", 1, "--debug")

    def body(*args):
        return json.loads(bench(*common, *args).stderr.splitlines()[0])

    one = body("--dataset-name", "EB", "--dataset-path", texts, "--hyperparameter-path", tmp_path / "hyper.yaml")
    assert (one["prompt"], one["max_tokens"], one["temperature"], one["repetition_penalty"]) == ("Hi", 3, 0.5, 1.1)
    assert one["top_p"] == 0.5 and one["note"] == {"a": [1, "two"]} and "ignore_eos" not in one
    one = body("--dataset-name", "sharegpt", "--dataset-path", tmp_path / "share.json", "--tokenizer", MODEL, "--top-k", 5)
    assert one["messages"] == [{"role": "user", "content": talk[0]["value"]}] and one["max_tokens"] > 4
    assert one["temperature"] == 0 and one["top_k"] == 5
    one = body("--input_len", 6, "--output-len", 4, "--backend", "openai-chat", "--vocab", 300)
    assert len(one["prompt_token_ids"]) == 6 and one["messages"] == [] and one["ignore_eos"] and one["max_tokens"] == 4
    assert body("--input-len", 6, "--output-len", 4, "--vocab", 300, "--no-ignore-eos", "--min-p", 0.1)["min_p"] == 0.1


def test_chats_turn_by_turn_at_several_servers(server, tmp_path):
    turns = [*CHAT, {"role": "assistant", "content": "not this"}, {"role": "user", "content": "What is 7 + 8?"}]
    chats = write(tmp_path / "chats.jsonl", [{"messages": [{"role": "system", "content": "x"}, *turns]}])
    address = f"127.0.0.1:{server.port}"
    words = ("--dataset-path", chats, "--num-prompts", 2, "--multi-turn", "--max-concurrency", 2, "--output-len", 12)
    done = bench("serve", "--ip-list", f"{address},{address}", *words, "--debug", "--save-detailed", "--save-result",
                 "--result-filename", tmp_path / "result.json")  # fmt: skip
    bodies = [json.loads(line)["messages"] for line in done.stderr.splitlines()]
    assert sorted(map(len, bodies)) == [2, 2, 4, 4]
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["completed"] == 4 and "42" in result["generated_texts"][0]
    later = next(messages for messages in bodies if len(messages) == 4)
    assert [m["role"] for m in later] == ["system", "user", "assistant", "user"]
    assert later[2]["content"] == result["generated_texts"][0] and later[3] == turns[-1]


@pytest.mark.parametrize(
    "args, words",
    [
        (["--multi-turn"], "needs a data set of chats"),
        (["--ip-list", "a:1", "--base-url", "http://b"], "one of them"),
        (["--ip-list", ""], "names no server"),
        (["--use-beam-search"], "no beam search"),
        (["--profile"], "--trace"),
        (["--lora-modules", "a", "b"], "no adapters"),
        (["--trust-remote-code"], "no Python code"),
        (["--tokenizer-mode", "slow"], "there is one"),
        (["--goodput", "tft:3"], "--goodput tft:3"),
        (["--metadata", "x"], "KEY=VALUE"),
        (["--header", "x"], "KEY=VALUE"),
        (["--metric-percentiles", "101"], "from 0 to 100"),
        (["--ramp-up-strategy", "linear"], "--ramp-up-start-rps"),
        (["--ramp-up-end-rps", "3"], "--ramp-up-strategy"),
        (["--dataset-name", "EB"], "needs --dataset-path"),
        (["--hyperparameter-path", "/nowhere"], "cannot be read"),
        (["--ready-check-timeout-sec", "1"], "was not ready within 1 seconds"),
    ],
)
def test_mistakes_are_one_line(args, words):
    done = subprocess.run([TERN, "bench", "serve", "--port", "9", *args], check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode in (1, 2) and words in done.stderr.splitlines()[-1], done.stderr


LM_EVAL = """#!{python}
import json, os, sys, urllib.request
words = sys.argv[1:]
args = dict(pair.split("=", 1) for pair in words[words.index("--model_args") + 1].split(","))
body = json.dumps(dict(model=args["model"], prompt="What is 12 + 30?", max_tokens=4, temperature=0)).encode()
headers = {{"Content-Type": "application/json", "Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}}
answer = json.load(urllib.request.urlopen(urllib.request.Request(args["base_url"], body, headers)))
print(json.dumps(dict(words=words, args=args, text=answer["choices"][0]["text"])))
sys.exit(3 if "--check_integrity" in words else 0)
"""


@pytest.fixture
def lm_eval(tmp_path):
    """A program of lm-eval's name that asks the server once and says what it was told."""
    program = tmp_path / "bin" / "lm-eval"
    program.parent.mkdir()
    program.write_text(LM_EVAL.format(python=sys.executable))
    program.chmod(0o755)
    return {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}", "http_proxy": "http://127.0.0.1:9"}


def test_lm_eval_asks_a_server_of_the_models_folder(lm_eval, tmp_path):
    words = ("--tasks", "local", "--num_fewshot", 2, "--include_path", tmp_path, "-w", "--limit", 5)
    flags = ("--model", MODEL, "--model_args", "max_retries=1", "--serve-flags", "--max-num-seqs 4")
    done = bench("eval", *flags, *words, env=lm_eval)
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["args"]["model"] == "default" and said["args"]["tokenizer"] == str(MODEL) and said["args"]["max_retries"] == "1"
    assert said["words"][:2] == ["--model", "local-completions"] and len(said["text"]) > 0
    assert said["words"][4:] == ["--limit", "5", "--tasks", "local", "--num_fewshot", "2", "--include_path", str(tmp_path), "-w"]
    assert "Executing command: lm-eval --model local-completions" in done.stderr


def test_lm_eval_as_fastdeploy_calls_it(lm_eval, server):
    args = f"model=default,base_url={server.url}/v1/completions"
    env = {**lm_eval, "OPENAI_API_KEY": "mine", "no_proxy": "127.0.0.1"}
    done = bench("eval", "--model", "local-completions", "-a", args, "-t", "x", "--check_integrity", status=3, env=env)
    said = json.loads(done.stdout)
    assert said["words"] == ["--model", "local-completions", "--model_args", args, "-t", "x", "--check_integrity"]
    missing = {**os.environ, "PATH": "/nowhere"}
    assert "lm-eval does not start" in bench("eval", "--tasks", "x", status=1, env=missing).stderr


def test_held_out_files(server, tmp_path):
    texts, pictures, out = (ROOT / "models" / name for name in ("heldout_sample.jsonl", "heldout_pictures.jsonl", "none"))
    out = tmp_path / "scores.json"
    words = ("eval", "--held-out", texts, pictures, "--limit", 2, "--output_path", out)
    done = bench(*words, "--url", server.url)
    scores = json.loads(out.read_text())
    assert scores["text"]["exact_match"] >= 0.8 and scores["text"]["per_task"]["arithmetic"][1] == 2
    for row in scores["pictures"].values():
        assert row["pictures"] <= 2 and row["characters"] > 0 and row["error_rate"] < 0.2
    assert "text tasks: " in done.stdout and "error rate" in done.stdout
    few = tmp_path / "few.jsonl"
    few.write_text("".join(texts.read_text().splitlines(keepends=True)[:2]))
    assert "text tasks: 100.00% exact" in bench("eval", "--held-out", few, "--model", MODEL).stdout
    wrong = {**json.loads(few.read_text().splitlines()[0]), "answer": "no"}
    assert "text tasks: 0.00% exact" in bench("eval", "--held-out", write(few, [wrong]), "--url", server.url).stdout


def test_mistakes_of_eval(tmp_path):
    file = write(tmp_path / "f", [{"answer": "x"}])
    assert "one of them" in bench("eval", "--held-out", file, status=2).stderr
    assert "line 1: neither image nor messages" in bench("eval", "--held-out", file, "--model", MODEL, status=1).stderr
    assert "is of lm-eval" in bench("eval", "--held-out", file, "--model", MODEL, "--tasks", "x", status=2).stderr
    flags = ("--model", MODEL, "--serve-flags", "--port 1")
    assert "--port has no meaning here" in bench("eval", *flags, "--tasks", "x", status=2).stderr
