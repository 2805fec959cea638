#include "model/weights/output_layer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "model/weights/weight_source.h"

namespace tern::model {
namespace {

constexpr std::string_view kEmbed = "embed_tokens.weight", kHead = "lm_head.weight";

bool of_draft_layer(std::string_view name) {
  return name.find("layers.") != std::string_view::npos || name.find("mtp") != std::string_view::npos;
}

// "lm_head.weight", else the shortest name that ends so and is not a draft layer's; empty when there is none.
std::string find_head(const Checkpoint& checkpoint) {
  if (checkpoint.find(kHead) != nullptr) return std::string(kHead);
  std::string best;
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    const bool ends = name.ends_with(kHead) && name[name.size() - kHead.size() - 1] == '.';
    if (ends && !of_draft_layer(name) && (best.empty() || name.size() < best.size())) best = name;
  }
  return best;
}

// Rows of both matrices [rows, cols] as float32, a few at a time; `swapped`: `head` is stored [cols, rows].
bool same_values(const StoredTensor& embed, const StoredTensor& head, bool swapped) {
  if (!swapped && embed.dtype == head.dtype) return std::memcmp(embed.data, head.data, embed.bytes) == 0;
  constexpr int64_t kValues = 1 << 18;
  const int64_t rows = embed.shape[0], cols = embed.shape[1];
  std::vector<Parameter> parameters(2);
  for (Parameter& p : parameters) p.rows = rows, p.cols = cols;
  const CheckpointSource source(
      parameters, {{&embed, embed.data, cols, false}, {&head, head.data, swapped ? rows : cols, swapped}});
  const int64_t step = std::clamp<int64_t>(kValues / cols, 1, rows);
  std::vector<float> a(static_cast<size_t>(step * cols)), b(a.size());
  for (int64_t row = 0; row < rows; row += step) {
    const int64_t n = std::min(step, rows - row);
    source.read({0, row, n, 0, cols}, tensor2(a.data(), DType::kF32, n, cols));
    source.read({1, row, n, 0, cols}, tensor2(b.data(), DType::kF32, n, cols));
    if (std::memcmp(a.data(), b.data(), static_cast<size_t>(n * cols) * sizeof(float)) != 0) return false;
  }
  return true;
}

// Both are read again when weights are packed.
bool same_matrix(const StoredTensor& embed, const StoredTensor& head, bool straight, bool across) {
  const bool same = (straight && same_values(embed, head, false)) || (across && same_values(embed, head, true));
  for (const StoredTensor* t : {&embed, &head}) t->file->release(t->data, t->bytes);
  return same;
}

}  // namespace

// The shortest prefix of an embedding table that is not a draft layer's.
std::string find_root(const Checkpoint& checkpoint) {
  std::string best;
  bool found = false;
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    if (!name.ends_with(kEmbed) || name.find("layers.") != std::string::npos) continue;
    const std::string prefix = name.substr(0, name.size() - kEmbed.size());
    if (!prefix.empty() && prefix.back() != '.') continue;
    if (!found || prefix.size() < best.size()) best = prefix;
    found = true;
  }
  return found ? best : "model.";
}

OutputLayer find_output_layer(const DecoderSpec& spec, const Checkpoint& checkpoint) {
  OutputLayer out;
  const std::string name = find_head(checkpoint);
  const StoredTensor* head = name.empty() ? nullptr : checkpoint.find(name);
  const auto coded = [&](const char* leaf) { return checkpoint.find(std::string("lm_head") + leaf) != nullptr; };
  const bool codes = coded(".qweight") || coded(".weight_packed") || coded(".quant_weight");
  out.tied = spec.tied.value_or(head == nullptr && !codes);
  if (head == nullptr) return out;
  out.name = name;
  if (!out.tied) return out;
  const std::string embed_name = find_root(checkpoint) + std::string(kEmbed);
  const StoredTensor* embed = checkpoint.find(embed_name);
  const std::vector<int64_t> wanted = {spec.vocab_size, spec.hidden_size}, turned = {spec.hidden_size, spec.vocab_size};
  if (embed == nullptr || embed->shape != wanted || !is_float_weight(embed->dtype)) return out;  // an error later on
  if (!is_float_weight(head->dtype) || (head->shape != wanted && head->shape != turned)) {
    out.note = fmt::format(
        "config.json ties the output layer to the embedding, and {} of the files cannot be it ({} {}, not {}): {} is "
        "used",
        name, file_type_name(head->dtype), shape_text(head->shape), shape_text(wanted), embed_name);
    return out;
  }
  if (same_matrix(*embed, *head, head->shape == wanted, head->shape == turned)) return out;
  out.tied = false;
  out.note = fmt::format(
      "config.json says tie_word_embeddings, but {} of the files differs from {}: {} is used as the output layer "
      "(\"tie_word_embeddings\": false in config.json says the same)",
      name, embed_name, name);
  return out;
}

}  // namespace tern::model
