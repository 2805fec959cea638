#include "engine/verify/replay_check.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>

#include "base/checked.h"
#include "base/clock.h"
#include "engine/step/step_graphs.h"
#include "model/loader.h"
#include "ops/embedding.h"

namespace tern::engine {
namespace {

constexpr int kBlock = 64, kRows = 16, kTokens = 512, kLongest = 6 * kBlock, kPictureRows = 32;

// One row of a step: tokens [first, first + count) of a sequence of its own.
struct Row {
  int first = 0, count = 1, sequence = 0;
  int picture = -1;  // the row of the pictures that its first token takes
};
struct Program {
  std::vector<Row> rows;
  std::vector<float> logits;  // [rows, vocabulary]
  std::vector<int32_t> ids;
};

std::vector<Program> programs(int longest) {
  std::vector<Program> list;
  std::mt19937 rng(11);
  int sequence = 0;
  const auto add = [&](std::vector<int> counts) {
    Program p;
    for (const int count : counts) {
      Row row;
      row.count = std::min(count, longest);
      row.first = static_cast<int>(rng() % static_cast<unsigned>(longest - row.count + 1));
      row.sequence = sequence++;
      if (rng() % 3 == 0) row.picture = static_cast<int>(rng() % kPictureRows);
      p.rows.push_back(row);
    }
    list.push_back(std::move(p));
  };
  for (const int n : {1, 2, 3, 5, 8, 11, 16}) add(std::vector<int>(static_cast<size_t>(n), 1));
  add({7}), add({17, 1, 1}), add({40, 3}), add({64, 1, 1, 1, 1}), add({130, 2, 1}), add({200, 60, 1, 1, 1, 1});
  add({300, 100, 40, 1, 1, 1, 1, 1, 1});
  return list;
}

class Rig {
 public:
  static Expected<std::unique_ptr<Rig>> make(const model::LoadOptions& options, device::Device& device);
  Status reference(Program& program, bool* same_unpadded);
  Status replay(uint64_t count, ReplayReport& report);

  std::vector<Program> steps;
  const StepGraphs& graphs() const { return *graphs_; }

 private:
  Status allocate();
  Status prefill();
  Status capture();
  // Fills `step` with rows of a program.
  void fill(Step& step, const std::vector<Row>& rows);
  Status run(const model::Batch& batch);
  Status logits(const Step& step, device::Buffer& to);
  Status check(int parity, const Program& program, ReplayReport& report);

  device::Device* device_ = nullptr;
  std::unique_ptr<model::Model> model_;
  model::KvCache cache_;
  model::BatchLimits limits_;
  int longest_ = 0;
  std::vector<device::Buffer> memory_;
  std::array<std::unique_ptr<Step>, 2> step_;
  std::unique_ptr<sample::Sampler> sampler_;
  device::Buffer workspace_, logit_memory_;
  std::array<device::Buffer, 2> read_;
  TensorView logits_;
  std::vector<std::vector<int32_t>> tokens_, blocks_;  // by sequence
  std::unique_ptr<StepGraphs> graphs_;
};

Expected<std::unique_ptr<Rig>> Rig::make(const model::LoadOptions& options, device::Device& device) {
  auto rig = std::make_unique<Rig>();
  rig->device_ = &device;
  if (!rig->device_->has_graphs()) {
    return make_error(ErrorCode::kUnsupported, "this device has no graphs to replay", "device");
  }
  TERN_RETURN_IF_ERROR(rig->device_->bind_thread());
  TERN_ASSIGN_OR_RETURN(rig->model_, model::load_model(options, *rig->device_));
  rig->longest_ = std::min(kLongest, rig->model_->info().max_position_embeddings);
  rig->steps = programs(rig->longest_);
  TERN_RETURN_IF_ERROR(rig->allocate());
  TERN_RETURN_IF_ERROR(rig->prefill());
  TERN_RETURN_IF_ERROR(rig->capture());
  return rig;
}

Status Rig::allocate() {
  device::Device& d = *device_;
  int sequences = 0;
  for (const Program& p : steps) sequences += static_cast<int>(p.rows.size());
  const int per = ceil_div(longest_, kBlock), blocks = 1 + sequences * per;
  limits_ = {kTokens, kRows, kRows, per};
  for (const KvSpec& spec : model_->kv_specs(kBlock)) {
    TERN_ASSIGN_OR_RETURN(device::Buffer b, d.allocate(static_cast<size_t>(blocks) * spec.block_bytes()));
    cache_.groups.push_back(model::KvCache::Group::in(spec, b.data(), blocks));
    memory_.push_back(std::move(b));
  }
  std::mt19937 rng(3);
  const auto vocab = static_cast<unsigned>(model_->info().vocab_size);
  for (int s = 0; s < sequences; ++s) {
    tokens_.emplace_back(), blocks_.emplace_back();
    for (int i = 0; i < longest_; ++i) tokens_.back().push_back(static_cast<int32_t>(rng() % vocab));
    for (int b = 0; b < per; ++b) blocks_.back().push_back(1 + s * per + b);
  }
  const int64_t hidden = model_->info().hidden_size;
  std::vector<float> rows(static_cast<size_t>(kPictureRows * hidden));
  std::normal_distribution<float> normal(0, 0.1f);
  for (float& v : rows) v = normal(rng);
  TERN_ASSIGN_OR_RETURN(device::Buffer pictures, d.allocate(rows.size() * sizeof(float)));
  d.copy_to_device(pictures.data(), rows.data(), rows.size() * sizeof(float), d.stream());
  TERN_RETURN_IF_ERROR(d.synchronize(d.stream()));
  const TensorView table = tensor2(pictures.data(), DType::kF32, kPictureRows, hidden);
  memory_.push_back(std::move(pictures));

  sample::SamplerLimits sampling;
  sampling.slots = sampling.max_rows = sampling.max_logit_rows = kRows;
  sampling.vocab = vocab;
  TERN_ASSIGN_OR_RETURN(sample::Sampler sampler, sample::Sampler::create(sampling, d));
  sampler_ = std::make_unique<sample::Sampler>(std::move(sampler));
  for (auto& slot : step_) {
    TERN_ASSIGN_OR_RETURN(Step step, Step::create({limits_, sampling, table}, d, step_[0].get()));
    slot = std::make_unique<Step>(std::move(step));
  }
  const size_t workspace = std::max<size_t>(model_->workspace_bytes(limits_, d.stream()), 1);
  TERN_ASSIGN_OR_RETURN(workspace_, d.allocate(workspace));
  const size_t bytes = size_t{kRows} * vocab * sizeof(float);
  TERN_ASSIGN_OR_RETURN(logit_memory_, d.allocate(bytes));
  for (auto& b : read_) {
    TERN_ASSIGN_OR_RETURN(b, d.allocate_host(bytes));
  }
  logits_ = tensor2(logit_memory_.data(), DType::kF32, kRows, vocab);
  return {};
}

void Rig::fill(Step& step, const std::vector<Row>& rows) {
  step.begin();
  step.plan = {};
  for (size_t i = 0; i < rows.size(); ++i) {
    const Row& r = rows[i];
    sched::PlanRow row;
    row.first = r.first, row.count = r.count, row.previous_row = -1;
    row.logit_begin = static_cast<int>(i), row.logit_count = 1;
    const auto s = static_cast<size_t>(r.sequence);
    const int token = step.batch.tokens;
    step.add_row(row, {tokens_[s], blocks_[s], kBlock, longest_, {}, 0});
    if (r.picture >= 0) step.take_pictures(token, std::array<int32_t, 1>{r.picture});
    step.plan.tokens += r.count, ++step.plan.logit_rows;
    ops::SampleRow sample;
    sample.logit_row = sample.slot = static_cast<int32_t>(i);
    sample.position = r.first + r.count;
    step.sampling.add(sample, 0);
  }
  step.finish();
}

Status Rig::run(const model::Batch& batch) {
  device::Arena arena(workspace_.data(), workspace_.bytes());
  return model_->forward({batch, cache_, device_->stream(), arena, nullptr}, logits_.first(batch.logit_rows));
}

// What comes before the rows of the steps, in chunks, and the slots.
Status Rig::prefill() {
  const device::Stream stream = device_->stream();
  for (const Program& p : steps) {
    for (const Row& r : p.rows) {
      if (r.first == 0) continue;
      fill(*step_[0], {{0, r.first, r.sequence, -1}});
      TERN_RETURN_IF_ERROR(step_[0]->upload(*device_, stream));
      TERN_RETURN_IF_ERROR(run(step_[0]->batch));
      TERN_RETURN_IF_ERROR(device_->synchronize(stream));
    }
  }
  step_[0]->begin();
  SamplingParams params;
  params.temperature = 0.9f, params.top_p = 0.9f;
  for (int slot = 0; slot < kRows; ++slot) {
    params.seed = static_cast<uint64_t>(100 + slot);
    step_[0]->sampling.updates.add(slot, params, {}, {}, {});
  }
  TERN_RETURN_IF_ERROR(sampler_->prepare(step_[0]->sampling, *device_, stream));
  return device_->synchronize(stream);
}

Status Rig::capture() {
  ForwardPass pass;
  pass.model = model_.get(), pass.cache = &cache_, pass.logits = logits_;
  pass.workspace = workspace_.data(), pass.workspace_bytes = workspace_.bytes();
  TERN_ASSIGN_OR_RETURN(
      graphs_,
      StepGraphs::capture({}, {pass, device_, sampler_.get(), {step_[0].get(), step_[1].get()}, limits_, longest_}));
  return {};
}

Status Rig::logits(const Step& step, device::Buffer& to) {
  const size_t bytes = static_cast<size_t>(step.batch.logit_rows * logits_.dim[1]) * sizeof(float);
  device_->copy_to_host(to.data(), logits_.data, bytes, device_->stream());
  return {};
}

Status Rig::reference(Program& program, bool* same_unpadded) {
  Step& step = *step_[0];
  const device::Stream stream = device_->stream();
  const auto n = static_cast<int64_t>(program.rows.size());
  std::array<std::vector<float>, 2> got;
  for (const bool padded : {false, true}) {
    fill(step, program.rows);
    const int shape = graphs_->shapes().find(step.batch);
    if (shape < 0) return make_error(ErrorCode::kInternal, "a step of the check has no graph");
    const StepShape& s = graphs_->shapes().shapes()[static_cast<size_t>(shape)];
    if (padded) step.pad(s);
    TERN_RETURN_IF_ERROR(step.upload(*device_, stream));
    TERN_RETURN_IF_ERROR(run(padded ? step.view(s, longest_) : step.batch));
    TERN_RETURN_IF_ERROR(logits(step, read_[0]));
    TERN_RETURN_IF_ERROR(sampler_->run(step.sampling, logits_.first(n), *device_, stream));
    TERN_RETURN_IF_ERROR(device_->synchronize(stream));
    const auto* values = reinterpret_cast<const float*>(read_[0].data());
    got[padded].assign(values, values + n * logits_.dim[1]);
  }
  *same_unpadded = std::memcmp(got[0].data(), got[1].data(), got[0].size() * sizeof(float)) == 0;
  const auto [least, most] = std::minmax_element(got[1].begin(), got[1].end());
  if (std::any_of(got[1].begin(), got[1].end(), [](float v) { return !std::isfinite(v); }) || !(*least < *most)) {
    return make_error(ErrorCode::kInternal, "the logits of a step say nothing: they are all alike or no numbers");
  }
  program.logits = std::move(got[1]);
  program.ids.clear();
  for (int64_t i = 0; i < n; ++i) program.ids.push_back(step.sampling.id(static_cast<int32_t>(i)));
  return {};
}

Status Rig::check(int parity, const Program& program, ReplayReport& report) {
  const Step& step = *step_[static_cast<size_t>(parity)];
  bool same = std::memcmp(read_[static_cast<size_t>(parity)].data(), program.logits.data(),
                          program.logits.size() * sizeof(float)) == 0;
  for (size_t i = 0; i < program.ids.size(); ++i) {
    same = same && step.sampling.id(static_cast<int32_t>(i)) == program.ids[i];
  }
  report.different += !same;
  return {};
}

Status Rig::replay(uint64_t count, ReplayReport& report) {
  const device::Stream stream = device_->stream();
  std::mt19937 rng(17);
  std::array<const Program*, 2> open{};
  std::array<std::unique_ptr<device::Event>, 2> done;
  for (auto& event : done) {
    TERN_ASSIGN_OR_RETURN(event, device_->make_event());
  }
  for (uint64_t i = 0; i < count + 2; ++i) {
    const size_t parity = i % 2;
    if (open[parity] != nullptr) {
      TERN_RETURN_IF_ERROR(done[parity]->synchronize());
      TERN_RETURN_IF_ERROR(check(static_cast<int>(parity), *open[parity], report));
      open[parity] = nullptr;
    }
    if (i >= count) continue;
    const Program& program = steps[rng() % steps.size()];
    Step& step = *step_[parity];
    fill(step, program.rows);
    TERN_ASSIGN_OR_RETURN(const bool forward, graphs_->forward(step, stream));
    TERN_RETURN_IF_ERROR(logits(step, read_[parity]));
    TERN_ASSIGN_OR_RETURN(const bool sampled, graphs_->sample(step, stream));
    if (!forward || !sampled) return make_error(ErrorCode::kInternal, "a step was not replayed");
    TERN_RETURN_IF_ERROR(done[parity]->record(stream));
    open[parity] = &program;
    ++report.replays;
  }
  return device_->synchronize(stream);
}

}  // namespace

Expected<ReplayReport> check_replays(const std::string& folder, DType activation,
                                     const model::Quantization& quantization, device::Device& device,
                                     uint64_t replays) {
  ReplayReport report;
  model::LoadOptions options;
  options.path = folder, options.activation = activation, options.quantization = quantization;
  const int64_t begin = monotonic_ns();
  TERN_ASSIGN_OR_RETURN(const auto rig, Rig::make(options, device));
  report.seconds = static_cast<double>(monotonic_ns() - begin) * 1e-9;
  report.steps = static_cast<int>(rig->steps.size());
  report.shapes = static_cast<int>(rig->graphs().shapes().shapes().size());
  for (Program& p : rig->steps) {
    bool same = false;
    TERN_RETURN_IF_ERROR(rig->reference(p, &same));
    report.unpadded += same;
    report.logits.push_back(p.logits);
  }
  TERN_RETURN_IF_ERROR(rig->replay(replays, report));
  return report;
}

}  // namespace tern::engine
