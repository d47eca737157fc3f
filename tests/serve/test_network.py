#!/usr/bin/env python3
"""`trireme serve NET.onnx` over KServe's protocol v2: values against `trireme run`, and bad requests.

Usage: test_network.py TRIREME NET.onnx [BACKEND]"""
import http.client
import json
import re
import signal
import struct
import subprocess
import sys
import tempfile

program, network = sys.argv[1:3]
BACKEND = f"--backend={sys.argv[3] if len(sys.argv) > 3 else 'host'}"
SHAPES = "--shapes=input_ids:2x3,attention_mask:2x3"
IDS = [1, 2, 3, 4, 5, 6]
MASK = [1, 1, 1, 1, 1, 0]


def call(port, method, path, body=None, headers=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request(method, path, body, headers or {})
    reply = connection.getresponse()
    content = reply.read()
    connection.close()
    return reply, content


def tensors(raw):
    inputs = []
    for name, values in (("input_ids", IDS), ("attention_mask", MASK)):
        tensor = {"name": name, "shape": [2, 3], "datatype": "INT64"}
        if raw:
            tensor["parameters"] = {"binary_data_size": 48}
        else:
            tensor["data"] = [values[:3], values[3:]]
        inputs.append(tensor)
    return inputs


def reference():
    with tempfile.TemporaryDirectory() as folder:
        arguments = []
        for name, values in (("input_ids", IDS), ("attention_mask", MASK)):
            with open(f"{folder}/{name}.bin", "wb") as file:
                file.write(struct.pack("<6q", *values))
            arguments.append(f"--input={name}={folder}/{name}.bin")
        output = f"{folder}/out.bin"
        subprocess.run([program, "run", network, BACKEND, SHAPES, f"--output=pooler_output={output}", *arguments],
                       check=True, stdout=subprocess.DEVNULL)
        with open(output, "rb") as file:
            return file.read()


def check_values(port, expected):
    reply, content = call(port, "POST", "/v2/models/net/infer", json.dumps({"id": "a", "inputs": tensors(False)}))
    assert reply.status == 200, content
    found = json.loads(content)
    assert found["id"] == "a" and found["model_name"] == "net"
    pooled = [x for x in found["outputs"] if x["name"] == "pooler_output"][0]
    assert pooled["datatype"] == "FP32" and pooled["shape"] == [2, 16]
    assert struct.pack("<32f", *pooled["data"]) == expected

    head = json.dumps({"inputs": tensors(True), "outputs": [{"name": "pooler_output", "parameters": {"binary_data": True}}]})
    for padding in range(8):  # the elements begin at any address
        text = (head + " " * padding).encode()
        body = text + struct.pack("<12q", *IDS, *MASK)
        headers = {"Inference-Header-Content-Length": str(len(text))}
        reply, content = call(port, "POST", "/v2/models/net/versions/1/infer", body, headers)
        assert reply.status == 200, content
        size = int(reply.getheader("Inference-Header-Content-Length"))
        assert json.loads(content[:size])["outputs"][0]["parameters"]["binary_data_size"] == len(expected)
        assert content[size:] == expected


def check_refusals(port):
    def refused(change, status=400, raw=b"", path="/v2/models/net/infer", size=None):
        request = {"inputs": tensors(bool(raw))}
        change(request)
        text = json.dumps(request).encode()
        headers = {"Inference-Header-Content-Length": str(len(text) if size is None else size)} if raw else {}
        reply, content = call(port, "POST", path, text + raw, headers)
        assert reply.status == status and isinstance(json.loads(content)["error"], str), (reply.status, content)

    def first(**members):
        return lambda request: request["inputs"][0].update(members)

    nothing = lambda request: None
    whole = struct.pack("<12q", *IDS, *MASK)
    refused(first(shape=[2, 4]))
    refused(first(shape=[6]))
    refused(first(shape=[2, -3]))
    refused(first(shape=[2**40, 2**40]))
    refused(first(datatype="FP32"))
    refused(first(name="nope"))
    refused(first(name="attention_mask"))
    refused(first(data=[1, 2, 3, 4, 5]))
    refused(first(data=[1, 2, 3, 4, 5, 6, 7]))
    refused(first(data=[[1, 2, 3, 4, 5, "x"]]))
    refused(first(data=[1, 2, 3, 4, 5, 1.5]))
    refused(lambda request: request["inputs"].pop())
    refused(lambda request: request.update(inputs=3))
    refused(lambda request: request.update(outputs=[{"name": "nope"}]))
    refused(lambda request: request.update(id=3))
    refused(nothing, raw=whole[:-1])
    refused(nothing, raw=whole + b"x")
    refused(nothing, raw=whole, size=100000)
    refused(nothing, raw=whole, size="-1")
    refused(first(parameters={"binary_data_size": 40}), raw=whole)
    refused(first(parameters={"shared_memory_region": "r"}))
    refused(nothing, status=404, path="/v2/models/other/infer")
    refused(nothing, status=404, path="/v2/models/net/versions/2/infer")
    refused(nothing, status=405, path="/v2/models/net/ready")
    reply, content = call(port, "POST", "/v2/models/net/infer", b"{")
    assert reply.status == 400 and "error" in json.loads(content)
    reply, _ = call(port, "GET", "/v2/models/net", headers={"Host": "evil.example.com"})
    assert reply.status == 403


expected = reference()
server = subprocess.Popen([program, "serve", network, BACKEND, SHAPES, "--port=0", "--served-name=net"],
                          stderr=subprocess.PIPE, text=True)
try:
    port = 0
    while port == 0:
        line = server.stderr.readline()
        assert line, "the server ended"
        found = re.search(r"listening on http://127\.0\.0\.1:(\d+)", line)
        port = int(found.group(1)) if found else 0
    for path in ("/v2/health/live", "/v2/health/ready", "/v2/models/net/ready", "/v2", "/v2/models/net/config"):
        assert call(port, "GET", path)[0].status == 200, path
    metadata = json.loads(call(port, "GET", "/v2/models/net")[1])
    assert metadata["versions"] == ["1"]
    assert metadata["inputs"][0] == {"name": "input_ids", "datatype": "INT64", "shape": [2, 3]}
    check_values(port, expected)
    check_refusals(port)
    check_values(port, expected)
    server.send_signal(signal.SIGTERM)
    assert server.wait(20) == 0
finally:
    server.kill()
print("ok")
