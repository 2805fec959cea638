#include "serve/native/writer.h"

#include <ctime>

#include <fmt/format.h>

#include "base/clock.h"
#include "json/json.h"
#include "serve/native/errors.h"

namespace tern::serve::native {
namespace {

void append_ids(std::span<const int32_t> ids, std::string& out) {
  out += '[';
  for (size_t i = 0; i < ids.size(); ++i) fmt::format_to(std::back_inserter(out), "{}{}", i == 0 ? "" : ",", ids[i]);
  out += ']';
}

// Nanoseconds since 1970 as YYYY-MM-DD HH:MM:SS.ffffff of this machine's time zone.
std::string local_time(int64_t wall_ns) {
  const std::time_t seconds = static_cast<std::time_t>(wall_ns / 1'000'000'000);
  std::tm parts{};
  localtime_r(&seconds, &parts);
  char text[32];
  const size_t size = std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts);
  return fmt::format("{}.{:06}", std::string_view(text, size), wall_ns % 1'000'000'000 / 1000);
}

}  // namespace

NativeWriter::NativeWriter(const Generation& generation) : g_(generation) {
  head_ = g_.ask().native.grpc ? "[{\"req_id\":" : "{\"req_id\":";
  json::append_quoted(head_, g_.id());
}

void NativeWriter::take(const Choice& choice, TokenNews& news, std::string& out) {
  std::string text;
  for (const answer::Event& event : news.events) text += event.text;
  const bool shown = news.token != nullptr && !news.end_token;
  if (shown) ids_.push_back(news.token->id);
  text_ += text;
  const Ask& ask = g_.ask();
  if (!ask.stream) return;
  if (news.last && choice.reason == engine::FinishReason::kAbort) {
    return fail(make_error(ErrorCode::kCancelled, "The request was aborted"), out);
  }
  if (shown && !ask.last_message_only) {
    append_message(choice, {std::span(ids_).last(1), text, false}, out);
    text.clear();
  }
  if (!news.last) return;
  if (ask.last_message_only)
    append_message(choice, {ids_, text_, true}, out);
  else
    append_message(choice, {{}, text, true}, out);
}

void NativeWriter::append_message(const Choice& choice, const Message& m, std::string& out) const {
  const int64_t now = monotonic_ns();
  const size_t index = m.last ? ids_.size() : ids_.size() - 1;
  out += head_;
  fmt::format_to(std::back_inserter(out), ",\"is_end\":{},\"send_idx\":{},\"token_ids\":", m.last ? 1 : 0, index);
  append_ids(m.ids, out);
  out += ",\"token\":";
  json::append_quoted(out, m.text);
  out += ",\"inference_time_cost\":";
  json::append_double(out, static_cast<double>(now - choice.submitted_ns) * 1e-9);
  fmt::format_to(std::back_inserter(out), ",\"infer_seed\":{},\"return_all_tokens\":{},\"usage\":{{", choice.seed,
                 g_.ask().native.return_all_tokens);
  fmt::format_to(std::back_inserter(out), "\"completion_tokens\":{},\"prompt_tokens\":{}}}", index + 1,
                 g_.prompt_tokens(choice));
  if (m.last) {
    fmt::format_to(std::back_inserter(out), ",\"tokens_all_num\":{},\"tokens_all_ids\":", ids_.size() + 1);
    append_ids(ids_, out);
    out += ",\"tokens_all\":";
    json::append_quoted(out, text_);
  }
  if (g_.ask().native.benchmark) append_times(choice, out);
  out += g_.ask().native.grpc ? "}]\n" : ",\"error_msg\":\"\",\"error_code\":0}\n";
}

void NativeWriter::append_times(const Choice& choice, std::string& out) const {
  const int64_t offset = g_.wall_offset_ns();
  const auto add = [&](std::string_view name, int64_t ns) {
    fmt::format_to(std::back_inserter(out), ",\"{}\":\"{}\"", name, local_time(ns + offset));
  };
  const int64_t arrival = choice.times.arrival > 0 ? choice.times.arrival : g_.prepared_ns();
  const int64_t scheduled = choice.times.scheduled > 0 ? choice.times.scheduled : choice.submitted_ns;
  add("preprocess_start_time", arrival);
  add("preprocess_end_time", g_.prepared_ns());
  add("schedule_start_time", choice.submitted_ns);
  fmt::format_to(std::back_inserter(out), ",\"inference_start_time\":\"{:.6f}\"",
                 static_cast<double>(scheduled + offset) * 1e-9);
  add("inference_current_step_time", monotonic_ns());
  if (!g_.ask().native.grpc) add("http_received_time", arrival);
}

void NativeWriter::fail(const Error& error, std::string& out) {
  out += error_object(refusal_of(error, g_.id()), false);
  out += '\n';
}

std::string NativeWriter::failure_body(const Error& error) const {
  return error_object(refusal_of(error, g_.id()), !g_.ask().stream) + (g_.ask().stream ? "\n" : "");
}

std::string NativeWriter::body() const {
  const Choice& choice = g_.choices()[0];
  if (choice.reason == engine::FinishReason::kAbort) {
    return failure_body(make_error(ErrorCode::kCancelled, "The request was aborted"));
  }
  std::string out = "{\"result\":";
  json::append_quoted(out, text_);
  out += ",\"tokens_all\":";
  json::append_quoted(out, text_);
  out += ",\"error_msg\":\"\",\"error_code\":0";
  if (g_.ask().native.return_usage) {
    fmt::format_to(std::back_inserter(out), ",\"usage\":{{\"completion_tokens\":{},\"prompt_tokens\":{}}}",
                   ids_.size() + 1, g_.prompt_tokens(choice));
  }
  return out + '}';
}

std::unique_ptr<Writer> make_writer(const Generation& generation) { return std::make_unique<NativeWriter>(generation); }

}  // namespace tern::serve::native
