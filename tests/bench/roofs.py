"""What steps of a Llama read and compute, and how long that takes at the rates of bench_roof: bf16, keys and values in bf16."""
import json
import subprocess

SHAPES = {  # hidden, intermediate, layers, query heads, key-value heads, head size, vocabulary
    "llama-3-8b": (4096, 14336, 32, 32, 8, 128, 128256),
    "llama-3.1-8b": (4096, 14336, 32, 32, 8, 128, 128256),
    "llama-3-70b": (8192, 28672, 80, 64, 8, 128, 128256),
    "llama-3.2-1b": (2048, 8192, 16, 32, 8, 64, 128256),
}
EXCHANGE_SECONDS = 2e-6  # the least that a sum over ranks has been seen to take in a captured graph


def layer_weights(shape):
    """Numbers of a layer's weights, without its norms."""
    hidden, intermediate, _, heads, kv_heads, size, _ = SHAPES[shape]
    return hidden * size * 2 * (heads + kv_heads) + 3 * hidden * intermediate


def step_bytes(shape, batch=1, context=0):
    """Bytes that a decode step reads: layers, head, and the keys and values of `context` tokens of each sequence."""
    hidden, _, layers, _, kv_heads, size, vocab = SHAPES[shape]
    return 2 * (layers * layer_weights(shape) + hidden * vocab) + 4 * layers * kv_heads * size * batch * context


def step_flops(shape, batch=1, context=0):
    hidden, _, layers, heads, _, size, vocab = SHAPES[shape]
    return batch * (2 * (layers * layer_weights(shape) + hidden * vocab) + 4 * layers * heads * size * context)


def prompt_flops(shape, tokens):
    """Of a causal prompt whose last token alone goes through the last layer's products behind its attention and through the head."""
    hidden, intermediate, layers, heads, _, size, vocab = SHAPES[shape]
    behind = hidden * heads * size + 3 * hidden * intermediate
    products = layers * layer_weights(shape) * tokens - behind * (tokens - 1)
    return 2 * products + 2 * hidden * vocab + 2 * layers * heads * size * tokens * (tokens + 1)


def decode_rate(machine, shape, gpus=1, batch=1, context=0):
    """Most tokens per second: bytes at the memory's rate, or the products' operations, whichever takes longer, and two sums a layer."""
    seconds = max(step_bytes(shape, batch, context) / machine["read_bytes_per_second"],
                  step_flops(shape, batch, context) / machine["product_flops"]) / gpus
    return batch / (seconds + (2 * SHAPES[shape][2] * EXCHANGE_SECONDS if gpus > 1 else 0))


def prompt_rate(machine, shape, tokens, gpus=1):
    return tokens * gpus * machine["product_flops"] / prompt_flops(shape, tokens)


def serving_rate(machine, shape, prompt, output, concurrency, gpus=1):
    """Most output tokens per second of so many requests at a time, if products and memory were both busy all the time: each request
    computes its prompt and its tokens, and each step reads the weights once and the keys and values of all. On several GPUs each does its
    part, and a step has two sums a layer."""
    flops = prompt_flops(shape, prompt) + sum(step_flops(shape, 1, prompt + i) for i in range(output))
    step = step_bytes(shape, concurrency, prompt + output / 2)
    sums = 2 * SHAPES[shape][2] * EXCHANGE_SECONDS / concurrency if gpus > 1 else 0
    return 1 / (max(flops / output / machine["product_flops"], step / concurrency / machine["read_bytes_per_second"]) / gpus + sums)


def measure(program):
    """What bench_roof says of the machine."""
    out = subprocess.run([program, "--json"], capture_output=True, text=True, timeout=60, check=False)
    if out.returncode != 0:
        raise SystemExit(f"{program} ended with {out.returncode}: {out.stderr.strip()}")
    return json.loads(out.stdout)[0]
