// Work of the CPU pool: bodies to requests, and long answers to bytes.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <new>
#include <thread>

#include "base/clock.h"
#include "base/log.h"
#include "json/json.h"
#include "serve/anthropic/protocol.h"
#include "serve/anthropic/request.h"
#include "serve/core/protocol.h"
#include "serve/core/trace_context.h"
#include "serve/native/request.h"
#include "serve/openai/ask.h"
#include "serve/openai/json/error.h"
#include "serve/openai/json/fields.h"
#include "serve/openai/text_api.h"
#include "serve/prepare/prepare.h"
#include "serve/prepare/prompts.h"
#include "serve/report/request_log.h"
#include "serve/worker/handlers.h"
#include "serve/worker/job_steps.h"
#include "serve/worker/preparations.h"
#include "serve/worker/shared.h"
#include "serve/worker/worker.h"

namespace tern::serve {
namespace {

constexpr size_t kValuesPerByte = 3;  // bytes of values for one of their text, beyond what is free
constexpr size_t kBytesPerToken = 8;  // of a prompt, for each sample: the request's copy and the scheduler's

bool is_json(std::string_view type) {
  if (type.empty()) return true;
  type = type.substr(0, type.find(';'));
  while (!type.empty() && type.back() == ' ') type.remove_suffix(1);
  std::string lower(type);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower == "application/json" || (lower.starts_with("application/") && lower.ends_with("+json"));
}

}  // namespace

Expected<json::Value> parse_body(const Shared& shared, Job& job, size_t most_bytes) {
  // Other types are what a foreign web page can send without asking first.
  if (!is_json(job.content_type)) return openai::invalid_value("Content-Type must be application/json", "body");
  std::string_view text = job.body;
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);  // a byte order mark, which editors and shells put there
  const HttpLimits& http = shared.config.http;
  const json::Limits limits{.max_bytes = most_bytes,
                            .max_depth = http.json_depth,
                            .max_nodes = http.json_nodes,
                            .max_memory_ratio = kValuesPerByte,
                            .free_memory = http.json_free_memory};
  const auto refused = [](const Error& error) {
    return openai::invalid_value("JSON decode error: " + error.message, "body");
  };
  auto extent = json::measure(text, limits);
  if (!extent.ok()) return refused(extent.error());
  if (!job.memory.resize(job.body.size() + extent->memory)) throw std::bad_alloc();
  auto value = json::parse(text, limits, *extent);
  job.logged = std::string(shown_part(shared.config, job.body));
  std::string().swap(job.body);
  if (!value.ok()) return refused(value.error());
  return value;
}

namespace {

// Nothing: refused.
std::optional<json::Value> take_body(Shared& shared, Job& job) {
  auto body = parse_body(shared, job, shared.config.http.body_bytes);
  if (body.ok()) return *std::move(body);
  const Protocol* protocol = job.route->handler.protocol;
  const bool native = protocol != nullptr && protocol->native_too;
  http::Response response = native ? native::invalid_json(body.error().message) : openai::error_response(body.error());
  shared.post(job.to.worker, Reply{job.to, std::move(response), std::move(job.ticket)});
  return std::nullopt;
}

}  // namespace

prepare::PrepareInput prepare_input(Shared& shared, const Job& job) {
  prepare::PrepareInput input;
  input.config = &shared.config;
  input.content = shared.content;
  input.chat_form = &shared.chat_form;
  input.tool_form = &shared.tool_form;
  input.arrival_ns = job.arrival_ns;
  input.owner = job.owner;
  input.cancelled = job.cancelled;
  input.id_hex = shared.random_hex();
  input.random_hex = [&shared] { return shared.random_hex(); };
  input.random = siphash128(shared.key, input.id_hex.data(), input.id_hex.size()).lo;
  if (shared.auth.separate()) {  // one key's prompts must not show in the timing of another's
    const std::string name = "cache salt " + std::to_string(job.key_index);
    const Hash128 salt = siphash128(shared.key, name.data(), name.size());
    input.salted = true;
    input.salt[0] = salt.lo;
    input.salt[1] = salt.hi;
  }
  return input;
}

namespace {

void refuse(Shared& shared, ReplyTo to, Ticket ticket, const Error& error, bool after_validation) {
  log_refused(shared.config, error);
  const bool original = after_validation && shared.config.original_error_status;
  shared.post(to.worker, Reply{to, openai::error_response(error, original), std::move(ticket)});
}

IdLease take_id(Shared& shared, const std::string& id, Error& error) {
  IdLease lease = IdLease::take(shared.ids, id);
  if (!lease) error = openai::invalid_value("duplicated request_id " + id, "request_id");
  return lease;
}

}  // namespace

void post_ready(Shared& shared, ReplyTo to, Ticket ticket, MemoryBudget::Lease memory,
                std::unique_ptr<Generation> generation) {
  size_t tokens = 0;
  for (const auto& choice : generation->choices()) tokens += static_cast<size_t>(generation->prompt_tokens(choice));
  if (!memory.resize(tokens * kBytesPerToken)) throw std::bad_alloc();
  Ready ready{to, std::move(generation), {}, std::move(ticket), std::move(memory)};
  for (const auto& choice : ready.generation->choices())
    ready.requests.push_back(ready.generation->engine_request(choice));
  ready.generation->release_media();
  shared.post(to.worker, std::move(ready));
}

namespace {

// Goes on in finish_preparation(), when the pictures are there.
void start_preparation(Shared& shared, Job& job, prepare::PendingRequest pending, CountAnswer counted = nullptr) {
  Preparation preparation;
  preparation.to = job.to;
  preparation.counted = counted;
  preparation.key_index = job.key_index;
  if (counted == nullptr) {
    Error taken;
    preparation.id = take_id(shared, pending.id, taken);
    if (!preparation.id) return refuse(shared, job.to, std::move(job.ticket), taken, true);
  }
  preparation.pending = std::move(pending);
  preparation.ticket = std::move(job.ticket);
  preparation.logged = std::move(job.logged);
  preparation.memory = std::move(job.memory);
  preparation.cancelled = job.cancelled;
  preparation.deadline_ns = job.arrival_ns + static_cast<int64_t>(shared.config.media.timeout * 1e9);
  shared.preparations->start(std::move(preparation));
}

// The second half of every generating route: what needs the tokenizer, or the media service.
void go_on(Shared& shared, Job& job, prepare::PendingRequest pending) {
  if (!pending.ask.media.empty()) return start_preparation(shared, job, std::move(pending));
  const std::string id = pending.id;
  auto generation = prepare::finish(std::move(pending), {});
  if (!generation.ok()) return refuse(shared, job.to, std::move(job.ticket), generation.error(), true);
  Error taken;
  IdLease lease = take_id(shared, id, taken);
  if (!lease) return refuse(shared, job.to, std::move(job.ticket), taken, true);
  log_received(shared.config, **generation, job.logged);
  post_ready(shared, job.to, std::move(job.ticket), std::move(job.memory), *std::move(generation));
  lease.keep();  // the worker's
}

// Compiles what the request's answer is restricted by on a pool of its own, and goes on there.
void compile_first(Shared& shared, Job& job, prepare::PendingRequest pending) {
  struct Work {
    Job job;
    prepare::PendingRequest pending;
  };
  const ReplyTo to = job.to;
  auto work = std::make_unique<Work>(Work{std::move(job), std::move(pending)});
  Task task = [&shared, to, work = std::move(work)]() mutable {
    if (work->job.cancelled && work->job.cancelled->load(std::memory_order_relaxed)) return;
    run_guarded(shared, to, [&] {
      const Status compiled = prepare::compile_grammars(work->pending.grammars, *shared.content.grammars);
      if (!compiled.ok()) return refuse(shared, to, std::move(work->job.ticket), compiled.error(), true);
      go_on(shared, work->job, std::move(work->pending));
    });
  };
  if (shared.grammar_pool->try_submit(task)) return;
  shared.post(to.worker, Reply{to, openai::busy_response("too many grammars wait to be compiled; send it again"), {}});
}

// The way of every generating route.
void generate(Shared& shared, Job& job, const Protocol& protocol) {
  if (protocol.pools != shared.config.pooling.has_value()) {
    const char* const why = protocol.pools ? "this model generates text: embeddings and rewards need a pooling model"
                                           : "this is a pooling model (--runner pooling): it generates no text";
    return refuse(shared, job.to, std::move(job.ticket), make_error(ErrorCode::kUnsupported, why), false);
  }
  auto body = take_body(shared, job);
  if (!body) return;
  if (protocol.native_too) {
    if (native::is_native(*body)) return answer_native(shared, job, *std::move(body));
    if (const auto full = take_place(shared, job)) {
      return refuse(shared, job.to, std::move(job.ticket), make_error(ErrorCode::kResourceExhausted, *full), false);
    }
  }
  auto ask = protocol.read(*std::move(body), shared.config);
  if (!ask.ok()) return refuse(shared, job.to, std::move(job.ticket), ask.error(), false);
  if (ask->traceparent.empty()) ask->traceparent = checked_traceparent(job.traceparent);
  auto input = prepare_input(shared, job);
  input.make_writer = protocol.make_writer;
  auto pending = prepare::begin(*std::move(ask), input);
  if (!pending.ok()) return refuse(shared, job.to, std::move(job.ticket), pending.error(), true);
  if (!prepare::find_grammars(pending->grammars, shared.content.grammars)) {
    return compile_first(shared, job, *std::move(pending));
  }
  go_on(shared, job, *std::move(pending));
}

}  // namespace

namespace {

http::Response answer_tokens(const std::vector<int32_t>& ids, const prepare::PrepareInput& input) {
  return tokens_response(ids, false, input);
}
http::Response answer_named_tokens(const std::vector<int32_t>& ids, const prepare::PrepareInput& input) {
  return tokens_response(ids, true, input);
}
http::Response answer_count(const std::vector<int32_t>& ids, const prepare::PrepareInput&) {
  return http::json_response(200, anthropic::count_body(ids.size()));
}

// Texts are counted at once; pictures first become as many tokens as they have.
void count(Shared& shared, Job& job, Expected<Ask> ask, const prepare::PrepareInput& input, CountAnswer counted) {
  if (!ask.ok()) return refuse(shared, job.to, {}, ask.error(), false);
  auto pending = prepare::begin(*std::move(ask), input);
  if (!pending.ok()) return refuse(shared, job.to, {}, pending.error(), false);
  if (!pending->ask.media.empty()) return start_preparation(shared, job, *std::move(pending), counted);
  auto prompts = prepare::encode_prompts(*pending, {});
  if (!prompts.ok()) return refuse(shared, job.to, {}, prompts.error(), false);
  shared.post(job.to.worker, Reply{job.to, counted((*prompts)[0].ids, input), {}});
}

}  // namespace

void count_message(Shared& shared, Job& job) {
  auto body = take_body(shared, job);
  if (!body) return;
  auto input = prepare_input(shared, job);
  input.contexts = 4;  // as count_tokens()
  count(shared, job, anthropic::read_request(*std::move(body), shared.config, openai::Purpose::kTokens), input,
        answer_count);
}

void count_tokens(Shared& shared, Job& job) {
  auto taken = take_body(shared, job);
  if (!taken) return;
  json::Value body = *std::move(taken);
  auto input = prepare_input(shared, job);
  input.contexts = 4;  // texts may be counted that no request could send
  const auto strs = wants_token_strs(body);
  if (!strs.ok()) return refuse(shared, job.to, {}, strs.error(), false);
  if (shared.config.media.images && body.is_object() && json::find(body.get_object(), "messages") != nullptr) {
    auto ask = openai::parse_chat(std::move(body), shared.config, openai::Purpose::kTokens);
    return count(shared, job, std::move(ask), input, *strs ? answer_named_tokens : answer_tokens);
  }
  shared.post(job.to.worker, Reply{job.to, tokenize(std::move(body), input), {}});
}

void tokens_to_text(Shared& shared, Job& job) {
  const auto body = take_body(shared, job);
  if (body) shared.post(job.to.worker, Reply{job.to, detokenize(*body, prepare_input(shared, job)), {}});
}

void abort_requests(Shared& shared, Job& job) {
  const auto body = take_body(shared, job);
  if (!body) return;
  auto sweep = std::make_unique<AbortSweep>();
  sweep->reply = job.to;
  sweep->key_index = job.key_index;
  const auto refuse = [&](std::string text, std::string param) {
    shared.post(job.to.worker,
                Reply{job.to, openai::error_response(openai::invalid_value(std::move(text), std::move(param))), {}});
  };
  if (!body->is_object()) return refuse("Input should be a valid dictionary", "body");
  openai::Fields f(body->get_object());
  f.boolean("abort_all", sweep->all);
  f.strings("req_ids", sweep->ids, 4096);
  if (!f.ok()) return refuse(f.error()->message, f.error()->param);
  if (!sweep->all && sweep->ids.empty()) return refuse("abort_all or req_ids is needed", "req_ids");
  for (const auto& id : sweep->ids) sweep->wanted.emplace(id, false);
  shared.post(job.to.worker, std::move(sweep));
}

void reset_scheduler(Shared& shared, Job& job) {
  auto sweep = std::make_unique<AbortSweep>();
  sweep->reply = job.to;
  sweep->all = true;
  sweep->answered = AbortSweep::Form::kReset;
  shared.post(job.to.worker, std::move(sweep));
}

// /controller/scheduler (fastdeploy.md 2.2): a reset ends every request.
void control_scheduler(Shared& shared, Job& job) {
  const auto body = take_body(shared, job);
  if (!body) return;
  auto sweep = std::make_unique<AbortSweep>();
  sweep->reply = job.to;
  sweep->answered = AbortSweep::Form::kScheduler;
  const auto refuse = [&](const Error& error) {
    shared.post(job.to.worker, Reply{job.to, openai::error_response(error), {}});
  };
  if (!body->is_object()) return refuse(openai::invalid_value("Input should be a valid dictionary", "body"));
  openai::Fields f(body->get_object());
  std::optional<int64_t> shards;
  bool reallocate = false;
  f.boolean("reset", sweep->all);
  f.integer("load_shards_num", shards, std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max());
  f.boolean("reallocate_shard", reallocate);
  if (!f.ok()) return refuse(*f.error());
  sweep->unsupported = reallocate || shards.value_or(0) != 0;  // the original resets first, and then says so
  shared.post(job.to.worker, std::move(sweep));
}

void finish_preparation(Shared& shared, Preparation preparation, std::vector<content::PreparedMediaPtr> media) {
  const ReplyTo to = preparation.to;
  if (preparation.counted != nullptr) {
    auto prompts = prepare::encode_prompts(preparation.pending, media);
    if (!prompts.ok()) return refuse(shared, to, {}, prompts.error(), false);
    return shared.post(to.worker, Reply{to, preparation.counted((*prompts)[0].ids, preparation.pending.input), {}});
  }
  const int64_t arrival_ns = preparation.pending.input.arrival_ns;
  auto generation = prepare::finish(std::move(preparation.pending), media);
  if (!generation.ok()) return refuse(shared, to, std::move(preparation.ticket), generation.error(), true);
  log_received(shared.config, **generation, preparation.logged);
  log_stage(shared.config, (*generation)->id(),
            fmt::format("prepared its media within {:.3f} s", static_cast<double>(monotonic_ns() - arrival_ns) * 1e-9));
  post_ready(shared, to, std::move(preparation.ticket), std::move(preparation.memory), *std::move(generation));
  preparation.id.keep();
}

void answer_without_memory(Shared& shared, ReplyTo to) {
  for (;;) {
    try {
      return shared.post_control(
          to.worker, Reply{to, openai::busy_response("there is no memory for this request now; send it again"), {}});
    } catch (const std::bad_alloc&) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
}

void run_job(Shared& shared, Job job) {
  const Handler& handler = job.route->handler;
  if (handler.order != nullptr) return handler.order(shared, job);
  if (job.cancelled && job.cancelled->load(std::memory_order_relaxed)) return;  // nobody waits for the answer
  if (handler.question != nullptr) return handler.question(shared, job);
  generate(shared, job, *handler.protocol);
}

void write_body(Shared& shared, ReplyTo to, std::unique_ptr<Generation> generation, Ticket ticket) {
  Task write = [&shared, to, generation = std::move(generation), ticket = std::move(ticket)]() mutable {
    run_guarded(shared, to, [&] {
      std::string body = generation->writer().body();
      log_answer(shared.config, generation->id(), body);
      shared.post_control(to.worker, Reply{to, http::json_response(200, std::move(body)), std::move(ticket), true});
    });
  };
  if (!shared.pool->try_submit(write)) write();  // the pool is full: this thread does it
}

}  // namespace tern::serve
