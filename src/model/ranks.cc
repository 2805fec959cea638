#include "model/ranks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/checked.h"

namespace tern::model {
namespace {

bool has_layer(const DecoderSpec& s, uint8_t kind) {
  return std::any_of(s.moe_layer.begin(), s.moe_layer.end(),
                     [&](uint8_t layer) { return kind == kDenseLayer ? layer == kDenseLayer : (layer & kind) != 0; });
}

// Whether an MLP of the dense width is in a layer of experts, in the place of one of two banks.
bool has_dense_bank(const DecoderSpec& s) {
  return s.moe.second_experts > 0 && std::any_of(s.moe_layer.begin(), s.moe_layer.end(), [](uint8_t layer) {
           return layer == kFirstBank || layer == kSecondBank;
         });
}

// What the ranks cannot share evenly, in words.
std::vector<std::string> obstacles(const DecoderSpec& s, bool expert_parallel, int ranks) {
  std::vector<std::string> out;
  const AttentionSpec& a = s.attention;
  const bool gqa = a.kind == AttentionKind::kGqa;
  const bool kv_fits = !gqa || a.kv_heads % ranks == 0 || (ranks > a.kv_heads && ranks % a.kv_heads == 0);
  if (a.heads % ranks != 0 || !kv_fits)
    out.push_back(gqa ? fmt::format("{} heads and {} KV heads", a.heads, a.kv_heads)
                      : fmt::format("{} heads", a.heads));
  const auto width = [&](const char* what, int64_t n) {
    if (n % ranks != 0) out.push_back(fmt::format("{} of width {}", what, n));
  };
  if (has_layer(s, kDenseLayer) || has_dense_bank(s)) width("an MLP", s.intermediate);
  const auto bank = [&](int experts, int64_t n) {
    if (!expert_parallel) return width("experts", n);
    if (experts % ranks != 0) out.push_back(fmt::format("{} experts", experts));
  };
  if (has_layer(s, kFirstBank)) bank(s.moe.experts, s.moe.intermediate);
  if (has_layer(s, kSecondBank)) bank(s.moe.second_experts, s.moe.second_intermediate);
  if (has_layer(s, kFirstBank | kSecondBank)) width("shared experts", s.moe.shared_intermediate);
  if (vocabulary_part(s.vocab_size, ranks - 1, ranks).count < 1)
    out.push_back(fmt::format("a vocabulary of {}", s.vocab_size));
  return out;
}

}  // namespace

VocabularyPart vocabulary_part(int64_t vocab, int rank, int ranks) {
  const int64_t part = ceil_div<int64_t>(vocab, ranks), first = std::min(rank * part, vocab);
  return {first, std::min(part, vocab - first)};
}

VocabularyPart output_part(const ModelInfo& info, int rank, int ranks) {
  return info.pooled > 0 ? VocabularyPart{0, info.pooled} : vocabulary_part(info.vocab_size, rank, ranks);
}

std::vector<int> rank_counts(const DecoderSpec& spec, bool expert_parallel, int most) {
  std::vector<int> counts;
  for (int ranks = 1; ranks <= most; ++ranks) {
    if (ranks == 1 || obstacles(spec, expert_parallel, ranks).empty()) counts.push_back(ranks);
  }
  return counts;
}

Status check_ranks(const DecoderSpec& spec, bool expert_parallel, int ranks) {
  if (ranks <= 1) return {};
  const std::vector<std::string> found = obstacles(spec, expert_parallel, ranks);
  if (found.empty()) return {};
  const std::vector<int> counts = rank_counts(spec, expert_parallel, ranks);
  return make_error(ErrorCode::kInvalidArgument,
                    fmt::format("{} ranks cannot share {} evenly; these numbers of ranks can: {}", ranks,
                                fmt::join(found, ", nor "), fmt::join(counts, ", ")),
                    "tensor-parallel-size");
}

}  // namespace tern::model
