#!/usr/bin/env python3
"""Networks over gRPC: NVIDIA's tritonclient, plain, streaming and under asyncio, and requests that it would not make.

Usage: test_network_grpc.py TRIREME NET.onnx"""
import asyncio
import concurrent.futures
import os
import queue
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import grpc
import numpy as np
import tritonclient.grpc as triton
import tritonclient.grpc.aio as aio
import tritonclient.utils.shared_memory as shared
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException

from networks import CONFIG, Server, failure, put

program, network = sys.argv[1:3]
REGION = f"/trireme_test_grpc_{os.getpid()}"  # of this machine
IDS = np.arange(1, 7, dtype=np.int64).reshape(2, 3)


def inputs(ids=IDS):
    found = []
    for name, values in (("input_ids", ids), ("attention_mask", np.ones_like(ids))):
        tensor = triton.InferInput(name, list(ids.shape), "INT64")
        tensor.set_data_from_numpy(values)
        found.append(tensor)
    return found


def check_client(client):
    assert client.is_server_live() and client.is_model_ready("a") and not client.is_model_ready("a", "7") and not client.is_model_ready("nothing")
    assert client.get_server_metadata().name == "trireme"
    metadata = client.get_model_metadata("a")
    assert list(metadata.versions) == ["1"] and metadata.inputs[0].name == "input_ids" and list(metadata.inputs[0].shape) == [-1, 3], metadata
    assert metadata.outputs[0].datatype == "FP32"
    config = client.get_model_config("a").config
    assert config.max_batch_size == 4 and config.input[0].data_type == 9 and list(config.input[0].dims) == [3], config
    assert config.instance_group[0].count == 2 and list(config.dynamic_batching.preferred_batch_size) == [4], config
    assert config.dynamic_batching.max_queue_delay_microseconds == 2000
    expected = client.infer("a", inputs()).as_numpy("pooler_output")
    assert expected.shape == (2, 16)
    result = client.infer("a", inputs(IDS[1:]), request_id="x", outputs=[triton.InferRequestedOutput("pooler_output")])
    assert result.get_response().id == "x" and len(result.get_response().outputs) == 1
    assert np.allclose(result.as_numpy("pooler_output"), expected[1:], atol=1e-5)
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        for result in pool.map(lambda _: client.infer("a", inputs()), range(64)):
            assert np.allclose(result.as_numpy("pooler_output"), expected, atol=1e-5)
    stats = client.get_inference_statistics("a").model_stats[0]
    assert stats.inference_stats.success.count == 66 and stats.inference_count == 131, stats
    assert sum(b.batch_size * b.compute_infer.count for b in stats.batch_stats) == 131
    return expected


def check_failures(client):
    def code(wanted, *arguments, **named):
        error = failure("", client.infer, *arguments, **named)
        assert error.status() == f"StatusCode.{wanted}", error.status()
        return str(error)

    assert "not loaded" in code("NOT_FOUND", "nothing", inputs())
    assert "not loaded" in code("NOT_FOUND", "a", inputs(), model_version="9")
    assert "is missing" in code("INVALID_ARGUMENT", "a", inputs()[:1])
    assert "given twice" in code("INVALID_ARGUMENT", "a", inputs()[:1] * 2)
    assert "dimension 1" in code("INVALID_ARGUMENT", "a", inputs(IDS[:, :2].copy()))
    assert "batch of 5" in code("INVALID_ARGUMENT", "a", inputs(np.ones((5, 3), dtype=np.int64)))
    assert "no output y%z" in code("INVALID_ARGUMENT", "a", inputs(), outputs=[triton.InferRequestedOutput("y%z")])
    assert "sequence_id" in code("INVALID_ARGUMENT", "a", inputs(), sequence_id=5)
    assert "compressed" in code("UNIMPLEMENTED", "a", inputs(), compression_algorithm="gzip")
    code("NOT_FOUND", "nothing\u00e9", inputs())


def check_raw(port, expected):
    """Messages made by hand."""
    channel = grpc.insecure_channel(f"127.0.0.1:{port}")
    stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)

    def refused(call, wanted):
        try:
            call()
        except grpc.RpcError as error:
            assert error.code() == wanted, error
            return error.details()
        raise AssertionError("no failure")

    request = service_pb2.ModelInferRequest(model_name="a")
    for name, values in (("input_ids", IDS), ("attention_mask", np.ones_like(IDS))):
        tensor = request.inputs.add(name=name, datatype="INT64", shape=[2, 3])
        tensor.contents.int64_contents.extend(values.flatten().tolist())
    reply = stub.ModelInfer(request)
    found = {o.name: np.frombuffer(raw, np.float32).reshape(o.shape) for o, raw in zip(reply.outputs, reply.raw_output_contents)}
    assert np.allclose(found["pooler_output"], expected, atol=1e-5)
    invalid = grpc.StatusCode.INVALID_ARGUMENT
    request.inputs[0].contents.int64_contents.append(1)
    assert "more than" in refused(lambda: stub.ModelInfer(request), invalid)
    del request.inputs[0].contents.int64_contents[5:]
    assert "5 elements" in refused(lambda: stub.ModelInfer(request), invalid)
    request.inputs[0].contents.int64_contents.append(6)
    request.inputs[0].contents.fp32_contents.append(6)
    assert "another type" in refused(lambda: stub.ModelInfer(request), invalid)
    request.inputs[0].contents.ClearField("fp32_contents")
    request.raw_input_contents.append(b"x")
    assert "raw_input_contents" in refused(lambda: stub.ModelInfer(request), invalid)
    request.inputs[0].shape[0] = 1 << 60
    refused(lambda: stub.ModelInfer(request), invalid)
    unary = lambda method, body, timeout=20: channel.unary_unary(method, lambda x: x, lambda x: x)(body, timeout=timeout)
    service = "/inference.GRPCInferenceService/"
    refused(lambda: unary(service + "ModelInfer", b"\xff\xff"), invalid)
    refused(lambda: unary(service + "ModelInfer", b"\x0a\x7fa"), invalid)
    assert "no method" in refused(lambda: unary(service + "Nothing", b""), grpc.StatusCode.UNIMPLEMENTED)
    assert "expected at most" in refused(lambda: unary(service + "ModelInfer", b"\0" * (3 << 20)), grpc.StatusCode.RESOURCE_EXHAUSTED)
    assert unary("/grpc.health.v1.Health/Check", b"") == b"\x08\x01"
    for _ in range(50):
        call = channel.unary_unary(service + "ModelInfer", lambda x: x, lambda x: x).future(b"\x0a\x01a" * 100000)
        call.cancel()
    assert unary(service + "ServerLive", b"") == b"\x08\x01"
    channel.close()


def check_bytes(port):
    """What is no HTTP/2, and a client that stays silent."""
    for data in (b"GET / HTTP/1.1\r\n\r\n", os.urandom(1000), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + os.urandom(1000),
                 b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + struct.pack(">IBI", 0x10000000 | 4, 4, 0)):
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.settimeout(20)
            try:
                client.sendall(data)
                while client.recv(1000):
                    pass
            except ConnectionError:
                pass


def frame(kind, flags, stream, payload):
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


def headers_of(method):
    headers = {":method": "POST", ":scheme": "http", ":path": f"/inference.GRPCInferenceService/{method}", ":authority": "x", "content-type": "application/grpc", "te": "trailers"}
    return b"".join(b"\0" + bytes((len(n),)) + n.encode() + bytes((len(v),)) + v.encode() for n, v in headers.items())


def opened(port, settings, method):
    """A connection on which the headers of a request are sent."""
    client = socket.create_connection(("127.0.0.1", port))
    client.settimeout(20)
    client.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, settings) + frame(1, 4, 1, headers_of(method)))
    return client


def await_frame(client, kind, stream):
    """Reads frames up to one of a kind on a stream; None: the connection is closed."""
    data = b""
    while True:
        while len(data) >= 9 and len(data) >= 9 + int.from_bytes(data[:3], "big"):
            size, payload = int.from_bytes(data[:3], "big"), data[9 : 9 + int.from_bytes(data[:3], "big")]
            if data[3] == kind and int.from_bytes(data[5:9], "big") == stream:
                return payload
            data = data[9 + size :]
        more = client.recv(65536)
        if not more:
            return None
        data += more


def await_metric(server, name, value):
    """Of the network slow."""
    line, until = f'{name}{{model="slow",version="1"}} {value}\n', time.monotonic() + 30
    while line not in (text := urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics").read().decode()):
        assert time.monotonic() < until, (line, text)
        time.sleep(0.01)


def check_slow(port):
    """Clients that send half of a request, read nothing of a reply, or do nothing: the server has 2 s for each. A request
    that crosses the news that the connection ends is answered."""
    half = opened(port, b"", "ModelInfer")
    half.sendall(frame(0, 0, 1, struct.pack(">BI", 0, 100) + b"half"))
    unread = opened(port, struct.pack(">HI", 4, 0), "ServerMetadata")  # INITIAL_WINDOW_SIZE 0
    unread.sendall(frame(0, 1, 1, b"\0" * 5))
    idle = socket.create_connection(("127.0.0.1", port))
    idle.settimeout(20)
    began = time.monotonic()
    reply = await_frame(half, 1, 1)  # grpc-status 4, DEADLINE_EXCEEDED; the message has Huffman's code
    assert b"\x014" in reply and time.monotonic() - began > 1, (reply, time.monotonic() - began)
    reply = await_frame(unread, 3, 1)
    assert reply == struct.pack(">I", 8), reply  # RST_STREAM with CANCEL
    assert await_frame(idle, 0, 1) is None
    late = opened(port, b"", "ServerLive")
    late.sendall(frame(0, 1, 1, b"\0" * 5))
    assert await_frame(late, 0, 1) == struct.pack(">BIBB", 0, 2, 8, 1)
    assert await_frame(late, 7, 0)[:4] == struct.pack(">I", 0x7FFFFFFF)  # GOAWAY
    late.sendall(frame(1, 4, 3, headers_of("ServerLive")) + frame(0, 1, 3, b"\0" * 5))
    assert await_frame(late, 0, 3) == struct.pack(">BIBB", 0, 2, 8, 1)
    for client in (half, unread, idle, late):
        client.close()


def check_trace(port):
    """The trace context of a request comes back as metadata, if it is valid."""
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        live = service_pb2_grpc.GRPCInferenceServiceStub(channel).ServerLive
        ready = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelMetadata
        for given, found in ((parent, parent), ("01" + parent[2:] + "-x", parent), ("ff" + parent[2:], None), (None, None)):
            metadata = () if given is None else (("traceparent", given), ("tracestate", "a=b"))
            _, call = live.with_call(service_pb2.ServerLiveRequest(), metadata=metadata)
            assert dict(call.initial_metadata()).get("traceparent") == found, (given, call.initial_metadata())
            try:  # and with a failure
                ready(service_pb2.ModelMetadataRequest(name="nothing"), metadata=metadata)
            except grpc.RpcError as error:
                assert dict([*error.initial_metadata(), *error.trailing_metadata()]).get("traceparent") == found, given


def check_stream(client, expected):
    results = queue.Queue()
    client.start_stream(lambda result, error: results.put((result, error)))
    for i in range(100):
        client.async_stream_infer("nothing" if i == 50 else "a", inputs(IDS[: 1 + i % 2]), request_id=str(i))
    for i in range(100):
        result, error = results.get(timeout=30)
        if i == 50:
            assert "not loaded" in str(error), error
        else:
            assert error is None and result.get_response().id == str(i), (i, str(error), result and result.get_response().id)
            assert np.allclose(result.as_numpy("pooler_output"), expected[: 1 + i % 2], atol=1e-5)
    client.stop_stream()


def check_shared(client, expected):
    region = shared.create_shared_memory_region("in", REGION, 2 * IDS.nbytes + expected.nbytes)
    try:
        shared.set_shared_memory_region(region, [IDS, np.ones_like(IDS)])
        client.register_system_shared_memory("all", REGION, 2 * IDS.nbytes + expected.nbytes)
        assert client.get_system_shared_memory_status().regions["all"].byte_size == 2 * IDS.nbytes + expected.nbytes
        tensors = []
        for i, name in enumerate(("input_ids", "attention_mask")):
            tensor = triton.InferInput(name, [2, 3], "INT64")
            tensor.set_shared_memory("all", IDS.nbytes, i * IDS.nbytes)
            tensors.append(tensor)
        output = triton.InferRequestedOutput("pooler_output")
        output.set_shared_memory("all", expected.nbytes, 2 * IDS.nbytes)
        result = client.infer("a", tensors, outputs=[output])
        assert result.get_output("pooler_output").parameters["shared_memory_byte_size"].int64_param == expected.nbytes
        assert np.allclose(shared.get_contents_as_numpy(region, np.float32, expected.shape, 2 * IDS.nbytes), expected, atol=1e-5)
        failure("registered already", client.register_system_shared_memory, "all", REGION, 8)
        client.unregister_system_shared_memory("all")
        failure("not registered", client.infer, "a", tensors)
    finally:
        shared.destroy_shared_memory_region(region)


async def check_asyncio(port, expected, **options):
    async with aio.InferenceServerClient(f"127.0.0.1:{port}", **options) as client:
        assert await client.is_server_ready()
        for result in await asyncio.gather(*(client.infer("a", inputs()) for _ in range(50))):
            assert np.allclose(result.as_numpy("pooler_output"), expected, atol=1e-5)

        async def requests():
            for i in range(20):
                yield {"model_name": "a", "inputs": inputs(), "request_id": str(i)}

        count = 0
        async for result, error in client.stream_infer(requests()):
            assert error is None and result.get_response().id == str(count)
            count += 1
        assert count == 20


def make_certificate(folder, name):
    certificate, key = f"{folder}/{name}.pem", f"{folder}/{name}.key"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=localhost",
                    "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate], check=True, capture_output=True)
    return certificate, key


def check_clients(server, certificate, trusted, other):
    """Clients with a certificate that the server trusts, with another one, and with none."""
    for pair, fits in ((trusted, True), (other, False), (None, False)):
        context = ssl.create_default_context(cafile=certificate)
        options = {"ssl": True, "root_certificates": certificate}
        if pair is not None:
            context.load_cert_chain(*pair)
            options |= {"certificate_chain": pair[0], "private_key": pair[1]}
        with triton.InferenceServerClient(f"127.0.0.1:{server.grpc_port}", **options) as client:
            try:
                assert client.is_server_live(client_timeout=3) == fits
            except InferenceServerException:
                assert not fits
        for path in ("/v2/health/live", "/v2"):
            try:
                assert urllib.request.urlopen(f"https://127.0.0.1:{server.port}{path}", context=context).status == 200 and fits
            except urllib.error.HTTPError as error:
                assert not fits and error.code == 403, error


def check_tls(port, certificate, expected):
    """Clients with TLS, and those that have none, no h2, or go silent in the handshake."""
    options = {"ssl": True, "root_certificates": certificate}
    with triton.InferenceServerClient(f"127.0.0.1:{port}", **options) as client:
        check_stream(client, expected)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            for result in pool.map(lambda _: client.infer("a", inputs()), range(32)):
                assert np.allclose(result.as_numpy("pooler_output"), expected, atol=1e-5)
    asyncio.run(check_asyncio(port, expected, **options))
    with open(certificate, "rb") as file:
        channel = grpc.secure_channel(f"127.0.0.1:{port}", grpc.ssl_channel_credentials(file.read()))
    for size in (1, 16379, 16384, 1 << 20, 2000000):  # records have 16 KiB
        try:
            channel.unary_unary("/inference.GRPCInferenceService/ModelInfer", lambda x: x, lambda x: x)(b"\xff" * size, timeout=20)
            raise AssertionError("no failure")
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.INVALID_ARGUMENT, error
    channel.close()
    with triton.InferenceServerClient(f"127.0.0.1:{port}") as client:
        failure("", client.infer, "a", inputs(), client_timeout=1)
    silent = socket.create_connection(("127.0.0.1", port))
    silent.sendall(b"\x16\x03\x01")
    check_bytes(port)
    context = ssl.create_default_context(cafile=certificate)
    for protocols, fits in ((["h2"], True), (["http/1.1"], False)):
        context.set_alpn_protocols(protocols)
        with socket.create_connection(("127.0.0.1", port)) as client:
            try:
                with context.wrap_socket(client, server_hostname="127.0.0.1") as session:
                    assert fits and session.selected_alpn_protocol() == "h2" and session.version() == "TLSv1.3"
            except (ssl.SSLError, ConnectionError):
                assert not fits
    silent.settimeout(20)
    began = time.monotonic()
    try:
        assert silent.recv(100) == b""
    except ConnectionError:
        pass
    assert time.monotonic() - began < 10


with tempfile.TemporaryDirectory() as folder:
    put(folder, "a", CONFIG, network, 1)
    put(folder, "slow", CONFIG.replace(": 2000", ": 60000000").replace("[ 4 ]", "[ ]"), network, 1)
    with Server(program, folder, "--grpc-port=0", "--shared-memory", "--max-body=2097152", "--body-timeout=2") as server:
        client = triton.InferenceServerClient(f"127.0.0.1:{server.grpc_port}")
        until = time.monotonic() + 30
        while not client.is_server_ready():
            assert time.monotonic() < until
            time.sleep(0.05)
        expected = check_client(client)
        check_failures(client)
        check_raw(server.grpc_port, expected)
        check_bytes(server.grpc_port)
        check_slow(server.grpc_port)
        check_stream(client, expected)
        check_trace(server.grpc_port)
        check_shared(client, expected)
        asyncio.run(check_asyncio(server.grpc_port, expected))
        # Deadlines: of the queue, of the call; a call that is cancelled leaves the queue.
        assert failure("timeout", client.infer, "slow", inputs(), timeout=100000).status() == "StatusCode.DEADLINE_EXCEEDED"
        assert failure("", client.infer, "slow", inputs(), client_timeout=0.2).status() == "StatusCode.DEADLINE_EXCEEDED"
        await_metric(server, "nv_inference_pending_request_count", 0)
        call = client.async_infer("slow", inputs(), lambda result, error: None)
        await_metric(server, "nv_inference_pending_request_count", 1)
        call.cancel()
        await_metric(server, "nv_inference_request_failure", 3)
        assert client.get_inference_statistics("slow").model_stats[0].inference_stats.fail.count == 3
        failure("explicit", client.load_model, "a")
        assert {m.name: m.state for m in client.get_model_repository_index().models} == {"a": "READY", "slow": "READY"}
        client.close()

    keys = f"{folder}/keys"
    with open(keys, "w") as file:
        file.write("secret\n")
    with Server(program, folder, "--grpc-port=0", "--model-control-mode=explicit", f"--api-keys={keys}") as server:
        client = triton.InferenceServerClient(f"127.0.0.1:{server.grpc_port}")
        assert client.is_server_live()
        assert failure("API key", client.get_model_repository_index).status() == "StatusCode.UNAUTHENTICATED"
        headers = {"authorization": "Bearer secret"}
        client.load_model("a", headers=headers)
        assert np.allclose(client.infer("a", inputs(), headers=headers).as_numpy("pooler_output"), expected, atol=1e-5)
        client.load_model("a", headers=headers, config='{"max_batch_size": 0, "parameters": {"shapes": {"string_value": "input_ids:2x3,attention_mask:2x3"}}}')
        assert client.get_model_config("a", headers=headers).config.max_batch_size == 0
        failure("no field x", client.load_model, "a", headers=headers, config='{"x": 2}')
        client.unload_model("a", headers=headers)
        assert not client.is_model_ready("a", headers=headers)
        client.close()

    (certificate, key), trusted, other = (make_certificate(folder, name) for name in ("server", "client", "other"))
    with Server(program, folder, "--grpc-port=0", "--max-body=2097152", "--body-timeout=2", f"--tls-certificate={certificate}", f"--tls-key={key}") as server:
        assert urllib.request.urlopen(f"https://127.0.0.1:{server.port}/v2/health/live", context=ssl.create_default_context(cafile=certificate)).status == 200
        with triton.InferenceServerClient(f"127.0.0.1:{server.grpc_port}", ssl=True, root_certificates=certificate) as client:
            until = time.monotonic() + 30
            while not client.is_server_ready():
                assert time.monotonic() < until
                time.sleep(0.05)
        check_tls(server.grpc_port, certificate, expected)
    with Server(program, folder, "--grpc-port=0", "--body-timeout=2", f"--tls-certificate={certificate}", f"--tls-key={key}", f"--tls-client-authorities={trusted[0]}") as server:
        check_clients(server, certificate, trusted, other)
    for options, part in (([f"--tls-client-authorities={trusted[0]}"], "needs --tls-certificate"),
                          ([f"--tls-certificate={certificate}", f"--tls-key={key}", "--tls-client-authorities=/dev/null"], "has no certificates"),
                          ([f"--tls-certificate={certificate}", f"--tls-key={other[1]}"], "cannot serve HTTPS")):
        done = subprocess.run([program, "serve", folder, "--backend=host", "--port=0", "--grpc-port=0", *options], stderr=subprocess.PIPE, text=True, timeout=30)
        assert done.returncode == 2 and part in done.stderr, (done.returncode, done.stderr)
print("ok")
