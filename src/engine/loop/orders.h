// Orders to the engine (engine/control.h), carried out one after the other once no step is open. Of the engine thread.
#pragma once

#include <deque>

#include "engine/loop/engine_parts.h"
#include "engine/loop/inbox.h"
#include "engine/loop/open_requests.h"
#include "engine/loop/open_steps.h"
#include "engine/ranks/rank_group.h"

namespace tern::engine {

class Orders {
 public:
  // `group`: null where there is one rank, whose cache is among the parts.
  Orders(const EngineParts& parts, RankGroup* group, OpenRequests& requests, const OpenSteps& steps)
      : parts_(parts), group_(group), requests_(requests), steps_(steps) {}

  bool paused() const { return paused_; }  // no step is planned
  // Begins it. A pause ends what is open at once.
  void take(Inbox::Order order);
  // Carries out what nothing stands in the way of any more.
  void settle();
  // The engine has failed or ended: no order is carried out from here on.
  void fail(const Error& error);

 private:
  Status carry_out(Control what);
  Status move_cache(bool back);
  Status give_cache() { return group_ != nullptr ? group_->give_back() : parts_.cache->give_back(); }

  const EngineParts& parts_;
  RankGroup* group_;
  OpenRequests& requests_;
  const OpenSteps& steps_;
  std::deque<Inbox::Order> waiting_;
  bool paused_ = false, cache_given_ = false;
  std::optional<Error> failed_;
};

}  // namespace tern::engine
