"""What the tests of gRPC share: requests over tritonclient and over its raw stubs."""

import contextlib
import itertools
import json
import queue

import grpc
import numpy
import tritonclient.grpc as triton
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc as stubs

NUMBERS = itertools.count(1)


def encoded(element):
    return len(element).to_bytes(4, "little") + element


def request(
    *bodies, id=None, model="model", version="", outputs=("OUT",), name="IN", datatype="BYTES", shape=(1,), raw=None, **keys
):
    """A ModelInferRequest; `raw`: the input's bytes, in place of the JSON of `bodies`."""
    if id is None:
        id = bodies[0].get("req_id", "") if bodies and isinstance(bodies[0], dict) else ""
    message = pb.ModelInferRequest(model_name=model, model_version=version, id=id)
    if name is not None:
        message.inputs.add(name=name, datatype=datatype, shape=shape)
        message.raw_input_contents.append(encoded(json.dumps(list(bodies)).encode()) if raw is None else raw)
    for output in outputs:
        message.outputs.add(name=output)
    for key, value in keys.items():
        kind = {bool: "bool_param", int: "int64_param", str: "string_param", float: "double_param"}[type(value)]
        setattr(message.parameters[key], kind, value)
    return message


def payload(response):
    """The JSON of an answer's OUT."""
    raw = response.raw_output_contents[0]
    assert raw[:4] == (len(raw) - 4).to_bytes(4, "little")
    assert raw[4:].isascii()
    return json.loads(raw[4:])


def is_last(answer):
    return answer.infer_response.parameters["triton_final_response"].bool_param


@contextlib.contextmanager
def stub(port):
    with grpc.insecure_channel(
        f"127.0.0.1:{port}", options=[("grpc.max_receive_message_length", -1), ("tern.test", next(NUMBERS))]
    ) as channel:
        yield stubs.GRPCInferenceServiceStub(channel)


def exchange(port, *messages, metadata=()):
    """The stream's answers to these requests, which are all sent before the client closes its side."""
    with stub(port) as service:
        return list(service.ModelStreamInfer(iter(messages), metadata=list(metadata), timeout=120))


def messages_of(port, **body):
    """The messages of one request, in the lists they come in."""
    answers = exchange(port, request({"req_id": f"g{next(NUMBERS)}", **body}))
    assert not any(answer.error_message for answer in answers), answers
    assert [is_last(answer) for answer in answers] == [False] * (len(answers) - 1) + [True]
    return [payload(answer.infer_response) for answer in answers]


class Client:
    """tritonclient's own stream; answers and errors come in a queue."""

    def __init__(self, port, **stream):
        self.client = triton.InferenceServerClient(f"127.0.0.1:{port}")
        self.news = queue.Queue()
        self.extra = {}
        self.client.start_stream(lambda result, error: self.news.put((result, error)), **stream)

    def send(self, id=None, **body):
        id = id or f"t{next(NUMBERS)}"
        data = triton.InferInput("IN", [1], "BYTES")
        data.set_data_from_numpy(numpy.array([json.dumps([{"req_id": id, **body}]).encode()], dtype=object))
        self.client.async_stream_infer("model", [data], request_id=id, outputs=[triton.InferRequestedOutput("OUT")], **self.extra)
        return id

    def next(self, seconds=60):
        """Id, message, last."""
        result, error = self.news.get(timeout=seconds)
        if error is not None:
            raise error
        response = result.get_response()
        value = json.loads(result.as_numpy("OUT")[0])
        return response.id, value, response.parameters["triton_final_response"].bool_param

    def all(self, id):
        out = []
        while True:
            got, value, last = self.next()
            assert got == id
            out.append(value)
            if last:
                return out

    def close(self, cancel=False):
        self.client.stop_stream(cancel_requests=cancel)
        self.client.close()
