"""Starts `trireme serve` for a test and ends it."""
import contextlib
import http.client
import json
import os
import re
import select
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest

PROGRAM = os.environ["TRIREME_PROGRAM"]
MODEL = os.environ["TRIREME_MODEL"]
RANKS = int(os.environ.get("TRIREME_RANKS", "1"))
BACKEND = os.environ.get("TRIREME_BACKEND", "host")
BEGINNING = " God created the heaven and the earth.\n"

HOLDS = ["--heartbeat-timeout", "600", "--step-timeout", "600"] # for a server whose ranks are held

# On the host jobs of several ranks are another job to the front end alone: what only that does is tested with one rank. On GPUs a
# run may have no other.
of_front_end = unittest.skipIf(BACKEND == "host" and RANKS > 1, "the front end alone, as with one rank")


class Server:
    def __init__(self, *options, ranks=RANKS, ready=True, model=MODEL, launcher=(), unread=False, environment={}):
        """unread: once the server is ready, its standard error is not read until reads is set."""
        # Sanitizers and shared machines make ranks slow to speak.
        patience = [] if "--heartbeat-timeout" in options else ["--heartbeat-timeout", "20"]
        command = [*launcher, PROGRAM, "serve", model, "--backend", BACKEND, "--threads", "1", "--port", "0"]
        command += [] if launcher else ["--ranks", str(ranks)]
        self.process = subprocess.Popen(command + patience + list(options), stderr=subprocess.PIPE, text=True,
                                        env=dict(os.environ, OPENBLAS_NUM_THREADS="1", TRIREME_DEADLINE="600", **environment))
        replicas = int(options[options.index("--replicas") + 1]) if "--replicas" in options else 1
        self.lines, self.port, self.n_workers, began = [], None, ranks * replicas, time.monotonic()
        self.told = threading.Condition()
        self.reads = threading.Event()
        if not unread:
            self.reads.set()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        try:
            self.wait_line(r"listening on \S+:(\d+)")
            if ready:
                self.wait_line(r"ready after")
                self.start_seconds = time.monotonic() - began
        except Exception:
            self.process.kill()
            self.code = self.stop()
            raise
        self.url = f"http://127.0.0.1:{self.port}"

    def _read(self):
        for line in self.process.stderr:
            with self.told:
                found = re.search(r"listening on \S+:(\d+)", line)
                self.port = int(found.group(1)) if found else self.port
                self.lines.append(line.rstrip("\n"))
                self.told.notify_all()
            if "ready after" in line:
                self.reads.wait()
        with self.told:
            self.lines.append("(ended)")
            self.told.notify_all()

    def wait_line(self, pattern, seconds=600, count=1):
        """Waits for the count-th line that matches."""
        end = time.monotonic() + seconds
        with self.told:
            while sum(bool(re.search(pattern, line)) for line in self.lines) < count:
                if time.monotonic() > end or "(ended)" in self.lines:
                    raise AssertionError(f"no line {pattern!r} in:\n" + "\n".join(self.lines))
                self.told.wait(0.2)

    def workers(self):
        """Processes of the ranks, without their launcher."""
        pids, children = [], {}
        for name in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                with open(f"/proc/{name}/stat") as stat:
                    children.setdefault(int(stat.read().rsplit(")", 1)[1].split()[1]), []).append(int(name))
        level = children.get(self.process.pid, [])
        while level:
            for pid in level:
                with contextlib.suppress(OSError):
                    with open(f"/proc/{pid}/cmdline") as line:
                        words = line.read().split("\0")
                    if len(words) > 1 and words[1] == "serve-worker":
                        pids.append(pid)
            level = [child for pid in level for child in children.get(pid, [])]
        return pids

    @contextlib.contextmanager
    def held(self):
        """The ranks stand still meanwhile, so that what is live stays live, however fast they are or slow we. Of a server with HOLDS."""
        workers = self.workers()
        assert len(workers) == self.n_workers, workers
        for pid in workers:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in workers:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    def request(self, method, path, body=None, headers={}, timeout=600):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            payload = json.dumps(body) if isinstance(body, (dict, list)) else body
            connection.request(method, path, payload, headers)
            reply = connection.getresponse()
            text = reply.read()
            with contextlib.suppress(ValueError):
                return reply.status, json.loads(text), reply.headers
            return reply.status, text.decode(), reply.headers
        finally:
            connection.close()

    def complete(self, prompt="In the beginning", **more):
        status, reply, _ = self.request("POST", "/v1/completions",
                                        dict({"prompt": prompt, "max_tokens": 8, "temperature": 0}, **more))
        assert status == 200, reply
        return reply["choices"][0]["text"]

    def metric(self, name):
        text = self.request("GET", "/metrics")[1]
        return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if re.match(name + r"[{ ]", line))

    def wait_metric(self, name, value):
        """Waits until a metric has the value: they are published a moment after a reply."""
        def check():
            found = self.metric(name)
            assert found == value, f"{name} is {found}, expected {value}"
        eventually(check)

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def stop(self, sign=signal.SIGTERM, seconds=600):
        """Ends the server and returns its exit code."""
        self.reads.set()
        if self.process.poll() is None:
            self.process.send_signal(sign)
        try:
            code = self.process.wait(seconds)
            self.reader.join()
            self.process.stderr.close()
            return code
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError("the server does not end:\n" + "\n".join(self.lines))

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if kind is not None:
            print("\n".join(self.lines[-40:]))
        code = self.stop()
        if kind is None and code != 0:
            raise AssertionError(f"the server ended with {code}:\n" + "\n".join(self.lines[-40:]))


def is_gone(pid):
    """Whether a process has ended with all its threads, so that what it had open is closed, be it that nobody has waited for it."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] in "ZX" and len(os.listdir(f"/proc/{pid}/task")) == 1
    except OSError:
        return True


def eventually(check, seconds=600):
    """Repeats a check until it raises no AssertionError, nor misses an entry; the time only ends what would never be so."""
    end = time.monotonic() + seconds
    while True:
        try:
            return check()
        except (AssertionError, LookupError):
            if time.monotonic() > end:
                raise
        time.sleep(0.02)


def long_body(**more):
    return dict({"prompt": "And", "max_tokens": 1000, "temperature": 0, "ignore_eos": True}, **more)


class Stream:
    """A completion that has begun: its first token has come, and the others come while the caller disturbs them."""
    def __init__(self, server, **more):
        body = json.dumps(long_body(stream=True, stream_options={"include_usage": True}, **more)).encode()
        self.data = b""
        self.socket = socket.create_connection(("127.0.0.1", server.port), 600)
        self.socket.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        self._read_until(b"data: {")

    def _read(self):
        more = self.socket.recv(65536)
        assert more != b"", self.data[-300:]
        self.data += more

    def _read_until(self, what):
        while what not in self.data:
            self._read()

    def has_ended(self):
        while b"[DONE]" not in self.data and select.select([self.socket], [], [], 0)[0]:
            self._read()
        return b"[DONE]" in self.data

    def end(self):
        """Its text and usage, when all has come."""
        self._read_until(b"[DONE]")
        self.socket.close()
        events = [json.loads(line[6:]) for line in self.data.split(b"\n") if line.startswith(b"data: {")]
        return "".join(choice["text"] for event in events for choice in event["choices"]), events[-1]["usage"]


def fall_asleep(server):
    """Until the ranks have ended: on a busy machine that may take longer than a request for it waits."""
    status = 500
    while status == 500:
        status, body, _ = server.request("POST", "/sleep")
    assert status == 200, body


@contextlib.contextmanager
def temporary_file(text):
    path = write_temporary(text)
    try:
        yield path
    finally:
        os.unlink(path)


def write_temporary(text):
    file = tempfile.NamedTemporaryFile("w", delete=False)
    file.write(text)
    file.close()
    return file.name
