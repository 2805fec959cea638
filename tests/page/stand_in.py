"""A server that sends the page as a Tern sends it and answers chats with pieces of its own: what no model says at will."""

import http.server
import json
import threading
import urllib.request


class StandIn:
    def __init__(self, tern, pieces):
        with urllib.request.urlopen(tern.url + "/") as answer:
            page, policy = answer.read(), answer.headers["content-security-policy"]
        with urllib.request.urlopen(tern.url + "/page/config") as answer:
            config = answer.read()
        stand_in = self
        self.asked = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def reply(self, body, kind, **more):
                self.send_response(200)
                for name, value in {"content-type": kind, "content-length": str(len(body)), **more}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def do_GET(self):
                stand_in.asked.append(self.path)
                if self.path == "/":
                    return self.reply(page, "text/html; charset=utf-8", **{"content-security-policy": policy})
                if self.path == "/page/config":
                    return self.reply(config, "application/json")
                self.send_error(404)

            def do_POST(self):
                stand_in.asked.append(self.path)
                self.rfile.read(int(self.headers["content-length"]))
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.end_headers()
                for delta in pieces:
                    self.event(choices=[{"index": 0, "delta": delta}])
                self.event(choices=[{"index": 0, "delta": {}, "finish_reason": "stop"}])
                self.event(choices=[], usage={"prompt_tokens": 1, "completion_tokens": 1})
                self.wfile.write(b"data: [DONE]\n\n")

            def event(self, **data):
                self.wfile.write(b"data: " + json.dumps(data).encode() + b"\n\n")

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def end(self):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()
