"""--api-key-file on the ports of PaddleNLP's server: HTTP and gRPC ask for the same keys, also when they change."""

import http.client
import json
import queue
import signal

import grpc
import pytest
from grpc_client import exchange, payload, request, stub
from tern_server import wait_for

MESSAGE = {"req_id": "r", "text": "x", "max_dec_len": 1}


def metadata(key):
    return [("authorization", f"Bearer {key}")]


def over_http(server, key):
    c = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    c.request("POST", "/v1/chat/completions", json.dumps(MESSAGE), {"Authorization": f"Bearer {key}"})
    return c.getresponse().status


def over_grpc(server, key):
    try:
        answer = exchange(server.grpc_port, request(MESSAGE), metadata=metadata(key))[-1]
    except grpc.RpcError as error:
        return error.code()
    return payload(answer.infer_response)[0]["is_end"]


def reload(server, text):
    server.process.send_signal(signal.SIGHUP)
    wait_for(lambda: text in (server.logs / "fastdeploy.log").read_text())


def test_every_port_asks_for_the_keys_of_the_file(start, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("one\n")
    s = start("--api-key-file", keys).wait_ready()
    refused = grpc.StatusCode.UNAUTHENTICATED
    assert [over_http(s, "one"), over_http(s, "two")] == [200, 401]
    assert [over_grpc(s, "one"), over_grpc(s, "two")] == [1, refused]
    keys.write_text("two\nthree\n")
    reload(s, "2 keys count")
    assert [over_http(s, "one"), over_http(s, "two")] == [401, 200]
    assert [over_grpc(s, "one"), over_grpc(s, "two")] == [refused, 1]


def test_a_stream_whose_key_is_taken_back_gets_no_more_answers(start, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("one\ntwo\n")
    s = start("--api-key-file", keys).wait_ready()
    asked = queue.Queue()
    with stub(s.grpc_port) as service:
        answers = service.ModelStreamInfer(iter(asked.get, None), metadata=metadata("one"))
        asked.put(request(MESSAGE))
        assert payload(next(answers).infer_response)
        keys.write_text("two\n")
        reload(s, "1 keys count")
        asked.put(request({**MESSAGE, "req_id": "late"}))
        late = [a for a in answers_until_error(answers)]
        asked.put(None)
    assert late[-1].error_message == "Unauthorized" and late[-1].infer_response.id == "late"


def answers_until_error(answers):
    for answer in answers:
        yield answer
        if answer.error_message:
            return


def test_an_empty_file_does_not_open_the_ports(start, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("\n")
    s = start("--api-key-file", keys)
    assert s.process.wait(60) != 0 and "it holds no key" in s.text()
    with pytest.raises(OSError):
        over_http(s, "one")
