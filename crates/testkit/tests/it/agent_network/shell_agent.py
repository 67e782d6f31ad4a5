# An agent that runs its prompt in a shell, and says what that has written.
import json
import subprocess
import sys


def send(message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


for line in sys.stdin:
    message = json.loads(line)
    method, id = message.get("method"), message.get("id")
    if method == "initialize":
        send({"id": id, "result": {"protocolVersion": 1, "agentCapabilities": {"loadSession": True}}})
    elif method == "session/new":
        send({"id": id, "result": {"sessionId": "session"}})
    elif method == "session/load":
        send({"id": id, "result": {}})
    elif method == "session/prompt":
        script = "".join(part.get("text", "") for part in message["params"]["prompt"])
        shell = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True)
        content = {"type": "text", "text": shell.stdout + shell.stderr + "."}
        update = {"sessionUpdate": "agent_message_chunk", "content": content}
        send({"method": "session/update", "params": {"sessionId": "session", "update": update}})
        send({"id": id, "result": {"stopReason": "end_turn"}})
    elif id is not None:
        send({"id": id, "error": {"code": -32601, "message": "unknown method"}})
