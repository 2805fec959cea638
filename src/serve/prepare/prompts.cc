#include "serve/prepare/prompts.h"

#include <fmt/format.h>

#include <algorithm>

#include "content/media/profile/prompt_layout.h"
#include "serve/core/invalid.h"
#include "serve/prepare/continue_message.h"
#include "serve/prepare/fill_middle.h"

namespace tern::serve::prepare {
namespace {

Status check_vocabulary(std::span<const int32_t> ids, int32_t vocab, const char* param) {
  for (const int32_t id : ids) {
    if (id >= 0 && id < vocab) continue;
    return invalid_value(fmt::format("the text gives token id {}, but the model knows {} tokens", id, vocab), param);
  }
  return {};
}

// A placeholder that stands for no picture would let a client write what only the layout may write.
Status check_no_placeholders(std::span<const int32_t> ids, const PrepareInput& input, const char* param) {
  const content::VisionProfile* vision = input.content.vision;
  if (vision == nullptr) return {};
  for (const auto* kind : {&vision->image, &vision->video}) {
    if (kind->id < 0 || std::find(ids.begin(), ids.end(), kind->id) == ids.end()) continue;
    return invalid_value("the prompt has placeholders of pictures that the request does not bring", param);
  }
  return {};
}

// The client's media keep to the API key that sent them, in the encoder's cache as in the prefix cache.
void salt_key(const PrepareInput& input, const uint64_t (&from)[2], uint64_t (&to)[2]) {
  Hash128 key{from[0], from[1]};
  if (input.salted) key = siphash128({input.salt[0], input.salt[1]}, from, sizeof from);
  to[0] = key.lo;
  to[1] = key.hi;
}

Status take_layout(const PrepareInput& input, content::PromptLayout layout,
                   std::span<const content::PreparedMediaPtr> media, const char* param, PromptFacts& facts) {
  TERN_RETURN_IF_ERROR(check_vocabulary(layout.ids, input.config->vocab_size, param));
  facts.media.reserve(layout.units.size());
  for (const auto& span : layout.units) {
    const content::PreparedMedia& whole = *media[span.media];
    const content::MediaUnit& unit = whole.units[span.unit];
    engine::MediaItem item;
    item.kind = whole.kind == content::MediaKind::kImage ? engine::MediaKind::kImage : engine::MediaKind::kVideo;
    item.begin = span.begin;
    item.end = span.end;
    item.t = unit.t;
    item.h = unit.h;
    item.w = unit.w;
    salt_key(input, unit.key, item.key);
    item.patches = whole.patches;
    item.offset = unit.offset;
    item.bytes = unit.bytes;
    facts.media.push_back(std::move(item));
  }
  facts.ids = std::move(layout.ids);
  facts.positions = std::move(layout.positions);
  facts.rope_delta = layout.rope_delta;
  facts.image_tokens = layout.image_tokens;
  facts.video_tokens = layout.video_tokens;
  return {};
}

Error with_param(Error error, const char* param) {
  if (error.param.empty()) error.param = param;
  return error;
}

// A prompt of as many tokens as the context has is refused anyway (check_lengths); beyond it tokens are not counted.
content::EncodeBounds encode_bounds(const PrepareInput& input) {
  return {static_cast<size_t>(input.contexts * input.config->max_model_len), input.cancelled.get()};
}

bool is_too_long(const Error& error) { return error.code == ErrorCode::kResourceExhausted; }

Error too_long(const PrepareInput& input) {
  const int64_t most = input.contexts * input.config->max_model_len;
  return make_error(ErrorCode::kTooLarge,
                    fmt::format("Input text is too long, length of prompt token(more than {}) >= max_model_len({})",
                                most, input.config->max_model_len));
}

Status lay_out(const PendingRequest& pending, std::span<const int32_t> ids,
               std::span<const content::PreparedMediaPtr> media, PromptFacts& facts) {
  const PrepareInput& input = pending.input;
  const bool text = ids.empty();
  const char* param = text ? "messages" : "prompt_token_ids";
  if (text && input.content.tokenizer == nullptr) {
    return invalid_value("this model has no tokenizer: send the prompt as token ids", param);
  }
  auto layout = text ? content::layout_prompt(*input.content.vision, pending.rendered, *input.content.tokenizer, media,
                                              encode_bounds(input))
                     : content::layout_ids(*input.content.vision, ids, media);
  if (!layout.ok()) {
    return with_param(is_too_long(layout.error()) ? too_long(input) : std::move(layout).error(), param);
  }
  return take_layout(input, *std::move(layout), media, param, facts);
}

// Earlier output goes on after the prompt, at the positions it had.
Status append_completion(const PendingRequest& pending, PromptFacts& facts) {
  const auto& more = pending.ask.completion_token_ids;
  if (more.empty()) return {};
  TERN_RETURN_IF_ERROR(check_no_placeholders(more, pending.input, "completion_token_ids"));
  const size_t old_size = facts.ids.size();
  facts.ids.insert(facts.ids.end(), more.begin(), more.end());
  if (facts.positions.empty()) return {};
  std::vector<int32_t> positions;
  positions.reserve(facts.ids.size() * 3);
  for (size_t axis = 0; axis < 3; ++axis) {
    const auto row = facts.positions.begin() + static_cast<std::ptrdiff_t>(axis * old_size);
    positions.insert(positions.end(), row, row + static_cast<std::ptrdiff_t>(old_size));
    for (size_t i = old_size; i < facts.ids.size(); ++i) {
      positions.push_back(static_cast<int32_t>(i) + facts.rope_delta);
    }
  }
  facts.positions = std::move(positions);
  return {};
}

const TemplateForm* form_of(const PrepareInput& input, bool tools) {
  return tools && input.content.tool_template != nullptr ? input.tool_form : input.chat_form;
}

// The first message as it is; placeholders of its media stand in its text.
std::string raw_prompt(const json::Value& messages) {
  const json::Value* content = json::find(messages.get_array()[0].get_object(), "content");
  if (content == nullptr) return {};
  return content->is_array() ? joined_text(content->get_array()) : std::string(content->get_string());
}

}  // namespace

Expected<std::vector<int32_t>> encode_text(const PrepareInput& input, std::string_view text, bool special,
                                           const char* param) {
  const content::Tokenizer* tokenizer = input.content.tokenizer;
  if (tokenizer == nullptr) {
    return invalid_value("this model has no tokenizer: send the prompt as token ids", param);
  }
  auto ids = tokenizer->encode(text, special, encode_bounds(input));
  if (!ids.ok() && is_too_long(ids.error())) return with_param(too_long(input), param);
  if (!ids.ok()) return invalid_value(ids.error().message, param);
  TERN_RETURN_IF_ERROR(check_vocabulary(*ids, input.config->vocab_size, param));
  return ids;
}

Expected<std::vector<PromptFacts>> encode_prompts(PendingRequest& pending,
                                                  std::span<const content::PreparedMediaPtr> media) {
  Ask& ask = pending.ask;
  const PrepareInput& input = pending.input;
  std::vector<PromptFacts> prompts;
  if (ask.chat && ask.prompts.empty()) {
    PromptFacts facts;
    if (!media.empty()) {
      TERN_RETURN_IF_ERROR(lay_out(pending, {}, media, facts));
    } else {
      TERN_ASSIGN_OR_RETURN(facts.ids,
                            encode_text(input, pending.rendered, ask.add_special_tokens.value_or(false), "messages"));
      TERN_RETURN_IF_ERROR(check_no_placeholders(facts.ids, input, "messages"));
    }
    if (ask.return_token_ids) facts.text = std::move(pending.rendered);
    prompts.push_back(std::move(facts));
  }
  for (auto& prompt : ask.prompts) {
    PromptFacts facts;
    const char* const own = ask.pooling ? "input" : "prompt";
    const char* param = prompt.is_text ? own : ask.chat ? "prompt_token_ids" : own;
    if (prompt.is_text) {
      std::string around;
      if (!ask.suffix.empty() && input.content.tokenizer != nullptr) {
        TERN_ASSIGN_OR_RETURN(around, around_gap(*input.content.tokenizer, prompt.text, ask.suffix));
      }
      TERN_ASSIGN_OR_RETURN(facts.ids, encode_text(input, ask.suffix.empty() ? prompt.text : around,
                                                   ask.add_special_tokens.value_or(true), param));
    } else if (!media.empty()) {
      TERN_RETURN_IF_ERROR(lay_out(pending, prompt.ids, media, facts));
    } else {
      facts.ids = std::move(prompt.ids);
    }
    if (media.empty()) TERN_RETURN_IF_ERROR(check_no_placeholders(facts.ids, input, param));
    if (ask.echo || ask.return_token_ids) {
      if (prompt.is_text)
        facts.text = std::move(prompt.text);
      else if (input.content.tokenizer != nullptr)
        facts.text = input.content.tokenizer->decode(facts.ids, false);
    }
    prompts.push_back(std::move(facts));
  }
  for (auto& facts : prompts) TERN_RETURN_IF_ERROR(append_completion(pending, facts));
  if (input.config->scripted) {
    for (auto& facts : prompts) {
      if (!pending.last_said.empty())
        facts.last_said = pending.last_said;
      else if (input.content.tokenizer != nullptr)
        facts.last_said = input.content.tokenizer->decode(facts.ids, false);
    }
  }
  return prompts;
}

Expected<std::string> render_chat(Ask& ask, const PrepareInput& input) {
  if (ask.disable_chat_template) return raw_prompt(ask.messages);
  std::unique_ptr<content::ChatTemplate> own;
  const content::ChatTemplate* chosen = input.content.chat_template;
  if (!ask.tools.is_null() && input.content.tool_template != nullptr) chosen = input.content.tool_template;
  if (!ask.chat_template.empty()) {
    auto compiled = content::ChatTemplate::compile(ask.chat_template);
    if (!compiled.ok()) return invalid_value(compiled.error().message, "chat_template");
    own = *std::move(compiled);
    chosen = own.get();
  }
  if (chosen == nullptr) {
    return invalid_value(
        "this model has no chat template: start the server with --chat-template, or send "
        "disable_chat_template or token ids",
        "messages");
  }
  static const content::SpecialText kNone;
  const auto& special = input.content.tokenizer != nullptr ? input.content.tokenizer->special_text() : kNone;
  json::Object kwargs = ask.chat_template_kwargs;
  if (ask.enable_thinking && !kwargs.contains("enable_thinking")) kwargs["enable_thinking"] = *ask.enable_thinking;
  content::RenderInput render;
  const TemplateForm* known = own == nullptr ? form_of(input, !ask.tools.is_null()) : nullptr;
  json::Value shaped =
      shape_messages(ask.messages.get_array(), known ? *known : probe_template(*chosen, special, input.content.vision));
  if (ask.continue_final_message) TERN_RETURN_IF_ERROR(mark_final_message(shaped));
  render.messages = &shaped;
  render.tools = ask.tools.is_null() ? nullptr : &ask.tools;
  render.documents = ask.documents.is_null() ? nullptr : &ask.documents;
  render.add_generation_prompt = ask.add_generation_prompt;
  render.kwargs = &kwargs;
  auto variables = content::render_variables(render, special);
  if (!variables.ok()) return invalid_value(variables.error().message, "chat_template_kwargs");
  shaped = nullptr;  // most of what a request holds may be one message's text
  ask.messages = nullptr;
  auto text = chosen->render(*variables, content::local_unix_seconds());
  if (!text.ok()) return invalid_value(text.error().message, "messages");
  return ask.continue_final_message ? cut_at_mark(*std::move(text)) : std::move(text);
}

}  // namespace tern::serve::prepare
