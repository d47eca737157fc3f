"""Loops and branches whose conditions are known in a run only, as ONNX test cases: model, inputs and what onnxruntime
makes of them. usage: make_control.py FOLDER (needs onnx, onnxruntime, numpy)"""
import os
import sys

import numpy as np
import onnx
import onnx.parser
import onnxruntime
from onnx import numpy_helper

random = np.random.default_rng(7)


def f32(*dims, scale=1.0):
    return (scale * random.standard_normal(dims)).astype(np.float32)


def i64(*values):
    return np.array(values[0] if len(values) == 1 else values, np.int64)


CASES = {}

# A product in every pass until a norm is small enough, with what is made outside read inside; perhaps no pass at all.
CASES["while_product"] = ("""
(float[n, 8] x, float limit, float[8, 8] w0) => (float[n, 8] y, int64 passes, float[p] norms) {
  w = Mul (w0, half)
  mean = ReduceMean <axes = [0], keepdims = 0> (x)
  gate = Sigmoid (mean)
  size = ReduceSumSquare <keepdims = 0> (x)
  any = Greater (size, limit)
  y, passes, norms = Loop ("", any, x, zero) <body = one (int64 i, bool c, float[n, 8] v, int64 k)
    => (bool again, float[n, 8] v2, int64 k2, float s) {
      p = MatMul (v, w)
      q = Mul (p, gate)
      v2 = Tanh (q)
      k2 = Add (k, step)
      s = ReduceSumSquare <keepdims = 0> (v2)
      again = Greater (s, limit)
    }>
}""", dict(half=np.float32(0.4), zero=i64(0), step=i64(1)),
    [dict(x=f32(3, 8), limit=np.float32(l), w0=f32(8, 8, scale=0.3)) for l in (1e9, 2.0, 0.5)] +
    [dict(x=f32(5, 8), limit=np.float32(0.7), w0=f32(8, 8, scale=0.3))])

# A body that is worth splitting over ranks.
CASES["wide_body"] = ("""
(float[n, 256] x, float limit, int64 most) => (float[n, 256] y, int64[p] kept) {
  always = Identity (yes)
  y, kept = Loop (most, always, x) <body = block (int64 i, bool c, float[n, 256] v)
    => (bool again, float[n, 256] v2, int64 j) {
      up = MatMul (v, w1)
      act = Relu (up)
      down = MatMul (act, w2)
      wide = Greater (i, zero)
      part = If (wide) <then_branch = t () => (float[n, 256] tp) {
          tu = MatMul (down, w3)
          ta = Tanh (tu)
          tp = MatMul (ta, w2)
        }, else_branch = e () => (float[n, 256] ep) { ep = Softmax <axis = -1> (down) }>
      sum = Add (v, part)
      v2 = Mul (sum, half)
      s = ReduceSumSquare <keepdims = 0> (v2)
      again = Greater (s, limit)
      j = Identity (i)
    }>
}""", dict(yes=np.array(True), zero=i64(0), half=np.float32(0.5), w1=f32(256, 1024, scale=0.05),
           w2=f32(1024, 256, scale=0.02), w3=f32(256, 1024, scale=0.05)),
    [dict(x=f32(n, 256), limit=np.float32(l), most=i64(k)) for n, l, k in ((4, 0.5, 9), (64, 50.0, 100), (3, 0.0, 4))])

# A cache that grows by a row in every pass, attention over it, tokens until one of them ends it or there are n.
CASES["decode"] = ("""
(int64 n, float[1, t, 16] prompt) => (int64[p] tokens, float[1, a, 16] cache) {
  always = Identity (yes)
  query = Slice (prompt, minus, large, one_axis)
  last, cache, tokens = Loop (n, always, query, prompt) <body = step (int64 i, bool c, float[1, 1, 16] q, float[1, s, 16] kv)
    => (bool again, float[1, 1, 16] q2, float[1, s2, 16] kv2, int64 token) {
      kt = Transpose <perm = [0, 2, 1]> (kv)
      scores = MatMul (q, kt)
      p = Softmax <axis = -1> (scores)
      o = MatMul (p, kv)
      h = MatMul (o, up)
      g = Relu (h)
      logits = MatMul (g, down)
      best = ArgMax <axis = -1, keepdims = 0> (logits)
      token = Reshape (best, scalar)
      q2 = Gather <axis = 0> (table, best)
      kv2 = Concat <axis = 1> (kv, q2)
      over = Equal (token, end)
      again = Not (over)
    }>
}""", dict(yes=np.array(True), minus=i64([-1]), large=i64([1 << 40]), one_axis=i64([1]), up=f32(16, 32), down=f32(32, 12),
           table=f32(12, 16), end=i64(3), scalar=i64([])),
    [dict(n=i64(k), prompt=f32(1, t, 16)) for k, t in ((9, 4), (0, 4), (30, 2), (5, 7))])

# Loops in a loop and branches in those; what is made around is read at every depth.
CASES["nested"] = ("""
(int64 n, float[4, 4] x, float limit) => (float[4, 4] y, float[p, 4] rows, int64[p] inner) {
  a = Relu (x)
  y, rows, inner = Loop (n, "", x) <body = outer (int64 i, bool c, float[4, 4] v)
    => (bool go, float[4, 4] v3, float[4] row, int64 count) {
      b = Softmax <axis = -1> (v)
      fi = Cast <to = 1> (i)
      bound = Add (limit, fi)
      s0 = ReduceMax <keepdims = 0> (v)
      first = Less (s0, bound)
      v2, count = Loop ("", first, v, zero) <body = inside (int64 j, bool d, float[4, 4] u, int64 k)
        => (bool again, float[4, 4] u3, int64 k2) {
          even = Mod (j, two)
          is = Equal (even, zero)
          u2 = If (is) <then_branch = t () => (float[4, 4] tu) {
              tm = MatMul (u, b)
              tu = Add (tm, a)
            }, else_branch = e () => (float[4, 4] eu) {
              em = MatMul (a, u)
              en = Softmax <axis = 0> (em)
              eu = Add (en, u)
            }>
          u3 = Add (u2, tenth)
          k2 = Add (k, step)
          m = ReduceMax <keepdims = 0> (u3)
          again = Less (m, bound)
        }>
      v3 = Sub (v2, limit)
      row = ReduceMean <axes = [0], keepdims = 0> (v2)
      go = Identity (c)
    }>
}""", dict(zero=i64(0), two=i64(2), step=i64(1), tenth=np.float32(0.1)),
    [dict(n=i64(k), x=f32(4, 4), limit=np.float32(l)) for k, l in ((3, 4.0), (0, 4.0), (6, 2.0), (2, -9.0))])

# Branches of other work and other dims, and branches within a branch, of which one gives on what it was given.
CASES["branches"] = ("""
(float[n, 6] x) => (float[n, k] y, float[n, 6] z) {
  s = ReduceSum <keepdims = 0> (x)
  positive = Greater (s, nothing)
  y = If (positive) <then_branch = t () => (float[n, k1] ty) {
      tp = MatMul (x, wide)
      ty = Softmax <axis = -1> (tp)
    }, else_branch = e () => (float[n, k2] ey) {
      ep = MatMul (x, slim)
      ey = Relu (ep)
    }>
  z = If (positive) <then_branch = t2 () => (float[n, 6] tz) {
      m = ReduceMax <keepdims = 0> (x)
      big = Greater (m, one)
      tz = If (big) <then_branch = t3 () => (float[n, 6] a) { a = Softmax <axis = 0> (x) },
                     else_branch = e3 () => (float[n, 6] b) { b = Identity (x) }>
    }, else_branch = e2 () => (float[n, 6] ez) {
      f = Erf (x)
      ez = Identity (f)
    }>
}""", dict(nothing=np.float32(0), one=np.float32(1), wide=f32(6, 9), slim=f32(6, 2)),
    [dict(x=np.abs(f32(4, 6))), dict(x=-np.abs(f32(4, 6))), dict(x=np.float32(0.1) * np.abs(f32(7, 6))),
     dict(x=-np.abs(f32(2, 6)))])

# States that change places, one that stays as it is, a flag and counters.
CASES["swap"] = ("""
(int64 start, float[3] a0, float[3] b0) => (float[3] a, float[3] b, float[3] same, int64 n, int64[p] path, bool odd) {
  above = Greater (start, one)
  ra, rb, rs, n, odd, path = Loop ("", above, a0, b0, a0, start, no) <body = collatz
    (int64 i, bool c, float[3] u, float[3] v, float[3] w, int64 k, bool flag)
    => (bool again, float[3] v2, float[3] u2, float[3] w2, int64 k2, bool flag2, int64 kept) {
      v2 = Identity (v)
      u2 = Sub (u, quarter)
      w2 = Identity (w)
      rest = Mod (k, two)
      is = Equal (rest, one)
      half = Div (k, two)
      triple = Mul (k, three)
      more = Add (triple, one)
      k2 = Where (is, more, half)
      flag2 = Not (flag)
      kept = Identity (k)
      again = Greater (k2, one)
    }>
  a = Identity (ra)
  b = Identity (rb)
  same = Softmax <axis = -1> (rs)
}""", dict(one=i64(1), two=i64(2), three=i64(3), no=np.array(False), quarter=np.float32(0.25)),
    [dict(start=i64(k), a0=f32(3), b0=f32(3)) for k in (6, 1, 27, 7)])

# Entries whose dims are not known before a run, of as many rows as there are.
CASES["open_entries"] = ("""
(float[t, n, 4] x, float[n, 4] h0) => (float[n, 4] h, float[t, n, 4] all, float[n, t] sums) {
  h, all, sums = Scan <num_scan_inputs = 1, scan_output_axes = [0, 1], scan_output_directions = [0, 1], body = cell (float[n, 4] s, float[n, 4] e)
    => (float[n, 4] s2, float[n, 4] kept, float[n] sum) {
      p = MatMul (s, w)
      q = Add (p, e)
      s2 = Tanh (q)
      kept = Mul (s2, s2)
      sum = ReduceSum <keepdims = 0> (s2, last)
    }> (h0, x)
}""", dict(w=f32(4, 4), last=i64([1])),
    [dict(x=f32(t, n, 4), h0=f32(n, 4)) for t, n in ((5, 2), (1, 3), (9, 2))])

# As many passes as an input says: nothing has to be asked for.
CASES["counted"] = ("""
(int64 n, float16[4, 256] x) => (float16[4, 256] y) {
  y = Loop (n, "", x) <body = layers (int64 i, bool c, float16[4, 256] v0) => (bool again, float16[4, 256] w) {
    """ + "".join(f"""
      p{k} = MatMul (v{k}, weight)
      s{k} = Softmax <axis = -1> (p{k})
      v{k + 1} = Add (s{k}, v0)""" for k in range(8)) + """
      w = Tanh (v8)
      again = Identity (c)
    }>
}""", dict(weight=f32(256, 256, scale=1 / 16).astype(np.float16)),
    [dict(n=i64(k), x=f32(4, 256).astype(np.float16)) for k in (3, 0, 1, 2)])

# Weights enough that those of a loop and of branches push each other out of a small ring; some are read on both sides.
CASES["many_weights"] = ("""
(float[n, 16] x, float limit) => (float[n, 16] y, int64 passes) {
  a = MatMul (x, w0)
  b, passes = Loop ("", yes, a, zero) <body = deep (int64 i, bool c, float[n, 16] v0, int64 k)
    => (bool again, float[n, 16] v, int64 k2) {""" + "".join(f"""
      p{k} = MatMul (v{k}, w{k})
      v{k + 1} = Softmax <axis = -1> (p{k})""" for k in range(7)) + """
      v = Add (v7, v0)
      k2 = Add (k, one)
      s = ReduceMax <keepdims = 0> (v)
      again = Less (s, limit)
    }>
  d = MatMul (b, w7)
  m = ReduceMean <keepdims = 0> (d)
  large = Greater (m, bound)
  e = If (large) <then_branch = t () => (float[n, 16] ty) {
      t0 = MatMul (d, w8)
      t1 = Softmax <axis = -1> (t0)
      t2 = MatMul (t1, w9)
      t3 = Tanh (t2)
      ty = MatMul (t3, w0)
    }, else_branch = u () => (float[n, 16] uy) {
      u0 = MatMul (d, w9)
      u1 = Softmax <axis = 0> (u0)
      u2 = MatMul (u1, w10)
      u3 = Tanh (u2)
      uy = MatMul (u3, w8)
    }>
  y = MatMul (e, w11)
}""", dict(yes=np.array(True), zero=i64(0), one=i64(1), bound=np.float32(0.25),
           **{f"w{k}": f32(16, 16, scale=0.4) for k in range(12)}),
    [dict(x=f32(n, 16), limit=np.float32(l)) for n, l in ((3, 0), (5, 5), (2, 4), (4, 6), (1, 3))])

# Sequences that loops carry on: rows that were chosen, slices that grow and are taken from the front, what an inner loop
# adds; elements that only a run finds, are exchanged and taken out.
CASES["sequences"] = ("""
(float[t, 4] x, int64 n, int64 at) => (float[p, 4] chosen, float[q, 4] slices, float[r, 4] found, float[s, 4] rest,
                                       int64[k] pairs, float[t, m] wide, int64 count) {
  none = SequenceEmpty ()
  numbers = SequenceEmpty <dtype = 7> ()
  first = SequenceConstruct (ones)
  picked = Loop (n, "", first) <body = pick (int64 i, bool c, seq(float[4]) had)
    => (bool c2, seq(float[4]) has) {
      c2 = Identity (c)
      row = Gather (x, i)
      size = ReduceSum <keepdims = 0> (row)
      large = Greater (size, zero)
      has = If (large) <then_branch = t () => (seq(float[4]) more) { more = SequenceInsert (had, row) },
                        else_branch = e () => (seq(float[4]) same) { same = Identity (had) }>
    }>
  chosen = ConcatFromSequence <axis = 0, new_axis = 1> (picked)
  grown = Loop (n, "", none) <body = grow (int64 i, bool c, seq(float[a, 4]) had)
    => (bool c2, seq(float[a, 4]) has) {
      c2 = Identity (c)
      next = Add (i, one)
      end = Unsqueeze (next, front)
      part = Slice (x, front, end)
      has = SequenceInsert (had, part, start)
    }>
  slices = ConcatFromSequence <axis = 0> (grown)
  found = SequenceAt (grown, at)
  fewer = SequenceErase (grown, at)
  longer = SequenceInsert (fewer, x, at)
  rest = ConcatFromSequence <axis = 0> (longer)
  sums = Loop (n, "", numbers) <body = outer (int64 i, bool c, seq(int64) had)
    => (bool c2, seq(int64) has) {
      c2 = Identity (c)
      has = Loop (i, "", had) <body = inner (int64 j, bool d, seq(int64) before)
        => (bool d2, seq(int64) after) {
          d2 = Identity (d)
          sum = Add (i, j)
          after = SequenceInsert (before, sum)
        }>
    }>
  pairs = ConcatFromSequence <axis = 0, new_axis = 1> (sums)
  twice = SequenceConstruct (x, x)
  scaled = Loop (n, "", twice) <body = scale (int64 i, bool c, seq(float[t, 4]) had)
    => (bool c2, seq(float[t, 4]) has) {
      c2 = Identity (c)
      place = Mod (i, two)
      old = SequenceAt (had, place)
      new = Mul (old, half)
      without = SequenceErase (had, place)
      has = SequenceInsert (without, new, place)
    }>
  wide = ConcatFromSequence <axis = 1> (scaled)
  count = SequenceLength (picked)
}""", dict(ones=np.ones(4, np.float32), zero=np.float32(0), one=i64(1), front=np.array([0]), start=i64(0), two=i64(2),
           half=np.float32(0.5)),
    [dict(x=f32(6, 4), n=i64(n), at=i64(at)) for n, at in ((2, 0), (6, -1), (5, 3))])


def write(path, proto):
    with open(path, "wb") as file:
        file.write(proto.SerializeToString())


def main(folder):
    for name, (text, constants, sets) in CASES.items():
        graph = onnx.parser.parse_graph(name + text)
        graph.initializer.extend(numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items())
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
        onnx.checker.check_model(model)
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        os.makedirs(f"{folder}/{name}", exist_ok=True)
        write(f"{folder}/{name}/model.onnx", model)
        for number, inputs in enumerate(sets):
            place = f"{folder}/{name}/test_data_set_{number}"
            os.makedirs(place, exist_ok=True)
            for i, port in enumerate(model.graph.input):
                write(f"{place}/input_{i}.pb", numpy_helper.from_array(np.asarray(inputs[port.name]), port.name))
            made = session.run(None, {k: np.asarray(v) for k, v in inputs.items()})
            for i, port in enumerate(model.graph.output):
                write(f"{place}/output_{i}.pb", numpy_helper.from_array(np.asarray(made[i]), port.name))
            print(name, number, [v.shape for v in made])


main(sys.argv[1])
