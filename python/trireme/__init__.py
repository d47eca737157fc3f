"""Trireme: inference for large models on several GPUs, from Python.

    import trireme

    with trireme.LLM("configs/models/kjv-7m") as llm:
        print(llm.generate("In the beginning").text)

`LLM` and `AsyncLLM` run language models; `Engine` runs ONNX files and networks that are built layer by layer. All calls
release the interpreter's lock while the library works, and failures raise a TriremeError. Messages of the library go to
the logger "trireme".
"""

from ._library import VERSION as __version__
from ._library import set_log_level
from .async_llm import AsyncLLM
from .dlpack import DeviceTensor
from .engine import Bound, Context, DebugTensor, Engine, Plan, save_plans
from .errors import (
    BusyError,
    CancelledError,
    FileError,
    InternalError,
    InvalidArgumentError,
    InvalidModelError,
    LostRankError,
    NoDeviceError,
    OutOfMemoryError,
    Status,
    TriremeError,
    UnsupportedError,
)
from .llm import LLM, Output, SamplingParams, Stream
from .network import Network, OnnxModel, Port, Tensor, read_onnx_tensor
from .plugins import (
    CudaKernel,
    Launch,
    PluginCall,
    PluginInfo,
    PluginTensor,
    load_plugin,
    loaded_plugins,
    plugin,
)
from .tensors import DType
from .text import ChatTemplate, Decoder, Reply, Tokenizer, ToolCall
from .world import World, default_world, gpu_count, system

__all__ = [
    "AsyncLLM",
    "Bound",
    "BusyError",
    "CancelledError",
    "ChatTemplate",
    "Context",
    "CudaKernel",
    "DType",
    "DebugTensor",
    "Decoder",
    "DeviceTensor",
    "Engine",
    "FileError",
    "InternalError",
    "InvalidArgumentError",
    "InvalidModelError",
    "LLM",
    "Launch",
    "LostRankError",
    "Network",
    "NoDeviceError",
    "OnnxModel",
    "OutOfMemoryError",
    "Output",
    "Plan",
    "PluginCall",
    "PluginInfo",
    "PluginTensor",
    "Port",
    "Reply",
    "SamplingParams",
    "Status",
    "Stream",
    "Tensor",
    "Tokenizer",
    "ToolCall",
    "TriremeError",
    "UnsupportedError",
    "World",
    "__version__",
    "default_world",
    "gpu_count",
    "load_plugin",
    "loaded_plugins",
    "plugin",
    "read_onnx_tensor",
    "save_plans",
    "set_log_level",
    "system",
]
