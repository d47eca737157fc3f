#!/usr/bin/env python3
"""`trireme serve NET.onnx` with several instances and joined requests: values, statistics, timeouts, a full queue.

Usage: test_network_batches.py TRIREME NET.onnx [BACKEND]"""
import concurrent.futures
import http.client
import json
import re
import signal
import struct
import subprocess
import sys
import time

program, network = sys.argv[1:3]
BACKEND = f"--backend={sys.argv[3] if len(sys.argv) > 3 else 'host'}"


class Server:
    def __init__(self, *options):
        self.process = subprocess.Popen([program, "serve", network, BACKEND, "--port=0", "--served-name=net", "--quiet", *options],
                                        stderr=subprocess.PIPE, text=True)
        while True:
            line = self.process.stderr.readline()
            assert line, "the server ended"
            found = re.search(r"listening on http://127\.0\.0\.1:(\d+)", line)
            if found:
                self.port = int(found.group(1))
                break

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        self.process.send_signal(signal.SIGTERM)
        try:
            assert self.process.wait(30) == 0
        finally:
            self.process.kill()

    def call(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request(method, path, body)
        reply = connection.getresponse()
        content = reply.read()
        connection.close()
        return reply.status, content

    def infer(self, rows, timeout=0):
        n, length = len(rows), len(rows[0])
        inputs = [{"name": "input_ids", "shape": [n, length], "datatype": "INT64", "data": rows},
                  {"name": "attention_mask", "shape": [n, length], "datatype": "INT64", "data": [[1] * length] * n}]
        request = {"inputs": inputs, "outputs": [{"name": "pooler_output"}], "parameters": {"timeout": timeout}}
        status, content = self.call("POST", "/v2/models/net/infer", json.dumps(request))
        found = json.loads(content)
        if status != 200:
            return status, found["error"]
        output = found["outputs"][0]
        assert output["shape"][0] == n
        return status, output["data"]

    def wait_metric(self, name, value):
        line, until = f'{name}{{model="net",version="1"}} {value}\n', time.monotonic() + 30
        while line not in (text := self.call("GET", "/metrics")[1].decode()):
            assert time.monotonic() < until, (line, text)
            time.sleep(0.01)

    def stats(self):
        status, content = self.call("GET", "/v2/models/net/stats")
        assert status == 200
        return json.loads(content)["model_stats"][0]


def close(a, b):
    return len(a) == len(b) and all(abs(x - y) <= 1e-5 * (1 + abs(y)) for x, y in zip(a, b))


OPEN = ("--min-shapes=input_ids:1x3,attention_mask:1x3", "--max-shapes=input_ids:8x5,attention_mask:8x5",
        "--shapes=input_ids:4x3,attention_mask:4x3")
requests = [[[1 + (i * 7 + k * 3 + p) % 50 for p in range(3 + 2 * (i % 3 == 0))] for k in range(1 + i % 3)] for i in range(40)]
with Server(*OPEN) as server:
    expected = [server.infer(rows) for rows in requests]
    assert all(status == 200 for status, _ in expected), expected
    stats = server.stats()
    assert stats["inference_count"] == stats["execution_count"] == 40 and stats["inference_stats"]["success"]["count"] == 40

with Server(*OPEN, "--instances=2", "--max-batch=8", "--batch-delay=20000", "--preferred-batch=6") as server:
    config = json.loads(server.call("GET", "/v2/models/net/config")[1])
    assert config["max_batch_size"] == 8 and config["input"][0]["dims"] == [-1], config
    assert config["dynamic_batching"] == {"preferred_batch_size": [6], "max_queue_delay_microseconds": 20000}, config
    assert config["instance_group"][0]["count"] == 2, config
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        found = list(pool.map(server.infer, requests))
    for (status, data), (_, single) in zip(found, expected):
        assert status == 200 and close(data, single), (data, single)
    stats = server.stats()
    assert stats["inference_count"] == sum(len(rows) for rows in requests), stats
    assert stats["execution_count"] < 40, stats
    assert sum(b["batch_size"] * b["compute_infer"]["count"] for b in stats["batch_stats"]) == stats["inference_count"]
    assert max(b["batch_size"] for b in stats["batch_stats"]) <= 8
    status, error = server.infer([[1, 2, 3]] * 9)
    assert status == 400 and "batch of 9" in error, (status, error)
    status, text = server.call("GET", "/metrics")
    assert status == 200 and 'nv_inference_request_success{model="net",version="1"} 40\n' in text.decode(), text

# A lone request waits for others, here for a minute; its timeout ends that, and a client that leaves is dropped. A server
# that ends runs what waits.
with concurrent.futures.ThreadPoolExecutor(2) as pool:
    with Server(*OPEN, "--max-batch=8", "--batch-delay=60000000", "--max-requests=2") as server:
        began = time.monotonic()
        status, error = server.infer([[1, 2, 3]], timeout=200000)
        assert status == 504 and "timeout" in error and time.monotonic() - began < 50, (status, error)
        gone = http.client.HTTPConnection("127.0.0.1", server.port)
        body = {"inputs": [{"name": name, "shape": [1, 3], "datatype": "INT64", "data": [1, 1, 1]} for name in ("input_ids", "attention_mask")]}
        gone.request("POST", "/v2/models/net/infer", json.dumps(body))
        server.wait_metric("nv_inference_pending_request_count", 1)
        gone.close()
        server.wait_metric("trireme_network_requests_cancelled_total", 1)
        waiting = [pool.submit(server.infer, [[1, 2, 3]]) for _ in range(2)]
        server.wait_metric("nv_inference_pending_request_count", 2)
        status, error = server.infer([[1, 2, 3]])
        assert status == 503, (status, error)
    assert [each.result()[0] for each in waiting] == [200, 200]

refused = subprocess.run([program, "serve", network, BACKEND, "--port=0", "--max-batch=4", "--shapes=input_ids:2x3,attention_mask:2x3"],
                         stderr=subprocess.PIPE, text=True, timeout=60)
assert refused.returncode == 2 and "no open first dim" in refused.stderr, refused
print("ok")
