"""An agent that tries to leave its sandbox: the text of a prompt names the attempt.

With the argument `victim`, another program of the same user, which the attempts are aimed at.
"""

import array
import ctypes
import errno
import fcntl
import json
import mmap
import os
import resource
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request

SECRET = "the secret"
MARK = "an escape"
LIBC = ctypes.CDLL(None, use_errno=True)
ATTEMPTS = {}


def attempt(title):
    """Registers an attempt. It escapes if it returns something true, or the path of a file that then exists outside."""

    def register(function):
        ATTEMPTS[title] = function
        return function

    return register


def call(number, *arguments):
    """Makes a system call that has no function of its own."""
    result = LIBC.syscall(ctypes.c_long(number), *[ctypes.c_long(it) if isinstance(it, int) else it for it in arguments])
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def content(path):
    with open(path, "rb") as file:
        return file.read(1 << 20)


def write(path, mode="ab"):
    with open(path, mode) as file:
        file.write(MARK.encode())
    return path


# Files of the server


@attempt("read the file with the token")
def _(it):
    return content(it["token_file"])


@attempt("read the database")
def _(it):
    return content(it["database"])


@attempt("read the settings")
def _(it):
    return content(it["settings"])


@attempt("write into the database")
def _(it):
    with open(it["database"], "r+b") as file:
        return file.read(6) == b"SQLite"


@attempt("list the state folder")
def _(it):
    return os.listdir(it["state"])


@attempt("add a file to the state folder")
def _(it):
    return write(os.path.join(it["state"], "escape"))


@attempt("read the token through a symbolic link")
def _(it):
    link = os.path.join(os.getcwd(), "link")
    if not os.path.islink(link):
        os.symlink(it["token_file"], link)
    return content(link)


@attempt("read the token through a hard link")
def _(it):
    os.link(it["token_file"], "hard-link")
    return content("hard-link")


@attempt("read the token through `..`")
def _(it):
    return content(os.path.relpath(it["token_file"]))


@attempt("rename the database")
def _(it):
    os.rename(it["database"], it["database"] + ".moved")
    os.rename(it["database"] + ".moved", it["database"])
    return True


# What the kernel shows of other processes


@attempt("read the variables of the server")
def _(it):
    return content(f"/proc/{it['server']}/environ")


@attempt("read the variables of another program")
def _(it):
    return content(f"/proc/{it['victim']}/environ")


@attempt("read the token through the root folder of the server")
def _(it):
    return content(f"/proc/{it['server']}/root{it['token_file']}")


@attempt("read a file through the working folder of another program")
def _(it):
    return content(f"/proc/{it['victim']}/cwd/.bashrc")


@attempt("open a file that another program has open")
def _(it):
    return content(f"/proc/{it['victim']}/fd/{it['victim_file']}")


@attempt("read the memory of another program")
def _(it):
    with open(f"/proc/{it['victim']}/mem", "rb", buffering=0) as memory:
        memory.seek(it["victim_address"])
        return memory.read(16)


@attempt("see which programs run")
def _(it):
    return SECRET.encode() in content(f"/proc/{it['victim']}/cmdline")


@attempt("make the kernel end another program first")
def _(it):
    with open(f"/proc/{it['victim']}/oom_score_adj", "w") as file:
        file.write("500")
    return True


# Files of the user


@attempt("read a private key")
def _(it):
    return content(os.path.join(it["home"], ".ssh/id_ed25519"))


@attempt("read credentials of a cloud")
def _(it):
    return content(os.path.join(it["home"], ".aws/credentials"))


@attempt("list the home folder")
def _(it):
    return os.listdir(it["home"])


@attempt("let a key in")
def _(it):
    return write(os.path.join(it["home"], ".ssh/authorized_keys"))


@attempt("have a shell run a command")
def _(it):
    return write(os.path.join(it["home"], ".bashrc"))


@attempt("put a program on the search path")
def _(it):
    return write(os.path.join(it["home"], ".local/bin/git"))


@attempt("add a unit of the user's services")
def _(it):
    return write(os.path.join(it["home"], ".config/systemd/user/escape.service"))


@attempt("read a file of another workspace")
def _(it):
    return content(os.path.join(it["other"], "notes.txt"))


@attempt("change a file of another workspace")
def _(it):
    return write(os.path.join(it["other"], "notes.txt"))


@attempt("move a file into another workspace")
def _(it):
    write("moved.txt")
    os.rename("moved.txt", os.path.join(it["other"], "moved.txt"))
    return os.path.join(it["other"], "moved.txt")


@attempt("let every user read a private key")
def _(it):
    os.chmod(os.path.join(it["home"], ".ssh/id_ed25519"), 0o644)
    return True


@attempt("let every user change a file of another workspace")
def _(it):
    os.chmod(os.path.join(it["other"], "notes.txt"), 0o666)
    return True


@attempt("read what is typed into another terminal")
def _(it):
    terminal = os.open(it["pty"], os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK)
    return os.read(terminal, 64)


@attempt("read a temporary file of another program")
def _(it):
    return content(it["temporary"])


@attempt("leave a temporary file for another program")
def _(it):
    return write(it["temporary"] + ".left")


@attempt("read shared memory that has a name")
def _(it):
    return content(it["shared"])


@attempt("attach shared memory that has a key")
def _(it):
    segment = LIBC.shmget(it["key"], 0, 0)
    return segment >= 0 and LIBC.shmat(segment, None, 0o10000) not in (-1, None)


# Programs that run later


@attempt("add a hook to the repository")
def _(it):
    return write(os.path.join(it["repository"], ".git/hooks/post-commit"))


@attempt("name a program in the repository's settings")
def _(it):
    return write(os.path.join(it["repository"], ".git/config"))


@attempt("put another repository in place of this one")
def _(it):
    git = os.path.join(it["repository"], ".git")
    os.rename(git, git + ".moved")
    os.rename(git + ".moved", git)
    return True


@attempt("replace the repository's settings by a rename")
def _(it):
    write("config")
    os.rename("config", os.path.join(it["repository"], ".git/config"))
    return True


@attempt("lead git to other settings")
def _(it):
    return write(os.path.join(it["repository"], ".git/commondir"))


# Other processes


@attempt("trace another program")
def _(it):
    # Attaches without a stop.
    return call(it["calls"]["ptrace"], 0x4206, it["victim"], 0, 0) == 0


@attempt("copy the memory of another program")
def _(it):
    class Vector(ctypes.Structure):
        _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]

    buffer = ctypes.create_string_buffer(16)
    here = Vector(ctypes.cast(buffer, ctypes.c_void_p), 16)
    there = Vector(ctypes.c_void_p(it["victim_address"]), 16)
    number = it["calls"]["process_vm_readv"]
    return call(number, it["victim"], ctypes.byref(here), 1, ctypes.byref(there), 1, 0) == 16


@attempt("take a descriptor of another program")
def _(it):
    handle = call(it["calls"]["pidfd_open"], it["victim"], 0)
    return call(it["calls"]["pidfd_getfd"], handle, it["victim_file"], 0) >= 0


@attempt("send a signal to another program")
def _(it):
    os.kill(it["victim"], signal.SIGWINCH)
    return True


@attempt("send a signal to the server")
def _(it):
    os.kill(it["server"], signal.SIGWINCH)
    return True


@attempt("send a signal through a descriptor of a process")
def _(it):
    handle = call(it["calls"]["pidfd_open"], it["victim"], 0)
    signal.pidfd_send_signal(handle, signal.SIGWINCH)
    return True


@attempt("change the limits of another program")
def _(it):
    resource.prlimit(it["victim"], resource.RLIMIT_CORE, (0, resource.prlimit(it["victim"], resource.RLIMIT_CORE)[1]))
    return True


@attempt("slow another program down")
def _(it):
    os.setpriority(os.PRIO_PROCESS, it["victim"], 5)
    return True


@attempt("move another program to one processor")
def _(it):
    os.sched_setaffinity(it["victim"], os.sched_getaffinity(it["victim"]))
    return True


# More rights


@attempt("gain rights by a program that has them")
def _(it):
    with open("/proc/self/status") as status:
        return "NoNewPrivs:\t0" in status.read()


@attempt("become root in a namespace")
def _(it):
    return call(it["calls"]["unshare"], 0x10000000) == 0


@attempt("become root in a namespace of a new process")
def _(it):
    pid = call(it["calls"]["clone"], 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return True


@attempt("become root in a namespace by the newer call")
def _(it):
    arguments = (ctypes.c_uint64 * 8)(0x10000000, 0, 0, 0, signal.SIGCHLD, 0, 0, 0)
    pid = call(it["calls"]["clone3"], ctypes.byref(arguments), 64)
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return True


@attempt("mount a file system")
def _(it):
    call(it["calls"]["unshare"], 0x10000000 | 0x00020000)
    return LIBC.mount(b"none", b"/mnt", b"tmpfs", 0, None) == 0


@attempt("change the root folder")
def _(it):
    call(it["calls"]["unshare"], 0x10000000)
    os.chroot("/usr")
    return True


@attempt("join the namespace of the server")
def _(it):
    handle = os.open(f"/proc/{it['server']}/ns/user", os.O_RDONLY)
    return call(it["calls"]["setns"], handle, 0) == 0


@attempt("keep a key in the kernel")
def _(it):
    return call(it["calls"]["add_key"], b"user", b"escape", b"x", 1, -3) > 0


@attempt("fill pages by hand")
def _(it):
    return call(it["calls"]["userfaultfd"], 1) >= 0


@attempt("make calls through a queue in memory")
def _(it):
    parameters = ctypes.create_string_buffer(120)
    return call(it["calls"]["io_uring_setup"], 1, parameters) >= 0


@attempt("load a program into the kernel")
def _(it):
    return call(it["calls"]["bpf"], 0, ctypes.create_string_buffer(72), 72) >= 0


@attempt("watch the processor")
def _(it):
    # An event of the program itself: its clock, without the kernel.
    attributes = ctypes.create_string_buffer(128)
    ctypes.memmove(attributes, (ctypes.c_uint32 * 2)(1, 128), 8)
    ctypes.memmove(ctypes.byref(attributes, 40), (ctypes.c_uint64 * 1)(1 << 5), 8)
    return call(it["calls"]["perf_event_open"], attributes, 0, -1, -1, 0) >= 0


@attempt("open a file by its handle")
def _(it):
    handle = ctypes.create_string_buffer(136)
    ctypes.memmove(handle, (ctypes.c_uint32 * 1)(128), 4)
    return call(it["calls"]["open_by_handle_at"], -100, handle, 0) >= 0


# Sockets


def connect(family, kind, address):
    with socket.socket(family, kind) as it:
        it.settimeout(5)
        it.connect(address)
        return it.recv(64) if kind == socket.SOCK_STREAM else True


@attempt("connect to an abstract socket")
def _(it):
    return connect(socket.AF_UNIX, socket.SOCK_STREAM, "\0" + it["abstract"])


@attempt("get a descriptor over an abstract socket")
def _(it):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as it_socket:
        it_socket.settimeout(5)
        it_socket.connect("\0" + it["abstract"])
        _, extra, _, _ = it_socket.recvmsg(64, socket.CMSG_SPACE(4))
        descriptors = array.array("i", extra[0][2][:4])
        return os.pread(descriptors[0], 64, 0)


@attempt("connect to a socket in the home folder")
def _(it):
    return connect(socket.AF_UNIX, socket.SOCK_STREAM, os.path.join(it["home"], "agent.sock"))


@attempt("connect to a socket among the temporary files")
def _(it):
    return connect(socket.AF_UNIX, socket.SOCK_STREAM, it["temporary"] + ".sock")


@attempt("connect to a program on this machine")
def _(it):
    return connect(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", it["port"]))


@attempt("connect to a program on this machine, by IPv6")
def _(it):
    with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as it_socket:
        it_socket.settimeout(5)
        it_socket.connect(("::ffff:127.0.0.1", it["port"]))
        return it_socket.recv(64)


@attempt("reach the metadata of a cloud")
def _(it):
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as it_socket:
        it_socket.setblocking(False)
        return it_socket.connect_ex(("169.254.169.254", 80)) == errno.EINPROGRESS


@attempt("send a packet to a name server")
def _(it):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as it_socket:
        return it_socket.sendto(b"x", ("127.0.0.1", 53))


@attempt("open a raw socket")
def _(it):
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP):
        return True


@attempt("listen to all packets")
def _(it):
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW):
        return True


@attempt("connect to the machine's host")
def _(it):
    with socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM):
        return True


@attempt("use the kernel's ciphers")
def _(it):
    with socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET):
        return True


def ask(it, path, body=None):
    """Uses the server with a token that it should not have."""
    headers = {"authorization": "Bearer " + it["token"], "content-type": "application/json"}
    request = urllib.request.Request(it["url"] + path, body, headers)
    with urllib.request.urlopen(request, timeout=5) as response:
        return response.status == 200


@attempt("use the server with its user's token over `/api/v1`")
def _(it):
    return ask(it, "/api/v1/threads")


@attempt("use the server with its user's token over the Agent Communication Protocol")
def _(it):
    return ask(it, "/communication/agents")


@attempt("use the server with its user's token over the Agent Connect Protocol")
def _(it):
    return ask(it, "/connect/threads/search", b"{}")


# Through the server


def request(method, params):
    """Calls the server, which answers nothing else meanwhile."""
    send({"id": "attempt", "method": method, "params": {"sessionId": "s", **params}})
    answer = json.loads(sys.stdin.readline())
    if "error" in answer:
        raise OSError(answer["error"]["message"])
    return answer["result"]


def run_by_server(command, args, env=()):
    """Runs a command in a terminal of the server, and returns its output."""
    variables = [{"name": name, "value": value} for name, value in env]
    terminal = request("terminal/create", {"command": command, "args": args, "env": variables})
    request("terminal/wait_for_exit", terminal)
    output = request("terminal/output", terminal)["output"]
    request("terminal/release", terminal)
    return output


@attempt("read a private key by a command of the server")
def _(it):
    return SECRET in run_by_server("/bin/cat", [os.path.join(it["home"], ".ssh/id_ed25519")])


@attempt("read a private key by a command with another search path")
def _(it):
    folder = os.path.join(it["home"], ".ssh")
    env = [("PATH", folder), ("HOME", "/nonexistent")]
    return SECRET in run_by_server("/bin/cat", [os.path.join(folder, "id_ed25519")], env)


@attempt("have the loader of a command write a file")
def _(it):
    place = os.path.join(it["other"], "loader")
    run_by_server("/bin/true", [], [("LD_DEBUG", "libs"), ("LD_DEBUG_OUTPUT", place)])
    return "begins " + place


@attempt("have the server add a hook to the repository")
def _(it):
    path = os.path.join(it["repository"], ".git/hooks/pre-push")
    request("fs/write_text_file", {"path": path, "content": MARK})
    return path


# Resources


@attempt("have no limit of processes")
def _(it):
    return resource.getrlimit(resource.RLIMIT_NPROC)[0] > 50_000


@attempt("write a file of any size")
def _(it):
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with open("large", "wb") as file:
        file.truncate(1 << 37)
    os.unlink("large")
    return True


@attempt("use any amount of memory")
def _(it):
    with mmap.mmap(-1, 256 << 20) as memory:
        memory[::4096] = b"x" * (len(memory) // 4096)
        return True


@attempt("fill the disk")
def _(it):
    with open("fill", "wb") as file:
        file.write(b"x" * (64 << 20))
    os.unlink("fill")
    return True


@attempt("outlive the server without its variables, in a session of its own")
def _(it):
    code = "import fcntl, time; file = open('lives', 'w'); fcntl.flock(file, fcntl.LOCK_EX); print(1, flush=True); time.sleep(60)"
    read, write = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.dup2(write, 1)
            os.execve(sys.executable, [sys.executable, "-c", code], {})
        os._exit(0)
    os.close(write)
    # It holds the lock now. The test looks at the lock when the server has stopped.
    os.read(read, 1)
    return "lock " + os.path.join(os.getcwd(), "lives")


def run(title, it):
    """Runs an attempt in a process of its own, which some attempts spoil."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            outcome = ATTEMPTS[title](it)
            text = outcome if isinstance(outcome, str) else ("escaped" if outcome else "blocked: nothing")
        except (OSError, urllib.error.URLError, ValueError, IndexError) as error:
            text = f"blocked: {error}"
        os.write(write, text.encode())
        os._exit(0)
    os.close(write)
    text = b""
    while chunk := os.read(read, 4096):
        text += chunk
    os.waitpid(pid, 0)
    return text.decode() or "blocked: ended"


def serve():
    for line in sys.stdin:
        message = json.loads(line)
        method, result = message.get("method"), {}
        if method == "initialize":
            result = {"protocolVersion": 1, "agentCapabilities": {}}
        elif method == "session/new":
            result = {"sessionId": "s"}
        elif method == "session/prompt":
            title, targets = message["params"]["prompt"][0]["text"].split("\n", 1)
            text = json.dumps(list(ATTEMPTS)) if title == "list" else run(title, json.loads(targets))
            update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}
            send({"method": "session/update", "params": {"sessionId": "s", "update": update}})
            result = {"stopReason": "end_turn"}
        if "id" in message:
            send({"id": message["id"], "result": result})


def send(message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def victim(home, temporary, shared, abstract):
    os.chdir(home)
    held = open(".ssh/id_ed25519", "rb")
    secret = ctypes.create_string_buffer(SECRET.encode() * 2)
    key = 0x7265 + os.getpid()
    segment = LIBC.shmget(key, 4096, 0o1600)
    for path in (temporary, shared):
        with open(path, "w") as file:
            file.write(SECRET)
    sockets = []
    for address in ("\0" + abstract, "agent.sock", temporary + ".sock"):
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(address)
        sockets.append(listener)
    # A terminal into which its user has typed.
    keyboard, terminal = os.openpty()
    os.write(keyboard, SECRET.encode() + b"\n")
    listener = socket.create_server(("127.0.0.1", 0))
    sockets.append(listener)
    for one in sockets:
        one.listen()
    # An outside program that lets others read its memory, as most do.
    LIBC.prctl(0x59616D61, ctypes.c_long(-1), 0, 0, 0)
    print(json.dumps({
        "victim": os.getpid(), "victim_file": held.fileno(), "victim_address": ctypes.addressof(secret),
        "key": key, "port": listener.getsockname()[1], "pty": os.ttyname(terminal),
    }), flush=True)
    import select

    while True:
        ready, _, _ = select.select([*sockets, sys.stdin], [], [])
        if sys.stdin in ready:
            break
        for one in ready:
            peer, _ = one.accept()
            if one.family == socket.AF_UNIX:
                peer.sendmsg([SECRET.encode()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [held.fileno()]))])
            else:
                peer.sendall(SECRET.encode())
            peer.close()
    LIBC.shmctl(segment, 0, None)
    for path in (shared, temporary, temporary + ".sock", temporary + ".left"):
        if os.path.exists(path):
            os.unlink(path)


if __name__ == "__main__":
    if sys.argv[1:2] == ["victim"]:
        victim(*sys.argv[2:6])
    else:
        serve()
