// The requests that the engine has let in and that have not ended: how they come and go. Of the engine thread.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>

#include "engine/generation.h"
#include "engine/loop/engine_parts.h"
#include "engine/loop/open_steps.h"
#include "engine/loop/pictures.h"
#include "engine/masks/guidance.h"
#include "engine/outbox.h"

namespace tern::engine {

class OpenRequests {
 public:
  // `guidance`: null refuses requests with a grammar. What happens to requests is written to `news`.
  OpenRequests(const EngineParts& parts, const OpenSteps& steps, const Pictures& pictures, Guidance* guidance,
               News& news)
      : parts_(parts), steps_(steps), pictures_(pictures), guidance_(guidance), news_(news) {}

  bool empty() const { return generations_.empty(); }
  size_t size() const { return generations_.size(); }
  // Known tokens of all of them, where `generated` were said in all since the start.
  int64_t known_tokens(uint64_t generated) const { return entered_ + static_cast<int64_t>(generated) - left_; }
  Generation* find(RequestId id);
  int64_t next_deadline() const { return next_deadline_; }  // 0: none

  void enter(Request request);
  void abort(RequestId id);
  void end_all(FinishReason reason, const Error& error);
  // The engine has failed: ends all, and refuses whoever comes.
  void fail(const Error& error);
  void expire(int64_t now);

  // Of one request, while its step is taken in. The scheduler is told by whoever calls.
  News::Event& event_of(const Generation& g);  // begins its next news
  News::Event& begin_last(Generation& g);      // the same, of those that say its end
  void end(Generation& g, FinishReason reason);
  void end_error(Generation& g, Error error);
  void forget(Generation& g);  // where it has ended and no open step has a row of it

 private:
  using Generations = std::unordered_map<RequestId, std::unique_ptr<Generation>>;

  Status open(Generation& g);
  Generations::iterator drop(Generations::iterator it);  // the next one
  void refuse(const Request& request, Error error);

  const EngineParts& parts_;
  const OpenSteps& steps_;
  const Pictures& pictures_;
  Guidance* guidance_;
  News& news_;
  Generations generations_;
  int64_t entered_ = 0, left_ = 0;  // tokens: of prompts that came, of requests that are no longer here
  int64_t next_deadline_ = 0;
  bool failed_ = false;
};

}  // namespace tern::engine
