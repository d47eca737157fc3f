"""Many at a time, and all that clients may do at random: nothing is left behind."""
import concurrent.futures
import contextlib
import json
import os
import random
import resource
import socket
import time
import unittest

from serving import BEGINNING, Server, eventually, of_front_end


class Soak(unittest.TestCase):
    @of_front_end
    def test_thousand_streams(self):
        """As many streams at a time as there may be by default, twice: all are answered, and the front end stays small."""
        streams = 1000
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        if limits[0] < 2 * streams:
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(4 * streams, limits[1]), limits[1]))
            self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
        body = json.dumps({"prompt": "In the beginning", "max_tokens": 1, "temperature": 0, "stream": True}).encode()
        request = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)

        def of_front_end(server, name):
            with open(f"/proc/{server.process.pid}/{name}") as file:
                return file.read()

        def visit(server):
            with contextlib.ExitStack() as stack:
                sockets = [stack.enter_context(socket.create_connection(("127.0.0.1", server.port), 600)) for _ in range(streams)]
                for s in sockets:
                    s.sendall(request)
                for s in sockets:
                    reply = b"".join(iter(lambda: s.recv(65536), b""))
                    self.assertIn(b"200 OK", reply)
                    self.assertIn(b'"text":" God"', reply)
                    self.assertIn(b"data: [DONE]", reply)

        with Server("-q") as server:
            for _ in range(2):
                visit(server)
                server.wait_metric("trireme_requests_live", 0)
                server.wait_metric("trireme_connections", 1)
            if "asan" not in of_front_end(server, "maps"): # a sanitizer keeps what is freed, and tells what is lost
                pages = int(of_front_end(server, "statm").split()[1])
                self.assertLess(pages * os.sysconf("SC_PAGE_SIZE"), 160 << 20) # some 60 MB

    def test_soak(self):
        """Random arrivals, cancellations and disconnects: nothing is left behind."""
        seed = int(os.environ.get("TRM_TEST_SEED", "1"))
        seconds = float(os.environ.get("TRIREME_SOAK_SECONDS", "10"))
        print(f"seed {seed}")
        rng = random.Random(seed)

        tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}}}}]

        def ask(dice):
            """A path and a body for it: texts, embeddings, and chats with grammars and tools."""
            words = "And " * dice.randrange(1, 60)
            common = dict(max_tokens=dice.randrange(1, 60), stream=dice.random() < 0.7, temperature=dice.random(),
                          frequency_penalty=dice.choice([0, 0.5]))
            chat = dict(common, messages=[{"role": "user", "content": words}])
            kind = dice.random()
            if kind < 0.6:
                return "completions", dict(common, prompt=words, n=dice.randrange(1, 3), stop=["the"] if dice.random() < 0.3 else None)
            if kind < 0.75:
                return "embeddings", {"input": [words] * dice.randrange(1, 4), "encoding_format": dice.choice(["float", "base64"])}
            if kind < 0.85:
                return "chat/completions", dict(chat, tools=tools, tool_choice=dice.choice(["auto", "required"]))
            if kind < 0.95:
                return "chat/completions", dict(chat, response_format={"type": "json_object"}, logprobs=True, top_logprobs=2)
            return "completions", dict(common, prompt=words, stream=False, best_of=3, logprobs=1)

        def visit(server, end, dice):
            while time.monotonic() < end:
                path, body = ask(dice)
                body = json.dumps(body).encode()
                if dice.random() < 0.1:
                    body = body[:dice.randrange(len(body))]
                with socket.create_connection(("127.0.0.1", server.port), 300) as s: # sanitizers on a machine with other work
                    head = b"POST /v1/%s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % (path.encode(), len(body))
                    sent = head + body
                    if dice.random() < 0.1:
                        s.sendall(sent[:dice.randrange(len(sent))])
                        continue
                    s.sendall(sent)
                    if dice.random() < 0.5:
                        while s.recv(65536):
                            pass
                    elif dice.random() < 0.5:
                        s.recv(dice.randrange(1, 3000))
                    if dice.random() < 0.3: # a reset instead of an end
                        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

        with Server("-q", "--no-prefix-cache", "--speculate", "lookup:3") as server:
            server.complete()
            before = server.descriptors()
            with concurrent.futures.ThreadPoolExecutor(16) as pool:
                visits = [pool.submit(visit, server, time.monotonic() + seconds, random.Random(rng.random())) for _ in range(16)]
                for done in visits:
                    done.result()
            server.wait_metric("trireme_requests_live", 0)
            server.wait_metric("trireme_cache_blocks_used", 0)
            server.wait_metric("trireme_connections", 1)
            eventually(lambda: self.assertLessEqual(server.descriptors(), before))
            self.assertEqual(server.complete(), BEGINNING)


if __name__ == "__main__":
    unittest.main()
