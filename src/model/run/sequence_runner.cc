#include "model/run/sequence_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/checked.h"

namespace tern::model {

SequenceRunner::SequenceRunner(const Model& model, device::Device& device, const RunnerOptions& options)
    : model_(model), device_(device), options_(options), stream_(device.stream()) {}

Expected<std::unique_ptr<SequenceRunner>> SequenceRunner::make(const Model& model, device::Device& device,
                                                               const RunnerOptions& options) {
  std::unique_ptr<SequenceRunner> r(new SequenceRunner(model, device, options));
  TERN_RETURN_IF_ERROR(r->allocate());
  r->reset();
  return r;
}

Status SequenceRunner::allocate() {
  const int tokens = options_.max_tokens, rows = options_.max_rows;
  blocks_per_row_ = ceil_div(options_.max_length, options_.block_size);
  limits_ = {tokens, rows, tokens, blocks_per_row_};
  const int64_t blocks = static_cast<int64_t>(blocks_per_row_) * rows + 1;  // and the null block
  for (const KvSpec& spec : model_.kv_specs(options_.block_size)) {
    TERN_ASSIGN_OR_RETURN(device::Buffer memory, device_.allocate(spec.block_bytes() * static_cast<size_t>(blocks)));
    cache_.groups.push_back(KvCache::Group::in(spec, memory.data(), blocks));
    cache_memory_.push_back(std::move(memory));
  }
  // A fixed shuffle: neighbours in a sequence are no neighbours in memory.
  block_order_.resize(static_cast<size_t>(blocks) - 1);
  std::iota(block_order_.begin(), block_order_.end(), 1);
  uint64_t state = options_.block_seed * 0x9e3779b97f4a7c15ull + 1;
  for (size_t i = block_order_.size(); i > 1; --i) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    std::swap(block_order_[i - 1], block_order_[(state >> 33) % i]);
  }
  const auto n = static_cast<size_t>(tokens), r = static_cast<size_t>(rows);
  const size_t bytes =
      n * (4 + 4 + 12 + 4 + 8 + 4) + (r + 1) * 4 + r * 4 + r * static_cast<size_t>(blocks_per_row_) * 4 + 16 * 64;
  TERN_ASSIGN_OR_RETURN(inputs_, device_.allocate(bytes));
  device::Arena arena(inputs_.data(), inputs_.bytes());
  batch_.token_ids = arena.tensor(DType::kI32, tokens);
  batch_.token_source = arena.tensor(DType::kI32, tokens);
  batch_.positions = arena.tensor(DType::kI32, 3, tokens);
  batch_.picture_row = arena.tensor(DType::kI32, tokens);
  batch_.slot_mapping = arena.tensor(DType::kI64, tokens);
  batch_.row_start = arena.tensor(DType::kI32, rows + 1);
  batch_.context_len = arena.tensor(DType::kI32, rows);
  batch_.block_table = arena.tensor(DType::kI32, rows, blocks_per_row_);
  batch_.logit_index = arena.tensor(DType::kI32, tokens);
  TERN_ASSIGN_OR_RETURN(workspace_, device_.allocate(std::max<size_t>(model_.workspace_bytes(limits_, stream_), 64)));
  return {};
}

void SequenceRunner::reset() {
  next_block_ = 0;
  tables_.assign(static_cast<size_t>(options_.max_rows), {});
  lengths_.assign(static_cast<size_t>(options_.max_rows), 0);
}

int SequenceRunner::block_of(int sequence, int position) {
  auto& table = tables_[static_cast<size_t>(sequence)];
  while (static_cast<int>(table.size()) <= position / options_.block_size) table.push_back(block_order_[next_block_++]);
  return table[static_cast<size_t>(position / options_.block_size)];
}

Expected<std::span<const float>> SequenceRunner::step(std::span<const Row> rows, Probe* probe) {
  std::vector<int32_t> ids, positions[3], pictures, starts{0}, contexts, wanted;
  std::vector<int64_t> slots;
  batch_.max_query_len = batch_.max_context_len = 0, batch_.long_context = 0;
  for (const Row& row : rows) {
    int& length = lengths_[static_cast<size_t>(row.sequence)];
    if (length + static_cast<int>(row.tokens.size()) > options_.max_length)
      return make_error(ErrorCode::kTooLarge, fmt::format("a sequence exceeds {} tokens", options_.max_length));
    for (size_t i = 0; i < row.tokens.size(); ++i, ++length) {
      if (row.all_logits || i + 1 == row.tokens.size()) wanted.push_back(static_cast<int32_t>(ids.size()));
      ids.push_back(row.tokens[i]);
      for (size_t a = 0; a < 3; ++a)
        positions[a].push_back(row.positions.empty() ? length : row.positions[a * row.tokens.size() + i]);
      pictures.push_back(row.picture_rows.empty() ? -1 : row.picture_rows[i]);
      slots.push_back(static_cast<int64_t>(block_of(row.sequence, length)) * options_.block_size +
                      length % options_.block_size);
    }
    starts.push_back(static_cast<int32_t>(ids.size()));
    contexts.push_back(length);
    batch_.max_query_len = std::max(batch_.max_query_len, static_cast<int>(row.tokens.size()));
    batch_.max_context_len = std::max(batch_.max_context_len, length);
    if (row.tokens.size() > 1) batch_.long_context += length;
  }
  if (static_cast<int>(ids.size()) > options_.max_tokens || static_cast<int>(rows.size()) > options_.max_rows)
    return make_error(ErrorCode::kTooLarge, "the step exceeds the runner's limits");
  batch_.tokens = static_cast<int>(ids.size());
  batch_.rows = static_cast<int>(rows.size());
  batch_.logit_rows = static_cast<int>(wanted.size());
  const auto put = [&](char* to, const auto& values) {
    device_.copy_to_device(to, values.data(), values.size() * sizeof(values[0]), stream_);
  };
  const std::vector<int32_t> none(ids.size(), -1);
  put(batch_.token_ids.as<char>(), ids);
  put(batch_.token_source.as<char>(), none);
  for (int i = 0; i < 3; ++i) put(batch_.positions.row_bytes(i), positions[i]);
  put(batch_.picture_row.as<char>(), pictures);
  batch_.has_pictures = std::any_of(pictures.begin(), pictures.end(), [](int32_t r) { return r >= 0; });
  put(batch_.slot_mapping.as<char>(), slots);
  put(batch_.row_start.as<char>(), starts);
  put(batch_.context_len.as<char>(), contexts);
  put(batch_.logit_index.as<char>(), wanted);
  for (size_t i = 0; i < rows.size(); ++i)
    put(batch_.block_table.row_bytes(static_cast<int64_t>(i)), tables_[static_cast<size_t>(rows[i].sequence)]);

  host_logits_.resize(wanted.size() * static_cast<size_t>(outputs()));
  const size_t bytes = host_logits_.size() * sizeof(float);
  if (logits_.bytes() < bytes) {
    TERN_ASSIGN_OR_RETURN(logits_, device_.allocate(bytes));
  }
  device::Arena arena(workspace_.data(), workspace_.bytes());
  const TensorView logits = tensor2(logits_.data(), DType::kF32, batch_.logit_rows, outputs());
  TERN_RETURN_IF_ERROR(model_.forward({batch_, cache_, stream_, arena, probe}, logits));
  device_.copy_to_host(host_logits_.data(), logits_.data(), bytes, stream_);
  TERN_RETURN_IF_ERROR(device_.synchronize(stream_));
  return std::span<const float>(host_logits_);
}

}  // namespace tern::model
