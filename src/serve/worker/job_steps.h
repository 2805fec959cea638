// Steps of a job that every protocol takes (jobs.cc).
#pragma once

#include <memory>

#include "json/json.h"
#include "serve/prepare/prepare.h"
#include "serve/worker/shared.h"

namespace tern::serve {

prepare::PrepareInput prepare_input(Shared& shared, const Job& job);
// Hands a request that is ready to its I/O thread.
void post_ready(Shared& shared, ReplyTo to, Ticket ticket, MemoryBudget::Lease memory,
                std::unique_ptr<Generation> generation);

// Bodies of PaddleNLP's native protocol (paddlenlp_jobs.cc).
void answer_native(Shared& shared, Job& job, json::Value body);
// A place among the requests that may run and wait; false: there is none, and the request was answered.
bool take_place(Shared& shared, Job& job, bool native, bool stream);
// What the PaddleNLP port says to a request that does not come as far as its body.
http::Response paddlenlp_refusal(const std::string& message, bool engine_gone = false);

}  // namespace tern::serve
