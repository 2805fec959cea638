// Server CPU per streamed token: the real HTTP server over the echo engine, asked by a load generator in a process of
// its own. Prints tokens per second, CPU of the server process per streamed token (its engine thread included, and told
// apart), and CPU of the load generator.
//
//   bench_http [--streams 256] [--tokens 512] [--seconds 8] [--io-threads 0] [--step-us 0] [--parsers 0] [--tls 0]
//   --tls 1: over TLS, with a certificate that the openssl command makes for the run
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
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
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "bench/results.h"
#include "engine/echo.h"
#include "serve/server.h"
#include "tls/session.h"

namespace {

using namespace tern;

struct Options {
  int streams = 256, tokens = 512, io_threads = 0, step_us = 0;
  int parsers = 0;  // 1: requests have a tool, answers pass through parsers of thoughts and calls
  int tls = 0;      // 1: over TLS
  double seconds = 8;
  std::string pem;  // file with certificate and key, where --tls is 1
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
  std::unique_ptr<tls::Session> tls;  // null: plain
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

// A connection on which the request has been sent; false: it cannot be had.
bool open_stream(Stream& s, int port, const tls::Context* tls, const std::string& request) {
  s.fd = connect_to(port);
  if (s.fd < 0) return false;
  if (tls == nullptr) return ::send(s.fd, request.data(), request.size(), MSG_NOSIGNAL) >= 0;
  s.tls = tls::Session::connect(*tls, s.fd, "127.0.0.1");
  while (s.tls != nullptr && !s.tls->established()) {
    const auto outcome = s.tls->shake_hands();
    if (outcome == tls::Session::Outcome::kFailed) {
      std::fprintf(stderr, "TLS: %s\n", s.tls->why().c_str());
      return false;
    }
    pollfd ready{s.fd, POLLIN, 0};
    if (!s.tls->established()) ::poll(&ready, 1, 10'000);
  }
  return s.tls != nullptr && s.tls->write(request).bytes == request.size();
}

// As recv(): bytes; 0 at the end; below 0 with EAGAIN when there are none now.
ssize_t receive(Stream& s, char* to, size_t size) {
  if (s.tls == nullptr) return ::recv(s.fd, to, size, 0);
  const auto [outcome, bytes] = s.tls->read(to, size);
  if (outcome == tls::Session::Outcome::kMoved && bytes > 0) return static_cast<ssize_t>(bytes);
  if (outcome == tls::Session::Outcome::kEnd || outcome == tls::Session::Outcome::kFailed) return 0;
  errno = EAGAIN;
  return -1;
}

bool ask_again(Stream& s, const std::string& request) {
  if (s.tls != nullptr) return s.tls->write(request).bytes == request.size();
  return ::send(s.fd, request.data(), request.size(), MSG_NOSIGNAL) >= 0;
}

// Keeps `streams` requests open for the given time; a finished one is followed by the next on the same connection.
// `open`: a byte goes there once all are open; what the server took for connections and handshakes is not counted.
Result generate_load(int port, int open, const Options& o) {
  const std::string request = request_bytes(o);
  const int poller = epoll_create1(0);
  std::vector<Stream> streams(static_cast<size_t>(o.streams));
  std::shared_ptr<const tls::Context> tls;
  if (o.tls != 0) {
    auto context = tls::Context::client(o.pem);
    if (!context.ok()) return {};
    tls = *std::move(context);
  }
  for (size_t i = 0; i < streams.size(); ++i) {
    if (!open_stream(streams[i], port, tls.get(), request)) return {};
    epoll_event event{EPOLLIN, {.u64 = i}};
    epoll_ctl(poller, EPOLL_CTL_ADD, streams[i].fd, &event);
  }
  if (::write(open, "o", 1) != 1) return {};
  Result result;
  const int64_t begin = monotonic_ns(), end = begin + static_cast<int64_t>(o.seconds * 1e9);
  const double cpu_begin = cpu_seconds(RUSAGE_SELF);
  std::vector<char> buffer(1 << 16);
  epoll_event events[256];
  while (monotonic_ns() < end) {
    const int n = epoll_wait(poller, events, 256, 100);
    for (int i = 0; i < n; ++i) {
      Stream& s = streams[events[i].data.u64];
      const ssize_t got = receive(s, buffer.data(), buffer.size());
      if (got <= 0) {
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
        return {};
      }
      result.bytes += static_cast<uint64_t>(got);
      s.tokens.feed(buffer.data(), static_cast<size_t>(got));
      s.ends.feed(buffer.data(), static_cast<size_t>(got));
      if (s.ends.count > s.done_seen) {
        s.done_seen = s.ends.count;
        if (!ask_again(s, request)) return {};
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
                      (o.parsers != 0 ? ", through parsers of thoughts and calls" : "") + (o.tls != 0 ? ", TLS" : ""),
              .command = "bench_http --step-us " + std::to_string(o.step_us) + (o.parsers != 0 ? " --parsers 1" : "") +
                         (o.tls != 0 ? " --tls 1" : ""),
              .measured = cpu * 1e6 / tokens,
              .unit = "us"});
  std::printf("load generator CPU %.2f microseconds per token\n", result.cpu_seconds * 1e6 / tokens);
}

// A certificate of this run's own, with its key in the same file; "" where there is no openssl command.
std::string make_certificate(const std::string& folder) {
  const std::string
      pem = folder + "/both.pem",
      command = "cd " + folder +
                " && openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=bench "
                "-addext subjectAltName=IP:127.0.0.1 -keyout key.pem -out cert.pem >openssl.log 2>&1 && cat cert.pem "
                "key.pem >both.pem";
  return std::system(command.c_str()) == 0 ? pem : std::string();
}

// The server's side of it; false: it cannot be used.
bool take_certificate(const std::string& path, serve::ServeConfig& config) {
  std::ifstream in(path);
  tls::ServerPems pems{.certificate_name = path, .key_name = path};
  pems.certificate.assign(std::istreambuf_iterator<char>(in), {});
  pems.key = pems.certificate;
  std::string warning;
  auto context = tls::Context::server(pems, warning);
  if (!context.ok()) return std::fprintf(stderr, "%s\n", context.error().message.c_str()), false;
  config.tls = *std::move(context);
  return true;
}

serve::ServeConfig config_of(const Options& o, int vocab_size) {
  serve::ServeConfig config;
  config.host = "127.0.0.1";
  config.port = 0;
  config.io_threads = o.io_threads;
  config.vocab_size = vocab_size;
  config.max_model_len = 1 << 20;
  config.log_requests = false;
  return config;
}

int run(const Options& o) {
  int to_child[2], from_child[2];
  if (pipe(to_child) != 0 || pipe(from_child) != 0) return 1;
  const pid_t child = fork();  // before any thread exists
  if (child == 0) {
    int port = 0;
    if (read(to_child[0], &port, sizeof port) != sizeof port) _exit(1);
    const Result result = generate_load(port, from_child[1], o);
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
  serve::ServeConfig config = config_of(o, (*tokenizer)->vocab_size());
  if (o.tls != 0 && !take_certificate(o.pem, config)) return 1;
  serve::Content content;
  content.tokenizer = tokenizer->get();
  auto format = answer::AnswerFormat::make("qwen3", "hermes", answer::vocabulary_of(**tokenizer));
  if (o.parsers != 0) content.answers = &*format;
  auto server = serve::Server::start(config, *engine, content);
  if (!server.ok()) {
    std::fprintf(stderr, "%s\n", server.error().message.c_str());
    return 1;
  }
  const int port = (*server)->port();
  Result result;
  char open = 0;
  const bool begun =
      write(to_child[1], &port, sizeof port) == sizeof port && read(from_child[0], &open, 1) == 1 && open == 'o';
  const double cpu_begin = cpu_seconds(RUSAGE_SELF);
  if (!begun || read(from_child[0], &result, sizeof result) != sizeof result || result.tokens == 0) {
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
    else if (flag == "--tls")
      o.tls = std::atoi(argv[i + 1]);
    else if (flag == "--step-us")
      o.step_us = std::atoi(argv[i + 1]);
    else
      return std::fprintf(stderr, "unknown flag %s\n", argv[i]), 2;
  }
  if (o.tls == 0) return run(o);
  char folder[] = "/tmp/tern-bench-XXXXXX";
  if (::mkdtemp(folder) == nullptr) return 1;
  o.pem = make_certificate(folder);
  const int status = o.pem.empty() ? std::fprintf(stderr, "the openssl command makes no certificate\n"), 1 : run(o);
  std::filesystem::remove_all(folder);
  return status;
}
