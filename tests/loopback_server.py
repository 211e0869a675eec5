"""A small web server on the loopback device that can be told to misbehave."""

import re
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Script:
    """What the server has, and how it misbehaves."""

    files: dict[str, bytes] = field(default_factory=dict)
    break_after: list[int] = field(default_factory=list)  # bytes sent by each request in turn
    ignores_ranges: bool = False
    hides_length: bool = False
    requests: list[tuple[str, str | None]] = field(default_factory=list)
    url: str = ""


@contextmanager
def serving():
    script = Script()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):  # the name is http.server's
            asked = self.headers.get("Range")
            name = self.path.lstrip("/")
            script.requests.append((name, asked))
            if name not in script.files:
                self.send_error(404)
                return
            content, begin = script.files[name], 0
            if asked and not script.ignores_ranges:
                begin = int(re.match(r"bytes=(\d+)-", asked)[1])
                if begin >= len(content):
                    self.send_error(416)
                    return
                self.send_response(206)
                self.send_header(
                    "Content-Range", f"bytes {begin}-{len(content) - 1}/{len(content)}"
                )
            else:
                self.send_response(200)
            if not script.hides_length:
                self.send_header("Content-Length", str(len(content) - begin))
            self.end_headers()
            limit = script.break_after.pop(0) if script.break_after else len(content)
            self.wfile.write(content[begin : begin + limit])
            self.close_connection = True

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    script.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield script
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
