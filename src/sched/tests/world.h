// A world around a scheduler: requests, and a simulated device that runs the planned steps in order on the blocks they
// were planned with. Every cache position remembers which content was written there, so any wrong sharing, reuse or
// input token is found at the row that reads it. Everything done is recorded and can be printed as a script (script.h).
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "sched/scheduler.h"

namespace tern::sched::testing {

struct WorldConfig {
  SchedulerConfig sched;
  int blocks = 16;  // without the null block
};

// What the engine decides of one sampling row; the tokens themselves follow from the content.
struct Outcome {
  SeqId seq = 0;
  int tokens = 1;
  bool finished = false;
};

struct Command {
  enum Kind { kAdd, kAbort, kPlan, kCollect } kind = kPlan;
  NewSequence sequence;           // kAdd
  SeqId id = 0;                   // kAbort
  std::vector<Outcome> outcomes;  // kCollect: rows that differ from one token, not finished
};

struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class World {
 public:
  explicit World(const WorldConfig& config);

  Status add(const NewSequence& sequence);
  void abort(SeqId id);
  // Plans a step and checks it.
  const Plan& plan();
  // Runs the oldest open step and hands its tokens back; rows not named in `outcomes` yield one token.
  void collect(const std::vector<Outcome>& outcomes);
  // Rows of the oldest open plan that sample, in order.
  std::vector<SeqId> sampling() const;
  int open() const { return static_cast<int>(open_.size()); }
  // Plans and collects until everything has finished; fails when that takes more than `steps`.
  void drain(int steps, size_t depth);

  Scheduler& scheduler() { return *scheduler_; }
  const std::vector<Command>& commands() const { return commands_; }
  const WorldConfig& config() const { return config_; }
  bool alive(SeqId id) const { return requests_.contains(id) && !requests_.at(id).ended; }
  int live() const { return live_; }
  const std::vector<int32_t>& request_tokens(SeqId id) const { return requests_.at(id).tokens; }
  int length_left(SeqId id) const;
  void forget_ended();  // drops the records of requests that are gone, so that long runs stay small
  int aborts() const { return aborts_; }

 private:
  struct Request {
    NewSequence given;
    std::vector<int32_t> tokens;    // prompt and delivered output
    std::vector<uint64_t> content;  // per position: of everything up to it
    int prompt = 0, limit = 0;
    int computed = 0, in_flight = 0, logit_row = -1, open_rows = 0, slot = -1, scored = 0;
    bool admitted = false, ended = false;
  };
  struct OpenRow {
    PlanRow row;
    std::vector<int32_t> table;
    bool is_void = false;  // what it was planned on did not happen
  };
  struct OpenStep {
    std::vector<OpenRow> rows;
    std::vector<int32_t> sampled;  // by logit row
  };

  void check(bool ok, const char* what, SeqId id) const;
  void extend_content(Request& r);
  uint64_t content_after(const Request& r, uint64_t before, int position, int32_t token) const;
  void check_admissions(const Plan& plan);
  void check_row(const PlanRow& row, const Plan& plan);
  void check_totals(const Plan& plan);
  void execute(OpenStep& step);
  void execute_row(OpenStep& step, OpenRow& open);
  void deliver(const OpenRow& open, const Outcome& outcome, int32_t sampled, std::vector<int32_t>& tokens);
  void retract(Request& r, SeqId id, int computed);
  void end(Request& r);
  void release_slot(Request& r);
  void check_all();

  WorldConfig config_;
  cache::BlockPool pool_;
  cache::PrefixIndex index_;
  std::unique_ptr<Scheduler> scheduler_;
  std::map<SeqId, Request> requests_;
  std::vector<SeqId> slot_owner_;
  std::vector<uint64_t> shadow_;  // [blocks, block_size]
  std::deque<OpenStep> open_;
  std::vector<int32_t> last_sampled_;
  Plan plan_;
  std::vector<Command> commands_;
  uint64_t garbage_ = 1;
  uint64_t checks_ = 0;
  int largest_range_ = 0;
  int live_ = 0;
  int aborts_ = 0;
};

}  // namespace tern::sched::testing
