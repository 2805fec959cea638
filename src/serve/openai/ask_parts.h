// Parts of the validation of a request, for ask.cc. Faults are kept by `f`.
#pragma once

#include "serve/openai/ask.h"
#include "serve/openai/json/fields.h"

namespace tern::serve::openai {

// logit_bias and logits_processors_args.
void read_bias(Fields& f, Ask& ask, const ServeConfig& config);
// tools, tool_choice, parallel_tool_calls.
void read_tools(Fields& f, Ask& ask, const ServeConfig& config);
// The fields that limit thoughts and the answer behind them.
void read_thinking(Fields& f, Ask& ask, const ServeConfig& config);
// Guided decoding in every dialect, where the server has it; after check_inert(), which refuses it elsewhere.
void read_constraint(Fields& f, const json::Object& body, Ask& ask, const ServeConfig& config);
// logprobs, top_logprobs, prompt_logprobs and how they are shown.
void read_logprobs(Fields& f, Ask& ask, const ServeConfig& config);
// What only a completions request has.
void read_completion_only(Fields& f, Ask& ask, const ServeConfig& config);

// The fields of pooling requests, and those that they cannot have.
void read_pooling(Fields& f, Ask& ask, const ServeConfig& config, bool reward);
// What only an embedding of texts or ids has.
void read_embedding_input(Fields& f, Ask& ask, const ServeConfig& config);

// One prompt or a list of at most `most` prompts, as text or ids: str, [str], [int], [[int]].
Expected<std::vector<PromptInput>> read_prompts(const json::Value& value, const ServeConfig& config,
                                                std::string_view key, int32_t most);

// A little above the context, so that an over-long prompt still meets the error that says so.
size_t max_prompt_ids(const ServeConfig& config);

}  // namespace tern::serve::openai
