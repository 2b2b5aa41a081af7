"""A server in this process that answers as the hub does for one data set."""

import hashlib
import json

from tests.support.servers import QuietHandler


class FakeHub:
    """Answers as the hub does for one data set; `asked` has the paths requested, `sent` the files downloaded."""

    def __init__(self, repository: str, revision: str, files: dict[str, bytes]):
        self.repository, self.revision, self.files = repository, revision, files
        self.asked: list[str] = []
        self.sent: list[str] = []

    def handler(self) -> type[QuietHandler]:
        hub = self

        class Handler(QuietHandler):
            def do_GET(self, send: bool = True):
                path = self.path.partition("?")[0]
                hub.asked.append(path)
                body, name = hub.body(path)
                self.send_response(404 if body is None else 200)
                self.send_header("Content-Length", str(len(body or b"")))
                self.send_header("X-Repo-Commit", hub.revision)
                self.send_header("ETag", f'"{hashlib.sha1(body or b"").hexdigest()}"')
                self.end_headers()
                if send and body is not None:
                    hub.sent += [name] if name else []  # before the other side has it and looks here
                    self.wfile.write(body)

            def do_HEAD(self):
                self.do_GET(send=False)

        return Handler

    def body(self, path: str) -> tuple[bytes | None, str]:
        """What a request is answered with, and the file that it is for."""
        name = path.removeprefix(f"/datasets/{self.repository}/resolve/{self.revision}/")
        if name in self.files:
            return self.files[name], name
        api = f"/api/datasets/{self.repository}"
        if path == f"{api}/tree/{self.revision}":
            sizes = [(name, len(data), hashlib.sha1(data).hexdigest()) for name, data in self.files.items()]
            rows = [{"type": "file", "path": name, "size": size, "oid": oid} for name, size, oid in sizes]
            return json.dumps(rows).encode(), ""
        if path == f"{api}/revision/{self.revision}":
            files = [{"rfilename": name} for name in self.files]
            return json.dumps({"id": self.repository, "sha": self.revision, "siblings": files}).encode(), ""
        return None, ""
