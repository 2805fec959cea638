// What a client asks for, whatever protocol it speaks: validated, before any text became ids (fastdeploy.md 3.1
// to 3.3). Nothing here depends on the tokenizer.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "answer/tools/scanner.h"
#include "content/grammar/constraint.h"
#include "content/media/media.h"
#include "json/json.h"

namespace tern::serve {

struct PromptInput {
  bool is_text = true;
  std::string text;
  std::vector<int32_t> ids;
};

// What is asked of a pooling model.
struct PoolingAsk {
  std::optional<int32_t> dimensions;  // embeddings are cut to so many values, before they are normalised
  bool normalize = true;
  bool base64 = false;
  // Of a longer prompt the last so many tokens are taken, -1: as many as the context holds; nothing: it is refused.
  std::optional<int64_t> truncate_prompt_tokens;
};

struct Ask {
  bool chat = false;
  std::string model = "default";
  std::string request_id, user;
  std::string traceparent;     // of the caller, checked; "": none
  std::string_view id_prefix;  // of the answer's id: "chatcmpl-"

  bool stream = false;
  bool include_usage = false;     // a usage chunk at the end of the stream
  bool continuous_usage = false;  // usage in every chunk
  int32_t stream_group = 1;       // choice entries per chunk
  bool collect_metrics = false;

  int32_t n = 1;     // samples of a prompt
  int32_t best = 0;  // of them, so many are shown: those with the highest mean log-probability; 0: all
  std::optional<int64_t> seed, max_tokens, min_tokens, response_max_tokens;
  std::optional<double> temperature, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty;
  std::optional<int32_t> top_k;
  std::vector<std::string> stop, bad_words;
  std::vector<int32_t> stop_token_ids, bad_words_token_ids;
  std::vector<std::pair<int32_t, float>> logit_bias;
  bool include_stop_str_in_output = false;
  bool skip_special_tokens = false;  // leaves them out of the text
  bool ignore_eos = false;

  bool logprobs = false;
  int32_t top_logprobs = 0;  // alternatives besides the sampled token; the vocabulary's size for "all"
  std::optional<int32_t> prompt_logprobs;
  bool decode_logprob_tokens = true;  // log-probs name their tokens
  bool logprobs_by_name = false;      // they are listed by name, and two tokens may share one
  bool temp_scaled_logprobs = false, top_p_normalized_logprobs = false;

  bool return_token_ids = false;
  bool echo = false;
  std::string suffix;  // the answer fills the gap between each prompt and this text
  // The log-probs of an answer begin with those of its prompt.
  bool echoes_logprobs() const { return echo && logprobs; }
  // max_tokens 0: the prompt is scored, or merely counted, and nothing is said.
  bool says_nothing() const { return max_tokens == 0; }
  std::optional<bool> enable_thinking;     // the top-level field
  bool thinking_off = false;               // by any of the fields that say so
  std::optional<bool> add_special_tokens;  // of the tokenizer, around the prompt; default: completions only
  std::string cache_salt;                  // prefix cache entries are shared among requests with the same one only

  std::vector<PromptInput> prompts;  // completions; chat: filled only when the client sent ids
  std::vector<int32_t> completion_token_ids;

  // Array, or null when the prompt came as ids. For a model of text contents are strings or null (parts joined); for a
  // model that sees they may be lists of {"type":"text","text"}, {"type":"image"} and {"type":"video"}.
  json::Value messages;
  std::vector<content::MediaPart> media;  // in the order of the messages
  json::Value tools;                      // array or null
  // What parsers of answers know of the tools; null: no calls are searched for. They are also null where tool_choice is
  // "none", and then no call may begin (`forbid_calls`).
  std::shared_ptr<const answer::Tools> tool_specs;
  bool forbid_calls = false, parallel_calls = true;
  // The answer is calls and nothing else: of any of tool_specs, which are just the one that tool_choice names.
  bool force_calls = false;
  bool include_reasoning = true;  // thoughts are shown, where a parser tells them apart
  std::optional<int64_t> reasoning_max_tokens;
  std::string think_stop_sentence;  // forced before the mark that ends reasoning, within that limit
  json::Value documents;            // array or null
  json::Object chat_template_kwargs;
  std::string chat_template;
  bool add_generation_prompt = true;
  bool continue_final_message = false;  // the prompt ends inside the last message
  bool disable_chat_template = false;

  bool hide_stop_sequence = false;  // the id that completes a stop sequence of ids is not shown
  double message_timeout = 0;       // seconds between two messages to the client, more: an error; 0: any time
  bool last_message_only = false;   // of a stream
  struct Native {                   // PaddleNLP's protocol (paddlenlp-server.md 2.2)
    bool return_all_tokens = false, return_usage = false, benchmark = false;
    bool grpc = false;  // messages as they go over that transport
  } native;

  json::Object shown;  // fields of the request that its answer repeats, as /v1/responses does

  std::optional<PoolingAsk> pooling;  // nothing: an answer is asked for

  std::optional<content::Constraint> constraint;  // guided decoding: of the whole answer, or of what follows thoughts
};

}  // namespace tern::serve
