"""What both transports say when the queue is full, the server stops or the engine fails (docs/spec/paddlenlp-server.md 2.3,
3.4, 4, 5.2)."""

import concurrent.futures
import json
import pathlib
import signal
import time

import grpc
import pytest
from grpc_client import Client, exchange, messages_of, payload, request, stub
from tern_server import wait_for
from tritonclient.grpc import service_pb2 as pb

LONG = {"text": "Hello", "max_dec_len": 64, "min_dec_len": 64, "temperature": 0}
RUNNING = 'inference_server_metrics{batch_size="batch_size"}'


def scripted(tmp_path, start, delay, **variables):
    script = tmp_path / "script.jsonl"
    script.write_text(json.dumps({"match": "", "text": "one two three four five six", "token_delay_ms": delay}) + "\n")
    return start("--scripted", script, **variables).wait_ready()


def test_a_full_queue(start, tmp_path):
    server = scripted(tmp_path, start, 1200)  # 2 run, 2 wait, long enough for what is asked meanwhile on a busy machine
    client = Client(server.grpc_port)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        over_http = [pool.submit(server.post, {"text": f"question {i}"}) for i in range(2)]
        for i in range(2):
            client.send(text=f"question {i}")
        wait_for(lambda: server.metric("nv_inference_pending_request_count") >= 2)
        want = (None, "cached task num (2) exceeds the limit (2)", 200)
        _, refused = server.post({"text": "one more", "req_id": "late"})
        assert (refused["req_id"], refused["error_msg"], refused["error_code"]) == want
        (answer,) = exchange(server.grpc_port, request({"text": "one more", "req_id": "late"}))
        refused = payload(answer.infer_response)
        assert (refused["req_id"], refused["error_msg"], refused["error_code"]) == want
        # Step 0b comes before the queue, step 3 after it.
        assert payload(exchange(server.grpc_port, request({"text": 5}))[0].infer_response)["error_msg"].startswith("Unexcepted")
        assert payload(exchange(server.grpc_port, request({"req_id": "r"}))[0].infer_response)["error_msg"] == want[1]
        assert all(f.result()[1]["error_code"] == 0 for f in over_http)
    ended = 0
    while ended < 2:
        ended += client.next()[2]
    client.close()


def test_ids_are_one_over_both_transports(start, tmp_path):
    server = scripted(tmp_path, start, 300)
    client = Client(server.grpc_port)
    client.send(id="same", text="question")
    client.next()
    _, answer = server.post({"req_id": "same", "text": "x"})
    assert answer["error_msg"] == "The req_id same already exists in the current batch, the current request will be ignored."
    (again,) = exchange(server.grpc_port, request({"req_id": "same", "text": "x"}))
    assert payload(again.infer_response)["error_msg"] == answer["error_msg"]
    client.close(cancel=True)


def test_a_stop_under_load(start, tmp_path):
    server = scripted(tmp_path, start, 500)
    client = Client(server.grpc_port)
    id = client.send(text="question")
    assert client.next()[0] == id
    with concurrent.futures.ThreadPoolExecutor(1) as pool, stub(server.grpc_port) as service:
        assert service.ServerLive(pb.ServerLiveRequest()).live
        over_http = pool.submit(server.post, {"text": "question"})
        wait_for(lambda: server.metric(RUNNING) == 2)
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        # What runs goes on; what is new is told.
        with pytest.raises(Exception, match=r"GRPC server is shutting down and has stopped accepting new requests\."):
            client.send(text="late")
            while client.next():
                pass
        with pytest.raises(grpc.RpcError) as error:
            service.ServerLive(pb.ServerLiveRequest())
        assert (error.value.code(), error.value.details()) == (grpc.StatusCode.UNAVAILABLE, "Server exiting")
        assert over_http.result()[1]["error_code"] == 0
        last = False
        while not last:
            got, message, last = client.next()
            assert got == id
        assert message[0]["is_end"] == 1
    assert server.process.wait(30) == 0


def test_a_stop_that_does_not_wait(start):
    server = start("--timeout-graceful-shutdown", "0").wait_ready()
    client = Client(server.grpc_port)
    client.send(**LONG)
    client.next()
    server.process.send_signal(signal.SIGTERM)
    message = None
    while not isinstance(message, dict):  # a list is one of its messages
        _, message, last = client.next()
        if last and isinstance(message, list):
            break
    assert last and (isinstance(message, list) or message["error_msg"] == "The request was aborted")
    assert server.process.wait(30) == 0


def test_a_failed_engine(start):
    server = start(TERN_FAULT="trap@3").wait_ready()
    with stub(server.grpc_port) as service:
        call = service.ModelStreamInfer(iter([request({"req_id": "r", **LONG})]), metadata=[("triton_grpc_error", "true")])
        with pytest.raises(grpc.RpcError) as error:
            list(call)
        assert error.value.code() == grpc.StatusCode.UNAVAILABLE
    assert server.health() == (500, '{"error_code": 2, "error_msg": "infer engine is down"}')
    with stub(server.grpc_port) as service:
        assert not service.ServerReady(pb.ServerReadyRequest()).ready
        assert not service.ModelReady(pb.ModelReadyRequest(name="model")).ready
    (answer,) = exchange(server.grpc_port, request({"req_id": "r", "text": "x"}))
    assert answer.error_message == "Request for unknown model: 'model' version 1 is not at ready state"
    http = server.post({"text": "x"})[1]
    assert http["error_code"] == 500 and http["error_msg"].startswith("status is StatusCode.UNAVAILABLE, msg is ")
    assert server.process.wait(15) == 1


def test_a_killed_server(start):
    server = start().wait_ready()
    client = Client(server.grpc_port)
    client.send(**LONG)
    client.next()
    server.process.kill()
    with pytest.raises(Exception, match="UNAVAILABLE"):
        while True:
            client.next()


def test_a_taken_port_ends_the_start(start, server):
    second = start(SERVICE_GRPC_PORT=str(server.grpc_port))
    assert second.process.wait(60) != 0
    assert f":{server.grpc_port} for gRPC: is another server running there?" in second.text()


def test_two_engines_behind_both_transports(server, start):
    two = start("--data-parallel-size", "2", TERN_TEST_RANKS="1", USE_WARMUP="1").wait_ready()
    asks = [{"text": f"{n}+4=", "max_dec_len": 12, "min_dec_len": 12, "temperature": 0} for n in range(12)]

    def ask(n):
        if n % 2:
            return two.post(asks[n])[1]["result"]
        return "".join(message["token"] for step in messages_of(two.grpc_port, **asks[n]) for message in step)

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        said = list(pool.map(ask, range(12)))
    assert said == [server.post(ask)[1]["result"] for ask in asks]
    assert two.metric('inference_server_metrics{max_batch_size="max_batch_size"}') == 4
    names = [p.read_text().strip() for p in pathlib.Path(f"/proc/{two.process.pid}/task").glob("*/comm")]
    assert sorted(n for n in names if n.startswith("engine")) == ["engine-0", "engine-1"]
    two.process.send_signal(signal.SIGTERM)
    assert two.process.wait(20) == 0
