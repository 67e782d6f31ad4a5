"""An agent that tries what each line of its input says, and writes a line about it."""

import ctypes
import errno
import os
import socket
import sys

FAST_OPEN = 0x20000000
UPPER_PROTOCOL = 31


def tcp(host, port, sent=None):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as connection:
        connection.settimeout(60)
        connection.connect((host, int(port)))
        connection.sendall(b"hello\n")
        if sent:
            open(sent, "w").close()
        return connection.makefile().readline().strip()


def create(family, kind, protocol):
    socket.socket(int(family), int(kind), int(protocol)).close()
    return "created"


def listen(host, port):
    with socket.socket() as listener:
        listener.bind((host, int(port)))
        listener.listen()
    return "listening"


def fast_open(call, host, port):
    with socket.socket() as connection:
        address = (host, int(port))
        if call == "sendto":
            connection.sendto(b"hello\n", FAST_OPEN, address)
        elif call == "sendmsg":
            connection.sendmsg([b"hello\n"], [], FAST_OPEN, address)
        else:
            libc = ctypes.CDLL(None, use_errno=True)
            # Without messages: the flags alone decide.
            if libc.sendmmsg(connection.fileno(), None, 0, FAST_OPEN) < 0:
                raise OSError(ctypes.get_errno(), "sendmmsg")
    return "sent"


def change_protocol():
    with socket.socket() as connection:
        connection.setsockopt(socket.IPPROTO_TCP, UPPER_PROTOCOL, b"smc")
    return "changed"


def variable(name):
    return os.environ[name]


def wait(pipe, host, port, sent):
    print("waiting", flush=True)
    with open(pipe) as opened:
        opened.read()
    return tcp(host, port, sent)


ACTIONS = [tcp, create, listen, fast_open, change_protocol, variable, wait]

if __name__ == "__main__":
    actions = {action.__name__: action for action in ACTIONS}
    for line in [" ".join(sys.argv[1:])] if sys.argv[1:] else sys.stdin:
        name, *arguments = line.split()
        try:
            print(actions[name](*arguments), flush=True)
        except OSError as error:
            print(errno.errorcode.get(error.errno, str(error)), flush=True)
