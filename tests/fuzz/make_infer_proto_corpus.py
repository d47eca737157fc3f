#!/usr/bin/env python3
"""Writes the seeds of fuzz_infer_proto: python make_infer_proto_corpus.py FOLDER, with tritonclient[grpc] installed."""
import sys

from tritonclient.grpc import service_pb2

FIELDS = {"FP32": "fp32_contents", "INT64": "int64_contents", "BOOL": "bool_contents", "UINT8": "uint_contents", "INT8": "int_contents", "FP64": "fp64_contents"}
SIZES = {"FP32": 4, "INT64": 8, "BOOL": 1, "FP16": 2, "UINT8": 1, "INT8": 1, "FP64": 8}


def request(typed, region):
    message = service_pb2.ModelInferRequest(model_name="n", model_version="1", id="7")
    message.parameters["timeout"].int64_param = 5
    for name, datatype in zip("abcdefg", ("FP32", "INT64", "BOOL", "FP16", "UINT8", "INT8", "FP64")):
        tensor = message.inputs.add(name=name, datatype=datatype, shape=[0 if typed and datatype == "FP16" else 2, 3])
        if region:
            tensor.parameters["shared_memory_region"].string_param = "r"
            tensor.parameters["shared_memory_byte_size"].int64_param = 6 * SIZES[datatype]
        elif typed and datatype in FIELDS:
            getattr(tensor.contents, FIELDS[datatype]).extend([1] * 6)
        elif not typed:
            message.raw_input_contents.append(b"\1" * 6 * SIZES[datatype])
    message.outputs.add(name="a").parameters["classification"].int64_param = 3 if region else 0
    if not region:
        message.outputs[0].parameters.clear()
    return message.SerializeToString()


for name, data in (("raw", request(False, False)), ("typed", request(True, False)), ("region", request(False, True))):
    with open(f"{sys.argv[1]}/{name}.bin", "wb") as file:
        file.write(data)
