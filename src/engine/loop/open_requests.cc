#include "engine/loop/open_requests.h"

#include <algorithm>
#include <new>

#include "base/clock.h"
#include "engine/loop/request_check.h"

namespace tern::engine {
namespace {

Error invalid(std::string message, const char* param) {
  return make_error(ErrorCode::kInvalidArgument, std::move(message), param);
}

}  // namespace

Status OpenRequests::open(Generation& g) {
  Request& r = g.request;
  const auto keep = [&](const std::vector<int32_t>& ids) {
    for (int32_t id : ids) {
      // An id that is never sampled never stops anything.
      if (id >= 0 && id < parts_.sampled_vocab) g.stop_ids.push_back(id);
    }
  };
  if (!r.ignore_eos) keep(parts_.config.eos_token_ids);
  keep(r.stop_token_ids);
  TERN_RETURN_IF_ERROR(sample::validate(r.sampling, g.stop_ids.size(), parts_.sampled_vocab, parts_.config.max_logprobs,
                                        parts_.config.slot_capacity));
  g.id = r.id;
  g.prompt = static_cast<int>(r.prompt.size());
  g.min_tokens = r.sampling.min_tokens, g.max_tokens = r.max_tokens, g.rope_delta = r.rope_delta;
  g.positioned = !r.positions.empty(), g.pictured = !r.media.empty();
  g.scored = r.sampling.logprobs >= 0 || r.sampling.prompt_logprobs >= 0;
  g.drawn_from = parts_.config.entropy || (parts_.config.kept_tokens && r.sampling.truncates());
  g.stops_by_words = !r.stop_sequences.empty();
  g.processors = sample::wanted_processors(r.sampling);
  g.thought = r.sampling.thinking_mark.empty();
  if (r.constraint.grammar != nullptr) {
    if (guidance_ == nullptr) return invalid("guided decoding is off", "guided_decoding");
    guidance_->open(g);
  }
  sched::NewSequence s;
  s.id = r.id;
  s.owner = r.owner;
  s.prompt = r.prompt;
  s.max_new_tokens = r.max_tokens;
  const bool every_row = r.pooled != PooledRows::kLast;
  s.use_prefix_cache = r.sampling.prompt_logprobs < 0 && !every_row;
  s.prompt_logit_rows = every_row ? g.prompt : r.sampling.prompt_logprobs >= 0 ? g.prompt - 1 : 0;
  const auto width = static_cast<size_t>(parts_.pooled);
  g.pooled.resize(static_cast<size_t>(r.pooled == PooledRows::kAll ? g.prompt : 1) * width);
  if (r.pooled == PooledRows::kMean) g.pooled_sum.resize(width);
  pictures_.add(r, g, s);
  if (r.sampling.prompt_logprobs >= 0) g.prompt_logprobs.resize(static_cast<size_t>(g.prompt - 1));
  return parts_.scheduler->add(std::move(s));
}

void OpenRequests::refuse(const Request& request, Error error) {
  News::Event& e = news_.event(request.id);
  e.head.finish = FinishReason::kError;
  e.head.prompt_tokens = static_cast<int32_t>(request.prompt.size());
  e.head.times.arrival = request.arrival_ns;
  e.head.times.finished = monotonic_ns();
  news_.extra().error = std::move(error);
}

void OpenRequests::enter(Request request) {
  if (failed_) return refuse(request, make_error(ErrorCode::kUnavailable, "the engine has failed"));
  if (generations_.contains(request.id)) return refuse(request, invalid("duplicated request_id", "request_id"));
  if (Status ok = check_request(request, parts_); !ok.ok()) return refuse(request, std::move(ok).error());
  auto owner = std::make_unique<Generation>();
  Generation& g = *owner;
  g.request = std::move(request);
  g.times.arrival = g.request.arrival_ns;
  const auto try_open = [&]() -> Status {
    try {
      return open(g);
    } catch (const std::bad_alloc&) {  // prompts are long; nothing of it has entered the scheduler
      return make_error(ErrorCode::kUnavailable, "there is no memory for this request now; send it again");
    }
  };
  if (Status ok = try_open(); !ok.ok()) {
    if (g.guided) guidance_->close(g);
    return refuse(g.request, std::move(ok).error());
  }
  if (const int64_t deadline = g.request.deadline_ns; deadline > 0) {
    next_deadline_ = next_deadline_ == 0 ? deadline : std::min(next_deadline_, deadline);
  }
  generations_.emplace(g.request.id, std::move(owner));
  entered_ += g.prompt;
}

OpenRequests::Generations::iterator OpenRequests::drop(Generations::iterator it) {
  left_ += it->second->prompt + static_cast<int64_t>(it->second->output.size());
  return generations_.erase(it);
}

Generation* OpenRequests::find(RequestId id) {
  const auto it = generations_.find(id);
  return it == generations_.end() ? nullptr : it->second.get();
}

News::Event& OpenRequests::event_of(const Generation& g) {
  News::Event& e = news_.event(g.id);
  e.head.prompt_tokens = g.prompt;
  e.head.cached_tokens = g.cached_tokens;
  e.head.preemptions = g.preemptions;
  e.head.times = g.times;
  return e;
}

void OpenRequests::end(Generation& g, FinishReason reason) {
  g.ended = true;
  g.times.finished = monotonic_ns();
  if (g.guided) guidance_->close(g);
  begin_last(g).head.finish = reason;
}

News::Event& OpenRequests::begin_last(Generation& g) {
  News::Event& e = event_of(g);
  if (!g.interruptions.empty()) news_.extra().interruptions = std::move(g.interruptions);
  return e;
}

void OpenRequests::end_error(Generation& g, Error error) {
  end(g, FinishReason::kError);
  news_.extra().error = std::move(error);
}

void OpenRequests::forget(Generation& g) {
  if (!g.ended || steps_.has_rows(g)) return;
  if (const auto it = generations_.find(g.request.id); it != generations_.end()) drop(it);
}

void OpenRequests::abort(RequestId id) {
  Generation* g = find(id);
  if (g == nullptr || g->ended) return;
  parts_.scheduler->abort(id);
  end(*g, FinishReason::kAbort);
  forget(*g);
}

void OpenRequests::end_all(FinishReason reason, const Error& error) {
  for (auto it = generations_.begin(); it != generations_.end();) {
    Generation& g = *it->second;
    if (!g.ended) {
      parts_.scheduler->abort(g.request.id);
      end(g, reason);
      if (reason == FinishReason::kError) news_.extra().error = error;
    }
    it = steps_.has_rows(g) ? std::next(it) : drop(it);
  }
}

void OpenRequests::fail(const Error& error) {
  failed_ = true;
  end_all(FinishReason::kError, error);
}

void OpenRequests::expire(int64_t now) {
  if (next_deadline_ == 0 || now < next_deadline_) return;
  next_deadline_ = 0;
  for (auto it = generations_.begin(); it != generations_.end();) {
    Generation& g = *it->second;
    const int64_t deadline = g.request.deadline_ns;
    if (!g.ended && deadline > 0 && deadline <= now) {
      parts_.scheduler->abort(g.request.id);
      end_error(g, make_error(ErrorCode::kCancelled, "the request's deadline has passed"));
    } else if (!g.ended && deadline > 0) {
      next_deadline_ = next_deadline_ == 0 ? deadline : std::min(next_deadline_, deadline);
    }
    it = g.ended && !steps_.has_rows(g) ? drop(it) : std::next(it);
  }
}

}  // namespace tern::engine
