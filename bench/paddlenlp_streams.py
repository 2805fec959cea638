#!/usr/bin/env python3
"""Server CPU per streamed token of one program that speaks three protocols at once: OpenAI's stream, PaddleNLP's native
HTTP stream, and KServe over gRPC. The engine answers from a script, a token every --delay ms per stream, those of all streams
together as the steps of a batch give them; each client reads all streams in one thread.

  paddlenlp_streams.py [--tern build/release/tern] [--streams 256] [--tokens 100] [--delay 100] [--channels 256] [--turns 3]

Wants the tests' Python environment (grpcio, tritonclient). CPU is what /proc says of the server's process, engine included.
"""

import argparse
import asyncio
import json
import os
import pathlib
import selectors
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tools" / "gpu_check"), str(ROOT / "tests"), str(ROOT / "tests" / "paddlenlp")]
import grpc  # noqa: E402
import rows  # noqa: E402
from grpc_client import request  # noqa: E402
from pn_server import free_ports  # noqa: E402
from tritonclient.grpc import service_pb2_grpc as stubs  # noqa: E402

NAMES = ("SERVICE_HTTP_PORT", "SERVICE_GRPC_PORT", "HEALTH_HTTP_PORT", "METRICS_HTTP_PORT", "INTER_PROC_PORT")


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def over_http(port, path, bodies, needle):
    """Reads all streams to their end; how often `needle` came."""
    found, waiting = 0, selectors.DefaultSelector()
    for body in bodies:
        data = json.dumps(body).encode()
        s = socket.create_connection(("127.0.0.1", port))
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\nConnection: close\r\n\r\n"
        s.sendall(head.encode() + data)
        s.setblocking(False)
        waiting.register(s, selectors.EVENT_READ, bytearray())
    while waiting.get_map():
        for key, _ in waiting.select():
            data = key.fileobj.recv(65536)
            if data:
                key.data.extend(data)
                continue
            found += key.data.count(needle)
            waiting.unregister(key.fileobj)
            key.fileobj.close()
    return found


def over_grpc(port, bodies, channels):
    """Reads all streams to their end, in one thread as over_http; how many tokens came."""
    options = [("grpc.use_local_subchannel_pool", 1)]

    async def read(channel, body):
        call = stubs.GRPCInferenceServiceStub(channel).ModelStreamInfer()
        await call.write(request(body))
        await call.done_writing()
        count = 0
        while await call.read() is not grpc.aio.EOF:
            count += 1
        return count - 1  # the last message has no token

    async def read_all():
        opened = [grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options) for _ in range(channels)]
        counts = await asyncio.gather(*(read(opened[i % channels], body) for i, body in enumerate(bodies)))
        for channel in opened:
            await channel.close()
        return sum(counts)

    return asyncio.run(read_all())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tern", default=str(ROOT / "build" / "release" / "tern"))
    parser.add_argument("--streams", type=int, default=256)
    parser.add_argument("--tokens", type=int, default=100)
    parser.add_argument("--delay", type=float, default=100)
    parser.add_argument("--channels", type=int, default=256)
    parser.add_argument("--turns", type=int, default=3, help="of the three protocols; medians are reported")
    args = parser.parse_args()
    n, tokens = args.streams, args.tokens
    with tempfile.TemporaryDirectory() as folder:
        script = pathlib.Path(folder) / "script.jsonl"
        script.write_text(json.dumps({"match": "", "text": " word" * 4 * tokens, "token_delay_ms": args.delay}))
        ports, (port,) = free_ports(5), free_ports(1)
        env = {**os.environ, **{k: str(v) for k, v in zip(NAMES, ports)}, "FD_LOG_DIR": folder, "FD_LOG_REQUESTS": "0"}
        flags = ["--model", ROOT / "models" / "tern-demo-ocr", "--scripted", script, "--max-num-seqs", n, "--max-model-len", 2048]
        server = subprocess.Popen(
            list(map(str, [args.tern, "serve", "--paddlenlp", "--host", "127.0.0.1", "--port", port, *flags])),
            env={**env, "MAX_CACHED_TASK_NUM": str(4 * n)}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            for _ in range(600):
                with socket.socket() as s:
                    if s.connect_ex(("127.0.0.1", ports[1])) == 0:
                        break
                time.sleep(0.05)
            native = {"text": "x", "max_dec_len": tokens, "min_dec_len": tokens, "temperature": 0, "stream": True}
            chat = {"messages": [{"role": "user", "content": "x"}], "max_tokens": tokens, "min_tokens": tokens, "stream": True}
            ways = {
                "OpenAI": lambda: over_http(port, "/v1/chat/completions", [chat] * n, b"data: {") - n,  # the role comes alone
                "native HTTP": lambda: over_http(ports[0], "/v1/chat/completions", [native] * n, b'"is_end":0'),
                "gRPC": lambda: over_grpc(ports[1], [{**native, "req_id": f"r{i}"} for i in range(n)], min(args.channels, n)),
            }
            spent = {name: [] for name in ways}
            for _ in range(args.turns):
                for name, run in ways.items():
                    before = cpu_seconds(server.pid)
                    count = run()
                    spent[name].append((cpu_seconds(server.pid) - before) / count * 1e6)
            base = statistics.median(spent["OpenAI"])
            for name, figures in spent.items():
                used = statistics.median(figures)
                print(f"{name}: {used:.1f} us of server CPU per streamed token ({used / base:.2f} times OpenAI's), "
                      f"median of {', '.join(f'{f:.1f}' for f in figures)}", flush=True)  # fmt: skip
                beside = {} if name == "OpenAI" else dict(
                    reference="OpenAI's stream, same run", reference_value=round(base, 2), reference_unit="us")  # fmt: skip
                note = f"{used / base:.2f} times OpenAI's; " * bool(beside) + f"medians of {args.turns} turns"
                rows.add(f"server CPU per streamed token, {name}, scripted engine, {n} streams, a token every {args.delay:g} ms each",
                         "bench/paddlenlp_streams.py", round(used, 2), "us", note=note, **beside)  # fmt: skip
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(20)


if __name__ == "__main__":
    main()
