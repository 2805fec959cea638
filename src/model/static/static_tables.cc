// Embedding, last norm and head, whose names are generated.
#include <fmt/format.h>

#include <algorithm>

#include "model/static/static_names.h"
#include "model/static/static_places.h"

namespace tern::model {
namespace {

using Named = std::pair<const std::string*, const StaticParameter*>;

class TableFinder {
 public:
  TableFinder(const DecoderSpec& spec, const StaticFolder& folder) : spec_(spec), ranks_(folder.ranks()) {
    for (const auto& [name, p] : folder.parameters)
      if (!split_fused_name(name)) all_.emplace_back(&name, &p);
  }

  Expected<StaticTables> run() {
    StaticTables t;
    TERN_ASSIGN_OR_RETURN(t.norm, norm());
    TERN_ASSIGN_OR_RETURN(t.embedding, embedding());
    TERN_ASSIGN_OR_RETURN(t.head, head(t.embedding));
    return t;
  }

 private:
  // Rows of a vocabulary table: all of them, or a rank's part.
  bool is_vocabulary(int64_t rows) const {
    return rows == spec_.vocab_size || (spec_.vocab_size % ranks_ == 0 && rows == spec_.vocab_size / ranks_);
  }
  bool is_table(const StaticParameter& p) const {
    const auto& d = p.dims();
    return is_float_weight(p.type()) && d.size() == 2 && d[1] == spec_.hidden_size && is_vocabulary(d[0]);
  }
  bool is_head(const StaticParameter& p) const {
    const auto& d = p.dims();
    return is_table(p) ||
           (is_float_weight(p.type()) && d.size() == 2 && d[0] == spec_.hidden_size && is_vocabulary(d[1]));
  }
  template <class F>
  std::vector<Named> those(F&& wanted) const {
    std::vector<Named> out;
    for (const Named& n : all_)
      if (wanted(*n.second)) out.push_back(n);
    return out;
  }
  static Error ambiguous(const char* what, const std::vector<Named>& found) {
    if (found.empty()) return make_error(ErrorCode::kCorrupt, fmt::format("the export has no tensor for {}", what));
    return make_error(ErrorCode::kCorrupt, fmt::format("the export has several tensors that may be {}: {} and {}", what,
                                                       *found[0].first, *found[1].first));
  }

  Expected<const StaticParameter*> norm() const {
    const auto found = those([&](const StaticParameter& p) {
      return is_float_weight(p.type()) && p.dims() == std::vector<int64_t>{spec_.hidden_size};
    });
    if (found.size() == 1) return found.front().second;
    return ambiguous("the last norm", found);
  }
  Expected<const StaticParameter*> embedding() const {
    auto found = those([&](const StaticParameter& p) { return is_table(p) && p.uses.looked_up; });
    if (found.empty()) found = those([&](const StaticParameter& p) { return is_table(p) && !p.uses.multiplied; });
    if (found.empty()) found = those([&](const StaticParameter& p) { return is_table(p); });
    if (found.size() == 1) return found.front().second;
    return ambiguous("the embedding", found);
  }
  Expected<const StaticParameter*> head(const StaticParameter* embedding) const {
    const auto fits = [&](const StaticParameter& p) { return &p != embedding && is_head(p); };
    auto found = those([&](const StaticParameter& p) { return fits(p) && p.uses.multiplied; });
    if (found.empty()) found = those(fits);
    if (found.size() > 1) return ambiguous("the output layer", found);
    return found.empty() ? nullptr : found.front().second;
  }

  const DecoderSpec& spec_;
  const int64_t ranks_;
  std::vector<Named> all_;
};

}  // namespace

Expected<StaticTables> find_static_tables(const DecoderSpec& spec, const StaticFolder& folder) {
  return TableFinder(spec, folder).run();
}

Expected<Presences> static_presences(const DecoderSpec& spec, const StaticFolder& folder) {
  TERN_ASSIGN_OR_RETURN(const StaticTables tables, find_static_tables(spec, folder));
  Presences p;
  p.output.tied = tables.head == nullptr;
  if (p.output.tied && spec.tied == false)
    return make_error(ErrorCode::kCorrupt,
                      "config.json says that the output layer is not the embedding, and the export has no other");
  p.correction_bias = spec.moe.experts > 0 && spec.moe.correction_bias == Presence::kRequired;
  if (spec.moe.correction_bias == Presence::kOptional)
    for (int i = 0; i < spec.layers; ++i)
      p.correction_bias = p.correction_bias || folder.find(i, "e_score_correction_bias") != nullptr;
  return p;
}

}  // namespace tern::model
