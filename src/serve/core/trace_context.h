// The caller's place in a trace (W3C Trace Context): the header `traceparent`, or the field `trace_context` of a body.
#pragma once

#include <string>
#include <string_view>

#include "json/json.h"

namespace tern::serve {

// The value of a traceparent that is well-formed, else "": the request then begins a trace of its own.
std::string checked_traceparent(std::string_view value);
// The same of `trace_context`: a traceparent, or an object (also as JSON text) that holds one.
std::string traceparent_of(const json::Value& context);

// Parts of a checked one.
inline std::string_view trace_id_of(std::string_view traceparent) { return traceparent.substr(3, 32); }
inline std::string_view parent_id_of(std::string_view traceparent) { return traceparent.substr(36, 16); }
// The caller records its own spans; where it does not, nobody does.
bool is_sampled(std::string_view traceparent);

}  // namespace tern::serve
