"""Puts of Cloud Storage's XML API, with their condition, for fake-gcs-server, which lacks them; the rest passes as it is.

python tests/xml_puts.py PORT http://127.0.0.1:PORT_OF_THE_SERVER
"""

import contextlib
import http.client
import json
import sys
import threading
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

CONDITION = "x-goog-if-generation-match"
LOCK = threading.Lock()
PER_HOP = ("connection", "transfer-encoding", "content-length", "keep-alive")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def handle_any(self):
        with LOCK if self.headers.get(CONDITION) else contextlib.nullcontext():
            self._pass_on(self._body())

    def _pass_on(self, body):
        path, headers = self.path, {k: v for k, v in self.headers.items() if k.lower() not in PER_HOP}
        method = self.command
        xml = not path.startswith(("/storage/", "/upload/", "/download/", "/_internal", "/resumable", "/batch"))
        if xml and method == "PUT" and "?" not in path:
            bucket, _, name = path[1:].partition("/")
            asked = {"uploadType": "media", "name": urllib.parse.unquote(name)}
            bucket = urllib.parse.unquote(bucket)
            wanted = self.headers.get(CONDITION)
            if wanted is not None and wanted != self._generation(bucket, asked["name"]):
                self.send_response(412)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            method, path = "POST", f"/upload/storage/v1/b/{bucket}/o?{urllib.parse.urlencode(asked)}"
        server = http.client.HTTPConnection(self.server.behind, timeout=60)
        server.request(method, path, body, headers)
        answer = server.getresponse()
        data = answer.read()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in PER_HOP:
                self.send_header(name, value)
        if xml and method == "POST" and answer.status == 200:
            made = json.loads(data)
            self.send_header("ETag", '"{}"'.format(made["etag"].strip('"')))
            self.send_header("x-goog-generation", made["generation"])
        length = answer.getheader("Content-Length") if method == "HEAD" else None
        self.send_header("Content-Length", length or str(len(data)))
        self.end_headers()
        if method != "HEAD":
            self.wfile.write(data)
        server.close()

    def _generation(self, bucket, name):
        server = http.client.HTTPConnection(self.server.behind, timeout=60)
        server.request("GET", f"/storage/v1/b/{bucket}/o/{urllib.parse.quote(name, safe='')}")
        answer = server.getresponse()
        data = answer.read()
        server.close()
        return json.loads(data)["generation"] if answer.status == 200 else "0"

    def _body(self):
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = do_PATCH = handle_any

    def log_message(self, *arguments):
        pass


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
    server.behind = sys.argv[2].removeprefix("http://")
    server.serve_forever()
