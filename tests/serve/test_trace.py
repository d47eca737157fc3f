#!/usr/bin/env python3
"""The trace context of requests in replies, in the log and in timelines: of a language model on one and two ranks, and of a network.

Usage: test_trace.py TRIREME MODEL NET.onnx [BACKEND]"""
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

program, model, network = sys.argv[1:4]
BACKEND = f"--backend={sys.argv[4] if len(sys.argv) > 4 else 'host'}"
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
STATE = "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"
COMPLETION = json.dumps({"prompt": "In the beginning", "max_tokens": 4})
INFER = json.dumps({"inputs": [{"name": name, "shape": [2, 3], "datatype": "INT64", "data": [1, 2, 3, 1, 1, 1]} for name in ("input_ids", "attention_mask")]})


def call(port, path, body, headers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST" if body else "GET", path, body, headers)
    reply = connection.getresponse()
    content = reply.read()
    connection.close()
    return reply, content


def serve(operand, path, body, options):
    """The log lines of a server's requests, by id, and the events of its timeline."""
    with tempfile.TemporaryDirectory() as folder:
        environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OPENBLAS_NUM_THREADS="1", TRIREME_DEADLINE="600")
        server = subprocess.Popen([program, "serve", operand, BACKEND, "--port=0", f"--timeline={folder}/t.json", *options],
                                  stderr=subprocess.PIPE, text=True, env=environment)
        lines = []
        try:
            port = 0
            while port == 0 or ("--ranks" in " ".join(options) and "ready after" not in lines[-1]):
                lines.append(server.stderr.readline())
                assert lines[-1], f"the server ended: {lines}"
                found = re.search(r"listening on http://127\.0\.0\.1:(\d+)", lines[-1])
                port = int(found.group(1)) if found else port
            reply, content = call(port, path, body, {"traceparent": PARENT, "tracestate": STATE, "X-Request-Id": "good"})
            assert reply.status == 200 and reply.getheader("traceparent") == PARENT and reply.getheader("X-Request-Id") == "good", (reply.headers.items(), content)
            assert reply.getheader("tracestate") is None
            reply, content = call(port, path, body, {"traceparent": PARENT.replace("00-", "ff-"), "tracestate": STATE, "X-Request-Id": "bad"})
            assert reply.status == 200 and reply.getheader("traceparent") is None and reply.getheader("X-Request-Id") == "bad", (reply.headers.items(), content)
            reply, content = call(port, path, body, {"traceparent": PARENT, "tracestate": "x", "X-Request-Id": "badstate"})
            assert reply.status == 200 and reply.getheader("traceparent") == PARENT, (reply.headers.items(), content)
            reply, content = call(port, path, "{", {"traceparent": PARENT, "X-Request-Id": "refused"})  # errors have it, too
            assert reply.status == 400 and reply.getheader("traceparent") == PARENT, (reply.headers.items(), content)
            reply, _ = call(port, "/live" if "--ranks" in " ".join(options) else "/v2/health/live", None, {"X-Request-Id": "none"})
            assert reply.status == 200 and reply.getheader("traceparent") is None, reply.headers.items()
            server.send_signal(signal.SIGTERM)
            lines += server.stderr.readlines()
            assert server.wait(60) == 0, lines
        finally:
            server.kill()
        log = {line["id"]: line for line in map(json.loads, filter(lambda line: line.startswith("{"), lines))}
        with open(f"{folder}/t.json") as file:
            return log, json.load(file)["traceEvents"]


def check(operand, path, body, parts, options):
    log, events = serve(operand, path, body, options)
    assert log["good"]["traceparent"] == PARENT and log["good"]["tracestate"] == STATE, log
    assert log["badstate"]["traceparent"] == PARENT and "tracestate" not in log["badstate"], log
    assert "traceparent" not in log["bad"] and "tracestate" not in log["bad"] and "traceparent" not in log["none"], log
    assert log["refused"]["traceparent"] == PARENT, log
    begun = [event for event in events if event["ph"] == "b"]
    found = [(event["args"].get("traceparent"), event["args"].get("tracestate")) for event in begun if event["name"] == "request"]
    assert found == [(PARENT, STATE), (None, None), (PARENT, None)], found
    assert [event["name"] for event in begun] == 3 * ["request", *parts], begun
    return events


for ranks in (1, 2):
    events = check(model, "/v1/completions", COMPLETION, ["queued", "prefill", "decode"], [f"--ranks={ranks}", "--threads=1", "--heartbeat-timeout=20"])
    steps = [event["pid"] for event in events if event.get("cat") == "step"]
    assert sorted(set(steps)) == list(range(1, ranks + 1)) and len(set(steps.count(rank) for rank in set(steps))) == 1, steps
    if ranks == 2:
        assert any(event.get("cat") == "exchange" for event in events)
for operands, options, models, files in (
    ([model], ["--replicas=2"], [os.path.basename(model)], ["t.json", "t.json.replica1"]),  # a file for every job
    ([f"org/a={model}", f"b={model}"], [], ["org/a", "b"], ["t.json.b", "t.json.org_a"]),
):
    with tempfile.TemporaryDirectory() as folder:
        server = subprocess.Popen([program, "serve", *operands, BACKEND, "--port=0", "--threads=1", f"--timeline={folder}/t.json", *options], stderr=subprocess.PIPE, text=True)
        try:
            lines = [server.stderr.readline()]
            port = int(re.search(r"listening on http://127\.0\.0\.1:(\d+)", "".join(lines)).group(1))
            while len(operands) == 1 and "ready after" not in lines[-1]:  # several are loaded by requests
                lines.append(server.stderr.readline())
                assert lines[-1], lines
            for name in models:
                reply, content = call(port, "/v1/completions", json.dumps({"model": name, "prompt": "In the beginning", "max_tokens": 4}), {})
                assert reply.status == 200, content
            until = time.monotonic() + 60
            while sorted(os.listdir(folder)) != files and time.monotonic() < until:  # the other replica still loads
                time.sleep(0.1)
            server.send_signal(signal.SIGTERM)
            assert server.wait(60) == 0
        finally:
            server.kill()
        assert sorted(os.listdir(folder)) == files, (os.listdir(folder), lines)
check(network, "/v2/models/net/infer", INFER, ["queued", "run"], ["--served-name=net", "--shapes=input_ids:2x3,attention_mask:2x3"])
print("ok")
