#!/usr/bin/env python3
"""Static exports of reference cases, written by Paddle itself, for the tests of the reader (tests/data/static).

For every case below it writes OUT/<name>/: config.json and, for every rank, model.pdiparams beside model.json (Paddle 3) or
model.pdmodel (Paddle 2). OUT/weight_quantize.json holds what `paddle.nn.quant.weight_quantize` makes of one matrix, for each
algorithm, architecture and group size.

Every step is compared with another way to it, and a difference ends the script: codes and scales with a quantization in NumPy,
packed bytes and model.pdiparams with those of tests/paddlenlp/static_export.py, which knows no Paddle and makes the exports of
the other tests.

Usage: make_static.py OUT    (wants numpy and paddlepaddle 3.3.1 for CPUs, in an environment of their own)

Paddle's CPU build has no kernel of weight_only_linear: programs with codes are built operation by operation, without inferring
shapes, and translated to Paddle 3's form. Those without are traced and saved by paddle.jit.save.
"""

import argparse
import json
import pathlib
import sys

import numpy as np
import paddle

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "paddlenlp"))
import static_export as se
import static_tensors as st

CASES = {
    "bfloat16": {"case": "golden_s/qwen2_rope_yarn", "program": "pir", "ranks": 2},
    "weight_only_int8": {"case": "golden_s/llama_rope_llama3", "program": "desc", "quant": "weight_only_int8", "arch": 80},
    "weight_only_int4": {
        "case": "golden_s/llama_rope_linear",
        "program": "pir",
        "quant": "weight_only_int4",
        "arch": 70,
        "dtype": "F16",
    },
}
DTYPES = {"BF16": "bfloat16", "F16": "float16", "F32": "float32", "I8": "int8"}


def same(a, b, what):
    if a != b:
        sys.exit(f"make_static.py: {what} differ")


def tensor_of(t):
    kind, shape, data = t
    if kind == "BF16":
        bits = np.frombuffer(data, np.uint16).astype(np.uint32) << 16
        return paddle.to_tensor(bits.view(np.float32).reshape(shape)).cast("bfloat16")
    return paddle.to_tensor(np.frombuffer(data, {"F16": np.float16, "F32": np.float32, "I8": np.int8}[kind]).reshape(shape))


def bytes_of(t):
    if t.dtype == paddle.bfloat16:
        kept = (t.cast("float32").numpy().view(np.uint32) >> 16).astype(np.uint16)
        return "BF16", list(t.shape), kept.tobytes()
    kind = {paddle.float16: "F16", paddle.float32: "F32", paddle.int8: "I8"}[t.dtype]
    return kind, list(t.shape), t.numpy().tobytes()


def numpy_codes(weight, bits, group):
    """Codes [k, n] and scales [groups, n] of weights [k, n]."""
    values = weight.cast("float32").numpy()
    k, n = values.shape
    width = group or k
    bound = np.float32((1 << bits - 1) - 1)
    largest = np.abs(values).reshape(-1, width, n).max(1) / bound
    scales = paddle.to_tensor(largest).cast(weight.dtype)
    q = values / np.repeat(scales.cast("float32").numpy(), width, 0)
    away = np.trunc(q + np.copysign(np.float32(0.5), q))  # halves away from zero
    return np.clip(away, -bound, bound).astype(int), scales


def quantized(matrix, algo, arch, group):
    """weight_quantize of a matrix [n, k], compared with NumPy and with packing NumPy's codes."""
    bits = int(algo[-1])
    weight = paddle.transpose(tensor_of(matrix), [1, 0])
    codes, scales = paddle.nn.quant.weight_quantize(weight, algo=algo, arch=arch, group_size=group or -1)
    want, want_scales = numpy_codes(weight, bits, group)
    kept = bytes_of(codes)
    same(bytes_of(scales)[2], bytes_of(want_scales)[2], f"scales of {algo}")
    same(kept[2], st.packed(want.T.tolist(), bits, arch), f"codes of {algo} for architecture {arch}")
    own = st.quantized(matrix, bits, group)
    same(own[0], want.T.tolist(), "codes of static_export.py")
    return kept, bytes_of(scales)


class Traced(paddle.nn.Layer):
    """Layers that use every parameter of an export once, with its name."""

    def __init__(self, parameters, uses):
        super().__init__()
        self.uses = uses
        for name, t in parameters.items():
            attr = paddle.ParamAttr(name=name)
            kept = self.create_parameter(t[1], attr=attr, dtype=DTYPES[t[0]])
            kept.set_value(tensor_of(t))
            self.add_parameter(name.replace(".", "__"), kept)

    def forward(self, ids):
        operations = {name: (op, turned) for op, name, turned in self.uses}
        out = []
        for name, parameter in self.named_parameters():
            op, turned = operations.get(name.replace("__", "."), ("", False))
            if op == "embedding":
                out.append(paddle.nn.functional.embedding(ids, parameter))
            elif op == "matmul":
                rows = parameter.shape[1 if turned else 0]
                out.append(paddle.matmul(paddle.ones([1, rows], parameter.dtype), parameter, transpose_y=turned))
            else:
                out.append(parameter * 2)
        return out


def save_traced(path, parameters, uses):
    with paddle.utils.unique_name.guard():  # names of another rank's layers do not count
        layer = Traced(parameters, list(uses))
        layer.eval()
        spec = [paddle.static.InputSpec([None], "int64", "ids")]
        paddle.jit.save(paddle.jit.to_static(layer, input_spec=spec, full_graph=True), str(path / "model"))


def save_built(path, parameters, uses, arch, bits, form):
    paddle.enable_static()
    with paddle.pir_utils.OldIrGuard():
        program = paddle.static.Program()
        block = program.global_block()
        block.create_var(name="ids", shape=[-1], dtype="int64")
        for name, t in parameters.items():
            block.create_var(name=name, shape=t[1], dtype=DTYPES[t[0]], persistable=True)
        types = {"embedding": "lookup_table_v2", "matmul": "matmul_v2", "weight_only_linear": "weight_only_linear"}
        hidden = parameters["embedding_0.w_0"]
        block.create_var(name="hidden", shape=[-1, hidden[1][1]], dtype=DTYPES[hidden[0]])
        used = {name for _, name, _ in uses} | {name + "_scale" for _, name, _ in uses}
        norms = [("elementwise_mul", name, False) for name in sorted(parameters) if name not in used]
        for i, (op, name, turned) in enumerate([*uses, *norms]):
            block.create_var(name=f"out{i}", shape=[-1, 1], dtype=DTYPES[hidden[0]])
            desc = block.desc.append_op()
            desc.set_type(types.get(op, op))
            if op == "embedding":
                desc.set_input("Ids", ["ids"]), desc.set_input("W", [name]), desc.set_output("Out", ["hidden"])
                desc._set_attr("padding_idx", -1)
            elif op == "matmul":
                desc.set_input("X", ["hidden"]), desc.set_input("Y", [name]), desc.set_output("Out", [f"out{i}"])
                desc._set_attr("trans_x", False), desc._set_attr("trans_y", turned)
            elif op == "elementwise_mul":
                desc.set_input("X", ["hidden"]), desc.set_input("Y", [name]), desc.set_output("Out", [f"out{i}"])
                desc._set_attr("axis", -1)
            else:
                desc.set_input("x", ["hidden"]), desc.set_input("weight", [name])
                desc.set_input("weight_scale", [name + "_scale"]), desc.set_output("out", [f"out{i}"])
                desc._set_attr("weight_dtype", f"int{bits}"), desc._set_attr("arch", arch), desc._set_attr("group_size", -1)
        if form == "desc":
            (path / "model.pdmodel").write_bytes(program.desc.serialize_to_string())
        else:
            translated = paddle.pir.translate_to_pir(program.desc)
            paddle.base.core.serialize_pir_program(translated, str(path / "model.json"))
    paddle.disable_static()
    names = sorted(parameters)
    kept = [tensor_of(parameters[name]) for name in names]
    paddle.base.core.save_combine_func([t.get_tensor() for t in kept], names, str(path / "model.pdiparams"), True, False, False)


def write_case(folder, case, program, **options):
    source = ROOT / "tests" / "data" / case
    config = json.loads((source / "config.json").read_text())
    arch = options.get("arch", 80)

    def quantize(matrix):
        return quantized(matrix, options["quant"], arch, 0)

    export = se.Export(config, st.read_safetensors(source / "model.safetensors"), quantize=quantize, **options)
    se.write_export(folder, export, program)
    (folder / "case.txt").write_text(case + "\n")
    for rank, parameters in enumerate(export.out):
        path = folder / f"rank_{rank}"
        for old in path.iterdir():
            old.unlink()
        uses = list(export.uses(rank))
        if export.bits:
            save_built(path, parameters, uses, arch, export.bits, program)
        else:
            save_traced(path, parameters, uses)
        same((path / "model.pdiparams").read_bytes(), se.pdiparams(parameters), f"{path}/model.pdiparams")


def write_vectors(path):
    rng = np.random.default_rng(38)
    weight = paddle.to_tensor(rng.standard_normal((16, 128)).astype(np.float32)).cast("bfloat16")
    matrix = bytes_of(weight)
    rows = []
    for algo in ("weight_only_int8", "weight_only_int4"):
        for arch in (70, 80):
            for group in (0, 64):
                codes, scales = quantized(matrix, algo, arch, group)
                row = {"algo": algo, "arch": arch, "group": group, "codes": codes[2].hex(), "scales": scales[2].hex()}
                rows.append(row)
    text = json.dumps({"n": 16, "k": 128, "weights": matrix[2].hex(), "rows": rows}, indent=0)
    path.write_text(text + "\n")


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("out", type=pathlib.Path, help="folder that receives one folder per case")
    out = ap.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    write_vectors(out / "weight_quantize.json")
    for name, options in CASES.items():
        write_case(out / name, **options)
        print(name)


if __name__ == "__main__":
    main()
