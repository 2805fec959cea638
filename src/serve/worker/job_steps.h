// Steps of a job that every protocol takes (jobs.cc).
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "json/json.h"
#include "serve/prepare/prepare.h"
#include "serve/worker/shared.h"

namespace tern::serve {

prepare::PrepareInput prepare_input(Shared& shared, const Job& job);
// Hands a request that is ready to its I/O thread.
void post_ready(Shared& shared, ReplyTo to, Ticket ticket, MemoryBudget::Lease memory,
                std::unique_ptr<Generation> generation);

// Values of the job's body, which is given back. Their memory is counted before it is spent.
Expected<json::Value> parse_body(const Shared& shared, Job& job, size_t most_bytes);

// Bodies of PaddleNLP's native protocol (paddlenlp_jobs.cc): of HTTP, and of a KServe request's input.
void answer_native(Shared& shared, Job& job, json::Value body);
void answer_kserve(Shared& shared, Job& job);
// A place among the requests that may run and wait, or what is said where there is none.
std::optional<std::string> take_place(Shared& shared, Job& job);
// What the PaddleNLP port says to a request that does not come as far as its body.
http::Response paddlenlp_refusal(const std::string& message, bool engine_gone = false);

}  // namespace tern::serve
