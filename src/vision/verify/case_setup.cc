#include "vision/verify/case_setup.h"

#include <algorithm>

#include "model/verify/widened.h"

namespace tern::vision {

using model::SequenceRunner;

Expected<Setup> load_setup(const model::LoadOptions& options, device::Device& device) {
  Setup s;
  TERN_ASSIGN_OR_RETURN(s.model, model::load_model(options, device));
  TERN_ASSIGN_OR_RETURN(s.tower, load_tower(options, device));
  if (s.tower == nullptr) return make_error(ErrorCode::kUnsupported, "the architecture has no vision tower");
  if (s.tower->info().hidden != s.model->info().hidden_size)
    return make_error(ErrorCode::kCorrupt, "the tower's rows do not fit the text model");
  return s;
}

const void* patches_of(const PromptPictures& p, DType type) {
  return type == DType::kBF16 ? static_cast<const void*>(p.patches16.data()) : p.patches.data();
}

Status encode_all(Setup& s, std::span<const Prompt> prompts, device::Device& device) {
  PromptPictures all;
  for (const Prompt& p : prompts) {
    all.grids.insert(all.grids.end(), p.pictures.grids.begin(), p.pictures.grids.end());
    all.patches.insert(all.patches.end(), p.pictures.patches.begin(), p.pictures.patches.end());
    all.patches16.insert(all.patches16.end(), p.pictures.patches16.begin(), p.pictures.patches16.end());
  }
  TERN_ASSIGN_OR_RETURN(s.pictures,
                        encode_items(*s.tower, device, all.grids, patches_of(all, s.tower->info().patch_type)));
  return {};
}

Expected<std::unique_ptr<SequenceRunner>> make_runner(const Setup& s, std::span<const Prompt> prompts,
                                                      device::Device& device, uint64_t seed) {
  int longest = 0, total = 0;
  for (const Prompt& p : prompts) {
    longest = std::max(longest, static_cast<int>(p.golden->ids.size() + p.golden->greedy.size()));
    total += static_cast<int>(p.golden->ids.size());
  }
  auto made = SequenceRunner::make(*s.model, device,
                                   {.block_size = 64,
                                    .max_tokens = std::max(total, longest),
                                    .max_rows = static_cast<int>(prompts.size()),
                                    .max_length = longest + 1,
                                    .block_seed = seed});
  if (made.ok()) (*made)->set_pictures(s.pictures.rows);
  return made;
}

Status widen_case(model::GoldenCase& golden, const Setup& widened, std::span<const Prompt> prompts,
                  device::Device& device) {
  const auto v = static_cast<std::ptrdiff_t>(widened.model->info().outputs());
  for (size_t i = 0; i < prompts.size(); ++i) {
    const Prompt& p = prompts[i];
    model::GoldenPrompt& g = golden.prompts[i];
    TERN_ASSIGN_OR_RETURN(auto run, make_runner(widened, prompts, device, 1));
    const Chunk whole = p.chunk(0, g.ids.size());
    const SequenceRunner::Row row = whole.row(0, true);
    TERN_ASSIGN_OR_RETURN(const auto logits, run->step({&row, 1}));
    model::replace_tensor(golden, g.name + ".logits", logits);
    const std::vector<float> last(logits.end() - v, logits.end());
    const auto step = [&](size_t token) {
      const Chunk next = p.chunk(g.ids.size() + token, 1);
      const SequenceRunner::Row one = next.row(0, false);
      return run->step({&one, 1});
    };
    TERN_RETURN_IF_ERROR(model::replace_greedy(golden.banned, last, step, g));
  }
  return {};
}

}  // namespace tern::vision
