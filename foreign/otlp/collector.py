"""A collector of traces on the official definitions, which returns the received traces.

    python collector.py PORT

POST /v1/traces takes spans, as OpenTelemetry defines it. GET /spans returns all of them as JSON, GET /requests the
headers of each request. POST /refuse/STATUS/COUNT makes the next COUNT requests fail with STATUS.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

spans: list[dict] = []
requests: list[dict] = []
refusals: list[int] = []


def plain(attributes) -> dict:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in attributes}


def shown(span: Span, resource: dict, scope: str) -> dict:
    return {
        "trace": span.trace_id.hex(),
        "span": span.span_id.hex(),
        "parent": span.parent_span_id.hex(),
        "name": span.name,
        "kind": Span.SpanKind.Name(span.kind),
        "start": span.start_time_unix_nano,
        "end": span.end_time_unix_nano,
        "attributes": plain(span.attributes),
        "status": {"code": Status.StatusCode.Name(span.status.code), "message": span.status.message},
        "flags": span.flags,
        "resource": resource,
        "scope": scope,
    }


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        found = {"/spans": spans, "/requests": requests}.get(self.path)
        self.answer(404 if found is None else 200, "application/json", json.dumps(found).encode())

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.path.startswith("/refuse/"):
            _, _, status, count = self.path.split("/")
            refusals.extend([int(status)] * int(count))
            return self.answer(200, "text/plain", b"")
        if self.path != "/v1/traces" or self.headers["content-type"] != "application/x-protobuf":
            return self.answer(404, "text/plain", b"")
        requests.append({name.lower(): value for name, value in self.headers.items()})
        if refusals:
            return self.answer(refusals.pop(0), "text/plain", b"")
        for group in ExportTraceServiceRequest.FromString(body).resource_spans:
            resource = plain(group.resource.attributes)
            for scope in group.scope_spans:
                spans.extend(shown(span, resource, scope.scope.name) for span in scope.spans)
        self.answer(200, "application/x-protobuf", ExportTraceServiceResponse().SerializeToString())

    def answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_) -> None:
        pass


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
