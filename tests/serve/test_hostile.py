"""Clients that try to be misread, to be waited for, or to stop the server."""
import concurrent.futures
import contextlib
import json
import os
import select
import signal
import socket
import time
import unittest

from serving import BEGINNING, HOLDS, Server, eventually, of_front_end, temporary_file

BODY = b'{"prompt": "In", "max_tokens": 1}'
POST = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
LENGTH = b"Content-Length: %d\r\n" % len(BODY)
CHUNKED = b"Transfer-Encoding: chunked\r\n"
CHUNKS = b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)
NEXT = b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n"


def send(server, data):
    """All replies of a connection, and whether the server closed it."""
    reply = b""
    with socket.create_connection(("127.0.0.1", server.port), 100) as s:
        s.sendall(data)
        while b'"version"' not in reply: # the request behind was served
            try:
                more = s.recv(65536)
            except ConnectionResetError: # closed with bytes unread
                return reply, True
            if not more:
                return reply, True
            reply += more
    return reply, False


@of_front_end
class Framing(unittest.TestCase):
    def test_one_reading(self):
        """What a proxy could read in another way is refused, and nothing behind it is a request."""
        get = b"GET /health HTTP/1.1\r\n"
        host = b"Host: x\r\n"
        refused = {
            "a space before the colon": POST + b"Transfer-Encoding : chunked\r\n" + LENGTH + b"\r\n" + CHUNKS,
            "a tab before the colon": POST + b"Content-Length\t: 5\r\n\r\n",
            "a name of two words": get + host + b"X Y: z\r\n\r\n",
            "no name": get + host + b": x\r\nContent-Length: 5\r\n\r\n",
            "only a colon": get + host + b":\r\n\r\n",
            "no colon": get + host + b"X\r\n\r\n",
            "a space before the first name": get + b" " + host + b"\r\n",
            "a continued line": get + host + b"X: a\r\n b\r\n\r\n",
            "a continued coding": POST + b"Transfer-Encoding:\r\n chunked\r\n\r\n" + CHUNKS,
            "a bare LF at the end of the request line": b"GET /health HTTP/1.1\n" + host + b"\r\n",
            "a bare LF in the head": get + host + b"X: a\nTransfer-Encoding: chunked\r\n\r\n",
            "a bare LF before the empty line": get + host + b"X: a\n\r\n",
            "an empty line of LF": get + host + b"\n",
            "a bare CR in a value": get + host + b"X: a\rContent-Length: 5\r\n\r\n",
            "a NUL in a value": get + host + b"X: a\0b\r\n\r\n",
            "NULs before a bare LF": get + host + b"X: a\0\0\nY: b\r\n\r\n",
            "two spaces in the request line": b"GET  /health HTTP/1.1\r\n" + host + b"\r\n",
            "a space in the target": b"GET /health x HTTP/1.1\r\n" + host + b"\r\n",
            "no host": get + b"\r\n",
            "two hosts": get + host + host + b"\r\n",
            "an empty host": get + b"Host: \r\n\r\n",
            "a host with a path": get + b"Host: x/y\r\n\r\n",
            "a host with a user": get + b"Host: a@b\r\n\r\n",
            "two hosts in one": get + b"Host: a, b\r\n\r\n",
            "two lengths": POST + LENGTH + LENGTH + b"\r\n" + BODY,
            "a list of lengths": POST + b"Content-Length: 33, 33\r\n\r\n" + BODY,
            "a length with a sign": POST + b"Content-Length: +33\r\n\r\n" + BODY,
            "a hexadecimal length": POST + b"Content-Length: 0x21\r\n\r\n" + BODY,
            "a length and chunks": POST + LENGTH + CHUNKED + b"\r\n" + CHUNKS,
            "chunked and identity": POST + CHUNKED + b"Transfer-Encoding: identity\r\n\r\n" + CHUNKS,
            "identity and chunked": POST + b"Transfer-Encoding: identity\r\n" + CHUNKED + b"\r\n" + CHUNKS,
            "chunked twice": POST + CHUNKED + CHUNKED + b"\r\n" + CHUNKS,
            "a list of codings": POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n" + CHUNKS,
            "chunks in HTTP/1.0": POST.replace(b"1.1", b"1.0") + CHUNKED + b"\r\n" + CHUNKS,
            "a size of a chunk with a sign": POST + CHUNKED + b"\r\n+" + CHUNKS,
            "a chunk longer than its size": POST + CHUNKED + b"\r\n5\r\n" + BODY,
        }
        with Server() as server:
            for what, data in refused.items():
                with self.subTest(what):
                    reply, closed = send(server, data + NEXT)
                    self.assertEqual(reply[:12], b"HTTP/1.1 400", reply)
                    self.assertTrue(closed, reply)
            self.assertEqual(server.complete(), BEGINNING)
            logged = [json.loads(line) for line in server.lines if line.startswith("{")]
            self.assertEqual({line["status"] for line in logged if line["path"] in ("/health", "/v1/completions")} - {200}, {400})

    def test_valid(self):
        """What looks alike but has one reading is served; after chunks the connection closes."""
        many = b"".join(b"X-%d:%s%s\r\n" % (i, b" \t" * (i % 3), b"v" * (i * 7 % 300)) for i in range(60))
        with Server() as server:
            for head in (b"Host: x\r\n", b"hOST:x\r\nX:\r\n", b"Host: [::1]:80\r\nX: \t\r\n", b"Host: a-b.c:8000\r\n" + many):
                with socket.create_connection(("127.0.0.1", server.port), 100) as s:
                    for _ in range(3):
                        data = b"GET /version HTTP/1.1\r\n" + head + b"\r\n"
                        for i in range(0, len(data), 1000):
                            s.sendall(data[i:i + 1000])
                        reply = b""
                        while b'"version"' not in reply:
                            more = s.recv(65536)
                            self.assertNotEqual(more, b"", reply)
                            reply += more
                        self.assertEqual(reply[:12], b"HTTP/1.1 200", reply)
            reply, closed = send(server, b"GET /health HTTP/1.0\r\n\r\n")
            self.assertEqual((reply[:12], closed), (b"HTTP/1.1 200", True))
            reply, closed = send(server, POST + LENGTH + b"\r\n" + BODY + NEXT)
            self.assertEqual((reply[:12], closed), (b"HTTP/1.1 200", False))
            reply, closed = send(server, POST + CHUNKED + b"\r\n" + CHUNKS + NEXT)
            self.assertEqual((reply[:12], closed), (b"HTTP/1.1 200", True))


@of_front_end
class Slow(unittest.TestCase):
    def drip(self, server, first, drop, seconds=60):
        """Until the server closes a connection that sends a little all the time; how long that took."""
        began = time.monotonic()
        with socket.create_connection(("127.0.0.1", server.port), 100) as s, contextlib.suppress(ConnectionError):
            s.sendall(first)
            while time.monotonic() < began + seconds:
                if select.select([s], [], [], 0.1)[0] and s.recv(65536) == b"":
                    break
                s.sendall(drop)
        return time.monotonic() - began

    def test_drips(self):
        with Server("--body-timeout", "1") as server:
            for first, drop in ((b"G", b"E"), (b"GET /", b"x"), (b"GET /health HTTP/1.1\r\nHost: x\r\n", b"X: y\r\n"),
                                (POST + LENGTH.replace(b"33", b"9999") + b"\r\n", b" "), (POST + CHUNKED + b"\r\n", b"1\r\n \r\n")):
                with self.subTest(first):
                    self.assertLess(self.drip(server, first, drop), 30)
            self.assertEqual(server.complete(), BEGINNING)

    def test_idle_connections_of_one_client(self):
        """A quarter of the connections, the last ones, may wait for its requests; one with a request is none of them."""
        with Server("--max-connections", "80", *HOLDS) as server, concurrent.futures.ThreadPoolExecutor(1) as pool:
            with server.held():
                asked = pool.submit(server.complete)
                server.wait_metric("trireme_requests_live", 1)
                idle = [socket.create_connection(("127.0.0.1", server.port), 100) for _ in range(60)]
                closed = lambda: [i for i, s in enumerate(idle) if select.select([s], [], [], 0)[0]]
                # the connection that asked for metrics may still be one of those that wait
                eventually(lambda: self.assertIn(closed(), (list(range(40)), list(range(41)))))
            self.assertEqual(asked.result(), BEGINNING)
            idle[59].sendall(b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n")
            self.assertEqual(idle[59].recv(12), b"HTTP/1.1 200")
            for s in idle:
                s.close()


@of_front_end
class Pages(unittest.TestCase):
    """What a page of another site can make a browser send."""
    def statuses(self, server, cases, path="/v1/models"):
        self.assertEqual({repr(case): server.request("GET", path, None, case)[0] for case, _ in cases},
                         {repr(case): status for case, status in cases})

    def test_without_keys(self):
        of_this_host = lambda **more: dict({"Host": "127.0.0.1:8000"}, **more)
        with Server("--allow-host", "ai.example.org", "--cors-origin", "https://pages.example.org") as server:
            here = f"127.0.0.1:{server.port}"
            cases = [({"Host": host}, 200) for host in (here, "localhost", "LOCALHOST:1", "[::1]:80", "10.1.2.3", "x", "gpu.local",
                                                        "a.b.internal:8000", socket.gethostname(), "ai.example.org:8000", "AI.example.org.",
                                                        "pages.example.org")]
            cases += [({"Host": host}, 403) for host in ("evil.example", "evil.example:8000", "127.0.0.1.evil.example", "localhost.evil.example",
                                                         "evil.localhost.example", "x.ai.example.org", "example.org", "1.2.3", "local.com")]
            cases += [(of_this_host(Origin=origin), 200) for origin in ("http://127.0.0.1:8000", "https://127.0.0.1:8000", "https://pages.example.org")]
            cases += [(of_this_host(Origin=origin), 403) for origin in ("http://evil.example", "null", "", "http://127.0.0.1", "http://127.0.0.1:80",
                                                                        "http://127.0.0.1:8000.evil.example", "x://y://127.0.0.1:8000")]
            cases += [(dict(of_this_host(Origin="https://name.of.proxy"), **{"Sec-Fetch-Site": site}), status)
                      for site, status in (("same-origin", 200), ("none", 200), ("same-site", 403), ("cross-site", 403))]
            self.statuses(server, cases)
            for path in "/", "/health", "/ready", "/live", "/version", "/metrics": # for probes, under any name
                self.statuses(server, [({"Host": "evil.example", "Origin": "http://evil.example"}, 200)], path)
            reply = server.request("POST", "/v1/completions", BODY, {"Host": here, "Origin": "http://evil.example", "Content-Type": "text/plain"})
            self.assertEqual((reply[0], reply[1]["error"]["code"]), (403, "origin_not_allowed"))
            reply = server.request("POST", "/v1/completions", BODY, {"Host": "evil.example"})
            self.assertEqual((reply[0], reply[1]["error"]["code"]), (403, "host_not_allowed"))
            self.assertEqual([line for line in server.lines if "no API keys" in line], [])

    def test_open(self):
        """Keys are better than names; who allows any page, or any name, gets that."""
        evil = {"Host": "evil.example", "Origin": "http://evil.example"}
        with temporary_file("secret") as keys, Server("--api-keys", keys, "--host", "0.0.0.0") as server:
            self.statuses(server, [(evil, 401), (dict(evil, Authorization="Bearer secret"), 200)])
            self.assertEqual([line for line in server.lines if "no API keys" in line], [])
        with Server("--cors-origin", "*") as server:
            self.statuses(server, [(evil, 200)])
        with Server("--allow-host", "*", "--host", "0.0.0.0") as server:
            self.statuses(server, [({"Host": "evil.example"}, 200), (evil, 200), (dict(evil, Origin="http://other.example"), 403)])
            server.wait_line("warning: no API keys: whoever reaches 0.0.0.0")
        with Server("--host", "::") as server:
            server.wait_line("warning: no API keys: whoever reaches ::")


class UnreadLog(unittest.TestCase):
    def test_unread(self):
        """Nobody reads standard error: everything goes on, a restart too, and what was dropped is counted."""
        with Server(unread=True) as server:
            n = 3000
            with socket.create_connection(("127.0.0.1", server.port), 100) as s:
                for _ in range(n // 100):
                    s.sendall(b"GET /live HTTP/1.1\r\nHost: x\r\nX-Request-Id: %s\r\n\r\n" % (64 * b"x") * 100)
                    replies = 0
                    while replies < 100:
                        more = s.recv(65536)
                        self.assertNotEqual(more, b"")
                        replies += more.count(b"HTTP/1.1 200")
            os.kill(server.workers()[0], signal.SIGKILL)
            eventually(lambda: self.assertEqual(server.metric("trireme_restarts_total"), 1))
            self.assertEqual(server.complete(), BEGINNING)
            server.reads.set()
            server.wait_line(r"dropped \d+ lines of the log")
            written = lambda: sum("/live" in line for line in server.lines)
            dropped = lambda: sum(int(line.split()[2]) for line in server.lines if "lines of the log" in line)
            eventually(lambda: self.assertGreaterEqual(written() + dropped(), n))
            self.assertGreater(written(), 0)
            self.assertEqual(server.complete(), BEGINNING)

    @of_front_end
    def test_end(self):
        """A server whose log nobody reads ends when it is told to."""
        with Server(unread=True) as server:
            with socket.create_connection(("127.0.0.1", server.port), 100) as s:
                s.sendall(b"GET /live HTTP/1.1\r\nHost: x\r\n\r\n" * 1000)
                while s.recv(65536).count(b"HTTP/1.1 200") == 0:
                    pass
            server.process.send_signal(signal.SIGTERM)
            self.assertEqual(server.process.wait(100), 0)
            server.reads.set()


if __name__ == "__main__":
    unittest.main()
