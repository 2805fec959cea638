// The language of scheduler scripts. One command a line, `#` starts a comment:
//
//   config v1=1 block_size=4 blocks=8 seqs=2 budget=16 len=64 ...     first line; names as in config_fields (script.cc)
//   add ID prompt=1,2,10..14,7*3 new=N [nocache] [score] [key=B-E:K] [whole=B-E]
//   abort ID
//   plan                     the line after it, `= TEXT`, is the plan expected
//   collect [ID=N|ID!|ID=N!] the oldest open step yields one token a row, or N; `!` finishes
//   run N                    N times plan and collect, whatever the plans
//   drain [DEPTH]            plan and collect until everyone has finished
//   blocks ID, tokens ID, stats NAME...      the line after it, `= TEXT`, is what they must print
//
// After `add`, a line `= CODE: TEXT` expects that error. Plans read `ID@SLOT:FIRST+COUNT`, then `<ROW` when the input
// is what that row of the step before samples, `*` when the row samples, `[BEGIN+COUNT]` when it scores a prompt; then
// `admit ID=CACHED` (`r`: resumed), `preempt ID`, `over N` tokens beyond the budget; `-` is an empty plan.
#pragma once

#include <string>
#include <vector>

#include "sched/tests/world.h"

namespace tern::sched::testing {

std::string plan_text(const Plan& plan, const SchedulerConfig& config);
std::string config_text(const WorldConfig& config);
std::string command_text(const Command& command);
// Everything that was done to a world, as a script.
std::string script_text(const WorldConfig& config, const std::vector<Command>& commands);

// Runs a script. Returns the script with every expected line replaced by what happened; throws Failure, with the line,
// when the world finds a fault or the script is not one.
std::string run_script(const std::string& text);

}  // namespace tern::sched::testing
