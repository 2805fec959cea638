#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <map>
#include <mutex>
#include <thread>

#include "app/access/private_key.h"
#include "app/options.h"
#include "app/report.h"
#include "app/start/loaded_server.h"
#include "base/clock.h"
#include "cli/commands.h"
#include "cli/ocr.h"
#include "client/http_client.h"
#include "content/text/files.h"
#include "image/codecs/decode.h"

namespace tern::cli {
namespace {

constexpr size_t kMaxFile = size_t{180} << 20;  // as base64 it stays below a server's default limit of a body

struct OcrOptions {
  std::vector<std::string> files;
  std::string model, server, api_key, ca_file, model_name = "default", prompt = "OCR:", device = "auto";
  int max_tokens = 0, parallel = 4;
  bool json = false, quiet = false;
};

// Answers in the order of the files, each as soon as all before it are there.
class Printer {
 public:
  Printer(const OcrOptions& options, bool terminal) : options_(options), terminal_(terminal) { bar(); }
  ~Printer() {
    if (shown_) std::fputs("\n", stderr);
  }
  void put(size_t number, Expected<OcrAnswer> answer) {
    std::lock_guard lock(mutex_);
    waiting_.emplace(number, std::move(answer));
    ++done_;
    if (shown_) std::fputs("\r\033[K", stderr);
    for (auto it = waiting_.begin(); it != waiting_.end() && it->first == next_; it = waiting_.erase(it), ++next_) {
      print(options_.files[next_], it->second);
    }
    std::fflush(stdout);
    bar();
  }
  int failed() const { return failed_; }

 private:
  void print(const std::string& file, const Expected<OcrAnswer>& answer) {
    if (!answer.ok()) {
      ++failed_;
      if (options_.json)
        fmt::print("{}\n", json::dump(json::Object{{"file", file}, {"error", answer.error().message}}));
      else
        fmt::print(stderr, "tern: {}: {}\n", file, answer.error().message);
      return;
    }
    if (options_.json) {
      fmt::print("{}\n", json::dump(json::Object{{"file", file},
                                                 {"text", answer->text},
                                                 {"finish_reason", answer->finish_reason},
                                                 {"prompt_tokens", answer->prompt_tokens},
                                                 {"image_tokens", answer->image_tokens},
                                                 {"completion_tokens", answer->completion_tokens},
                                                 {"seconds", answer->seconds}}));
      return;
    }
    if (options_.files.size() > 1) fmt::print("==> {} <==\n", file);
    fmt::print("{}\n", answer->text);
    if (answer->finish_reason == "length") fmt::print(stderr, "tern: {}: cut at the longest answer\n", file);
  }
  void bar() {
    if (!terminal_ || options_.quiet || options_.files.size() < 2) return;
    constexpr size_t kWidth = 30;
    const size_t filled = done_ * kWidth / options_.files.size();
    fmt::print(stderr, "\r[{}{}] {} / {} files", std::string(filled, '#'), std::string(kWidth - filled, '.'), done_,
               options_.files.size());
    std::fflush(stderr);
    shown_ = true;
  }

  const OcrOptions& options_;
  const bool terminal_;
  std::mutex mutex_;
  std::map<size_t, Expected<OcrAnswer>> waiting_;
  size_t next_ = 0, done_ = 0;
  int failed_ = 0;
  bool shown_ = false;
};

Expected<OcrAnswer> read_one(const client::Url& url, const OcrOptions& options, const std::string& file) {
  auto bytes = content::read_file(file, kMaxFile);
  if (!bytes.ok()) return std::move(bytes).error();
  const int64_t start = monotonic_ns();
  std::string answer;
  const client::HttpCall call{.path = "/chat/completions",
                              .body = ocr_body(*bytes, options.prompt, options.model_name, options.max_tokens),
                              .api_key = options.api_key,
                              .ca_file = options.ca_file};
  TERN_ASSIGN_OR_RETURN(const int status, client::http_call(url, call, [&](std::string_view piece) {
                          answer += piece;
                          return answer.size() < (size_t{64} << 20);
                        }));
  TERN_ASSIGN_OR_RETURN(OcrAnswer read, parse_ocr_answer(status, answer));
  read.seconds = static_cast<double>(monotonic_ns() - start) * 1e-9;
  return read;
}

int read_all(const client::Url& url, const OcrOptions& options) {
  Printer printer(options, ::isatty(STDERR_FILENO) == 1);
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i; (i = next.fetch_add(1)) < options.files.size();) {
      printer.put(i, read_one(url, options, options.files[i]));
    }
  };
  std::vector<std::thread> threads;
  const size_t count = std::min(static_cast<size_t>(options.parallel), options.files.size());
  for (size_t i = 1; i < count; ++i) threads.emplace_back(work);
  work();
  for (auto& thread : threads) thread.join();
  return printer.failed() == 0 ? 0 : app::kFailureExit;
}

// A server of our own on the loopback address, with a key that nobody else knows.
int read_in_process(OcrOptions options) {
  if (options.model.empty()) options.model = shipped_model();
  if (options.model.empty()) {
    return app::report(
        make_error(ErrorCode::kInvalidArgument,
                   "the model that ships with tern is not beside the program: --model or --server is needed"));
  }
  options.api_key = app::private_key();
  auto settings = ocr_settings(options.model, options.api_key, options.parallel, options.device);
  if (!settings.ok()) return app::report(settings.error());
  if (!settings->media.wanted) {
    return app::report(make_error(ErrorCode::kUnsupported, fmt::format("{} reads text only", options.model), "model"));
  }
  auto loaded = app::LoadedServer::load(*settings);
  if (!loaded.ok()) return app::report(loaded.error());
  if (const Status status = (*loaded)->listen(); !status.ok()) return app::report(status.error());
  const client::Url url{.host = "127.0.0.1", .port = std::to_string((*loaded)->server().port()), .path = "/v1"};
  return read_all(url, options);
}

}  // namespace

int run_ocr(const std::vector<std::string>& args) {
  app::Options parser("Reads the text of pictures", "tern ocr");
  OcrOptions options;
  parser.add_option("FILE", options.files, "Pictures (JPEG, PNG, WebP, GIF, BMP)").required();
  app::Option model =
      parser.add_option("--model,-m", options.model, "Folder of the model; without it the one that ships");
  app::Option server = parser.add_option("--server", options.server, "Address of a running server, instead of a model");
  model.excludes(server);
  parser.add_option("--device", options.device, "auto, cpu, cuda or cuda:N: where the model runs")
      .capture_default_str();
  parser.add_option("--prompt", options.prompt, "Task for the model").capture_default_str();
  parser.add_option("--max-tokens", options.max_tokens, "Most tokens of an answer");
  parser.add_option("--parallel", options.parallel, "Pictures read at a time").range(1, 256).capture_default_str();
  parser.add_option("--model-name", options.model_name, "Model to name in requests to a server");
  parser.add_option("--api-key", options.api_key, "Bearer key of the server");
  parser.add_option("--ca-file", options.ca_file, "Certificates to trust for https (PEM) instead of the system's");
  parser.add_flag("--json", options.json, "One JSON object per file and line");
  parser.add_flag("--quiet", options.quiet, "No progress bar");
  if (const auto status = app::parse_options(parser, args)) return *status;
  signal(SIGPIPE, SIG_IGN);
  if (options.server.empty()) return read_in_process(std::move(options));
  auto url = client::parse_url(options.server);
  if (!url.ok()) return app::report(url.error());
  if (url->path.empty()) url->path = "/v1";
  return read_all(*url, options);
}

}  // namespace tern::cli
