"""Static exports as PaddleNLP writes them, made from a checkpoint without Paddle: names and layouts of
docs/spec/paddlenlp-server.md 7.1, and the bytes of model.pdiparams, model.json and model.pdmodel. tools/golden/make_static.py
makes the same with Paddle itself and compares every byte."""

import json
import shutil
import struct

from static_tensors import (
    below,
    columns_of,
    converted,
    from_floats,
    packed,
    quantized,
    read_safetensors,
    rows_of,
    stacked,
    transposed,
)

NUMBERS = {"F16": 4, "F32": 5, "I8": 21, "BF16": 22, "F8_E4M3": 32}
PIR_TYPES = {"F16": "0.t_f16", "F32": "0.t_f32", "I8": "0.t_i8", "BF16": "0.t_bf16", "F8_E4M3": "0.t_f8e4m3fn"}
FAMILIES = {
    "LlamaForCausalLM": "llama",
    "Qwen2ForCausalLM": "qwen2",
    "MixtralForCausalLM": "mixtral",
    "DeepseekV3ForCausalLM": "deepseek_v3",
}


# ---- what an export keeps


class Export:
    """Parameters of every rank by name. `quant`: "", "weight_only_int8", "weight_only_int4", or with FP8 codes and scales of
    128 x 128 among `tensors` (as `tern export --quantization block_wise_fp8` writes them) "a8w8_fp8" and, whose experts are
    int4 of `values`, "a8w8_fp8_wint4". `quantize(matrix [n, k])` gives (codes, scales) tensors when another one is to make
    them."""

    def __init__(self, config, tensors, ranks=1, quant="", arch=80, group=0, dtype="BF16", quantize=None, values=None):
        self.config, self.tensors, self.ranks, self.values = config, tensors, ranks, values
        self.bits = {"": 0, "weight_only_int8": 8, "weight_only_int4": 4, "a8w8_fp8": 0, "a8w8_fp8_wint4": 0}[quant]
        self.quant, self.arch, self.group, self.dtype = quant, arch, group, dtype
        self.quantize = quantize or self.own_codes
        self.family = FAMILIES[config["architectures"][0]]
        self.out = [{} for _ in range(ranks)]
        self.layers = config["num_hidden_layers"]
        for i in range(self.layers):
            self.layer(i)
        self.tables()

    def own_codes(self, matrix):
        codes, scales = quantized(matrix, self.bits, self.group)
        n, k = matrix[1]
        flat = [s for row in scales for s in row]
        shape = [n] if len(scales) == 1 and not self.group else [len(scales), n]
        return ("I8", [n * self.bits // 8, k], packed(codes, self.bits, self.arch)), from_floats(matrix[0], shape, flat)

    def get(self, name):
        tensor = self.tensors[name]
        return tensor if tensor[0] == "F8_E4M3" else converted(tensor, self.dtype)

    def float8(self, rank, name, modules, stack=False):
        """FP8 matrices below each other with their blocks' scales, or stacked lists of them."""
        scales = [[self.tensors[m + ".weight_scale_inv"] for m in group] for group in modules]
        codes = [below(*[self.get(m + ".weight") for m in group]) for group in modules]
        self.put(rank, name, stacked(codes) if stack else codes[0])
        self.put(rank, name + "_scale", stacked([below(*s) for s in scales]) if stack else below(*scales[0]))

    def put(self, rank, name, tensor):
        self.out[rank][name] = tensor

    def matrix(self, rank, name, tensor, straight=False, experts=None):
        """`tensor` [n, k], or a list of those of experts."""
        many = experts is not None
        matrices = experts if many else [tensor]
        if not self.bits:
            kept = [m if straight else transposed(m) for m in matrices]
            return self.put(rank, name, stacked(kept) if many else kept[0])
        codes, scales = zip(*[self.quantize(m) for m in matrices])
        n, k = matrices[0][1]
        if many:  # the shape of the unquantized matrix, with the last dimension halved for int4
            codes = [(c[0], [k, n * self.bits // 8], c[2]) for c in codes]
        self.put(rank, name, stacked(codes) if many else codes[0])
        self.put(rank, name + "_scale", stacked(scales) if many else scales[0])

    def share(self, rank, rows):
        return rank * rows // self.ranks, (rank + 1) * rows // self.ranks

    def gated(self, at, rank):
        gate, up, down = (self.get(f"{at}{leaf}.weight") for leaf in self.leaves(at))
        begin, end = self.share(rank, gate[1][0])
        return below(rows_of(gate, begin, end), rows_of(up, begin, end)), columns_of(down, begin, end)

    def leaves(self, at):
        return ("w1", "w3", "w2") if "block_sparse_moe" in at else ("gate_proj", "up_proj", "down_proj")

    def layer(self, i):
        for rank in range(self.ranks):
            at, to = f"model.layers.{i}.", f"fuse{self.family}.{i}."
            self.put(rank, to + "ln_scale", self.get(at + "input_layernorm.weight"))
            self.put(rank, to + "ffn_ln_scale", self.get(at + "post_attention_layernorm.weight"))
            if at + "self_attn.kv_b_proj.weight" in self.tensors:
                self.mla(rank, at + "self_attn.", to)
            else:
                self.gqa(rank, at + "self_attn.", to)
            block = next((b for b in ("mlp.", "block_sparse_moe.") if f"{at}{b}gate.weight" in self.tensors), None)
            if block is None and self.quant.startswith("a8w8_fp8"):
                self.float8(rank, to + "ffn1_weight", [[at + "mlp.gate_proj", at + "mlp.up_proj"]])
                self.float8(rank, to + "ffn2_weight", [[at + "mlp.down_proj"]])
            elif block is None:
                ffn1, ffn2 = self.gated(at + "mlp.", rank)
                self.matrix(rank, to + "ffn1_weight", ffn1)
                self.matrix(rank, to + "ffn2_weight", ffn2)
            else:
                self.experts(rank, at + block, to)

    def gqa(self, rank, at, to):
        heads, kv = self.config["num_attention_heads"], self.config["num_key_value_heads"]
        for leaf in ("weight", "bias"):
            if f"{at}q_proj.{leaf}" not in self.tensors:
                continue
            q, k, v = (self.get(f"{at}{p}_proj.{leaf}") for p in "qkv")
            d = q[1][0] // heads
            begin, end = (rank * kv // self.ranks, max((rank + 1) * kv // self.ranks, rank * kv // self.ranks + 1))
            part = [rows_of(q, *self.share(rank, q[1][0])), rows_of(k, begin * d, end * d), rows_of(v, begin * d, end * d)]
            if leaf == "bias":
                self.put(rank, to + "qkv_bias", below(*part))
            else:
                self.matrix(rank, to + "qkv_weight", below(*part), straight=True)
        out = self.get(at + "o_proj.weight")
        self.matrix(rank, to + "out_proj_weight", columns_of(out, *self.share(rank, out[1][1])))

    def mla(self, rank, at, to):
        for leaf in ("q_a_proj", "kv_a_proj_with_mqa", "q_proj", "q_b_proj", "kv_b_proj"):
            if self.tensors.get(f"{at}{leaf}.weight", [""])[0] == "F8_E4M3":
                self.float8(rank, f"{to}{leaf}_weight", [[at + leaf]])
            elif f"{at}{leaf}.weight" in self.tensors:
                m = self.get(f"{at}{leaf}.weight")
                self.matrix(rank, f"{to}{leaf}_weight", m if "_a_" in leaf else rows_of(m, *self.share(rank, m[1][0])))
        for leaf in ("q_a_layernorm", "kv_a_layernorm"):
            if f"{at}{leaf}.weight" in self.tensors:
                self.put(rank, f"{to}{leaf}_weight", self.get(f"{at}{leaf}.weight"))
        out = self.get(at + "o_proj.weight")
        if out[0] == "F8_E4M3":
            return self.float8(rank, to + "out_proj_weight", [[at + "o_proj"]])
        self.matrix(rank, to + "out_proj_weight", columns_of(out, *self.share(rank, out[1][1])))

    def experts(self, rank, at, to):
        self.put(rank, to + "gate_weight", converted(transposed(self.tensors[at + "gate.weight"]), "F32"))
        if at + "gate.e_score_correction_bias" in self.tensors:
            self.put(rank, to + "e_score_correction_bias", converted(self.tensors[at + "gate.e_score_correction_bias"], "F32"))
        count = sum(name.startswith(at + "experts.") and name.endswith(self.leaves(at)[0] + ".weight") for name in self.tensors)
        if self.quant.startswith("a8w8_fp8"):
            return self.float8_experts(rank, at, to, count)
        pairs = [self.gated(f"{at}experts.{e}.", rank) for e in range(count)]
        self.matrix(rank, to + "ffn1_weight", None, experts=[p[0] for p in pairs])
        self.matrix(rank, to + "ffn2_weight", None, experts=[p[1] for p in pairs])
        if at + "shared_experts.gate_proj.weight" in self.tensors:
            ffn1, ffn2 = self.gated(at + "shared_experts.", rank)
            self.matrix(rank, to + "shared_expert_ffn1_weight", ffn1)
            self.matrix(rank, to + "shared_expert_ffn2_weight", ffn2)

    def float8_experts(self, rank, at, to, count):
        def modules(e):
            return [f"{at}{e}.gate_proj", f"{at}{e}.up_proj"], [f"{at}{e}.down_proj"]

        all_of = [modules(f"experts.{e}") for e in range(count)]
        if self.quant == "a8w8_fp8":
            self.float8(rank, to + "ffn1_weight", [up for up, _ in all_of], stack=True)
            self.float8(rank, to + "ffn2_weight", [down for _, down in all_of], stack=True)
        else:
            self.bits, kept = 4, [[below(*[self.values[m + ".weight"] for m in part]) for part in pair] for pair in all_of]
            self.matrix(rank, to + "ffn1_weight", None, experts=[up for up, _ in kept])
            self.matrix(rank, to + "ffn2_weight", None, experts=[down for _, down in kept])
            self.bits = 0
        up, down = modules("shared_experts")
        self.float8(rank, to + "shared_expert_ffn1_weight", [up])
        self.float8(rank, to + "shared_expert_ffn2_weight", [down])

    def tables(self):
        """Names as Paddle generates them."""
        embed, head = self.get("model.embed_tokens.weight"), self.tensors.get("lm_head.weight")
        for rank in range(self.ranks):
            begin, end = self.share(rank, embed[1][0])
            self.put(rank, "embedding_0.w_0", rows_of(embed, begin, end))
            self.put(rank, f"fused_{self.family}_rms_norm_0.w_0", self.get("model.norm.weight"))
            if head is not None:
                self.put(rank, "linear_0.w_0", transposed(rows_of(self.get("lm_head.weight"), begin, end)))

    # ---- uses: (operation, parameter, transposed)

    def uses(self, rank):
        for name in sorted(self.out[rank]):
            if name.startswith("embedding"):
                yield "embedding", name, False
                if "linear_0.w_0" not in self.out[rank]:
                    yield "matmul", name, True
            elif name.startswith("linear"):
                yield "matmul", name, False
            elif self.bits and name.endswith("_weight") and name + "_scale" in self.out[rank]:
                yield "weight_only_linear", name, False
            elif name.endswith("_weight") and self.out[rank][name][0] in ("BF16", "F16"):
                yield "matmul", name, name.endswith("qkv_weight")


# ---- files


def varint(value):
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out) + bytes([value])


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value & (1 << 64) - 1)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def tensor_desc(kind, shape):
    return field(1, NUMBERS[kind]) + b"".join(field(2, d) for d in shape)


def pdiparams(parameters):
    out = []
    for _, (kind, shape, data) in sorted(parameters.items()):
        desc = tensor_desc(kind, shape)
        out.append(struct.pack("<IQIi", 0, 0, 0, len(desc)) + desc + data)
    return b"".join(out)


def pir_program(parameters, uses=(), arch=80):
    ops, numbers = [], {}
    for i, (name, (kind, shape, _)) in enumerate(sorted(parameters.items()), 1):
        numbers[name] = i
        out = {"%": i, "TT": {"#": "0.t_dtensor", "D": [{"#": PIR_TYPES[kind]}, shape, "NCHW", [], 0]}}
        ops.append({"#": "p", "A": [0, 1, 1, name], "DA": [], "O": out, "OA": [1, 0, 1], "QA": []})

    def attribute(name, kind, value):
        return {"N": name, "AT": {"#": kind, "D": value}}

    for i, (op, name, turned) in enumerate(uses, len(ops) + 1):
        attributes = [attribute("transpose_y", "0.a_bool", turned)] if op == "matmul" else []
        inputs = [{"%": 0}, {"%": numbers[name]}]
        if op == "weight_only_linear":
            attributes = [attribute("weight_dtype", "0.a_str", "int8"), attribute("arch", "0.a_i32", arch)]
            inputs += [{"%": 0}, {"%": numbers[name + "_scale"]}]
        ops.append({"#": "1." + op, "A": attributes, "I": inputs, "O": [{"%": 100000 + i}]})
    program = {"regions": [{"#": "region_0", "blocks": [{"#": "block_0", "args": [], "ops": ops}]}]}
    return json.dumps({"base_code": {"magic": "pir", "trainable": False, "version": 1}, "program": program}).encode()


def program_desc(parameters, uses=(), arch=80):
    def variable(name, kind, persistable, dense=b""):
        message = field(1, kind) + (field(3, dense) if dense else b"")
        return field(3, field(1, name) + field(2, message) + (field(3, 1) if persistable else b""))

    def attribute(name, kind, number, value):
        return field(4, field(1, name) + field(2, kind) + field(number, value))

    block = field(1, 0) + field(2, -1) + variable("feed", 9, True) + variable("fetch", 10, True) + variable("x", 7, False)
    for name, (kind, shape, _) in sorted(parameters.items()):
        block += variable(name, 7, True, field(1, tensor_desc(kind, shape)))
    for op, name, turned in uses:
        if op == "embedding":
            body = (
                field(1, field(1, "Ids") + field(2, "x")) + field(1, field(1, "W") + field(2, name)) + field(3, "lookup_table_v2")
            )
        elif op == "matmul":
            body = field(1, field(1, "X") + field(2, "x")) + field(1, field(1, "Y") + field(2, name)) + field(3, "matmul_v2")
            body += attribute("trans_y", 6, 10, int(turned))
        else:
            inputs = {"x": "x", "weight": name, "weight_scale": name + "_scale"}
            body = b"".join(field(1, field(1, k) + field(2, v)) for k, v in inputs.items()) + field(3, op)
            body += attribute("arch", 0, 3, arch)
        block += field(4, body)
    return field(1, block) + field(4, field(1, 0))


def write_export(folder, export, program="pir", extra=None):
    """The folder of an export; one rank without rank_0 when there is one."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {**export.config, "paddlenlp_version": "3.0.0.b4", "quant_type": export.quant, **(extra or {})}
    config["tensor_parallel_degree"] = export.ranks
    (folder / "config.json").write_text(json.dumps(config))
    for rank, parameters in enumerate(export.out):
        at = folder / f"rank_{rank}"
        at.mkdir(exist_ok=True)
        (at / "model.pdiparams").write_bytes(pdiparams(parameters))
        uses = list(export.uses(rank))
        if program == "pir":
            (at / "model.json").write_bytes(pir_program(parameters, uses, export.arch))
        else:
            (at / "model.pdmodel").write_bytes(program_desc(parameters, uses, export.arch))
    return folder


def export_of(case, folder, program="pir", extra=None, **options):
    """An export of a checkpoint's folder, with its reference values and tokenizer beside it."""
    config = json.loads((case / "config.json").read_text())
    write_export(folder, Export(config, read_safetensors(case / "model.safetensors"), **options), program, extra)
    for file in case.iterdir():
        if file.name not in ("config.json", "model.safetensors"):
            shutil.copy(file, folder / file.name)
    return folder
