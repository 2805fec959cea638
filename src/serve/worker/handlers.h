// What answers the routes of worker/routes.cc.
#pragma once

#include <string_view>

#include "serve/worker/shared.h"

namespace tern::serve {

// Values at hand (simple.cc). `rest`: of the path.
http::Response answer_health(Shared& shared, std::string_view rest);
http::Response answer_load(Shared& shared, std::string_view rest);
http::Response answer_models(Shared& shared, std::string_view rest);
http::Response answer_model(Shared& shared, std::string_view rest);
http::Response answer_openapi(Shared& shared, std::string_view rest);
http::Response answer_version(Shared& shared, std::string_view rest);
http::Response answer_config_info(Shared& shared, std::string_view rest);
http::Response answer_metrics(Shared& shared, std::string_view rest);
http::Response answer_page_config(Shared& shared, std::string_view rest);
http::Response answer_is_paused(Shared& shared, std::string_view rest);
// Of the PaddleNLP front.
http::Response answer_null(Shared& shared, std::string_view rest);
http::Response answer_paddlenlp_metrics(Shared& shared, std::string_view rest);
// What this server does not have.
http::Response refuse_experts(Shared& shared, std::string_view rest);

// Bodies (jobs.cc).
void count_tokens(Shared& shared, Job& job);     // /tokenize
void count_message(Shared& shared, Job& job);    // /v1/messages/count_tokens
void tokens_to_text(Shared& shared, Job& job);   // /detokenize
void abort_requests(Shared& shared, Job& job);   // the requests of the key that asks
void reset_scheduler(Shared& shared, Job& job);  // ends every request
void control_scheduler(Shared& shared, Job& job);
void carry_out(Shared& shared, Job& job, control::Order order);  // answered when it is done
template <control::Order kOrder>
void carry_out(Shared& shared, Job& job) {
  carry_out(shared, job, kOrder);
}
// What the last three come to, once every worker has been asked (simple.cc).
http::Response sweep_answer(Shared& shared, const AbortSweep& sweep);

}  // namespace tern::serve
