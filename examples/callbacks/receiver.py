"""Receives signed callbacks of Trilogue. Needs Python 3.9 and nothing else.

    CALLBACK_SECRET=$(trilogue webhooks secret http://127.0.0.1:8800/hook) python3 receiver.py 8800
"""

import base64
import binascii
import hashlib
import hmac
import json
import os
import sys
import time
from collections import OrderedDict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock

MAX_BODY_BYTES = 16 * 1024 * 1024
MAX_AGE_SECONDS = 5 * 60
MAX_SIGNATURES = 16
# The number of remembered ids: a repeated attempt has the id of the first.
MAX_IDS = 10_000


def read_secrets(text):
    """Reads the secrets. Two, separated by a space, are valid while the server changes its own."""
    secrets = [base64.b64decode(word.removeprefix("whsec_"), validate=True) for word in text.split()]
    if not secrets or not all(secrets):
        raise ValueError("set CALLBACK_SECRET to what `trilogue webhooks secret URL` prints")
    return secrets


def is_genuine(secrets, headers, body, now):
    """Whether a callback was signed with one of the secrets, at most five minutes ago."""
    delivery, sent = headers.get("webhook-id"), headers.get("webhook-timestamp", "")
    if not delivery or not sent.isascii() or not sent.isdigit() or len(sent) > 12:
        return False
    if abs(now - int(sent)) > MAX_AGE_SECONDS:
        return False
    signatures = []
    for word in headers.get("webhook-signature", "").split(" ")[:MAX_SIGNATURES]:
        try:
            signatures.append(base64.b64decode(word.removeprefix("v1,"), validate=True))
        except (binascii.Error, ValueError):
            continue
    # Signs the received bytes, not JSON that was parsed and written again.
    signed = f"{delivery}.{sent}.".encode("latin-1") + body
    # `compare_digest` takes the same time for every wrong signature.
    return any(
        hmac.compare_digest(hmac.new(secret, signed, hashlib.sha256).digest(), signature)
        for secret in secrets
        for signature in signatures
    )


class Receiver(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 30
    secrets = []
    ids = OrderedDict()
    lock = Lock()

    def do_POST(self):
        length = self.headers.get("content-length", "")
        if not length.isascii() or not length.isdigit() or len(length) > 12:
            return self.answer(411)
        if int(length) > MAX_BODY_BYTES:
            return self.answer(413)
        body = self.rfile.read(int(length))
        if not is_genuine(self.secrets, self.headers, body, time.time()):
            return self.answer(401)
        delivery = self.headers["webhook-id"]
        with self.lock:
            is_new = delivery not in self.ids
            self.ids[delivery] = None
            if len(self.ids) > MAX_IDS:
                self.ids.popitem(last=False)
            if is_new:
                # Your own work belongs here. Keep it short by using a queue; otherwise the server retries.
                print(json.dumps({"id": delivery, "body": body.decode()}), flush=True)
        self.answer(204)

    def answer(self, status):
        self.send_response(status)
        self.send_header("content-length", "0")
        if status != 204:
            # The rest of the body is not read.
            self.send_header("connection", "close")
            self.close_connection = True
        self.end_headers()

    def log_message(self, *_):
        """Suppresses the log line of each request."""


if __name__ == "__main__":
    Receiver.secrets = read_secrets(os.environ.get("CALLBACK_SECRET", ""))
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Receiver)
    print("listening", flush=True)
    server.serve_forever()
