"""What an operator relies on: limits, keys, silence, the end, what is refused and counted, the load generator."""
import concurrent.futures
import contextlib
import http.client
import http.server
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import threading
import time
import unittest
import urllib.request

from serving import BACKEND, BEGINNING, HOLDS, MODEL, PROGRAM, RANKS, Server, eventually, is_gone, long_body, of_front_end, write_temporary


class Limits(unittest.TestCase):
    def test_queue(self):
        with Server("--max-requests", "3", "--sequences", "2", *HOLDS) as server:
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                with server.held():
                    asked = [pool.submit(server.request, "POST", "/v1/completions", long_body(max_tokens=20)) for _ in range(8)]
                    eventually(lambda: self.assertEqual(sum(reply.done() for reply in asked), 5))
                replies = [reply.result() for reply in asked]
            statuses = sorted(status for status, _, _ in replies)
            self.assertEqual(statuses, 3 * [200] + 5 * [429])
            refused = next(reply for reply in replies if reply[0] == 429)
            self.assertIn("Retry-After", refused[2])
            self.assertEqual(refused[1]["error"]["type"], "rate_limit_error")
            for path, body in ("completions", {"prompt": "And", "n": 4}), ("embeddings", {"input": ["And"] * 4}): # never fits
                status, reply, headers = server.request("POST", "/v1/" + path, body)
                self.assertEqual((status, reply["error"]["code"]), (400, "invalid_value"))
                self.assertNotIn("Retry-After", headers)
            self.assertEqual(server.complete(), BEGINNING)

    @of_front_end
    def test_queue_of_one_client(self):
        """Who fills the server makes room for others up to their even part: its newest request of no higher priority goes."""
        keys = write_temporary("many\none\nthree\n")
        live = lambda: [int(server.metric("trireme_requests_" + what)) for what in ("live", "refused_total")]

        def ask(key, **more):
            """When the server has answered it or taken it: in the order in which they are called."""
            before = live()
            reply = pool.submit(server.request, "POST", "/v1/completions", long_body(max_tokens=10, **more), {"X-Api-Key": key})
            eventually(lambda: self.assertNotEqual(live(), before))
            return reply

        def statuses(replies):
            return [reply.result()[0] for reply in replies]

        with Server("--api-keys", keys, "--max-requests", "4", "--sequences", "1", *HOLDS) as server, \
                concurrent.futures.ThreadPoolExecutor(16) as pool:
            with server.held():
                many = [ask("many"), ask("many"), ask("many", stream=True), ask("many"), ask("many")]
                one = [ask("one"), ask("one"), ask("one"), ask("one", n=2)]
                many.append(ask("many"))
                self.assertEqual(live(), [4, 6])
                refused = many[2].result(100) # it would have been a stream
                self.assertEqual((refused[0], refused[1]["error"]["code"]), (429, "queue_full"))
                self.assertIn("Retry-After", refused[2])
            self.assertEqual(statuses(many), [200, 200, 429, 429, 429, 429])
            self.assertEqual(statuses(one), [200, 200, 429, 429])
            server.wait_metric("trireme_requests_live", 0)
            with server.held():
                many = [ask("many", priority=1) for _ in range(4)]
                one = [ask("one"), ask("one", priority=1), ask("one", n=2, priority=1), ask("one", n=4, priority=2)]
            self.assertEqual(statuses(many), [200, 200, 200, 429])
            self.assertEqual(statuses(one), [429, 200, 429, 429])
            server.wait_metric("trireme_requests_live", 0)
            with server.held():
                many = [ask("many", n=2), ask("many"), ask("many")]
                one = [ask("one", n=2)]
            self.assertEqual(statuses(many), [200, 429, 429])
            self.assertEqual(statuses(one), [200])
            server.wait_metric("trireme_requests_live", 0)
            self.assertEqual(server.request("POST", "/v1/completions", {"prompt": "And", "max_tokens": 1}, {"X-Api-Key": "many"})[0], 200)
        with Server("--api-keys", keys, "--max-requests", "12", "--sequences", "1", *HOLDS) as server, \
                concurrent.futures.ThreadPoolExecutor(16) as pool:
            with server.held(): # what two of these have to give would not do for the third, so nobody gives anything
                begun, many, three = ask("one", n=6), [ask("many") for _ in range(6)], ask("three", n=4)
                self.assertEqual(live(), [12, 1])
            self.assertEqual(statuses([begun, *many, three]), [200] * 7 + [429])
        os.unlink(keys)

    @of_front_end
    def test_body(self):
        with Server("--max-body", "2000") as server:
            status, reply, _ = server.request("POST", "/v1/completions", {"prompt": "x" * 3000})
            self.assertEqual((status, reply["error"]["code"]), (413, "request_too_large"))
            with socket.create_connection(("127.0.0.1", server.port), 100) as s: # without a length
                s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
                s.sendall(b"bb8\r\n" + b"x" * 3000 + b"\r\n0\r\n\r\n")
                self.assertIn(b"413", s.recv(100))
            self.assertEqual(server.complete(), BEGINNING)

    @of_front_end
    def test_two_lengths(self):
        """Where a body ends has one answer: else what a proxy takes for a body would be the next request here."""
        body = json.dumps({"prompt": "In the beginning", "max_tokens": 1}).encode()
        length, chunked = b"Content-Length: %d\r\n" % len(body), b"Transfer-Encoding: chunked\r\n"
        with Server() as server:
            for headers, status in ((length, b"200"), (length + length, b"400"), (length + b"content-length: 5\r\n", b"400"),
                                    (chunked + length, b"400"), (b"Transfer-Encoding: gzip\r\n" + length, b"400"),
                                    (b"Transfer-Encoding: gzip\r\n", b"400")):
                with socket.create_connection(("127.0.0.1", server.port), 600) as s:
                    s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n" + headers + b"\r\n" + body)
                    self.assertEqual(s.recv(12)[9:], status, headers)
                    reply = b""
                    while status == b"400" and (more := s.recv(65536)): # it is closed: what follows is nobody's request
                        reply += more
                    self.assertTrue(status == b"200" or b"invalid_framing" in reply, reply)

    @of_front_end
    def test_late_body(self):
        with Server("--body-timeout", "1") as server:
            for _ in range(20): # on a busy machine a piece may be so late that the server answers nothing any more
                reply = b""
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", server.port), 100) as s:
                    s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 20\r\n\r\n")
                    for _ in range(4):
                        s.sendall(b"    ")
                        time.sleep(0.4)
                    s.sendall(b"    ")
                    reply = s.recv(100)
                if b"408" in reply:
                    break
            self.assertIn(b"408", reply)
            self.assertEqual(server.complete(), BEGINNING)

    def test_request_timeout(self):
        with Server("--request-timeout", "0.2") as server:
            status, reply, _ = server.request("POST", "/v1/completions", long_body(n=16))
            self.assertEqual((status, reply["error"]["code"]), (408, "timeout"))
            server.wait_metric("trireme_requests_live", 0)
            server.wait_metric("trireme_cache_blocks_used", 0)

    def test_request_deadline(self):
        """A request's own deadline: running, as a stream, and before its turn has come; what it held is free."""
        with Server("--sequences", "2", "--request-timeout", "600") as server:
            with concurrent.futures.ThreadPoolExecutor(3) as pool:
                replies = [pool.submit(server.request, "POST", "/v1/completions", long_body(n=2, timeout=0.15, stream=i == 1))
                           for i in range(3)] # of six choices two run at a time
                for i, reply in enumerate(replies):
                    status, body, _ = reply.result()
                    if i == 1 and status == 200: # it had begun
                        body = [json.loads(line[6:]) for line in body.splitlines() if line.startswith("data: {")][-1]
                        status = 408
                    self.assertEqual((status, body["error"]["code"]), (408, "timeout"), body)
                    self.assertIn("0.15 seconds", body["error"]["message"])
            server.wait_metric("trireme_requests_live", 0)
            server.wait_metric("trireme_cache_blocks_used", 0)
            self.assertEqual(server.complete(timeout=600), BEGINNING)
            status, reply, _ = server.request("POST", "/v1/completions", {"prompt": "x", "timeout": -1})
            self.assertEqual((status, reply["error"]["param"]), (400, "timeout"))

    @of_front_end
    def test_connections(self):
        with Server("--max-connections", "4") as server:
            idle = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(6)]
            server.wait_metric("trireme_connections", 7) # the one that asks is counted
            status, reply, headers = server.request("POST", "/v1/completions", {"prompt": "x"})
            self.assertEqual((status, reply["error"]["code"]), (429, "too_many_connections"))
            self.assertEqual(server.request("GET", "/health")[0], 200)
            for s in idle:
                s.close()
            server.wait_metric("trireme_connections", 1)
            self.assertEqual(server.complete(), BEGINNING)

    @of_front_end
    def test_keys(self):
        keys = write_temporary("# a comment\n secret-1 \t\n\nsecret-2 \r\n")
        with Server("--api-keys", keys) as server:
            body = {"prompt": "In", "max_tokens": 1}
            for headers in ({}, {"Authorization": "Bearer secret-3"}, {"Authorization": "secret-1"},
                            {"Authorization": "Bearer "}, {"Authorization": "Bearer secret-11"}):
                status, reply, _ = server.request("POST", "/v1/completions", body, headers)
                self.assertEqual((status, reply["error"]["code"]), (401, "invalid_api_key"))
            for key in ("secret-1", "secret-2"):
                headers = {"Authorization": "Bearer " + key}
                self.assertEqual(server.request("POST", "/v1/completions", body, headers)[0], 200)
                self.assertEqual(server.request("POST", "/v1/completions", body, {"X-Api-Key": key})[0], 200)
            self.assertEqual(server.request("POST", "/v1/completions", body, {"X-Api-Key": "secret-3"})[0], 401)
            self.assertEqual(server.request("GET", "/health")[0], 200)
        os.unlink(keys)

    def shares(self, disturb, *options):
        """The order of replies, by their names, of many requests of one key and then one of another."""
        keys = write_temporary("many\none\n")

        def ask(key, i):
            return server.request("POST", "/v1/completions", long_body(max_tokens=10), {"X-Api-Key": key, "X-Request-Id": f"{key}-{i}"})

        with Server("--api-keys", keys, "--sequences", "1", *HOLDS, *options) as server, concurrent.futures.ThreadPoolExecutor(16) as pool:
            with server.held():
                replies = []
                for i in range(12):
                    replies.append(pool.submit(ask, "one" if i == 11 else "many", i))
                    server.wait_metric("trireme_requests_live", i + 1)
                disturb(server)
            self.assertEqual([reply.result()[0] for reply in replies], 12 * [200])
        os.unlink(keys)
        ids = [re.search(r'"id":"((many|one)-\d+)"', line) for line in server.lines] # all, as it has ended
        return [found.group(1) for found in ids if found]

    def test_shares(self):
        """One client's queue is not another's, with one job, with several, and after a loss."""
        lose = lambda server: os.kill(server.workers()[-1], signal.SIGKILL)
        cases = [(lambda _: None, ()), (lose, ())]
        if BACKEND == "host": # replicas take GPUs of their own
            cases.append((lose, ("--replicas", "2")))
        for disturb, options in cases:
            order = self.shares(disturb, *options)
            self.assertEqual(len(order), 12)
            # Of two replicas one may be done with its six before the other begins, where this one is second.
            self.assertLess(order.index("one-11"), 8 if options else 6, order)
            if not options:
                many = [int(name[5:]) for name in order if name.startswith("many")]
                self.assertEqual(many, sorted(many)) # a client's own are in the order in which they came

    @of_front_end
    def test_origins(self):
        """What browsers ask and read before a page of another origin gets a reply."""
        body = {"prompt": "In the beginning", "max_tokens": 8, "temperature": 0}
        ours = {"Origin": "https://pages.example"}
        preflight = dict(ours, **{"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type"})
        keys = write_temporary("secret")
        with Server("--api-keys", keys, "--cors-origin", "https://pages.example", "--cors-origin", "http://localhost:3000") as server:
            status, reply, headers = server.request("OPTIONS", "/v1/completions", None, preflight) # without a key
            self.assertEqual((status, reply), (204, ""))
            for name, value in {"Access-Control-Allow-Origin": "https://pages.example", "Access-Control-Allow-Methods": "POST",
                                "Access-Control-Allow-Headers": "authorization,content-type", "Vary": "Origin"}.items():
                self.assertEqual(headers[name], value, name)
            for more, expected in ({"Authorization": "Bearer secret"}, 200), ({}, 401): # a page may read why it was refused
                for stream in False, True:
                    status, _, headers = server.request("POST", "/v1/completions", dict(body, stream=stream), dict(ours, **more))
                    self.assertEqual((status, headers["Access-Control-Allow-Origin"]), (expected, "https://pages.example"))
                    self.assertIn("X-Request-Id", headers["Access-Control-Expose-Headers"])
            self.assertEqual(server.request("OPTIONS", "/v1/nothing", None, preflight)[0], 404)
            self.assertEqual(server.request("GET", "/health", None, {"Origin": "http://localhost:3000"})[2]["Access-Control-Allow-Origin"],
                             "http://localhost:3000")
            for origin in "https://pages.example.org", "http://pages.example", "https://pages.example:444", "null", "":
                status, _, headers = server.request("OPTIONS", "/v1/completions", None, dict(preflight, Origin=origin))
                self.assertEqual((status, headers["Access-Control-Allow-Origin"], headers["Vary"]), (405, None, "Origin"), origin)
        os.unlink(keys)
        with Server("--cors-origin", "*") as server:
            status, _, headers = server.request("POST", "/v1/completions", body, ours)
            self.assertEqual((status, headers["Access-Control-Allow-Origin"], headers["Vary"]), (200, "*", None))
        with Server() as server: # of none
            status, _, headers = server.request("OPTIONS", "/v1/completions", None, preflight)
            self.assertEqual((status, headers["Access-Control-Allow-Origin"]), (405, None))
            status, _, headers = server.request("POST", "/v1/completions", body, ours)
            self.assertEqual((status, headers["Access-Control-Allow-Origin"]), (403, None))

    @of_front_end
    def test_tls(self):
        folder = tempfile.mkdtemp()
        certificate, key = folder + "/certificate.pem", folder + "/key.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                        "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate],
                       check=True, capture_output=True)
        with Server("--tls-certificate", certificate, "--tls-key", key) as server:
            context = ssl.create_default_context(cafile=certificate)
            body = json.dumps({"prompt": "In the beginning", "max_tokens": 8, "temperature": 0, "stream": True}).encode()
            with urllib.request.urlopen(f"https://127.0.0.1:{server.port}/v1/completions", body, 300, context=context) as reply:
                text = reply.read().decode()
            events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
            self.assertEqual("".join(event["choices"][0]["text"] for event in events), BEGINNING)
            with self.assertRaises((OSError, http.client.HTTPException)):
                server.complete() # not over plain HTTP
        shutil.rmtree(folder)

    @of_front_end
    def test_slow_reader(self):
        """Nobody reads the stream: what piles up is bounded, and the request ends."""
        with Server() as server:
            with socket.create_connection(("127.0.0.1", server.port)) as s:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
                body = json.dumps(long_body(stream=True, n=16, logprobs=20)).encode()
                s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
                server.wait_metric("trireme_clients_gone_total", 1)
                server.wait_metric("trireme_requests_live", 0)
                self.assertLess(server.metric("vllm:generation_tokens_total"), 15000)
            self.assertEqual(server.complete(), BEGINNING)


class Silence(unittest.TestCase):
    """Streams in which nothing comes for long, such as those of requests that wait, get comments: lines of the event that follows, as
    there are clients that take any blank line for the end of an event with data."""
    def ask(self, server, path, body):
        s = socket.create_connection(("127.0.0.1", server.port), 600)
        body = json.dumps(body).encode()
        s.sendall(b"POST %s HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % (path.encode(), len(body)) + body)
        return s

    def read(self, s, until):
        data = b""
        while until(data):
            more = s.recv(65536)
            if more == b"":
                break
            data += more
        return data

    def test_comments(self):
        text = {"prompt": "In the beginning", "max_tokens": 8, "temperature": 0, "stream": True}
        chat = {"messages": [{"role": "user", "content": "In the beginning"}], "max_tokens": 8, "stream": True}
        with Server("--keep-alive", "0.1", *HOLDS) as server:
            for timeout in 0, 3: # until the client leaves, and until the request has taken too long
                with server.held(), contextlib.ExitStack() as asked:
                    streams = [asked.enter_context(self.ask(server, path, dict(body, timeout=timeout))) for path, body in (
                        ("/v1/completions", text), ("/v1/messages", chat), ("/v1/chat/completions", chat))]
                    replies = [self.read(s, lambda data: timeout or data.count(b":\n") < 5) for s in streams]
                for data in replies:
                    head, _, rest = data.partition(b"\r\n\r\n")
                    self.assertRegex(head, rb"^HTTP/1\.. 200 OK\r\n(?s:.*)text/event-stream")
                    self.assertTrue(rest.startswith(b":\n:\n"), rest)
                    if timeout:
                        event, end = rest.replace(b":\n", b"").split(b"\n\n")
                        self.assertRegex(event, b"^(event: error\n)?data: .*the request exceeded its time limit of 3 seconds")
                        self.assertEqual(end, b"")
                    else:
                        self.assertEqual(rest.replace(b":\n", b""), b"")
                server.wait_metric("trireme_requests_live", 0)

    def test_text(self):
        """What comes between comments is the text as else, and replies that are no streams wait in silence."""
        body = {"prompt": "In the beginning", "max_tokens": 8, "temperature": 0}
        with Server("--keep-alive", "0.1", *HOLDS) as server, concurrent.futures.ThreadPoolExecutor(1) as pool:
            with contextlib.ExitStack() as asked:
                with server.held(): # before it is asked, as it may be done at once
                    s = asked.enter_context(self.ask(server, "/v1/completions", dict(body, stream=True)))
                    whole = pool.submit(server.complete)
                    time.sleep(1)
                rest = self.read(s, lambda data: True).partition(b"\r\n\r\n")[2]
            self.assertRegex(rest, rb"(?m)^:$")
            *events, end = re.sub(rb"(?m)^:\n", b"", rest).split(b"\n\n")
            self.assertEqual((events.pop(), end), (b"data: [DONE]", b""))
            self.assertEqual([event for event in events if not event.startswith(b"data: {")], [])
            self.assertEqual("".join(json.loads(event[6:])["choices"][0]["text"] for event in events), BEGINNING)
            self.assertEqual(whole.result(), BEGINNING)

    def test_none(self):
        with Server("--keep-alive", "0", *HOLDS) as server:
            with server.held(), self.ask(server, "/v1/completions", {"prompt": "a", "stream": True, "max_tokens": 2}) as s:
                s.settimeout(1.5)
                self.assertRaises(TimeoutError, s.recv, 1)


class Ending(unittest.TestCase):
    def test_drain(self):
        server = Server("--drain-timeout", "600", *HOLDS)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            with server.held():
                reply = pool.submit(server.request, "POST", "/v1/completions", long_body(n=4, max_tokens=100))
                server.wait_metric("trireme_requests_live", 4)
                server.process.send_signal(signal.SIGTERM)
                eventually(lambda: self.assertEqual(server.request("GET", "/health")[0], 503))
                self.assertFalse(reply.done())
            status, body, _ = reply.result()
            self.assertEqual((status, body["usage"]["completion_tokens"]), (200, 400))
        self.assertEqual(server.stop(), 0)

    def test_second_signal(self):
        server = Server(*HOLDS)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            with server.held():
                reply = pool.submit(server.request, "POST", "/v1/completions", long_body(n=16))
                server.wait_metric("trireme_requests_live", 16)
                server.process.send_signal(signal.SIGTERM)
                eventually(lambda: self.assertEqual(server.request("GET", "/health")[0], 503))
                server.process.send_signal(signal.SIGTERM)
                self.assertEqual(reply.result()[0], 503)
        self.assertEqual(server.stop(), 0)

    def test_front_end_dies(self):
        """Ranks do not outlive the front end."""
        server = Server()
        workers = server.workers()
        self.assertEqual(len(workers), RANKS)
        server.stop(signal.SIGKILL)
        eventually(lambda: self.assertEqual([pid for pid in workers if not is_gone(pid)], []))


class Refusals(unittest.TestCase):
    def fails(self, code, part, *options, **variables):
        command = [PROGRAM, "serve", MODEL, "--backend", "host", "--port", "0", "--ranks", str(RANKS), *options]
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=600,
                              env=dict(os.environ, **variables))
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertEqual(done.stderr.count(part), 1, done.stderr)

    def test_start(self):
        self.fails(2, "cannot resolve the address to listen on", "--host", "no.such.host.invalid")
        self.fails(2, "found only one of them", "--tls-key", "/dev/null")
        self.fails(2, "cannot serve HTTPS with certificate", "--tls-key", "/dev/null", "--tls-certificate", "/dev/null")
        self.fails(1, "/no/such/file", "--api-keys", "/no/such/file")
        self.fails(2, "max_context is 1000000000 tokens, the model has", "--context", "1000000000")
        self.fails(2, f"has {RANKS + 1} ranks, but the world has {RANKS}", "--mesh", f"tp={RANKS + 1}")
        for origin in "pages.example", "https://", "https://pages.example/", "https://*.example", "":
            self.fails(2, f'cors-origin is "{origin}", expected SCHEME', "--cors-origin", origin)
        self.fails(2, "rank 0 of a job, but it starts its ranks itself", OMPI_COMM_WORLD_RANK="0")
        self.fails(2, "starts its ranks itself", SLURM_PROCID="0", SLURM_NTASKS="2", SLURM_STEP_ID="0")
        script = dict(SLURM_PROCID="0", SLURM_NTASKS="2", SLURM_JOB_ID="7") # of sbatch, which is no rank
        self.fails(1, "/no/such/file", "--api-keys", "/no/such/file", **script)
        launched = dict(OMPI_COMM_WORLD_RANK="0", OMPI_COMM_WORLD_SIZE="8", OMPI_COMM_WORLD_LOCAL_SIZE="4")
        self.fails(2, "rank 0 of a job on several machines, but it starts its ranks itself", **launched)
        self.fails(2, f"ranks is {RANKS} (--ranks), but mpirun started 8 processes", **dict(launched, OMPI_COMM_WORLD_LOCAL_SIZE="8"))
        if RANKS > 1:
            self.fails(1, "cannot start", "--mpirun", "/no/such/mpirun")


class Load(unittest.TestCase):
    @of_front_end
    def test_bench(self):
        page = write_temporary("")
        keys = write_temporary("secret")
        with Server("--api-keys", keys) as server:
            command = [PROGRAM, "bench", "serve", server.url, "--requests", "24", "--concurrency", "6", "--prompt-tokens", "20",
                       "--tokens", "12", "--json", "--html", page, "--goal-first", "60000"]
            refused = subprocess.run(command, capture_output=True, text=True, timeout=600)
            self.assertEqual(refused.returncode, 1)
            self.assertIn("status 401", refused.stderr)
            done = subprocess.run(command + ["--api-key", "secret"], capture_output=True, text=True, timeout=600)
            self.assertEqual(done.returncode, 0, done.stderr)
            figures = json.loads(done.stdout)
            self.assertEqual((figures["completed"], figures["failed"], figures["output_tokens"]), (24, 0, 288))
            self.assertAlmostEqual(figures["goodput_requests_per_second"], figures["requests_per_second"])
            for name in ("first_token_ms", "per_token_ms", "between_pieces_ms", "whole_ms"):
                self.assertGreater(figures[name]["mean"], 0)
                self.assertLessEqual(figures[name]["p50"], figures[name]["p99"])
            self.assertGreater(figures["whole_ms"]["p50"], figures["first_token_ms"]["p50"])
            with open(page) as text:
                self.assertIn("</html>", text.read())
            spread = subprocess.run(command + ["--api-key", "secret", "--rate", "50", "--ids-below", "100"], capture_output=True,
                                    text=True, timeout=600)
            self.assertEqual(spread.returncode, 0, spread.stderr)
        gone = subprocess.run(command, capture_output=True, text=True, timeout=600)
        self.assertEqual(gone.returncode, 1)
        self.assertIn("cannot", gone.stderr)
        os.unlink(page)
        os.unlink(keys)

    @of_front_end
    def test_https(self):
        """The server's own certificate is trusted where its file is given, and the name must be the server's."""
        with tempfile.TemporaryDirectory() as folder:
            certificate, key = os.path.join(folder, "certificate"), os.path.join(folder, "key")
            subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate, "-days", "2",
                            "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"], check=True, capture_output=True)
            with Server("--tls-certificate", certificate, "--tls-key", key) as server:
                def bench(host, *options):
                    return subprocess.run([PROGRAM, "bench", "serve", f"https://{host}:{server.port}", "--requests", "12", "--concurrency",
                                           "4", "--prompt-tokens", "20", "--tokens", "12", "--json", *options],
                                          capture_output=True, text=True, timeout=600)
                done = bench("localhost", "--tls-authorities", certificate)
                self.assertEqual(done.returncode, 0, done.stderr)
                figures = json.loads(done.stdout)
                self.assertEqual((figures["completed"], figures["failed"], figures["output_tokens"]), (12, 0, 144))
                for host, options, code, said in (("localhost", (), 1, "the certificate of localhost is not trusted"),
                                                  ("127.0.0.1", ("--tls-authorities", certificate), 1, "not trusted"),
                                                  ("localhost", ("--tls-authorities", "/dev/null"), 2, "has no certificates"),
                                                  ("localhost", ("--tls-authorities", "/no/such"), 1, "cannot open /no/such")):
                    failed = bench(host, *options)
                    self.assertEqual(failed.returncode, code, failed.stderr)
                    self.assertIn(said, failed.stderr)
        with Server() as server: # which speaks no TLS
            done = subprocess.run([PROGRAM, "bench", "serve", f"https://127.0.0.1:{server.port}"], capture_output=True, text=True, timeout=600)
            self.assertEqual((done.returncode, "TLS handshake with 127.0.0.1" in done.stderr), (1, True), done.stderr)

    @of_front_end
    def test_character_of_code_zero(self):
        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self, kind, body):
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                self.wfile.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body))

            def do_GET(self):
                self.answer("application/json", b'{"object": "list", "data": [{"id": "m"}]}')

            def do_POST(self):
                self.rfile.read(int(self.headers["Content-Length"]))
                pieces = [r'"a\u0000"', r'"\\u0000"', r'"\u0000"']
                events = ['{"choices": [{"text": %s, "index": 0}]}' % piece for piece in pieces]
                events += ['{"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}}', "[DONE]"]
                self.answer("text/event-stream", "".join("data: %s\n\n" % event for event in events).encode())

            def log_message(self, *arguments):
                pass

        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            done = subprocess.run([PROGRAM, "bench", "serve", "http://127.0.0.1:%d" % server.server_port, "--requests", "2", "--concurrency",
                                   "1", "--prompt-tokens", "5", "--tokens", "3", "--json"], capture_output=True, text=True, timeout=600)
            server.shutdown()
        self.assertEqual(done.returncode, 0, done.stderr)
        figures = json.loads(done.stdout)
        self.assertEqual((figures["completed"], figures["failed"], figures["output_tokens"]), (2, 0, 6))

    @of_front_end
    def test_server_without_chunks(self):
        """A stream that ends with its connection, with events as short as the standard lets them be."""
        class Handler(http.server.BaseHTTPRequestHandler):
            def answer(self, body):
                self.send_response(200)
                self.end_headers()
                self.wfile.write(body)

            def do_GET(self):
                self.answer(b'{"object": "list", "data": [{"id": "m"}]}')

            def do_POST(self):
                self.rfile.read(int(self.headers["Content-Length"]))
                self.answer(b'data:{"choices":[{"text":"a"}]}\n\ndata:{"choices":[{"text":"b"}]}\n\n'
                            b'data:{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":2}}\n\ndata:[DONE]\n\n')

            def log_message(self, *arguments):
                pass

        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            done = subprocess.run([PROGRAM, "bench", "serve", "http://127.0.0.1:%d" % server.server_port, "--requests", "2", "--json"],
                                  capture_output=True, text=True, timeout=600)
            server.shutdown()
        self.assertEqual(done.returncode, 0, done.stderr)
        figures = json.loads(done.stdout)
        self.assertEqual((figures["completed"], figures["failed"], figures["output_tokens"]), (2, 0, 4))

    @of_front_end
    def test_server_of_short_contexts(self):
        """Drawn lengths fit what the server says of itself; its word for what does not is passed on."""
        lengths = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def answer(self, status, kind, body):
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body.encode())

            def do_GET(self):
                self.answer(200, "application/json", '{"object": "list", "data": [{"id": "m", "max_model_len": 64}]}')

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                lengths.append((len(body["prompt"]), body["max_tokens"]))
                self.answer(400, "application/json", '{"error": {"message": "no request of %d tokens", "code": 400}}' % sum(lengths[-1]))

            def log_message(self, *arguments):
                pass

        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            addresses = [entry[4][0] for entry in socket.getaddrinfo("localhost", None)]
            url = "http://%s:%d" % ("localhost" if "127.0.0.1" in addresses else "127.0.0.1", server.server_port)
            command = [PROGRAM, "bench", "serve", url, "--concurrency", "1"]
            drawn = subprocess.run(command + ["--requests", "40", "--spread"], capture_output=True, text=True, timeout=600)
            fixed = subprocess.run(command + ["--requests", "1", "--prompt-tokens", "60", "--tokens", "50"], capture_output=True,
                                   text=True, timeout=600)
            server.shutdown()
        self.assertEqual((drawn.returncode, fixed.returncode), (1, 1))
        self.assertIn("status 400: no request of 110 tokens", fixed.stderr)
        self.assertEqual(lengths.pop(), (60, 50))
        self.assertEqual(len(lengths), 40)
        self.assertTrue(all(prompt >= 4 and output >= 4 and prompt + output <= 64 for prompt, output in lengths), lengths)
        self.assertIn(64, [sum(pair) for pair in lengths])


class Speculation(unittest.TestCase):
    """Drafts change nothing of a reply but how fast it comes."""
    SCHEMA = {"type": "object", "properties": {"names": {"type": "array", "items": {"enum": ["Adam", "Eve"]},
                                                         "minItems": 12, "maxItems": 12}}, "required": ["names"]}
    BEGATS = "And Seth begat Enos: And Enos begat Cainan: And Cainan begat Mahalaleel: And Mahalaleel begat"
    REQUESTS = [
        {"max_tokens": 120},
        {"max_tokens": 60, "prompt": BEGATS},
        {"max_tokens": 60, "prompt": BEGATS, "temperature": 0.8, "seed": 7, "top_p": 0.9, "logprobs": 2},
        {"max_tokens": 60, "prompt": BEGATS, "temperature": 0.7, "seed": 8, "presence_penalty": 0.5,
         "frequency_penalty": 0.4, "n": 2},
        {"max_tokens": 90, "prompt": BEGATS, "stop": ["the", "Enoch"]},
        {"max_tokens": 150, "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}},
         "temperature": 0.5, "seed": 3},
        {"max_tokens": 40, "prompt": BEGATS, "echo": True, "logprobs": 1, "logit_bias": {"300": 2}},
    ]

    def replies(self, server):
        found = []
        for request in self.REQUESTS:
            status, reply, _ = server.request(
                "POST", "/v1/completions", dict({"prompt": "In the beginning", "temperature": 0}, **request))
            self.assertEqual(status, 200, reply)
            found += [(choice["text"], choice["finish_reason"],
                       choice["logprobs"] and [round(x or 0, 2) for x in choice["logprobs"]["token_logprobs"]])
                      for choice in reply["choices"]]
        return found

    def test_same_replies(self):
        with Server() as server:
            expected = self.replies(server)
            self.assertEqual(server.metric("vllm:spec_decode_num_draft_tokens_total"), 0)
        for way, *more in ("lookup",), ("auto:4",), ("lookup:3", "--draft", MODEL):
            with Server("--speculate", way, *more) as server:
                found = self.replies(server)
                self.assertEqual(len(found), len(expected))
                if BACKEND == "host": # a GPU's sums depend on the number of rows
                    self.assertEqual(found, expected, way)
                if way != "auto:4":
                    eventually(lambda: self.assertGreater(server.metric("vllm:spec_decode_num_accepted_tokens_total"), 20))
                server.wait_metric("trireme_cache_blocks_used", 0)


class Cache(unittest.TestCase):
    """With cached keys and values in e4m3 replies are as good, and do not depend on what the cache holds already."""
    def test_fp8(self):
        with Server("--kv-cache-dtype", "fp8", "--context", "256", "--cache-tokens", "256", "--sequences", "4") as server:
            asked = {"prompt": "In the beginning", "max_tokens": 40, "temperature": 0}
            replies = [server.request("POST", "/v1/completions", asked) for _ in range(3)]
            for status, reply, _ in replies:
                self.assertEqual(status, 200, reply)
                self.assertTrue(reply["choices"][0]["text"].startswith(BEGINNING), reply)
                self.assertEqual(reply["choices"][0]["text"], replies[0][1]["choices"][0]["text"])
            with concurrent.futures.ThreadPoolExecutor(4) as pool: # more than the cache holds: some wait or begin again
                long = dict(asked, prompt="And it came to pass", max_tokens=100, ignore_eos=True)
                for status, reply, _ in pool.map(lambda _: server.request("POST", "/v1/completions", long), range(4)):
                    self.assertEqual(status, 200, reply)
                    self.assertEqual(reply["usage"]["completion_tokens"], 100)
        with self.assertRaises(AssertionError):
            Server("--kv-cache-dtype", "fp4")


class Ranks(unittest.TestCase):
    def test_times(self):
        """Every rank tells of its steps and, where there are several, of the time in collectives of those looked at."""
        def check():
            text = server.request("GET", "/metrics")[1]
            values = {}
            for what, rank, value in re.findall(r'^trireme_rank_(\w+)\{.*rank="(\d+)"\} (\S+)$', text, re.MULTILINE):
                values.setdefault(what, []).append(float(value))
                self.assertEqual(len(values[what]), int(rank) + 1)
            self.assertEqual({len(of) for of in values.values()}, {RANKS}, values)
            for what in "steps_total", "step_seconds_total", "device_seconds_total", "last_step_seconds":
                self.assertGreater(min(values[what]), 0, what)
            self.assertEqual("sampled_layer_seconds_total" in values, RANKS > 1)
            if RANKS > 1: # the fifth step was looked at, and no other yet
                for layers, exchanges, last, steps in zip(*(values[what] for what in (
                        "sampled_layer_seconds_total", "sampled_collective_seconds_total", "last_collective_seconds", "step_seconds_total"))):
                    self.assertTrue(0 <= exchanges < layers < steps, (exchanges, layers, steps))
                    if BACKEND == "host": # on GPUs each rank may do all of so small a model
                        self.assertGreater(exchanges, 0)
                    self.assertAlmostEqual(exchanges, last, places=8)

        with Server() as server:
            server.complete()
            eventually(check) # what ranks tell comes ten times a second


class Names(unittest.TestCase):
    def test_dashboards(self):
        """What the page and the Grafana dashboard look at is there."""
        with Server("--weight-budget", "0") as server:
            server.complete()
            eventually(lambda: self.assertIn("trireme_layer_weight_wait_seconds{", server.request("GET", "/metrics")[1])) # the last to come
            metrics = server.request("GET", "/metrics")[1]
            known = set(re.findall(r"^([\w:]+)\{", metrics, re.MULTILINE))
            self.assertEqual(known, {name for name in known if re.search(rf"^# TYPE {re.sub('_(sum|count|bucket)$', '', name)} ", metrics, re.MULTILINE)})
            status, page, headers = server.request("GET", "/")
            self.assertEqual((status, headers["Content-Type"]), (200, "text/html; charset=utf-8"))
        with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../configs/serve/grafana.json")) as file:
            board = json.load(file)
        used = set(re.findall(r"\b(?:vllm:|trireme_)\w+", " ".join(target["expr"] for panel in board["panels"] for target in panel["targets"])))
        used |= {name for name in re.findall(r'"((?:vllm:|trireme_)\w+)"', page) if name != "trireme_rank_"}
        used |= {"trireme_rank_" + name for name in re.findall(r"\br\.(\w+)", page)}
        used = {name for name in used if RANKS > 1 or "_collective_" not in name and "_sampled_" not in name}
        self.assertGreater(len(used), 25)
        self.assertEqual({name for name in used if name not in known and name + "_sum" not in known}, set())


class Streaming(unittest.TestCase):
    def test_counters(self):
        """Weights that stream are counted step by step, packed ones by what is copied and by what they become."""
        replies = []
        for compression in "off", "lossless":
            with Server("--weight-budget", "0", "--dtype", "bf16", "--weight-compression", compression) as server:
                server.wait_line(r"memory of rank 0 is [0-9.]+ MiB: weights [0-9.]+, staging [0-9.]+, cache of \d+ tokens [0-9.]*[1-9][0-9.]*, activations ")
                status, reply, _ = server.request(
                    "POST", "/v1/completions", {"prompt": "In the beginning", "max_tokens": 8, "temperature": 0})
                self.assertEqual(status, 200, reply)
                replies.append(reply["choices"][0]["text"])

                def check():
                    copied, became = (server.metric(f"trireme_{what}_bytes_total") for what in ("streamed", "unpacked"))
                    self.assertGreater(copied, 8 * 1000000)
                    self.assertTrue(copied < 0.8 * became if compression == "lossless" else copied == became)
                    self.assertGreater(server.metric("trireme_link_bytes_per_second"), 0)
                    self.assertGreater(server.metric("trireme_last_step_link_share"), 0)
                    layers = re.findall(r'^trireme_layer_weight_wait_seconds\{.*layer="(.+)"\} ([0-9.]+)$',
                                        server.request("GET", "/metrics")[1], re.MULTILINE)
                    self.assertGreater(len(layers), 8) # of the fifth step
                    self.assertIn("model.layers.7.mlp.down_proj", [name for name, _ in layers])
                    self.assertAlmostEqual(sum(float(seconds) for _, seconds in layers),
                                           server.metric("trireme_step_weight_wait_seconds"), places=6)

                eventually(check) # what ranks tell comes ten times a second
        self.assertEqual(*replies)


if __name__ == "__main__":
    unittest.main()
