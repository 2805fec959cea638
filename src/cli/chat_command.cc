#include <fmt/format.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <iostream>

#include "app/flags/environment.h"
#include "app/options.h"
#include "app/report.h"
#include "cli/commands.h"
#include "client/http_client.h"
#include "json/json.h"

namespace tern::cli {
namespace {

// What the handler of Ctrl-C may touch: while an answer streams it ends that answer, else the program.
std::atomic<int> g_socket{-1};
std::atomic<bool> g_interrupted{false};

void on_interrupt(int) {
  const int socket = g_socket.load();
  if (socket < 0) _exit(130);
  g_interrupted = true;
  ::shutdown(socket, SHUT_RDWR);
}

struct ChatOptions {
  bool complete = false;  // texts to go on with, in place of messages
  std::string url = "http://localhost:8000/v1", model, api_key, ca_file, system_prompt, quick;
  double temperature = -1, top_p = -1;
  int max_tokens = 0;
};

std::string body_of(const ChatOptions& options, const json::Array& messages) {
  json::Object body;
  body["model"] = options.model;
  if (options.complete)
    body["prompt"] = messages.back().at("content");
  else
    body["messages"] = messages;
  body["stream"] = true;
  if (options.temperature >= 0) body["temperature"] = options.temperature;
  if (options.top_p >= 0) body["top_p"] = options.top_p;
  if (options.max_tokens > 0) body["max_tokens"] = options.max_tokens;
  return json::dump(body);
}

// The text of one stream event; sets `error` when the event is one.
std::string text_of(std::string_view data, std::string& error) {
  if (data == "[DONE]") return "";
  const auto event = json::parse(data);
  const json::Object* object = event.ok() ? event->if_object() : nullptr;
  if (object == nullptr) return "";
  if (const json::Value* failure = json::find(*object, "error")) {
    const json::Object* detail = failure->if_object();
    const json::Value* message = detail != nullptr ? json::find(*detail, "message") : nullptr;
    error = message != nullptr && message->is_string() ? std::string(message->get_string()) : json::dump(*failure);
    return "";
  }
  const json::Value* choices = json::find(*object, "choices");
  if (choices == nullptr || !choices->is_array() || choices->get_array().empty()) return "";
  const json::Object* choice = choices->get_array()[0].if_object();
  const json::Value* whole = choice != nullptr ? json::find(*choice, "text") : nullptr;
  if (whole != nullptr && whole->is_string()) return std::string(whole->get_string());
  const json::Value* delta = choice != nullptr ? json::find(*choice, "delta") : nullptr;
  if (delta == nullptr || !delta->is_object()) return "";
  std::string text;
  for (const char* key : {"reasoning_content", "content"}) {
    const json::Value* part = json::find(delta->get_object(), key);
    if (part != nullptr && part->is_string()) text += std::string(part->get_string());
  }
  return text;
}

// Prints the answer as it comes and gives its text.
Expected<std::string> ask(const client::Url& url, const ChatOptions& options, const json::Array& messages) {
  client::EventParser events;
  std::string answer, error, plain;
  Status parsed;
  const client::HttpCall call{.path = options.complete ? "/completions" : "/chat/completions",
                              .body = body_of(options, messages),
                              .api_key = options.api_key,
                              .ca_file = options.ca_file};
  g_interrupted = false;
  const auto status = client::http_call(
      url, call,
      [&](std::string_view bytes) {
        if (plain.size() < 65536) plain += bytes;
        parsed = events.feed(bytes, [&](std::string_view data) {
          const std::string text = text_of(data, error);
          std::fwrite(text.data(), 1, text.size(), stdout);
          std::fflush(stdout);
          answer += text;
        });
        return parsed.ok();
      },
      &g_socket);
  if (g_interrupted) return answer;
  if (!status.ok()) return status.error();
  TERN_RETURN_IF_ERROR(parsed);
  if (*status != 200) {
    const std::string shown = text_of(plain, error);  // an error body has the shape of an error event
    return make_error(ErrorCode::kUnavailable,
                      fmt::format("the server answered with status {}: {}", *status, error.empty() ? plain : error));
  }
  if (!error.empty()) return make_error(ErrorCode::kUnavailable, "the server reports: " + error);
  return answer;
}

// The first model that the server lists, or "default".
Expected<std::string> first_model(const client::Url& url, const ChatOptions& options) {
  std::string answer;
  const client::HttpCall call{
      .method = "GET", .path = "/models", .body = {}, .api_key = options.api_key, .ca_file = options.ca_file};
  TERN_ASSIGN_OR_RETURN(const int status, client::http_call(url, call, [&](std::string_view bytes) {
                          answer += bytes;
                          return answer.size() < 1 << 20;
                        }));
  const auto list = json::parse(answer);
  boost::system::error_code none;
  const json::Value* id = status == 200 && list.ok() ? list->find_pointer("/data/0/id", none) : nullptr;
  return id != nullptr && id->is_string() ? std::string(id->get_string()) : std::string("default");
}

// OPENAI_API_KEY, as OpenAI's own clients have it.
std::string key_of_environment() {
  for (const auto& [name, value] : app::Environment::of_process()) {
    if (name == "OPENAI_API_KEY") return value;
  }
  return "";
}

void add(json::Array& messages, const char* role, const std::string& content) {
  messages.push_back(json::Object{{"role", role}, {"content", content}});
}

int talk(const client::Url& url, const ChatOptions& options, json::Array messages) {
  const bool terminal = ::isatty(STDIN_FILENO) == 1;
  if (terminal) fmt::print("Ctrl-C ends an answer, or the program; Ctrl-D ends it too.\n");
  while (true) {
    if (terminal) fmt::print("> ");
    std::fflush(stdout);
    std::string line;
    if (!std::getline(std::cin, line)) break;
    if (line.empty()) continue;
    add(messages, "user", line);
    auto answer = ask(url, options, messages);
    fmt::print("\n");
    if (!answer.ok()) {
      const int status = app::report(answer.error());
      messages.pop_back();
      if (!terminal) return status;
      continue;
    }
    if (options.complete)
      messages.pop_back();
    else
      add(messages, "assistant", *answer);
  }
  if (terminal) fmt::print("\n");
  return 0;
}

int run(const std::vector<std::string>& args, bool complete) {
  app::Options parser(
      complete ? "Has a server go on with texts; -q gives one" : "Talks to a server; -q asks one question",
      complete ? "tern complete" : "tern chat");
  ChatOptions options;
  options.complete = complete;
  parser.add_option("--url", options.url, "Address of the server (http or https), with /v1").capture_default_str();
  parser.add_option("--model,--model-name", options.model, "Model to name in requests; without it the server's first");
  parser.add_option("--api-key", options.api_key, "Bearer key; without it OPENAI_API_KEY");
  parser.add_option("--ca-file", options.ca_file, "Certificates to trust for https (PEM) instead of the system's");
  if (!complete) parser.add_option("--system-prompt", options.system_prompt, "First message, of the role system");
  parser.add_option("-q,--quick", options.quick, "Ask this, print the answer and end");
  parser.add_option("--temperature", options.temperature, "Temperature of sampling");
  parser.add_option("--top-p", options.top_p, "Mass of nucleus sampling");
  parser.add_option("--max-tokens", options.max_tokens, "Most tokens of an answer");
  if (const auto status = app::parse_options(parser, args)) return *status;
  auto url = client::parse_url(options.url);
  if (!url.ok()) return app::report(url.error());
  if (url->path.empty()) url->path = "/v1";  // a bare address means the API, not the root
  signal(SIGPIPE, SIG_IGN);
  signal(SIGINT, on_interrupt);
  if (options.api_key.empty()) options.api_key = key_of_environment();
  if (options.model.empty()) {
    auto model = first_model(*url, options);
    if (!model.ok()) return app::report(model.error());
    options.model = std::move(*model);
  }
  json::Array messages;
  if (!options.system_prompt.empty()) add(messages, "system", options.system_prompt);
  if (options.quick.empty()) return talk(*url, options, std::move(messages));
  add(messages, "user", options.quick);
  const auto answer = ask(*url, options, messages);
  if (!answer.ok()) return app::report(answer.error());
  fmt::print("\n");
  return g_interrupted ? 130 : 0;
}

}  // namespace

int run_chat(const std::vector<std::string>& args) { return run(args, false); }
int run_complete(const std::vector<std::string>& args) { return run(args, true); }

}  // namespace tern::cli
