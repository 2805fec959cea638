#include "sched/tests/world.h"

#include <algorithm>
#include <limits>

namespace tern::sched::testing {
namespace {

uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t x = (a ^ (b + 0x9e3779b97f4a7c15ULL + (a << 6) + (a >> 2))) * 0xff51afd7ed558ccdULL;
  x ^= x >> 32;
  x *= 0xc4ceb9fe1a85ec53ULL;
  return x ^ (x >> 29);
}

// The token that follows some content: what a greedy model would say.
int32_t next_token(uint64_t content) { return static_cast<int32_t>(1000 + content % 40); }

}  // namespace

World::World(const WorldConfig& config)
    : config_(config),
      pool_(config.blocks + 1),
      index_(pool_, HashKey{1, 2}),
      scheduler_(make_scheduler(config.sched, pool_, index_)),
      slot_owner_(static_cast<size_t>(config.sched.max_num_seqs), 0),
      shadow_(static_cast<size_t>(config.blocks + 1) * static_cast<size_t>(config.sched.block_size), 0) {}

void World::check(bool ok, const char* what, SeqId id) const {
  if (!ok) throw Failure(std::string(what) + " (sequence " + std::to_string(id) + ")");
}

uint64_t World::content_after(const Request& r, uint64_t before, int position, int32_t token) const {
  uint64_t content = mix(before, static_cast<uint64_t>(token) + 1);
  for (const ExtraKey& key : r.given.extra_keys) {
    const int end = key.begin == 0 && key.end >= r.prompt ? std::numeric_limits<int>::max() : key.end;
    if (position < key.begin || position >= end) continue;
    content = mix(mix(content, key.key[0]), mix(key.key[1], static_cast<uint64_t>(position - key.begin) + 1));
  }
  return content;
}

void World::extend_content(Request& r) {
  while (r.content.size() < r.tokens.size()) {
    const size_t at = r.content.size();
    const uint64_t before = at == 0 ? 77 : r.content[at - 1];
    r.content.push_back(content_after(r, before, static_cast<int>(at), r.tokens[at]));
  }
}

Status World::add(const NewSequence& sequence) {
  Command command;
  command.kind = Command::kAdd;
  command.sequence = sequence;
  commands_.push_back(std::move(command));
  TERN_RETURN_IF_ERROR(scheduler_->add(sequence));
  Request& r = requests_[sequence.id];
  r.given = sequence;
  r.tokens = sequence.prompt;
  r.prompt = static_cast<int>(sequence.prompt.size());
  r.limit = r.prompt + sequence.max_new_tokens;
  extend_content(r);
  for (const auto& range : sequence.unsplittable) {
    largest_range_ = std::max(largest_range_, range.second - range.first);
  }
  ++live_;
  return {};
}

void World::end(Request& r) {
  r.ended = true;
  --live_;
  if (r.open_rows == 0) release_slot(r);
}

void World::release_slot(Request& r) {
  if (r.slot >= 0) slot_owner_[static_cast<size_t>(r.slot)] = 0;
  r.slot = -1;
}

void World::abort(SeqId id) {
  Command command;
  command.kind = Command::kAbort;
  command.id = id;
  commands_.push_back(command);
  scheduler_->abort(id);
  if (alive(id)) {
    end(requests_.at(id));
    ++aborts_;
  }
  check_all();
}

int World::length_left(SeqId id) const {
  const Request& r = requests_.at(id);
  return r.limit - static_cast<int>(r.tokens.size());
}

void World::check_admissions(const Plan& plan) {
  for (SeqId id : plan.preempted) {
    check(alive(id), "preempted, but not alive", id);
    Request& r = requests_.at(id);
    check(r.slot >= 0, "preempted without having run", id);
    release_slot(r);
    r.computed = 0;
  }
  check(plan.preempted.empty() || plan.admitted.empty(), "admission in a step that preempted", 0);
  for (const Admission& a : plan.admitted) {
    check(alive(a.seq), "admitted, but not alive", a.seq);
    Request& r = requests_.at(a.seq);
    check(r.slot < 0 && a.slot >= 0 && a.slot < config_.sched.max_num_seqs, "slot out of range", a.seq);
    check(slot_owner_[static_cast<size_t>(a.slot)] == 0, "slot is taken", a.seq);
    check(r.in_flight == 0 && r.open_rows == 0, "admitted while a token of it is in flight", a.seq);
    check(a.resumed == r.admitted, "resumed flag", a.seq);
    check(a.cached_tokens < static_cast<int>(r.tokens.size()), "the last token is not computed", a.seq);
    check(a.cached_tokens % config_.sched.block_size == 0, "match of a part of a block", a.seq);
    const bool looks_up = config_.sched.prefix_caching && r.given.use_prefix_cache &&
                          (r.given.prompt_logit_rows == 0 || static_cast<int>(r.tokens.size()) > r.prompt);
    check(looks_up || a.cached_tokens == 0, "match without looking", a.seq);
    for (const auto& range : r.given.unsplittable) {
      check(
          !config_.sched.disable_chunked_mm_input || a.cached_tokens <= range.first || a.cached_tokens >= range.second,
          "match ends inside a range", a.seq);
    }
    r.slot = a.slot;
    r.computed = a.cached_tokens;
    r.admitted = true;
    slot_owner_[static_cast<size_t>(a.slot)] = a.seq;
  }
}

void World::check_row(const PlanRow& row, const Plan& plan) {
  check(alive(row.seq), "row of a sequence that has ended", row.seq);
  Request& r = requests_.at(row.seq);
  const auto known = static_cast<int>(r.tokens.size());
  const int end = row.first + row.count;
  check(row.slot == r.slot && r.slot >= 0, "slot changed", row.seq);
  check(row.first == r.computed && row.count > 0, "row does not continue the sequence", row.seq);
  check(end <= known + r.in_flight && end < r.limit, "row goes too far", row.seq);
  check(row.samples == (end == known + r.in_flight), "samples flag", row.seq);
  const bool in_flight = row.first >= known;
  check(!in_flight || row.count == 1, "several tokens in flight", row.seq);
  check(row.previous_row == (in_flight ? r.logit_row : -1), "previous_row", row.seq);
  const bool scores = r.given.prompt_logit_rows > 0 && known == r.prompt && r.in_flight == 0;
  check(row.logit_count == (scores ? row.count : (row.samples ? 1 : 0)), "logit rows", row.seq);
  if (scores) {
    check(row.first <= r.scored, "a prompt position was not scored", row.seq);
    r.scored = std::max(r.scored, end);
  }
  bool at_range_end = false;
  for (const auto& range : r.given.unsplittable) {
    check(end <= range.first || end >= range.second, "chunk cuts a range", row.seq);
    at_range_end |= end == range.second;
  }
  check(plan.tokens <= config_.sched.max_num_batched_tokens || largest_range_ > 0, "budget", row.seq);
  r.computed = end;
  ++r.open_rows;
  if (row.samples) {
    ++r.in_flight;
    r.logit_row = row.logit_begin + row.logit_count - 1;
  }
}

void World::check_totals(const Plan& plan) {
  int tokens = 0, logit_rows = 0;
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    const PlanRow& row = plan.rows[i];
    for (size_t j = 0; j < i; ++j) check(plan.rows[j].seq != row.seq, "two rows", row.seq);
    check(row.logit_begin == logit_rows, "logit rows are not in order", row.seq);
    tokens += row.count, logit_rows += row.logit_count;
  }
  check(tokens == plan.tokens && logit_rows == plan.logit_rows, "totals", 0);
  int ranges = 0;
  for (const PlanRow& row : plan.rows) {
    for (const auto& range : requests_.at(row.seq).given.unsplittable) {
      if (range.first < row.first + row.count && range.second > row.first) ranges += range.second - range.first;
    }
  }
  check(config_.sched.max_range_tokens == 0 || ranges <= config_.sched.max_range_tokens, "too many range tokens", 0);
  const int over = tokens - config_.sched.max_num_batched_tokens;
  check(over <= 0 || over < largest_range_, "budget", 0);
  check(config_.sched.max_logit_rows == 0 || logit_rows <= config_.sched.max_logit_rows, "too many logit rows", 0);
  if (config_.sched.v1) return;
  int prefills = 0;
  for (const Admission& a : plan.admitted) prefills += a.seq > 0 ? 1 : 0;
  check(prefills <= config_.sched.max_prefill_num, "more prefills than max_prefill_num", 0);
  if (config_.sched.chunked_prefill) {
    check(prefills <= config_.sched.max_num_partial_prefills, "more than max_num_partial_prefills", 0);
  }
}

const Plan& World::plan() {
  commands_.emplace_back();
  scheduler_->plan(plan_);
  check_admissions(plan_);
  for (const PlanRow& row : plan_.rows) check_row(row, plan_);
  check_totals(plan_);
  if (!plan_.rows.empty()) {
    OpenStep& step = open_.emplace_back();
    for (const PlanRow& row : plan_.rows) {
      const std::span<const int32_t> table = scheduler_->blocks(row.seq);
      check(static_cast<int>(table.size()) * config_.sched.block_size >= row.first + row.count, "too few blocks",
            row.seq);
      step.rows.push_back(OpenRow{row, {table.begin(), table.end()}});
    }
    step.sampled.assign(static_cast<size_t>(plan_.logit_rows), -1);
  }
  check_all();
  return plan_;
}

void World::execute_row(OpenStep& step, OpenRow& open) {
  const PlanRow& row = open.row;
  Request& r = requests_.at(row.seq);
  const auto known = static_cast<int>(r.tokens.size());
  const int end = row.first + row.count;
  const auto at = [&](int position) -> uint64_t& {
    const int block = open.table[static_cast<size_t>(position / config_.sched.block_size)];
    return shadow_[static_cast<size_t>(block * config_.sched.block_size + position % config_.sched.block_size)];
  };
  if (open.is_void || r.ended) {
    // It runs all the same; what it writes must harm no sequence.
    for (int p = row.first; p < end; ++p) at(p) = ++garbage_ * 0x9e3779b97f4a7c15ULL;
    if (row.samples) step.sampled[static_cast<size_t>(row.logit_begin + row.logit_count - 1)] = 3;
    return;
  }
  check(end <= known, "a token is used before it is known", row.seq);
  if (row.previous_row >= 0) {
    check(last_sampled_[static_cast<size_t>(row.previous_row)] == r.tokens[static_cast<size_t>(row.first)],
          "previous_row names another token", row.seq);
  }
  for (int p = row.first; p < end; ++p) at(p) = r.content[static_cast<size_t>(p)];
  for (int p = 0; p < end; ++p) {
    if (at(p) != r.content[static_cast<size_t>(p)]) {
      throw Failure("sequence " + std::to_string(row.seq) + " reads foreign content at position " + std::to_string(p) +
                    " of block " + std::to_string(open.table[static_cast<size_t>(p / config_.sched.block_size)]));
    }
  }
  if (row.samples) {
    step.sampled[static_cast<size_t>(row.logit_begin + row.logit_count - 1)] =
        next_token(r.content[static_cast<size_t>(end - 1)]);
  }
}

void World::execute(OpenStep& step) {
  for (OpenRow& open : step.rows) execute_row(step, open);
  last_sampled_ = step.sampled;
}

std::vector<SeqId> World::sampling() const {
  std::vector<SeqId> ids;
  if (open_.empty()) return ids;
  for (const OpenRow& open : open_.front().rows) {
    if (open.row.samples) ids.push_back(open.row.seq);
  }
  return ids;
}

void World::retract(Request& r, SeqId id, int computed) {
  if (r.slot >= 0) r.computed = computed;
  for (OpenStep& step : open_) {
    for (OpenRow& open : step.rows) {
      if (open.row.seq != id || open.is_void) continue;
      open.is_void = true;
      r.in_flight -= open.row.samples ? 1 : 0;
    }
  }
}

void World::deliver(const OpenRow& open, const Outcome& outcome, int32_t sampled, std::vector<int32_t>& tokens) {
  Request& r = requests_.at(open.row.seq);
  if (open.is_void || r.ended) {
    tokens.assign(1, sampled);
    return;
  }
  --r.in_flight;
  const auto known = static_cast<int>(r.tokens.size());
  const int count = std::min(outcome.tokens, r.limit - known);
  if (count != 1) retract(r, open.row.seq, count == 0 ? known - 1 : known);
  for (int i = 0; i < count; ++i) {
    tokens.push_back(i == 0 ? sampled : next_token(r.content.back()));
    r.tokens.push_back(tokens.back());
    extend_content(r);
  }
  if (outcome.finished || static_cast<int>(r.tokens.size()) == r.limit) end(r);
}

void World::collect(const std::vector<Outcome>& outcomes) {
  Command command;
  command.kind = Command::kCollect;
  command.outcomes = outcomes;
  commands_.push_back(std::move(command));
  if (open_.empty()) throw Failure("nothing is open");
  OpenStep step = std::move(open_.front());
  open_.pop_front();
  execute(step);
  std::vector<std::vector<int32_t>> tokens(step.rows.size());
  std::vector<Scheduler::RowResult> results;
  for (size_t i = 0; i < step.rows.size(); ++i) {
    const PlanRow& row = step.rows[i].row;
    --requests_.at(row.seq).open_rows;
    if (!row.samples) continue;
    Outcome outcome{row.seq, 1, false};
    for (const Outcome& o : outcomes) outcome = o.seq == row.seq ? o : outcome;
    deliver(step.rows[i], outcome, step.sampled[static_cast<size_t>(row.logit_begin + row.logit_count - 1)], tokens[i]);
    results.push_back({row.seq, tokens[i], outcome.finished});
  }
  scheduler_->collect(results);
  for (const OpenRow& open : step.rows) {
    Request& r = requests_.at(open.row.seq);
    if (r.ended && r.open_rows == 0) release_slot(r);
  }
  check_all();
}

void World::check_all() {
  scheduler_->check_invariants();
  if (++checks_ % 16 == 0) index_.check_invariants();
  if (open_.empty()) check(scheduler_->has_work() == (live_ > 0), "has_work", 0);
}

void World::drain(int steps, size_t depth) {
  for (int i = 0; i < steps && scheduler_->has_work(); ++i) {
    const bool empty = plan().rows.empty();
    if (empty && open_.empty()) throw Failure("nothing runs, but not everyone has finished");
    while (open_.size() >= depth || (empty && !open_.empty())) collect({});
  }
  if (scheduler_->has_work() || live_ > 0) throw Failure("not everyone has finished");
  const SchedulerStats stats = scheduler_->stats();
  check(stats.usable_blocks == config_.blocks, "blocks are missing at the end", 0);
}

void World::forget_ended() {
  std::erase_if(requests_, [](const auto& entry) { return entry.second.ended && entry.second.open_rows == 0; });
}

}  // namespace tern::sched::testing
