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
std::vector<std::string> obstacles(const DecoderSpec& s, bool expert_parallel, int ranks, int engines) {
  std::vector<std::string> out;
  const AttentionSpec& a = s.attention;
  const bool gqa = a.kind == AttentionKind::kGqa;
  const bool kv_fits = !gqa || a.kv_heads % ranks == 0 || (ranks > a.kv_heads && ranks % a.kv_heads == 0);
  if (a.heads % ranks != 0 || !kv_fits)
    out.push_back(gqa ? fmt::format("{} heads and {} KV heads", a.heads, a.kv_heads)
                      : fmt::format("{} heads", a.heads));
  const auto width_over = [&](const char* what, int64_t n, int parts) {
    if (n % parts != 0) out.push_back(fmt::format("{} of width {}", what, n));
  };
  const auto width = [&](const char* what, int64_t n) { width_over(what, n, ranks); };
  if (has_dense_bank(s)) {
    width_over("an MLP", s.intermediate, engines * ranks);
  } else if (has_layer(s, kDenseLayer)) {
    width("an MLP", s.intermediate);
  }
  const auto bank = [&](int experts, int64_t n) {
    if (!expert_parallel) return width("experts", n);
    if (experts % (engines * ranks) != 0) out.push_back(fmt::format("{} experts", experts));
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

std::vector<int> rank_counts(const DecoderSpec& spec, bool expert_parallel, int most, int engines) {
  std::vector<int> counts;
  for (int ranks = 1; ranks <= most; ++ranks) {
    if (engines * ranks == 1 || obstacles(spec, expert_parallel, ranks, engines).empty()) counts.push_back(ranks);
  }
  return counts;
}

Status check_ranks(const DecoderSpec& spec, bool expert_parallel, int ranks, int engines) {
  if (engines * ranks > kMostExpertRanks && expert_parallel) {
    return make_error(
        ErrorCode::kInvalidArgument,
        fmt::format("experts can be dealt to {} ranks at most, not to {}", kMostExpertRanks, engines * ranks),
        "enable-expert-parallel");
  }
  if (engines > 1 && !has_layer(spec, kFirstBank | kSecondBank)) {
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("the model has no experts that {} engines could share", engines),
                      "enable-expert-parallel");
  }
  if (engines * ranks <= 1) return {};
  const std::vector<std::string> found = obstacles(spec, expert_parallel, ranks, engines);
  if (found.empty()) return {};
  const std::vector<int> counts = rank_counts(spec, expert_parallel, ranks, engines);
  const std::string who =
      engines > 1 ? fmt::format("{} engines of {} ranks", engines, ranks) : fmt::format("{} ranks", ranks);
  const std::string can = counts.empty() ? "no number of ranks in an engine can"
                          : engines > 1  ? fmt::format("engines of so many ranks can: {}", fmt::join(counts, ", "))
                                         : fmt::format("these numbers of ranks can: {}", fmt::join(counts, ", "));
  return make_error(ErrorCode::kInvalidArgument,
                    fmt::format("{} cannot share {} evenly; {}", who, fmt::join(found, ", nor "), can),
                    engines > 1 ? "data-parallel-size" : "tensor-parallel-size");
}

}  // namespace tern::model
