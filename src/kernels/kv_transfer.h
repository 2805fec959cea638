// Blocks of the cache in the exchange form, for transfer between instances and devices.
#pragma once

#include "base/error.h"
#include "device/kv_layout.h"

namespace tern {

// One layer of one block between its own arrangement and kHeadsKV ([K heads][V heads], each head [token][d]);
// `spec` describes `block`, both sides have spec.layer_block_bytes() bytes. MLA rows are exchanged as they are.
// An error when the spec is not one that the CPU keeps (bf16 or f32; even block size for bf16).
Status export_kv_block(const KvSpec& spec, const void* block, void* heads_kv);
Status import_kv_block(const KvSpec& spec, const void* heads_kv, void* block);

}  // namespace tern
