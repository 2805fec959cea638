"""KServe over gRPC (docs/spec/paddlenlp-server.md 3): a real server process, tritonclient and grpcio."""

import concurrent.futures
import json
import pathlib
import time

import grpc
import pytest
import tritonclient.grpc as triton
from grpc_client import Client, exchange, is_last, messages_of, payload, request, stub
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tern_server import MODEL, wait_for
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc

ROWS = json.loads((pathlib.Path(__file__).parent / "refusals.json").read_text())
VOCAB = json.loads((MODEL / "config.json").read_text())["vocab_size"]
LONG = {"text": "Hello", "max_dec_len": 64, "min_dec_len": 64, "temperature": 0}


def refused(port, *messages, **keys):
    """Text and id of the one error in the stream."""
    (answer,) = exchange(port, *(messages or [request({"req_id": "r", "text": "x"}, **keys)]))
    assert is_last(answer) and not answer.infer_response.raw_output_contents
    return answer.error_message, answer.infer_response.id


def body_of(row):
    ids = row["body"].get("input_ids")
    return {**row["body"], "input_ids": [5] * ids["repeat"]} if isinstance(ids, dict) else row["body"]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_every_refusal_is_an_answer(server, row):
    (answer,) = exchange(server.grpc_port, request(body_of(row)))
    assert not answer.error_message and is_last(answer) and answer.infer_response.id == "r"
    (error,) = [payload(answer.infer_response)]
    assert 0 <= time.time() - error.pop("timestamp") < 60
    want = row["error_msg"].replace("VOCAB", str(VOCAB - 1))
    assert error == {"req_id": row.get("req_id", "r"), "error_msg": want, "error_code": 200, "version": "4.6"}


@pytest.mark.parametrize(
    "payload_json, req_id, text",
    [
        (b"{}", None, "the payload is no list of requests"),
        (b"[]", None, "list index out of range"),
        (b"[{}]", None, "'req_id'"),
        (b'[{"text": "x"}]', None, "'req_id'"),
        (b'[{"req_id": 5, "text": "x"}]', None, "req_id is no text"),
        (b'[{"req_id": "r", "text": "x", "penalty_score": "high"}]', None, "penalty_score: Input should be a valid number"),
        (b'[{"req_id": "r"}, {"req_id": "s"}]', "r", "request data should not be empty and query num 2 should be 1"),
        (b'[{"req_id": "r", "text": 5}]', "r", "['The `text` in input parameters must be a string']"),
        (b'[{"req_id": "r", "text": "x", "stream": 1}]', "r", "['The `stream` must be a boolean']"),
        (b'[{"req_id": "r", "text": "x", "eos_token_ids": "y"}]', "r", "['The `eos_token_ids` must be an list']"),
    ],
)
def test_what_no_transport_has_checked(server, payload_json, req_id, text):
    raw = len(payload_json).to_bytes(4, "little") + payload_json
    (answer,) = exchange(server.grpc_port, request(id="r", raw=raw))
    error = payload(answer.infer_response)
    if req_id is None:
        text = f"Unexcepted promblem happend while insert new task to server task queue: {text}, (no stack trace)"
    assert (error["req_id"], error["error_msg"], error["error_code"]) == (req_id, text, 200)


def test_messages_are_those_of_http(server):
    body = {"text": "Hello", "max_dec_len": 12, "min_dec_len": 12, "temperature": 0, "infer_seed": 7}
    over_grpc = messages_of(server.grpc_port, **body)
    over_http = server.stream(**body)
    assert all(isinstance(m, list) and len(m) == 1 for m in over_grpc)
    for (message,), line in zip(over_grpc, over_http, strict=True):
        assert list(message) == [key for key in line if key not in ("error_msg", "error_code")]
        for key in set(message) - {"req_id", "inference_time_cost"}:
            assert message[key] == line[key]
    ((only,),) = messages_of(server.grpc_port, **body, return_all_tokens=True, benchmark=True)
    assert only["tokens_all"] == over_http[-1]["tokens_all"] and "http_received_time" not in only
    assert messages_of(server.grpc_port, text="你好", max_dec_len=2)


@pytest.mark.parametrize(
    "keys, text",
    [
        ({"model": "other"}, "Request for unknown model: 'other' is not found"),
        ({"version": "7"}, "Request for unknown model: 'model' version 7 is not found"),
        ({"name": None}, "[request id: r] expected 1 inputs but got 0 inputs for model 'model'. Got input(s) [], but missing required input(s) ['IN']. Please provide all required input(s)."),
        ({"name": "X"}, "unexpected inference input 'X' for model 'model'"),
        ({"outputs": ["X"]}, "unexpected inference output 'X' for model 'model'"),
        ({"datatype": "INT32"}, "[request id: r] inference input 'IN' data-type is 'INT32', but model 'model' expects 'BYTES'"),
        ({"shape": [2]}, "[request id: r] unexpected shape for input 'IN' for model 'model'. Expected [1], got [2]. "),
        ({"triton_other": True}, "parameter keys starting with 'triton_' are reserved for Triton usage and should not be specified."),
        ({"triton_enable_empty_final_response": 1}, "invalid value type for 'triton_enable_empty_final_response' parameter, expected bool_param."),
        ({"priority": "high"}, "invalid value type for 'priority' parameter, expected int64_param."),
    ],
)  # fmt: skip
def test_errors_within_the_stream(server, keys, text):
    assert refused(server.grpc_port, **keys) == (text, "r")


def test_errors_about_data(server):
    port = server.grpc_port
    message = request({"req_id": "r", "text": "x"})
    both = pb.ModelInferRequest.FromString(message.SerializeToString())
    both.inputs[0].contents.bytes_contents.append(b"[]")
    assert (
        refused(port, both)[0] == "contents field must not be specified when using raw_input_contents for 'IN' for model 'model'"
    )
    without = pb.ModelInferRequest.FromString(message.SerializeToString())
    del without.raw_input_contents[:]
    assert refused(port, without)[0] == "unable to find data for input tensor 'IN' for model 'model' in request."
    assert refused(port, request(id="r", raw=b"\x09\0\0\0[]"))[0].startswith("raw_input_contents of 'IN'")
    text, id = refused(port, request(id="r", raw=b"\x01\0\0\0{"))
    assert text.startswith("Failed to process the request(s) for model 'model_0_0', message: ") and id == "r"
    assert "<id_unknown>" in refused(port, request({"req_id": "r"}, id="", datatype="INT32"))[0]
    assert refused(port, request({"req_id": "r"}, id="i" * 300))[0] == "the id of the request has more than 256 bytes"
    contents = pb.ModelInferRequest.FromString(message.SerializeToString())
    del contents.raw_input_contents[:]
    contents.inputs[0].contents.bytes_contents.append(json.dumps([{"req_id": "c", "text": "x", "max_dec_len": 1}]).encode())
    assert payload(exchange(port, contents)[-1].infer_response)[0]["is_end"] == 1


def test_an_error_leaves_the_stream_open(server):
    good = request({"req_id": "after", "text": "Hello", "max_dec_len": 3, "min_dec_len": 3})
    answers = exchange(server.grpc_port, request({"req_id": "r"}, model="other"), good)
    assert sum(bool(a.error_message) for a in answers) == 1
    assert [payload(a.infer_response)[0]["send_idx"] for a in answers if not a.error_message] == [0, 1, 2, 3]


@pytest.mark.parametrize("keys, code", [({"model": "other"}, "INVALID_ARGUMENT"), ({"version": "7"}, "NOT_FOUND")])
def test_triton_grpc_error_ends_the_stream(server, keys, code):
    bad = request({"req_id": "r"}, **keys)
    with pytest.raises(grpc.RpcError) as error:
        exchange(server.grpc_port, bad, metadata=[("triton_grpc_error", "true")])
    assert error.value.code() == grpc.StatusCode[code] and "Request for unknown model" in error.value.details()
    # A refusal of the protocol is none of gRPC's.
    (answer,) = exchange(server.grpc_port, request({"req_id": "r"}), metadata=[("triton_grpc_error", "true")])
    assert payload(answer.infer_response)["error_code"] == 200


def test_messages_have_a_limit(start, server):
    many = request({"req_id": "r", "text": "x"})
    for _ in range(5000):
        many.outputs.add(name="OUT")
    with pytest.raises(grpc.RpcError) as error:
        exchange(server.grpc_port, many)
    assert error.value.code() == grpc.StatusCode.INTERNAL
    small = start("--max-grpc-message-bytes", "4096").wait_ready()
    with pytest.raises(grpc.RpcError) as error:
        exchange(small.grpc_port, request({"req_id": "r", "text": "x" * 5000}))
    assert error.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert messages_of(small.grpc_port, text="x", max_dec_len=1)


def test_questions_about_server_and_model(server):
    with stub(server.grpc_port) as service:
        assert service.ServerLive(pb.ServerLiveRequest()).live and service.ServerReady(pb.ServerReadyRequest()).ready
        assert service.ModelReady(pb.ModelReadyRequest(name="model")).ready
        assert service.ModelReady(pb.ModelReadyRequest(name="model", version="1")).ready
        assert not service.ModelReady(pb.ModelReadyRequest(name="model", version="7")).ready
        assert not service.ModelReady(pb.ModelReadyRequest(name="other")).ready
        about = service.ServerMetadata(pb.ServerMetadataRequest())
        assert about.name == "triton" and about.version and list(about.extensions) == ["binary_tensor_data", "parameters"]
        model = service.ModelMetadata(pb.ModelMetadataRequest(name="model"))
        assert (model.name, list(model.versions), model.platform) == ("model", ["1"], "python")
        assert [(t.name, t.datatype, list(t.shape)) for t in [*model.inputs, *model.outputs]] == [
            ("IN", "BYTES", [1]),
            ("OUT", "BYTES", [1]),
        ]
        index = service.RepositoryIndex(pb.RepositoryIndexRequest())
        assert [(m.name, m.version, m.state) for m in index.models] == [("model", "1", "READY")]
        for method, message, code, text in [
            (service.ModelInfer, request({"req_id": "r"}), "UNIMPLEMENTED", "ModelInfer RPC doesn't support models with decoupled transaction policy"),
            (service.ModelInfer, request({"req_id": "r"}, model="m"), "INVALID_ARGUMENT", "Request for unknown model: 'm' is not found"),
            (service.ModelMetadata, pb.ModelMetadataRequest(name="m"), "INVALID_ARGUMENT", "Request for unknown model: 'm' is not found"),
            (service.ModelMetadata, pb.ModelMetadataRequest(name="model", version="7"), "NOT_FOUND", "Request for unknown model: 'model' version 7 is not found"),
            (service.ModelStatistics, pb.ModelStatisticsRequest(), "UNIMPLEMENTED", ""),
            (service.ModelConfig, pb.ModelConfigRequest(name="model"), "UNIMPLEMENTED", ""),
            (service.RepositoryModelLoad, pb.RepositoryModelLoadRequest(), "UNIMPLEMENTED", ""),
            (service.SystemSharedMemoryStatus, pb.SystemSharedMemoryStatusRequest(), "UNIMPLEMENTED", ""),
        ]:  # fmt: skip
            with pytest.raises(grpc.RpcError) as error:
                method(message)
            assert error.value.code() == grpc.StatusCode[code] and text in error.value.details()


def health(port):
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        return health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=10).status


def test_tritonclient(server):
    assert health(server.grpc_port) == health_pb2.HealthCheckResponse.SERVING
    client = Client(server.grpc_port)
    assert client.client.is_server_live() and client.client.is_model_ready("model")
    alone = client.all(client.send(**LONG))
    one, two = client.send(**LONG), client.send(**{**LONG, "max_dec_len": 32, "min_dec_len": 32})
    seen, ended = {one: [], two: []}, []
    while len(ended) < 2:
        id, (message,), last = client.next()
        seen[id].append(message["token_ids"])
        if last:
            ended.append(id)
    assert seen[one] == [m["token_ids"] for (m,) in alone] and len(seen[two]) == 33
    # The last message carries the mark itself: asking for an empty one after it changes nothing.
    client.extra = {"enable_empty_final_response": True}
    assert len(client.all(client.send(**{**LONG, "max_dec_len": 8, "min_dec_len": 8}))) == 9
    client.extra = {}
    after = client.send(**LONG)
    assert client.next()[0] == after
    client.close(cancel=True)
    wait_for(lambda: server.metric('inference_server_metrics{available_resource="available_resource"}') == 1)


def test_a_cancelled_stream_frees_its_blocks(server):
    client = Client(server.grpc_port)
    ids = [client.send(**LONG) for _ in range(3)]
    client.next()
    client.close(cancel=True)
    wait_for(lambda: server.metric('inference_server_metrics{available_resource="available_resource"}') == 1)
    for id in ids:  # their ids are free again
        assert messages_of(server.grpc_port, **{**LONG, "req_id": id, "max_dec_len": 1, "min_dec_len": 1})


def test_many_streams(start):
    many = start(BATCH_SIZE="64", BLOCK_BS="80", MAX_CACHED_TASK_NUM="512").wait_ready()
    with stub(many.grpc_port) as service, concurrent.futures.ThreadPoolExecutor(256) as pool:

        def ask(number):
            body = {"req_id": f"m{number}", "text": "Hello", "max_dec_len": 8, "min_dec_len": 8, "temperature": 0}
            answers = list(service.ModelStreamInfer(iter([request(body)]), timeout=300))
            return [payload(a.infer_response)[0]["token_ids"] for a in answers]

        answers = list(pool.map(ask, range(256)))
    assert all(answer == answers[0] for answer in answers) and len(answers[0]) == 9


def test_the_first_message_does_not_wait(server):
    # Two messages at once, and nothing else that makes the connection be written to.
    options = [("grpc.http2.bdp_probe", 0), ("grpc.use_local_subchannel_pool", 1)]
    for _ in range(20):
        with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}", options=options) as channel:
            service = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            message = request({"req_id": "first", "text": "Hello", "max_dec_len": 1})
            assert len(list(service.ModelStreamInfer(iter([message]), timeout=20))) == 2


def test_a_key_is_asked_for(start):
    s = start("--api-key", "secret").wait_ready()
    message = request({"req_id": "r", "text": "x", "max_dec_len": 1})
    for metadata in [(), [("authorization", "Bearer other")]]:
        with pytest.raises(grpc.RpcError) as error:
            exchange(s.grpc_port, message, metadata=metadata)
        assert error.value.code() == grpc.StatusCode.UNAUTHENTICATED
    with stub(s.grpc_port) as service:
        for method, question in [
            (service.ServerLive, pb.ServerLiveRequest()),
            (service.ModelStatistics, pb.ModelStatisticsRequest()),
        ]:
            with pytest.raises(grpc.RpcError) as error:
                method(question)
            assert error.value.code() == grpc.StatusCode.UNAUTHENTICATED
    key = [("authorization", "Bearer secret")]
    assert payload(exchange(s.grpc_port, message, metadata=key)[-1].infer_response)[0]["is_end"] == 1
    assert triton.InferenceServerClient(f"127.0.0.1:{s.grpc_port}").is_server_live(headers={"authorization": "Bearer secret"})
    assert health(s.grpc_port) == health_pb2.HealthCheckResponse.SERVING


def test_grpc_alone(start):
    s = start(SERVICE_HTTP_PORT="-1").wait_ready()
    assert messages_of(s.grpc_port, text="Hello", max_dec_len=2)
    with pytest.raises(OSError):
        s.post({"text": "x"})


def test_a_client_that_does_not_read_loses_its_request(start):
    s = start("--write-stall-timeout", "2", MAX_SEQ_LEN="2048", MAX_DEC_LEN="2000", BLOCK_BS="2").wait_ready()
    body = {"req_id": "slow", "text": "Hello", "max_dec_len": 2000, "min_dec_len": 2000, "temperature": 0}
    options = [("grpc.http2.lookahead_bytes", 16384), ("grpc.http2.bdp_probe", 0)]
    with grpc.insecure_channel(f"127.0.0.1:{s.grpc_port}", options=options) as channel:
        call = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelStreamInfer(iter([request(body)]))
        assert payload(next(call).infer_response)[0]["send_idx"] == 0
        time.sleep(4)  # the engine may have ended by then, but not the answer: more waits than may wait
        assert messages_of(s.grpc_port, text="Hello", max_dec_len=2)  # nobody else is held up
        answers = list(call)
        assert answers[-1].error_message == "the client does not read its answers" and is_last(answers[-1])
