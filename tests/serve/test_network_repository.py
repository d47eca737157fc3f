#!/usr/bin/env python3
"""A repository of networks and shared memory through NVIDIA's tritonclient over HTTP, plain and under asyncio.

Usage: test_network_repository.py TRIREME NET.onnx"""
import asyncio
import base64
import os
import shutil
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

import numpy as np
import tritonclient.grpc as grpc
import tritonclient.http as http
import tritonclient.http.aio as aio
import tritonclient.utils.shared_memory as shared

from networks import CONFIG, Server, failure, put

program, network = sys.argv[1:3]
REGION = f"/trireme_test_{os.getpid()}_"  # of this machine
IDS = np.arange(1, 7, dtype=np.int64).reshape(2, 3)


def inputs(ids=IDS, module=http):
    found = []
    for name, values in (("input_ids", ids), ("attention_mask", np.ones_like(ids))):
        tensor = module.InferInput(name, list(ids.shape), "INT64")
        tensor.set_data_from_numpy(values)
        found.append(tensor)
    return found


def check_shared(client, expected):
    size = IDS.nbytes
    region = shared.create_shared_memory_region("in", f"{REGION}in", 2 * size)
    reply = shared.create_shared_memory_region("out", f"{REGION}out", expected.nbytes)
    try:
        shared.set_shared_memory_region(region, [IDS, np.ones_like(IDS)])
        client.register_system_shared_memory("in", f"{REGION}in", 2 * size)
        client.register_system_shared_memory("out", f"{REGION}out", expected.nbytes)
        assert {r["name"]: r["byte_size"] for r in client.get_system_shared_memory_status()} == {"in": 2 * size, "out": expected.nbytes}
        failure("registered already", client.register_system_shared_memory, "in", f"{REGION}in", 8)
        failure("too few", client.register_system_shared_memory, "more", f"{REGION}in", 1 << 30)
        failure("no name", client.register_system_shared_memory, "bad", "/../etc/passwd", 8)
        failure("cannot open", client.register_system_shared_memory, "bad", f"{REGION}nothing", 8)
        tensors = []
        for i, name in enumerate(("input_ids", "attention_mask")):
            tensor = http.InferInput(name, [2, 3], "INT64")
            tensor.set_shared_memory("in", size, i * size)
            tensors.append(tensor)
        output = http.InferRequestedOutput("pooler_output")
        output.set_shared_memory("out", expected.nbytes)
        result = client.infer("a", tensors, outputs=[output])
        assert result.get_output("pooler_output")["parameters"]["shared_memory_region"] == "out"
        assert np.array_equal(shared.get_contents_as_numpy(reply, np.float32, expected.shape), expected)
        output.set_shared_memory("out", 4)
        failure("shared memory only 4", client.infer, "a", tensors, outputs=[output])
        tensors[0].set_shared_memory("in", size, 2 * size)
        failure("too few", client.infer, "a", tensors)
        tensors[0] = http.InferInput("input_ids", [2, 3], "INT64")
        tensors[0].set_shared_memory("in", size)
        os.truncate(f"/dev/shm{REGION}in", 8)  # a mapping would kill the server now
        failure("shorter", client.infer, "a", tensors)
        os.truncate(f"/dev/shm{REGION}out", 8)
        output.set_shared_memory("out", expected.nbytes)
        failure("shorter", client.infer, "a", inputs(), outputs=[output])
        client.unregister_system_shared_memory("in")
        failure("not registered", client.get_system_shared_memory_status, "in")
        client.unregister_system_shared_memory()
        assert client.get_system_shared_memory_status() == []
    finally:
        shared.destroy_shared_memory_region(region)
        shared.destroy_shared_memory_region(reply)


def check_names(server, folder):
    """Networks and regions whose names are not plain, over both protocols; and as many regions as there may be."""
    http_client, grpc_client = http.InferenceServerClient(f"127.0.0.1:{server.port}"), grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}")
    for name in ("a b", "\u00e9", 'x"y', "a%2fb", "a?b", "a#b", "a\\b", "a\nb", "versions", "ready", "n" * 200):
        put(folder, name, CONFIG, network, 1)
        grpc_client.load_model(name)
        for client, module in ((http_client, http), (grpc_client, grpc)):
            assert client.infer(name, inputs(module=module)).as_numpy("pooler_output").shape == (2, 16), name
        assert http_client.get_model_metadata(name)["name"] == name
        http_client.unload_model(name)
        failure("not loaded", http_client.infer, name, inputs())
        shutil.rmtree(f"{folder}/{name}")
    for path in ("/v2/models/a%00b", "/v2/models/a?%00"):
        failed = None
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}")
        except urllib.error.HTTPError as error:
            failed = error.code
        assert failed == 400, (path, failed)
    region = shared.create_shared_memory_region("many", f"{REGION}many", 64)
    try:
        names = ["a/b", "a b", "\u00e9", "..", "register", "x" * 255]
        for i, name in enumerate(names + [str(i) for i in range(1024 - len(names))]):
            (http_client if i < len(names) else grpc_client).register_system_shared_memory(name, f"{REGION}many", 64)
        assert set(names) < set(grpc_client.get_system_shared_memory_status().regions) and len(http_client.get_system_shared_memory_status()) == 1024
        failure("the most", grpc_client.register_system_shared_memory, "more", f"{REGION}many", 64)
        failure("longer than 255", grpc_client.register_system_shared_memory, "x" * 256, f"{REGION}many", 64)
        for name in names:
            http_client.unregister_system_shared_memory(name)
        grpc_client.unregister_system_shared_memory()
        assert http_client.get_system_shared_memory_status() == []
        failure("on no GPU", grpc_client.register_cuda_shared_memory, "c", base64.b64encode(bytes(64)), 0, 64)
        failure("on no GPU", http_client.register_cuda_shared_memory, "c", base64.b64encode(bytes(64)), 0, 64)
        assert http_client.get_cuda_shared_memory_status() == [] and len(grpc_client.get_cuda_shared_memory_status().regions) == 0
    finally:
        shared.destroy_shared_memory_region(region)


def check_replaced(server, expected):
    """No request fails while its network is replaced again and again."""
    ended, failures, counts = threading.Event(), [], []

    def run(module, port):
        count = 0
        with module.InferenceServerClient(f"127.0.0.1:{port}") as client:
            while not ended.is_set():
                try:
                    assert np.allclose(client.infer("a", inputs(module=module)).as_numpy("pooler_output"), expected, atol=1e-5)
                    count += 1
                except Exception as error:
                    failures.append(error)
        counts.append(count)

    threads = [threading.Thread(target=run, args=place) for place in ((http, server.port), (grpc, server.grpc_port)) for _ in range(3)]
    for thread in threads:
        thread.start()
    with http.InferenceServerClient(f"127.0.0.1:{server.port}") as client:
        for _ in range(100):
            client.load_model("a", config='{"parameters": {"shapes": {"string_value": "input_ids:2x3,attention_mask:2x3"}}}')
    ended.set()
    for thread in threads:
        thread.join()
    assert failures == [] and min(counts) > 0, (failures, counts)


async def check_asyncio(port, expected):
    async with aio.InferenceServerClient(f"127.0.0.1:{port}") as client:
        assert await client.is_server_ready() and await client.is_model_ready("a", "1")
        results = await asyncio.gather(*(client.infer("a", inputs(), request_id=str(i)) for i in range(20)))
        for i, result in enumerate(results):
            assert result.get_response()["id"] == str(i)
            assert np.allclose(result.as_numpy("pooler_output"), expected, atol=1e-5)


def wait_for(condition):
    until = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)


with tempfile.TemporaryDirectory() as folder:
    put(folder, "a", CONFIG, network, 1)
    put(folder, "b", None, network, 2)  # without a configuration: dims of 1
    put(folder, "broken", "max_batch_size: x", network, 1)
    put(folder, "steps", "ensemble_scheduling { }", network, 1)
    os.makedirs(f"{folder}/empty/1")
    with Server(program, folder, "--shared-memory") as server:
        client = http.InferenceServerClient(f"127.0.0.1:{server.port}")
        wait_for(client.is_server_ready)
        states = {(m["name"], m.get("version", "")): m for m in client.get_model_repository_index()}
        assert states["a", "1"]["state"] == states["b", "2"]["state"] == "READY", states
        assert "line 1" in states["broken", ""]["reason"] and "integer" in states["broken", ""]["reason"], states
        assert "ensemble_scheduling is not supported" in states["steps", ""]["reason"], states
        assert "has no model.onnx or model.plan" in states["empty", "1"]["reason"], states
        assert client.is_model_ready("a") and not client.is_model_ready("broken") and not client.is_model_ready("a", "7")
        metadata = client.get_model_metadata("a")
        assert metadata["versions"] == ["1"] and metadata["inputs"][0]["shape"] == [-1, 3], metadata
        config = client.get_model_config("a")
        assert config["max_batch_size"] == 4 and config["input"][0]["dims"] == [3] and config["instance_group"][0]["count"] == 2, config
        assert "statistics" in client.get_server_metadata()["extensions"]
        expected = client.infer("a", inputs()).as_numpy("pooler_output")
        assert expected.shape[0] == 2
        for i in range(2):
            assert np.allclose(client.infer("a", inputs(IDS[i : i + 1])).as_numpy("pooler_output"), expected[i], atol=1e-5)
        assert client.infer("b", inputs(IDS[:1, :1]), model_version="2").as_numpy("pooler_output").shape[0] == 1
        failure("batch of 5", client.infer, "a", inputs(np.ones((5, 3), dtype=np.int64)))
        failure("not loaded", client.infer, "broken", inputs())
        failure("explicit", client.load_model, "a")
        check_shared(client, expected)
        asyncio.run(check_asyncio(server.port, expected))
        stats = client.get_inference_statistics("a")["model_stats"][0]
        assert stats["inference_stats"]["success"]["count"] == 24 and stats["inference_stats"]["fail"]["count"] == 3, stats
        assert {s["name"] for s in client.get_inference_statistics()["model_stats"]} == {"a", "b"}

    with Server(program, folder, "--model-control-mode=explicit", "--load-model=b") as server:
        client = http.InferenceServerClient(f"127.0.0.1:{server.port}")
        wait_for(client.is_server_ready)
        assert [m["name"] for m in client.get_model_repository_index() if m["state"] == "READY"] == ["b"]
        client.load_model("a")
        assert np.allclose(client.infer("a", inputs()).as_numpy("pooler_output"), expected, atol=1e-5)
        put(folder, "a", None, network, 3)
        client.load_model("a")  # the newest version alone
        assert client.get_model_metadata("a")["versions"] == ["3"]
        client.load_model("a", config='{"max_batch_size": 2, "version_policy": {"all": {}}, "parameters": '
                                      '{"max_shapes": {"string_value": "input_ids:2x3,attention_mask:2x3"}, '
                                      '"min_shapes": {"string_value": "input_ids:1x3,attention_mask:1x3"}}}')
        assert client.get_model_metadata("a")["versions"] == ["1", "3"]
        failure("batch of 3", client.infer, "a", inputs(np.ones((3, 3), dtype=np.int64)), model_version="1")
        failure("no field x", client.load_model, "a", config='{"x": 2}')
        failure("not supported", client.load_model, "a", config="{}", files={"file:1/model.onnx": b"x"})
        failure("no folder", client.load_model, "nothing")
        failure("no folder", client.load_model, "..")
        failure("integer", client.load_model, "broken")
        client.unload_model("a")
        assert not client.is_model_ready("a")
        failure("not loaded", client.infer, "a", inputs())
        failure("no memory", client.register_system_shared_memory, "in", "/x", 8)

    with Server(program, folder, "--model-control-mode=explicit", "--grpc-port=0", "--shared-memory") as server:
        client = http.InferenceServerClient(f"127.0.0.1:{server.port}")
        wait_for(client.is_server_ready)
        check_names(server, folder)
        client.load_model("a", config='{"parameters": {"shapes": {"string_value": "input_ids:2x3,attention_mask:2x3"}}}')
        check_replaced(server, expected)

    with Server(program, folder, "--model-control-mode=poll", "--poll-seconds=0.2") as server:
        client = http.InferenceServerClient(f"127.0.0.1:{server.port}")
        wait_for(client.is_server_ready)
        assert client.get_model_metadata("a")["versions"] == ["3"]
        put(folder, "broken", "max_batch_size: 4 " + CONFIG.split("\n", 1)[1], network, 1)
        wait_for(lambda: client.is_model_ready("broken"))
        shutil.rmtree(f"{folder}/a")
        wait_for(lambda: not client.is_model_ready("a"))
print("ok")
