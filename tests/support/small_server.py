"""A server of OpenAI's completions by the standard library alone: python small_server.py PORT WORD. It answers WORD."""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PORT, WORD = int(sys.argv[1]), sys.argv[2]


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        known = self.path == "/v1/models"
        self.send(200 if known else 404, {"object": "list", "data": [{"id": "org/tiny"}]} if known else {})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        prompt = asked["prompt"]
        usage = {"prompt_tokens": len(prompt), "completion_tokens": 1}
        choice = {"text": WORD, "finish_reason": "stop"}
        if isinstance(prompt, str):
            return self.send(400, {"error": {"message": "prompts are token ids"}})
        self.send(200, {"model": asked["model"], "choices": [choice], "usage": usage})

    def send(self, status: int, node: object) -> None:
        body = json.dumps(node).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if WORD == "refuses":
    raise SystemExit("error: no such cache type")
ThreadingHTTPServer(("127.0.0.1", PORT), Handler).serve_forever()
