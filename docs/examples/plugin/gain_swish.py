#!/usr/bin/env python3
"""The layer of gain_swish.c in Python, without a compiler: y = gain * x * sigmoid(sharpness * x).

usage: gain_swish.py NET.onnx X.npy [triton]

Runs a model with nodes com.example.GainSwish and prints its outputs. On the host the kernel is NumPy's. On a GPU it is
CUDA source that is compiled at run time, or with `triton` a kernel that Triton compiles.
"""

import sys

import numpy as np
import trireme

SOURCE = """
extern "C" __global__ void swish(const float *x, const float *gain, float *y, long long count, int n, float sharpness)
{
    const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < count) {
        y[i] = gain[i % n] * x[i] / (1.0f + expf(-sharpness * x[i]));
    }
}
"""


def infer(call):
    """Sizes are -1 where they are unknown until a run."""
    x, gain = call.inputs
    if x.shape[-1] not in (-1, *gain.shape):
        raise ValueError(f"x has {x.shape[-1]} columns and gain {gain.shape[0]}")
    return x.dtype, (*x.shape[:-1], gain.shape[0])


def run(call):
    x, gain = (tensor.array for tensor in call.inputs)
    call.outputs[0].array[:] = gain * x / (1 + np.exp(-np.float32(call.settings["sharpness"]) * x))


def grid_and_arguments(call):
    """Blocks of 256 elements. Called when a context prepares new shapes, not in a run."""
    x, gain = call.inputs
    count = int(np.prod(x.shape))
    return [(count + 255) // 256], [x, gain, call.outputs[0], count, gain.shape[0], call.settings["sharpness"]]


def launch(call):
    grid, arguments = grid_and_arguments(call)
    return trireme.Launch(grid=grid, block=[256], arguments=arguments)


def triton_kernel():
    import gain_swish_triton
    import torch

    floats = [torch.float32] * 3
    compiled = gain_swish_triton.swish.warmup(*floats, 1001, 63, 1.5, BLOCK=256, grid=(1,))
    return trireme.CudaKernel.from_triton(compiled, grid_and_arguments)


def main():
    model, x = sys.argv[1], np.load(sys.argv[2])
    uses_triton = sys.argv[3:] == ["triton"]
    trireme.plugin(
        "com.example",
        "GainSwish",
        inputs=2,
        settings={"sharpness": 1.0},  # a type in place of the default value: it must be given
        splits=[((-1, 0), (-1,)), ((0, None), (0,))],  # over ranks: columns with their gains, or rows
        infer=infer,
        run=run,
        cuda=triton_kernel() if uses_triton else trireme.CudaKernel("swish", launch, source=SOURCE),
    )
    with trireme.Engine.from_onnx(model, {"x": x.shape}) as engine:
        for name, value in engine.run({"x": x}).items():
            print(name, value.tolist())


if __name__ == "__main__":
    main()
