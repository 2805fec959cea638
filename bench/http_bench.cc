// Server CPU per streamed token: the real HTTP server over the echo engine, asked by a load generator in a process of
// its own. Prints tokens per second, CPU of the server process per streamed token (its engine thread included, and told
// apart), and CPU of the load generator.
//
//   bench_http [--streams 256] [--tokens 512] [--seconds 8] [--io-threads 0] [--step-us 0] [--parsers 0]
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "bench/results.h"
#include "engine/echo.h"
#include "serve/server.h"

namespace {

using namespace tern;

struct Options {
  int streams = 256, tokens = 512, io_threads = 0, step_us = 0;
  int parsers = 0;  // 1: requests have a tool, answers pass through parsers of thoughts and calls
  double seconds = 8;
};

struct Result {  // what the load generator writes into the pipe
  uint64_t tokens = 0, requests = 0, bytes = 0;
  double seconds = 0, cpu_seconds = 0;
};

double cpu_seconds(int who) {
  rusage usage{};
  getrusage(who, &usage);
  const auto s = [](const timeval& t) { return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6; };
  return s(usage.ru_utime) + s(usage.ru_stime);
}

int connect_to(int port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
  if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return -1;
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  fcntl(fd, F_SETFL, O_NONBLOCK);
  return fd;
}

// Counts needles in a byte stream, also across the borders of reads.
struct Counter {
  std::string_view needle;
  size_t matched = 0;
  uint64_t count = 0;
  void feed(const char* p, size_t n) {
    for (size_t i = 0; i < n; ++i) {
      if (p[i] == needle[matched]) {
        if (++matched == needle.size()) ++count, matched = 0;
      } else {
        matched = p[i] == needle[0] ? 1 : 0;
      }
    }
  }
};

struct Stream {
  int fd = -1;
  Counter tokens{"\"arrival_time\"", 0, 0}, ends{"[DONE]", 0, 0};
  uint64_t done_seen = 0;
};

std::string request_bytes(const Options& o) {
  std::string body = "{\"messages\":[5,6,7,8,9,10,11,12],\"stream\":true,\"ignore_eos\":true,\"max_tokens\":" +
                     std::to_string(o.tokens) +
                     (o.parsers ? R"(,"tools":[{"type":"function","function":{"name":"f"}}]})" : "}");
  return "POST /v1/chat/completions HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nContent-Length: " +
         std::to_string(body.size()) + "\r\n\r\n" + body;
}

// Keeps `streams` requests open for the given time; a finished one is followed by the next on the same connection.
Result generate_load(int port, const Options& o) {
  const std::string request = request_bytes(o);
  const int poller = epoll_create1(0);
  std::vector<Stream> streams(static_cast<size_t>(o.streams));
  for (size_t i = 0; i < streams.size(); ++i) {
    streams[i].fd = connect_to(port);
    if (streams[i].fd < 0 || ::send(streams[i].fd, request.data(), request.size(), MSG_NOSIGNAL) < 0) return {};
    epoll_event event{EPOLLIN, {.u64 = i}};
    epoll_ctl(poller, EPOLL_CTL_ADD, streams[i].fd, &event);
  }
  Result result;
  const int64_t begin = monotonic_ns(), end = begin + static_cast<int64_t>(o.seconds * 1e9);
  const double cpu_begin = cpu_seconds(RUSAGE_SELF);
  std::vector<char> buffer(1 << 16);
  epoll_event events[256];
  while (monotonic_ns() < end) {
    const int n = epoll_wait(poller, events, 256, 100);
    for (int i = 0; i < n; ++i) {
      Stream& s = streams[events[i].data.u64];
      const ssize_t got = ::recv(s.fd, buffer.data(), buffer.size(), 0);
      if (got <= 0) {
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
        return {};
      }
      result.bytes += static_cast<uint64_t>(got);
      s.tokens.feed(buffer.data(), static_cast<size_t>(got));
      s.ends.feed(buffer.data(), static_cast<size_t>(got));
      if (s.ends.count > s.done_seen) {
        s.done_seen = s.ends.count;
        if (::send(s.fd, request.data(), request.size(), MSG_NOSIGNAL) < 0) return {};
      }
    }
  }
  result.seconds = static_cast<double>(monotonic_ns() - begin) * 1e-9;
  result.cpu_seconds = cpu_seconds(RUSAGE_SELF) - cpu_begin;
  for (const Stream& s : streams) {
    result.tokens += s.tokens.count;
    result.requests += s.done_seen;
  }
  return result;
}

void print(const Options& o, const Result& result, double cpu) {
  const double tokens = static_cast<double>(result.tokens);
  std::printf("streams %d, tokens per request %d, echo step %d us, machine threads %u\n", o.streams, o.tokens,
              o.step_us, std::thread::hardware_concurrency());
  std::printf("tokens/s %.0f, requests %llu, bytes per token %.0f\n", tokens / result.seconds,
              static_cast<unsigned long long>(result.requests), static_cast<double>(result.bytes) / tokens);
  std::printf("server CPU %.3f s of %.3f s: %.2f microseconds per streamed token (echo engine included)\n", cpu,
              result.seconds, cpu * 1e6 / tokens);
  add_result({.what = "server CPU per streamed token, echo engine, " + std::to_string(o.streams) + " streams" +
                      (o.step_us > 0 ? ", a token every " + std::to_string(o.step_us) + " us each" : ", unpaced") +
                      (o.parsers != 0 ? ", through parsers of thoughts and calls" : ""),
              .command = "bench_http --step-us " + std::to_string(o.step_us) + (o.parsers != 0 ? " --parsers 1" : ""),
              .measured = cpu * 1e6 / tokens,
              .unit = "us"});
  std::printf("load generator CPU %.2f microseconds per token\n", result.cpu_seconds * 1e6 / tokens);
}

int run(const Options& o) {
  int to_child[2], from_child[2];
  if (pipe(to_child) != 0 || pipe(from_child) != 0) return 1;
  const pid_t child = fork();  // before any thread exists
  if (child == 0) {
    int port = 0;
    if (read(to_child[0], &port, sizeof port) != sizeof port) _exit(1);
    const Result result = generate_load(port, o);
    _exit(write(from_child[1], &result, sizeof result) == sizeof result ? 0 : 1);
  }
  // The tokenizer of the protocol tests: every id has a text, so that detokenizing is part of the figure.
  auto tokenizer = content::Tokenizer::load(std::string(TERN_SOURCE_DIR) + "/tests/protocol/tokenizer");
  if (!tokenizer.ok()) {
    std::fprintf(stderr, "%s\n", tokenizer.error().message.c_str());
    return 1;
  }
  engine::EchoConfig echo;
  echo.max_num_seqs = o.streams;
  echo.step_ns = int64_t{o.step_us} * 1000;
  auto engine = engine::make_echo_engine(echo);
  serve::ServeConfig config;
  config.host = "127.0.0.1";
  config.port = 0;
  config.io_threads = o.io_threads;
  config.vocab_size = (*tokenizer)->vocab_size();
  config.max_model_len = 1 << 20;
  config.log_requests = false;
  serve::Content content;
  content.tokenizer = tokenizer->get();
  auto format = answer::AnswerFormat::make("qwen3", "hermes", answer::vocabulary_of(**tokenizer));
  if (o.parsers != 0) content.answers = &*format;
  auto server = serve::Server::start(config, *engine, content);
  if (!server.ok()) {
    std::fprintf(stderr, "%s\n", server.error().message.c_str());
    return 1;
  }
  const double cpu_begin = cpu_seconds(RUSAGE_SELF);
  const int port = (*server)->port();
  Result result;
  if (write(to_child[1], &port, sizeof port) != sizeof port ||
      read(from_child[0], &result, sizeof result) != sizeof result || result.tokens == 0) {
    std::fprintf(stderr, "the load generator failed\n");
    return 1;
  }
  const double cpu = cpu_seconds(RUSAGE_SELF) - cpu_begin;
  waitpid(child, nullptr, 0);
  (*server)->stop(0);
  engine->shutdown(true);
  print(o, result, cpu);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  signal(SIGPIPE, SIG_IGN);
  Options o;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view flag = argv[i];
    if (flag == "--streams")
      o.streams = std::atoi(argv[i + 1]);
    else if (flag == "--tokens")
      o.tokens = std::atoi(argv[i + 1]);
    else if (flag == "--seconds")
      o.seconds = std::atof(argv[i + 1]);
    else if (flag == "--io-threads")
      o.io_threads = std::atoi(argv[i + 1]);
    else if (flag == "--parsers")
      o.parsers = std::atoi(argv[i + 1]);
    else if (flag == "--step-us")
      o.step_us = std::atoi(argv[i + 1]);
    else
      return std::fprintf(stderr, "unknown flag %s\n", argv[i]), 2;
  }
  return run(o);
}
