// What the log tells of requests, in request.log: FD_LOG_REQUESTS and FD_LOG_REQUESTS_LEVEL, as FastDeploy's newest
// sources divide it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"
#include "engine/request.h"
#include "serve/config.h"
#include "serve/core/generation.h"

namespace tern::serve {

// Each level shows what those before it show.
enum class RequestLogLevel : uint8_t {
  kLifecycle,  // arrival, first and last chunk of a stream, end with counts and times, refusal, failure, abort
  kStages,     // pictures prepared, places in the engine, first token, seconds in queue, prefill and decode
  kContent,    // bodies, sampling parameters, answers: each cut to FD_LOG_MAX_LEN
  kFull,       // the same, uncut up to kMostLogged bytes
};
inline constexpr size_t kMostLogged = 1u << 20;

inline bool logs(const ServeConfig& config, RequestLogLevel level) {
  return config.log_requests && config.log_requests_level >= static_cast<int>(level);
}
// The part of a body or an answer that the level shows; "" below kContent.
std::string_view shown_part(const ServeConfig& config, std::string_view text);

void log_received(const ServeConfig& config, const Generation& generation, std::string_view shown_body);
void log_refused(const ServeConfig& config, const Error& error);
void log_failed(const ServeConfig& config, const std::string& id, const Error& error);
void log_left(const ServeConfig& config, const std::string& id);  // its client has gone
// A step between arrival and end: kStages. `what` follows the id.
void log_stage(const ServeConfig& config, const std::string& id, std::string_view what);
void log_submitted(const ServeConfig& config, const std::string& id, const engine::Request& request);
// `events`: what a stream has just got; first, last: of the stream.
void log_chunk(const ServeConfig& config, const std::string& id, std::string_view events, bool first, bool last);
void log_answer(const ServeConfig& config, const std::string& id, std::string_view body);
void log_finished(const ServeConfig& config, const Generation& generation, const Choice& choice);
// --enable-entropy, whatever FD_LOG_REQUESTS says: mean and values of a choice that has ended.
void log_entropy(const Generation& generation, const Choice& choice);

}  // namespace tern::serve
