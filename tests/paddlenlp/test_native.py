"""The native protocol over HTTP (docs/spec/paddlenlp-server.md 2): a real server process, the shipped model."""

import concurrent.futures
import http.client
import json
import pathlib
import threading
import time

import openai
import pytest
from grpc_client import messages_of
from tern_server import MODEL, wait_for

ROWS = json.loads((pathlib.Path(__file__).parent / "refusals.json").read_text())
VOCAB = json.loads((MODEL / "config.json").read_text())["vocab_size"]


def expanded(body):
    ids = body.get("input_ids")
    return {**body, "input_ids": [5] * ids["repeat"]} if isinstance(ids, dict) else body


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_every_refusal(server, row):
    want = {"req_id": row.get("req_id", "r"), "error_msg": row["error_msg"].replace("VOCAB", str(VOCAB - 1))}
    status, whole = server.post(expanded(row["body"]))
    assert status == 200
    assert 0 <= time.time() - whole.pop("timestamp") < 60
    assert whole == {**want, "error_code": 200, "version": "4.6", "result": ""}
    (line,) = server.stream(**expanded(row["body"]))
    line.pop("timestamp")
    assert line == {**want, "error_code": 200, "version": "4.6"}


@pytest.mark.parametrize(
    "field, value, kind",
    [
        ("text", 5, "string_type"),
        ("req_id", 5, "string_type"),
        ("input_ids", "x", "list_type"),
        ("input_ids", ["x"], "int_type"),
        ("messages", "x", "list_type"),
        ("max_dec_len", "many", "int_type"),
        ("max_dec_len", 1.5, "int_type"),
        ("temperature", "hot", "float_type"),
        ("stream", "maybe", "bool_type"),
        ("system", 1, "string_type"),
        ("eos_token_ids", 3, "list_type"),
        ("stop_sequences", [1], "string_type"),
    ],
)
def test_wrong_types_are_422(server, field, value, kind):
    status, answer = server.post({"text": "x", field: value})
    assert status == 422
    assert [(d["type"], d["loc"]) for d in answer["detail"]] == [(kind, ["body", field])]


def test_what_is_no_json_is_422(server):
    status, answer = server.post("{")
    assert status == 422 and answer["detail"][0]["type"] == "json_invalid"


def test_a_stream_token_by_token(server):
    lines = server.stream(text="Hello", req_id="s1", max_dec_len=12, min_dec_len=12, temperature=0)
    assert [line["is_end"] for line in lines] == [0] * 12 + [1]
    assert [line["send_idx"] for line in lines] == list(range(13))
    for line in lines:
        assert line["req_id"] == "s1" and line["error_msg"] == "" and line["error_code"] == 0
        assert line["return_all_tokens"] is False
        assert line["usage"]["completion_tokens"] == line["send_idx"] + 1
    last = lines[-1]
    assert last["tokens_all_num"] == 13 and last["token_ids"] == []
    assert last["tokens_all_ids"] == [i for line in lines for i in line["token_ids"]]
    assert last["tokens_all"] == "".join(line["token"] for line in lines)
    assert list(last)[:9] == [
        "req_id", "is_end", "send_idx", "token_ids", "token", "inference_time_cost", "infer_seed", "return_all_tokens",
        "usage",
    ]  # fmt: skip
    assert "tokens_all" not in lines[0]


def test_whole_answers(server):
    body = {"text": "Hello", "max_dec_len": 8, "min_dec_len": 8, "temperature": 0}
    status, plain = server.post(body)
    assert status == 200 and set(plain) == {"result", "tokens_all", "error_msg", "error_code"}
    _, counted = server.post({**body, "return_usage": True})
    assert counted["usage"]["completion_tokens"] == 9 and counted["result"] == plain["result"] == plain["tokens_all"]
    streamed = server.stream(**body)
    assert streamed[-1]["tokens_all"] == plain["result"]


def test_only_the_last_message(server, start):
    (last,) = server.stream(text="Hello", max_dec_len=6, min_dec_len=6, return_all_tokens=True, temperature=0)
    assert last["is_end"] == 1 and last["return_all_tokens"] is True and len(last["token_ids"]) == 6
    assert last["token"] == last["tokens_all"] and last["token_ids"] == last["tokens_all_ids"]
    quiet = start(DISABLE_STREAMING="1").wait_ready()
    (other,) = quiet.stream(text="Hello", max_dec_len=6, min_dec_len=6, temperature=0)
    assert other["token_ids"] == last["token_ids"] and other["return_all_tokens"] is False


def test_benchmark_adds_times(server):
    lines = server.stream(text="Hello", max_dec_len=2, benchmark=True)
    for name in ("preprocess_start_time", "preprocess_end_time", "schedule_start_time", "inference_current_step_time"):
        assert time.strptime(lines[0][name][:19], "%Y-%m-%d %H:%M:%S")
    assert abs(float(lines[0]["inference_start_time"]) - time.time()) < 120 and "http_received_time" in lines[0]


def test_sources_and_their_order(server):
    greedy = {"max_dec_len": 6, "min_dec_len": 6, "temperature": 0}
    by_text = server.stream(text="Hello", **greedy)[-1]
    by_messages = server.stream(messages=[{"role": "user", "content": "Hello"}], **greedy)[-1]
    assert by_text["tokens_all_ids"] == by_messages["tokens_all_ids"]
    by_ids = server.stream(input_ids=[5, 6, 7], **greedy)[-1]
    both = server.stream(input_ids=[5, 6, 7], text="Hello", **greedy)[-1]
    assert both["tokens_all_ids"] == by_ids["tokens_all_ids"]
    assert by_ids["usage"]["prompt_tokens"] == 3
    assert server.stream(text="Hello", topp=0, max_dec_len=6, min_dec_len=6)[-1]["tokens_all_ids"] == by_text["tokens_all_ids"]


def test_prompts_are_cut_silently(server):
    # limit = 512 - 64; of more tokens the first 447 stay, which is still above MAX_SEQ_LEN.
    _, answer = server.post({"req_id": "r", "input_ids": [5] * 500, "max_dec_len": 64})
    assert answer["error_msg"] == "Length of input token(447) exceeds the limit MAX_SEQ_LEN(256)."
    _, answer = server.post({"req_id": "r", "input_ids": [5] * 500, "max_dec_len": 64, "enable_text_truncate": 0})
    assert answer["error_msg"] == "Length of input token(500) exceeds the limit MAX_SEQ_LEN(256)."
    # Text is cut to MAX_SEQ_LEN itself.
    lines = server.stream(text="word " * 2000, max_dec_len=2)
    assert lines[0]["usage"]["prompt_tokens"] == 256
    assert server.stream(text="word " * 400_000, max_dec_len=2)[0]["usage"]["prompt_tokens"] == 256


def test_lengths_that_are_left_open(server):
    lines = server.stream(input_ids=[5], temperature=0, min_dec_len=100)  # clamped, no error
    assert lines[-1]["usage"]["completion_tokens"] == 65


def test_end_ids_and_stop_sequences_belong_to_their_request(server):
    greedy = {"text": "Hello", "max_dec_len": 16, "temperature": 0}
    ids = server.stream(**greedy, min_dec_len=16)[-1]["tokens_all_ids"]
    first = ids.index(ids[5])
    stopped = server.stream(**greedy, eos_token_ids=[ids[5]])[-1]
    assert stopped["tokens_all_ids"] == ids[:first] and stopped["tokens_all_num"] == first + 1
    pair = next(i for i in range(3, 15) if ids[i : i + 2] not in [ids[k : k + 2] for k in range(i)])
    by_ids = server.stream(**greedy, stop_seqs=[ids[pair : pair + 2], [-1]])[-1]
    assert by_ids["tokens_all_ids"] == ids[: pair + 1]
    assert server.stream(**greedy, min_dec_len=16)[-1]["tokens_all_ids"] == ids


def test_penalties_count_the_answer_alone(server):
    # A prompt of one id repeated: were it counted, the penalty would forbid that id from the first token on.
    base = {"input_ids": [5] * 20, "max_dec_len": 1, "temperature": 0}
    plain = server.stream(**base)[-1]["tokens_all_ids"]
    prompt = {"input_ids": [plain[0]] * 20, "max_dec_len": 1, "temperature": 0}
    free = server.stream(**prompt)[-1]["tokens_all_ids"]
    assert server.stream(**prompt, penalty_score=1000.0)[-1]["tokens_all_ids"] == free
    answer = server.stream(**{**prompt, "max_dec_len": 24}, min_dec_len=24, frequency_score=2.0, penalty_score=1000.0)[-1]
    assert len(set(answer["tokens_all_ids"])) > 12


def test_seeds(server):
    body = {"text": "Hello", "max_dec_len": 8, "min_dec_len": 8, "infer_seed": 17, "temperature": 1.5}
    one, two = server.stream(**body)[-1], server.stream(**body)[-1]
    assert one["infer_seed"] == 17 and one["tokens_all_ids"] == two["tokens_all_ids"]
    assert server.stream(**{**body, "infer_seed": 0})[-1]["infer_seed"] != 0


def test_one_id_at_a_time(start):
    server = start().wait_ready()
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    connection.request("POST", "/v1/chat/completions", json.dumps(
        {"text": "x", "req_id": "same", "max_dec_len": 64, "min_dec_len": 64, "stream": True}))  # fmt: skip
    answer = connection.getresponse()
    answer.readline()
    _, second = server.post({"text": "x", "req_id": "same"})
    running = b'"is_end":1' not in answer.read()
    if second["error_code"]:
        assert second["error_msg"] == (
            "The req_id same already exists in the current batch, the current request will be ignored."
        )
    else:  # the first had ended by then
        assert not running


def slow(tmp_path, start, delay, **variables):
    script = tmp_path / "script.jsonl"
    script.write_text(json.dumps({"match": "", "text": "one two three four five six", "token_delay_ms": delay}) + "\n")
    return start("--scripted", script, **variables).wait_ready()


def test_the_queue_refuses_at_its_limit(start, tmp_path):
    server = slow(tmp_path, start, 300)  # 2 run, 2 wait
    with concurrent.futures.ThreadPoolExecutor(5) as pool:
        first = [pool.submit(server.post, {"text": f"question {i}"}) for i in range(4)]
        wait_for(lambda: "open" if server.metric("inference_server_metrics{batch_size") >= 2 else None)
        time.sleep(0.3)
        _, refused = server.post({"text": "one more", "req_id": "late"})
        assert refused["error_msg"] == "cached task num (2) exceeds the limit (2)" and refused["error_code"] == 200
        assert all(f.result()[1]["error_code"] == 0 for f in first)
    assert server.post({"text": "again"})[1]["error_code"] == 0


def test_a_timeout_between_messages(start, tmp_path):
    server = slow(tmp_path, start, 2500)
    lines = server.stream(text="x", timeout=1)
    assert lines[-1]["error_code"] == 501 and lines[-1]["error_msg"] == "Fetch response from server timeout (1s)"
    _, whole = server.post({"text": "x", "timeout": 1})
    assert (whole["error_code"], whole["error_msg"], whole["result"]) == (501, "Fetch response from server timeout (1s)", "")


def test_a_client_that_leaves_frees_its_blocks(start):
    server = start().wait_ready()
    before = server.metric("inference_server_metrics{block_num")
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    connection.request("POST", "/v1/chat/completions", json.dumps(
        {"text": "x", "max_dec_len": 64, "min_dec_len": 64, "stream": True}))  # fmt: skip
    answer = connection.getresponse()
    answer.readline()
    connection.sock.close() if connection.sock else None
    answer.close()
    wait_for(lambda: server.metric("inference_server_metrics{batch_size") == 0)
    wait_for(lambda: server.metric("inference_server_metrics{block_num") == before)  # once the step under way has ended


def test_openai_clients(server):
    for base in ("/v1", "/v1/chat/completions"):
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}{base}", api_key="EMPTY", max_retries=0)
        whole = client.completions.create(model="default", prompt="Hello", max_tokens=5, stream=False)
        assert whole.choices[0].finish_reason in ("length", "stop") and 1 <= whole.usage.completion_tokens <= 5
        chunks = list(client.completions.create(model="default", prompt="Hello", max_tokens=5, stream=True))
        assert chunks[-1].choices[0].finish_reason
        messages = [{"role": "user", "content": "Hello"}]
        chat = client.chat.completions.create(model="any", messages=messages, temperature=0, max_tokens=6)
        assert chat.object == "chat.completion"
        said = "".join(
            c.choices[0].delta.content or ""
            for c in client.chat.completions.create(model="any", messages=messages, temperature=0, max_tokens=6, stream=True)
            if c.choices
        )
        assert said == chat.choices[0].message.content


def test_other_routes(server):
    assert server.request("POST", "/v1", "{}").read() == b"null"
    assert server.post({"text": "Hello", "max_dec_len": 2}, path="/v1/completions")[1]["error_code"] == 0
    assert server.request("GET", "/metrics").status == 404
    assert server.request("POST", "/v1/chat/completions", "{}").status == 400  # OpenAI's: no messages


def test_both_fronts_over_one_engine(tmp_path):
    from pn_server import free_ports
    from tern_server import Server

    ports = free_ports(5)
    names = ("SERVICE_HTTP_PORT", "HEALTH_HTTP_PORT", "METRICS_HTTP_PORT", "SERVICE_GRPC_PORT", "INTER_PROC_PORT")
    both = Server(tmp_path, "--paddlenlp", "--max-model-len", 512, "--max-num-seqs", 4,
                  env={k: str(v) for k, v in zip(names, ports)})  # fmt: skip
    try:
        both.wait_ready()
        body = json.dumps({"text": "Hello", "max_dec_len": 6, "min_dec_len": 6, "temperature": 0, "req_id": "n"})
        native = []

        def ask():
            connection = http.client.HTTPConnection("127.0.0.1", ports[0])
            connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
            native.append(json.loads(connection.getresponse().read()))

        thread = threading.Thread(target=ask)
        thread.start()
        chat = both.client().chat.completions.create(
            model="default", messages=[{"role": "user", "content": "Hello"}], temperature=0, max_tokens=6
        )
        thread.join()
        assert native[0]["error_code"] == 0 and native[0]["result"].startswith(chat.choices[0].message.content)
        over_grpc = messages_of(ports[3], text="Hello", max_dec_len=6, min_dec_len=6, temperature=0)
        assert over_grpc[-1][0]["tokens_all"] == native[0]["result"]
        # Native bodies are only known on that front's port.
        connection = http.client.HTTPConnection("127.0.0.1", both.port)
        connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
        assert connection.getresponse().status == 400
    finally:
        both.end()
