#include "model/weights/parameter.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/ranks.h"

namespace tern::model {
namespace {

Error does_not_divide(const Parameter& p, const char* what, int64_t units, int ranks) {
  return make_error(ErrorCode::kInvalidArgument,
                    fmt::format("{} ranks cannot share {}: its {} {} do not divide evenly", ranks, p.name, units, what),
                    "tensor-parallel-size");
}

}  // namespace

Expected<Range> shard_range(const Parameter& p, const Shard& shard) {
  const int64_t length = p.axis == 0 ? p.rows : p.cols;
  if (shard.expert_parallel && p.expert >= 0) return Range{0, length};
  if (shard.ranks == 1 || p.rule == ShardRule::kReplicated) return Range{0, length};
  const int64_t ranks = shard.ranks, rank = shard.rank;
  const int64_t unit = length / p.units;
  switch (p.rule) {
    case ShardRule::kReplicated:
      break;
    case ShardRule::kVocabulary: {
      const VocabularyPart part = vocabulary_part(length, shard.rank, shard.ranks);
      return Range{part.first, part.first + part.count};
    }
    case ShardRule::kKvHeads:
      if (ranks > p.units) {
        if (ranks % p.units != 0) return does_not_divide(p, "KV heads", p.units, shard.ranks);
        const int64_t head = rank / (ranks / p.units);
        return Range{head * unit, (head + 1) * unit};
      }
      [[fallthrough]];
    case ShardRule::kColumn:
    case ShardRule::kRow:
    case ShardRule::kHeads: {
      const bool heads = p.rule == ShardRule::kHeads || p.rule == ShardRule::kKvHeads;
      if (p.units % ranks != 0) {
        const char* what = p.rule == ShardRule::kKvHeads ? "KV heads"
                           : heads                       ? "heads"
                           : p.axis == 0                 ? "rows"
                                                         : "columns";
        return does_not_divide(p, what, p.units, shard.ranks);
      }
      const int64_t part = p.units / ranks * unit;
      return Range{rank * part, (rank + 1) * part};
    }
  }
  return Range{0, length};
}

}  // namespace tern::model
