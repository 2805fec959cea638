#include "vision/verify/case_prompt.h"

namespace tern::vision {

Chunk Prompt::chunk(size_t begin, size_t count) const {
  const size_t n = golden->ids.size();
  Chunk c;
  for (size_t t = begin; t < begin + count; ++t) {
    c.ids.push_back(t < n ? golden->ids[t] : golden->greedy[t - n]);
    const int32_t row = t < n ? layout.picture_rows[t] : -1;
    c.rows.push_back(row < 0 ? -1 : row + static_cast<int32_t>(first_row));
  }
  for (size_t axis = 0; axis < 3; ++axis) {
    for (size_t t = begin; t < begin + count; ++t) {
      c.positions.push_back(t < n ? layout.positions.values[axis * n + t]
                                  : static_cast<int32_t>(t) + layout.positions.delta);
    }
  }
  return c;
}

Expected<Prompt> make_prompt(const std::string& folder, const model::GoldenPrompt& golden,
                             const CaseProcessor& processor, const Tower& tower,
                             const std::vector<int32_t>& placeholders, const PositionRule& rule) {
  Prompt p;
  p.golden = &golden;
  TERN_ASSIGN_OR_RETURN(p.pictures, load_pictures(folder, golden, processor));
  for (const Grid& grid : p.pictures.grids) {
    p.tokens.push_back(tower.tokens(grid));
    p.rows += p.tokens.back();
  }
  TERN_ASSIGN_OR_RETURN(p.layout,
                        lay_out(golden.ids, placeholders, p.pictures.grids, p.tokens, tower.info().merge, rule));
  return p;
}

}  // namespace tern::vision
