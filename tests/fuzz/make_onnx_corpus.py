#!/usr/bin/env python3
"""Makes corpus/onnx: small models of ONNX's own test cases, and hostile ones.

usage: make_onnx_corpus.py FOLDER_OF_CASES   (as tests/conformance/make_data.py and make_contrib.py write them)
"""

import pathlib
import sys

from onnx import TensorProto, helper

CASES = """
add_bcast attention_3d_gqa averagepool_2d_ceil batchnorm_epsilon bitshift_left_uint8 cast_FLOAT_to_DOUBLE castlike_FLOAT_to_DOUBLE_expanded
clip_example col2im compress_0 concat_3d_axis_2 constant_pad conv_with_strides_padding convtranspose_pads cumsum_2d_axis_0 dequantizelinear
dft dropout_default_mask dynamicquantizelinear einsum_batch_diagonal expand_dim_changed eyelike_with_dtype gather_negative_indices gathernd_example_int32
gemm_all_attributes gridsample_bilinear gru_defaults identity_opt identity_sequence if if_opt if_seq layer_normalization_2d_axis1
loop11 loop13_seq loop16_seq_none lstm_defaults matmul_2d maxpool_2d_dilations nonmaxsuppression_two_batches nonzero_example onehot_with_axis
optional_get_element_sequence optional_has_element_empty_optional_input qlinearconv range_int32_type_negative_delta_expanded
reduce_sum_empty_axes_input_noop_example reshape_negative_extended_dims resize_upsample_sizes_nearest reversesequence_batch rnn_seq_length roialign_aligned_true
scan9_sum scan_sum scatter_elements_with_axis scatternd_add sequence_insert_at_front sequence_map_add_1_sequence_1_tensor_expanded shape_start_negative_1
simple_rnn_batchwise slice_negative_axes split_to_sequence_1 split_variable_parts_2d_opset18 squeeze_negative_axes tile 
tril_zero unique_sorted_with_axis unsqueeze_three_axes where_example
""".split()
CONTRIB = """
fused_conv_sum fused_gemm_leaky gather_bits_zeros matmul_bits_4_packed qlinear_average_pool qlinear_softmax_joined qlinear_where quantized_attention
""".split()

FLOAT = TensorProto.FLOAT


def model(nodes, inputs, outputs, initializers=(), functions=(), opset=17):
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(initializers))
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("f", 1)]
    return helper.make_model(graph, opset_imports=opsets, functions=list(functions), ir_version=8)


def value(name, dims=(2,), dtype=FLOAT):
    return helper.make_tensor_value_info(name, dtype, dims)


def nested(depth):
    branch = helper.make_graph([helper.make_node("Constant", [], ["y"], value_float=1.0)], "b", [], [value("y", ())])
    leaf = branch
    for _ in range(depth):
        node = helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=leaf)
        branch = helper.make_graph([node], "b", [], [value("y", ())])
    return model([helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)], [value("c", (), TensorProto.BOOL)], [value("y", ())])


def loop(trips, nodes, again="k"):
    body = helper.make_graph(nodes, "b", [value("i", (), TensorProto.INT64), value("k", (), TensorProto.BOOL)], [value(again, (), TensorProto.BOOL)])
    m = helper.make_tensor("m", TensorProto.INT64, (), [trips])
    return model([helper.make_node("Loop", ["m", ""], [], body=body)], [], [value("m", (), TensorProto.INT64)], [m])


def scan(opset, dims):
    """A state and an entry to a body that makes the state only, where the node has an output of entries, too."""
    lead = dims[:1] if opset == 8 else ()
    body = helper.make_graph([add("s", "e", "t")], "b", [value("s"), value("e")], [value("t")])
    node = helper.make_node("Scan", [""] * len(lead) + ["x", "z"], ["y", "all"], body=body, num_scan_inputs=1)
    return model([node], [value("x", (*lead, 2)), value("z", (*dims, 2))], [value("y", (*lead, 2)), value("all", (*dims, 2))], opset=opset)


def external(location, offset="0", length="8"):
    t = TensorProto(name="w", data_type=FLOAT, dims=[2], data_location=TensorProto.EXTERNAL)
    for key, text in (("location", location), ("offset", offset), ("length", length)):
        t.external_data.add(key=key, value=text)
    return model([helper.make_node("Add", ["x", "w"], ["y"])], [value("x")], [value("y")], [t])


def add(*names, **more):
    return helper.make_node("Add", list(names[:2]), [names[2]], **more)


def quantized_attention():
    """The weights of one axis are squeezed where there is none."""
    node = helper.make_node("QAttention", ["x", "w", "w", "s", "s"], ["y"], domain="com.microsoft", num_heads=1)
    inputs = [value("x", (2, 5, 32), TensorProto.UINT8), value("w", (96,), TensorProto.UINT8), value("s", ())]
    graph = helper.make_graph([node], "g", inputs, [value("y")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)], ir_version=8)


def hostile():
    xy = ([value("x")], [value("y")])
    function = lambda name, calls: helper.make_function("f", name, ["a"], ["r"], [helper.make_node(c, ["a"], ["r"], domain="f") for c in calls], [helper.make_opsetid("f", 1)])
    doubled = lambda i: helper.make_function("f", f"d{i}", ["a"], ["r"],
        [helper.make_node(f"d{i + 1}" if i < 20 else "Neg", [a], [b], domain="f" if i < 20 else "") for a, b in (("a", "t"), ("t", "r"))],
        [helper.make_opsetid("f", 1), helper.make_opsetid("", 17)])
    yield "deep_if", nested(4)
    yield "too_deep", nested(25)
    yield "cycle", model([add("x", "b", "a"), add("a", "x", "b"), add("a", "b", "y")], *xy)
    yield "unsorted", model([add("a", "x", "y"), add("x", "x", "a")], *xy)
    yield "missing", model([add("x", "nope", "y")], *xy)
    yield "defined_twice", model([add("x", "x", "y"), add("x", "x", "y")], *xy)
    yield "input_twice", model([add("x", "x", "y")], [value("x"), value("x")], [value("y")])
    yield "output_twice", model([add("x", "x", "y")], [value("x")], [value("y"), value("y")])
    yield "output_missing", model([add("x", "x", "z")], *xy)
    yield "negative_dim", model([add("x", "x", "y")], [value("x", (-5,))], [value("y")])
    yield "many_dims", model([add("x", "x", "y")], [value("x", (1,) * 9)], [value("y")])
    yield "unknown_type", model([add("x", "x", "y")], [value("x", (2,), 77)], [value("y")])
    yield "huge_tensor", model([add("x", "w", "y")], *xy, [TensorProto(name="w", data_type=FLOAT, dims=[1 << 40, 1 << 40], raw_data=b"1234")])
    yield "large_tensor", model([add("x", "w", "y")], *xy, [TensorProto(name="w", data_type=TensorProto.INT64, dims=[1 << 33], int64_data=[1])])
    yield "negative_tensor", model([add("x", "w", "y")], *xy, [TensorProto(name="w", data_type=FLOAT, dims=[-2], raw_data=b"1234")])
    yield "short_tensor", model([add("x", "w", "y")], *xy, [TensorProto(name="w", data_type=FLOAT, dims=[2], raw_data=b"1234")])
    yield "wrong_field", model([add("x", "w", "y")], *xy, [TensorProto(name="w", data_type=FLOAT, dims=[2], int32_data=[1, 2])])
    yield "stored_ints", model([add("x", "w", "y")], [value("x", (700,), TensorProto.INT64)], [value("y")], [helper.make_tensor("w", TensorProto.INT64, (700,), [i * i for i in range(700)])])
    yield "stored_floats", model([add("x", "w", "y")], [value("x", (300,))], [value("y")], [helper.make_tensor("w", FLOAT, (300,), [0.5] * 300)])
    yield "external_parent", external("../w.bin")
    yield "external_absolute", external("/etc/passwd")
    yield "external_huge", external("w.bin", str(1 << 63), str(1 << 63))
    yield "attribute_type", model([helper.make_node("Transpose", ["x"], ["y"], perm=3)], *xy)
    yield "attribute_range", model([helper.make_node("Transpose", ["x"], ["y"], perm=[1 << 40])], *xy)
    yield "endless_loop", loop(1 << 62, [])
    yield "long_loop", loop(1 << 40, [helper.make_node("Constant", [], ["k2"], value=helper.make_tensor("t", TensorProto.BOOL, (), [True]))], "k2")
    for name, opset, dims in (("", 9, (3,)), ("_no_passes", 9, (0,)), ("_8", 8, (1, 3)), ("_8_no_passes", 8, (1, 0)), ("_8_no_batch", 8, (0, 3))):
        yield f"scan{name}", scan(opset, dims)
    yield "recursive_function", model([helper.make_node("g", ["x"], ["y"], domain="f")], *xy, (), [function("g", ["h"]), function("h", ["g"])])
    yield "doubling_functions", model([helper.make_node("d0", ["x"], ["y"], domain="f")], *xy, (), [doubled(i) for i in range(21)])
    yield "large_constant", model([helper.make_node("ConstantOfShape", ["s"], ["y"])], [], [value("y")], [helper.make_tensor("s", TensorProto.INT64, (2,), [1 << 20, 1 << 20])])
    yield "large_range", model([helper.make_node("Range", ["a", "b", "c"], ["y"])], [], [value("y")], [helper.make_tensor(n, TensorProto.INT64, (), [v]) for n, v in (("a", 0), ("b", 1 << 62), ("c", 1))])
    yield "quantized_attention", quantized_attention()
    yield "no_opset", helper.make_model(helper.make_graph([add("x", "x", "y")], "g", *xy), opset_imports=[helper.make_opsetid("other", 1)])


# Of x [2, 2] on two ranks. tests/launcher_cli runs them.
COLLECTIVES = (
    ("all_reduce", (2, 2), dict(reduce_op="sum", root=-1)),
    ("all_gather", (4, 2), dict(groups=[0, 1], group_size=2)),
    ("broadcast", (2, 2), dict(root=1, nb_rank=2)),
    ("reduce", (2, 2), dict(reduce_op="prod", root=0, nb_rank=2)),
    ("reduce_scatter", (1, 2), dict(reduce_op="avg", nb_rank=2, group_size=0)),
    ("all_to_all", (2, 2), dict(groups=[1, 0], nb_rank=2, reduce_op="none")),
    ("gather", (4, 2), dict(root=0, groups=[1, 0], group_size=2, nb_rank=2)),
    ("scatter", (1, 2), dict(root=1, nb_rank=2)),
    ("send", (2, 2), dict(root=0)),
    ("recv", (2, 2), dict(root=1)),
)


def collective(operation, dims, **attributes):
    node = helper.make_node("DistCollective", ["x"], ["y"], domain="trt", collective_operation=operation, **attributes)
    graph = helper.make_graph([node], "g", [value("x", (2, 2))], [value("y", dims)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("trt", 1)], ir_version=8)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    to = pathlib.Path(__file__).parent / "corpus" / "onnx"
    to.mkdir(parents=True, exist_ok=True)
    for name in CASES:
        data = (pathlib.Path(sys.argv[1]) / "node" / f"test_{name}" / "model.onnx").read_bytes()
        if len(data) < 4096:
            (to / name.lower()).write_bytes(data)
    for name in CONTRIB:
        (to / name).write_bytes((pathlib.Path(sys.argv[1]) / "contrib" / name / "model.onnx").read_bytes())
    for operation, dims, attributes in COLLECTIVES:
        (to / f"collective_{operation}").write_bytes(collective(operation, dims, **attributes).SerializeToString())
    for name, proto in hostile():
        (to / f"hostile_{name}").write_bytes(proto.SerializeToString())


if __name__ == "__main__":
    main()
