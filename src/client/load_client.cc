#include "client/load_client.h"

#include <fmt/format.h>

#include <array>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <cmath>
#include <random>

#include "base/clock.h"
#include "client/http_client.h"
#include "client/tls_wire.h"
#include "fetch/curl_library.h"

namespace tern::client {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;

double since(int64_t start) { return static_cast<double>(monotonic_ns() - start) / 1e9; }

void take_usage(const json::Object& event, LoadResult& result) {
  const json::Value* usage = json::find(event, "usage");
  if (usage == nullptr || !usage->is_object()) return;
  const json::Object& u = usage->get_object();
  auto number = [](const json::Object& from, const char* key) {
    const auto value = json::get_int(from, key);
    return value.ok() ? static_cast<int>(value->value_or(0)) : 0;
  };
  result.prompt_tokens = number(u, "prompt_tokens");
  result.completion_tokens = number(u, "completion_tokens");
  const json::Value* details = json::find(u, "prompt_tokens_details");
  if (details != nullptr && details->is_object()) result.cached_tokens = number(details->get_object(), "cached_tokens");
}

// What the chunk says of itself, and with `texts` its words.
void take_choice(const json::Object& choice, const json::Object* delta, bool texts, LoadResult& result) {
  if (const json::Value* at = json::find(choice, "arrival_time"); at != nullptr && at->is_number())
    result.arrivals.push_back(at->to_number<double>());
  if (!texts) return;
  const auto add = [](const json::Object& from, const char* key, std::string& to) {
    const json::Value* value = json::find(from, key);
    if (value != nullptr && value->is_string()) to += std::string_view(value->get_string());
  };
  add(choice, "text", result.text);
  if (delta == nullptr) return;
  add(*delta, "content", result.text);
  add(*delta, "reasoning_content", result.thoughts);
}

// Reads one event of a stream into the result.
void take_event(std::string_view data, int64_t start, int64_t& last, bool texts, LoadResult& result) {
  if (data == "[DONE]") return;
  const auto event = json::parse(data);
  const json::Object* object = event.ok() ? event->if_object() : nullptr;
  if (object == nullptr) {
    result.error = "an event is no JSON object";
    return;
  }
  if (const json::Value* error = json::find(*object, "error")) result.error = json::dump(*error);
  take_usage(*object, result);
  if (const json::Value* metrics = json::find(*object, "metrics")) {
    if (result.first_metrics.is_null()) result.first_metrics = *metrics;
    result.last_metrics = *metrics;
  }
  const json::Value* choices = json::find(*object, "choices");
  if (choices == nullptr || !choices->is_array() || choices->get_array().empty()) return;
  // The first chat chunk holds the role only and comes before any token.
  const json::Object* choice = choices->get_array()[0].if_object();
  if (choice == nullptr) return;
  const json::Value* found = json::find(*choice, "delta");
  const json::Object* delta = found != nullptr ? found->if_object() : nullptr;
  const bool role_only = delta != nullptr && delta->contains("role") && result.chunks == 0 &&
                         (!delta->contains("content") || delta->at("content") == "");
  if (role_only) return;
  take_choice(*choice, delta, texts, result);
  const int64_t now = monotonic_ns();
  if (result.chunks++ == 0) {
    result.first = static_cast<double>(now - start) / 1e9;
  } else {
    result.gaps.push_back(static_cast<float>(static_cast<double>(now - last) / 1e9));
  }
  last = now;
}

double cpu_seconds() {
  timespec t{};
  (void)::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

struct Target {
  Url url;
  tcp::resolver::results_type addresses;
};

class Generator {
 public:
  // `tls`: null for http.
  Generator(const LoadPlan& plan, const std::vector<Url>& urls, std::shared_ptr<const tls::Context> tls)
      : plan_(plan), tls_(std::move(tls)), random_(plan.seed) {
    for (const Url& url : urls) targets_.push_back({url, {}});
    report_.results.resize(static_cast<size_t>(plan.requests));
    double at = 0;
    for (int i = 0; i < plan.requests && (plan.rate > 0 || plan.last_rate > 0); ++i) starts_.push_back(at += space(i));
  }

  Expected<LoadReport> run() {
    error_code error;
    for (Target& target : targets_) {
      target.addresses = tcp::resolver(context_).resolve(target.url.host, target.url.port, error);
      if (error)
        return make_error(ErrorCode::kUnavailable, fmt::format("{} is unknown: {}", target.url.host, error.message()));
    }
    begin_ = monotonic_ns();
    const int workers = std::min(plan_.concurrency, plan_.requests);
    for (int i = 0; i < workers; ++i) {
      const Target& target = targets_[static_cast<size_t>(i) % targets_.size()];
      if (tls_ != nullptr)
        asio::co_spawn(context_, work(TlsWire(context_, tls_, target.url.host), target), asio::detached);
      else
        asio::co_spawn(context_, work(PlainWire(context_), target), asio::detached);
    }
    const double cpu = cpu_seconds();
    context_.run();
    report_.seconds = since(begin_);
    report_.cpu_seconds = cpu_seconds() - cpu;
    return std::move(report_);
  }

 private:
  // Seconds in front of request `index`.
  double space(int index) {
    double rate = plan_.rate;
    if (plan_.last_rate > 0) {
      const double way = plan_.requests > 1 ? static_cast<double>(index) / (plan_.requests - 1) : 1;
      rate = plan_.geometric ? plan_.rate * std::pow(plan_.last_rate / plan_.rate, way)
                             : plan_.rate + (plan_.last_rate - plan_.rate) * way;
    }
    rate = std::max(rate, 1e-3);  // a ramp that begins at 0
    if (plan_.burstiness == 1) return std::exponential_distribution<double>(rate)(random_);
    return std::gamma_distribution<double>(plan_.burstiness, 1 / (rate * plan_.burstiness))(random_);
  }

  // Takes requests one after the other over one kept connection, with each those that follow it.
  template <class Wire>
  asio::awaitable<void> work(Wire wire, const Target& target) {
    while (next_ < plan_.requests) {
      const int begin = next_++;
      while (plan_.follows && next_ < plan_.requests && plan_.follows(next_)) ++next_;
      const int end = next_;
      if (!starts_.empty()) {
        asio::steady_timer timer(context_);
        timer.expires_after(std::chrono::duration_cast<std::chrono::nanoseconds>(
            std::chrono::duration<double>(starts_[static_cast<size_t>(begin)] - since(begin_))));
        error_code ignored;
        co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
      }
      bool good = true;
      for (int index = begin; index < end; ++index) {
        LoadResult& result = report_.results[static_cast<size_t>(index)];
        if (good)
          co_await one(wire, target, index, result);
        else
          result.error = "the request before it failed";
        result.ok = good = result.error.empty() && result.status == 200 && result.chunks > 0;
        if (plan_.ended) plan_.ended(index, result);
      }
    }
  }

  template <class Wire>
  asio::awaitable<void> one(Wire& wire, const Target& target, int index, LoadResult& result) {
    const HttpCall call{
        .path = plan_.endpoint, .body = plan_.body(index), .api_key = plan_.api_key, .headers = plan_.headers};
    const std::string request = request_text(target.url, call, true);
    const int64_t start = monotonic_ns();
    int64_t last = start;
    error_code error;
    auto token = asio::redirect_error(asio::use_awaitable, error);
    if (!wire.socket().is_open()) {
      co_await asio::async_connect(wire.socket(), target.addresses, token);
      if (!error) wire.socket().set_option(tcp::no_delay(true), error);
      if (!error) result.error = co_await wire.open();
      if (!result.error.empty()) error = asio::error::connection_refused;
    }
    if (!error) co_await asio::async_write(wire.stream(), asio::buffer(request), token);
    beast::flat_buffer buffer;
    http::response_parser<http::buffer_body> parser;
    parser.body_limit(boost::none);
    if (!error) co_await http::async_read_header(wire.stream(), buffer, parser, token);
    result.status = error ? 0 : static_cast<int>(parser.get().result_int());
    EventParser events;
    std::string plain;
    std::array<char, 16384> piece{};
    while (!error && !parser.is_done()) {
      parser.get().body() = {piece.data(), piece.size(), true};
      co_await http::async_read_some(wire.stream(), buffer, parser, token);
      if (error == http::error::need_buffer) error = {};
      const std::string_view got(piece.data(), piece.size() - parser.get().body().size);
      if (result.status != 200 && plain.size() < 400) plain += got;
      const Status status =
          events.feed(got, [&](std::string_view data) { take_event(data, start, last, plan_.texts, result); });
      if (!status.ok()) result.error = status.error().message;
    }
    result.total = since(start);
    if (error && result.error.empty()) result.error = error.message();
    if (result.status != 200 && result.error.empty()) result.error = fmt::format("status {}: {}", result.status, plain);
    if (error || !parser.keep_alive()) {
      wire.close();
    }
  }

  const LoadPlan& plan_;
  std::vector<Target> targets_;
  const std::shared_ptr<const tls::Context> tls_;
  std::mt19937_64 random_;
  std::vector<double> starts_;
  asio::io_context context_{1};
  LoadReport report_;
  int next_ = 0;
  int64_t begin_ = 0;
};

json::Object figures(std::vector<double> seconds) {
  json::Object o;
  double sum = 0;
  for (const double value : seconds) sum += value;
  o["mean"] = seconds.empty() ? 0.0 : 1e3 * sum / static_cast<double>(seconds.size());
  for (const auto& [name, share] : {std::pair{"p50", 0.5}, {"p80", 0.8}, {"p95", 0.95}, {"p99", 0.99}, {"max", 1.0}}) {
    o[name] = 1e3 * quantile(seconds, share);
  }
  return o;
}

}  // namespace

Expected<LoadReport> run_load(const LoadPlan& plan) {
  TERN_ASSIGN_OR_RETURN(const Url url, parse_url(plan.url));
  std::vector<Url> urls = {url};
  for (const std::string& text : plan.others) {
    TERN_ASSIGN_OR_RETURN(const Url other, parse_url(text));
    if (other.tls != url.tls)
      return make_error(ErrorCode::kInvalidArgument, "http and https servers together are not measured", "url");
    urls.push_back(other);
  }
  std::shared_ptr<const tls::Context> tls;
  if (url.tls) {
    TERN_ASSIGN_OR_RETURN(tls,
                          tls::Context::client(plan.ca_file.empty() ? fetch::system_certificates() : plan.ca_file));
  } else if (!plan.ca_file.empty()) {
    return make_error(ErrorCode::kInvalidArgument, "--ca-file says nothing for an http:// address", "ca-file");
  }
  return Generator(plan, urls, std::move(tls)).run();
}

double quantile(std::vector<double>& values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double at = share * static_cast<double>(values.size() - 1);
  const size_t low = static_cast<size_t>(at), high = std::min(low + 1, values.size() - 1);
  return values[low] + (values[high] - values[low]) * (at - static_cast<double>(low));
}

json::Object summarize(const LoadReport& report) {
  std::vector<double> first, per_token, gaps, total;
  int64_t ok = 0, prompt = 0, output = 0, cached = 0, chunks = 0;
  json::Value error;
  for (const LoadResult& r : report.results) {
    if (!r.ok) {
      if (error.is_null()) error = json::Value(r.error.empty() ? "no token came" : r.error);
      continue;
    }
    ++ok;
    prompt += r.prompt_tokens;
    cached += r.cached_tokens;
    const int tokens = r.completion_tokens > 0 ? r.completion_tokens : r.chunks;
    output += tokens;
    chunks += r.chunks;
    first.push_back(r.first);
    total.push_back(r.total);
    if (tokens > 1) per_token.push_back((r.total - r.first) / (tokens - 1));
    gaps.insert(gaps.end(), r.gaps.begin(), r.gaps.end());
  }
  const double seconds = report.seconds > 0 ? report.seconds : 1;
  json::Object o;
  o["requests"] = report.results.size();
  o["failed"] = static_cast<int64_t>(report.results.size()) - ok;
  o["first_error"] = error;
  o["seconds"] = report.seconds;
  o["client_cpu_seconds"] = report.cpu_seconds;
  o["prompt_tokens"] = prompt;
  o["cached_tokens"] = cached;
  o["output_tokens"] = output;
  o["chunks"] = chunks;
  o["requests_per_second"] = static_cast<double>(ok) / seconds;
  o["output_tokens_per_second"] = static_cast<double>(output) / seconds;
  o["total_tokens_per_second"] = static_cast<double>(prompt + output) / seconds;
  o["ttft_ms"] = figures(std::move(first));
  o["tpot_ms"] = figures(std::move(per_token));
  o["itl_ms"] = figures(std::move(gaps));
  o["e2el_ms"] = figures(std::move(total));
  return o;
}

std::string summary_text(const json::Object& s) {
  auto number = [&](const char* key) { return s.at(key).to_number<double>(); };
  std::string out = fmt::format("requests {:.0f}, failed {:.0f}, {:.2f} s\n", number("requests"), number("failed"),
                                number("seconds"));
  if (!s.at("first_error").is_null()) out += fmt::format("first error: {}\n", s.at("first_error").as_string().c_str());
  out += fmt::format("prompt tokens {:.0f} (cached {:.0f}), output tokens {:.0f}\n", number("prompt_tokens"),
                     number("cached_tokens"), number("output_tokens"));
  out +=
      fmt::format("{:.2f} requests/s, {:.1f} output tokens/s, {:.1f} tokens/s in all\n", number("requests_per_second"),
                  number("output_tokens_per_second"), number("total_tokens_per_second"));
  out += fmt::format("this client: {:.2f} s of CPU, {:.0f} % of a core\n", number("client_cpu_seconds"),
                     100 * number("client_cpu_seconds") / std::max(number("seconds"), 1e-9));
  out += fmt::format("{:<10}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}\n", "ms", "mean", "p50", "p80", "p95", "p99", "max");
  for (const auto& [label, key] :
       {std::pair{"TTFT", "ttft_ms"}, {"TPOT", "tpot_ms"}, {"ITL", "itl_ms"}, {"E2EL", "e2el_ms"}}) {
    const json::Object& row = s.at(key).as_object();
    out += fmt::format("{:<10}", label);
    for (const char* column : {"mean", "p50", "p80", "p95", "p99", "max"})
      out += fmt::format("{:>10.2f}", row.at(column).as_double());
    out += "\n";
  }
  return out;
}

}  // namespace tern::client
