// `tern run-batch`: answers a file of requests with a server of this process, over its routes, so that a request means
// what it means online.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "app/access/private_key.h"
#include "app/flags/flag_set.h"
#include "app/report.h"
#include "app/start/loaded_server.h"
#include "cli/batch/batch_input.h"
#include "cli/batch/batch_results.h"
#include "cli/batch/batch_run.h"
#include "cli/commands.h"
#include "cli/serve_settings.h"
#include "client/http_client.h"
#include "content/text/files.h"
#include "fetch/fetch.h"

namespace tern::cli {
namespace {

constexpr size_t kMaxTransfer = size_t{4} << 30;  // of an input that is fetched, and an output that is sent
constexpr const char* kHelp =
    R"(Usage: tern run-batch -i INPUT -o OUTPUT --model DIR [flags of tern serve]

Answers every line of INPUT, {"custom_id":…, "method":"POST", "url":"/v1/chat/completions", "body":{…}}, and writes a
line per answer to OUTPUT, in the same order. Answers lie in OUTPUT.part until all are there: the same command goes on
where an interrupted one ended.

  -i, --input-file FILE|URL      the requests
  -o, --output-file FILE|URL     the answers; they are sent to a URL with PUT
      --output-tmp-dir FOLDER    where the answers to a URL are kept until they are sent (default: the system's)
      --max-in-flight N          requests that the server holds at a time (default: twice --max-num-seqs), at most
                                 --max-concurrency
)";

struct BatchOptions {
  std::string input, output, folder;
  int in_flight = 0;
  bool help = false;
  std::vector<std::string> engine;  // flags of tern serve
};

bool is_url(std::string_view text) { return text.starts_with("http://") || text.starts_with("https://"); }

Error usage(std::string what) { return make_error(ErrorCode::kInvalidArgument, std::move(what), "run-batch"); }

// Takes the command's own options out of the arguments; what is left are the server's.
Expected<BatchOptions> parse_own(const std::vector<std::string>& args) {
  BatchOptions options;
  std::string in_flight;
  for (size_t i = 0; i < args.size(); ++i) {
    const size_t equals = args[i].starts_with("--") ? args[i].find('=') : std::string::npos;
    std::string name = args[i].substr(0, equals);
    std::replace(name.begin(), name.end(), '_', '-');
    std::string* const to = name == "-i" || name == "--input-file"    ? &options.input
                            : name == "-o" || name == "--output-file" ? &options.output
                            : name == "--output-tmp-dir"              ? &options.folder
                            : name == "--max-in-flight"               ? &in_flight
                                                                      : nullptr;
    options.help = options.help || name == "--help" || name == "-h";
    if (to == nullptr) {
      options.engine.push_back(args[i]);
    } else if (equals != std::string::npos) {
      *to = args[i].substr(equals + 1);
    } else if (++i < args.size()) {
      *to = args[i];
    } else {
      return usage(fmt::format("{} needs a value", name));
    }
  }
  if (options.help) return options;
  if (options.input.empty()) return usage("-i names the file of requests (tern run-batch --help)");
  if (options.output.empty()) return usage("-o names the file for the answers (tern run-batch --help)");
  if (!in_flight.empty()) {
    const auto [end, error] = std::from_chars(in_flight.data(), in_flight.data() + in_flight.size(), options.in_flight);
    if (error != std::errc() || *end != 0 || options.in_flight < 1 || options.in_flight > 4096) {
      return usage(fmt::format("--max-in-flight {} is not from 1 to 4096", in_flight));
    }
  }
  return options;
}

// A file that is fetched is kept beside the answers, or where the answers to a URL are.
Expected<std::string> local_input(const BatchOptions& options, const std::string& folder) {
  if (!is_url(options.input)) return options.input;
  fetch::FetchPolicy policy;
  policy.max_bytes = kMaxTransfer, policy.total_timeout = 3600, policy.allow_private = true;  // the operator's own URL
  auto bytes = fetch::fetch(options.input, policy);
  if (!bytes.ok()) {
    return make_error(bytes.error().code, fmt::format("cannot fetch {}: {}", options.input, bytes.error().message));
  }
  const std::string path = fmt::format("{}/tern-batch-input-{}.jsonl", folder, ::getpid());
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(bytes->data()), static_cast<std::streamsize>(bytes->size()));
  out.close();
  if (!out) return make_error(ErrorCode::kIo, fmt::format("cannot write {}", path));
  return path;
}

Status send_output(const std::string& address, const std::string& path) {
  const auto kept = [&](const std::string& why) {
    return make_error(ErrorCode::kUnavailable,
                      fmt::format("cannot send the answers to {}: {}; they are kept in {}", address, why, path));
  };
  auto text = content::read_file(path, kMaxTransfer);
  if (!text.ok()) return kept(text.error().message);
  auto url = client::parse_url(address);
  if (!url.ok()) return kept(url.error().message);
  const auto status =
      client::http_call(*url, {.method = "PUT", .body = std::move(*text)}, [](std::string_view) { return true; });
  if (!status.ok()) return kept(status.error().message);
  if (*status < 200 || *status > 299) return kept(fmt::format("it answered with status {}", *status));
  std::filesystem::remove(path);
  return {};
}

extern "C" void on_batch_interrupt(int) {
  constexpr std::string_view kWords = "\ntern: interrupted; the answers so far are kept, the same command goes on\n";
  (void)!::write(STDERR_FILENO, kWords.data(), kWords.size());
  ::_exit(130);
}

// Flags of a server that only this process can reach.
Expected<app::Settings> batch_settings(const std::vector<std::string>& args, const std::string& key) {
  TERN_ASSIGN_OR_RETURN(app::Arguments arguments, app::parse_arguments(args));
  for (const char* own : {"host", "port", "uds", "metrics-port", "controller-port", "api-key", "api-key-file",
                          "ssl-certfile", "paddlenlp"}) {
    if (arguments.flags.given(own))
      return usage(fmt::format("--{} has no meaning here: no port is opened to others", own));
  }
  arguments.flags.set("host", "127.0.0.1", app::Source::kCommandLine);
  arguments.flags.set("port", 0, app::Source::kCommandLine);
  arguments.flags.set("api-key", json::Array{json::Value(key)}, app::Source::kCommandLine);
  return serve_settings(std::move(arguments.flags), false);
}

Status answer_all(const BatchOptions& options, const BatchInput& input, BatchResults& results) {
  const std::string key = app::private_key();
  TERN_ASSIGN_OR_RETURN(const app::Settings settings, batch_settings(options.engine, key));
  TERN_ASSIGN_OR_RETURN(const auto server, app::LoadedServer::load(settings));
  TERN_RETURN_IF_ERROR(server->listen());
  int most = options.in_flight > 0 ? options.in_flight : std::min(2 * settings.flags.integer32("max-num-seqs"), 512);
  // Beyond it the server would refuse.
  most = std::max(1, std::min(most, settings.flags.integer32("max-concurrency")));
  BatchRun run(input, results, {.host = "127.0.0.1", .port = std::to_string(server->server().port())}, key);
  TERN_RETURN_IF_ERROR(run.run(std::min(most, static_cast<int>(std::min(input.size(), size_t{4096})))));
  fmt::print(stderr, "tern run-batch: {} requests, {} answered now, {} with an error\n", input.size(),
             input.size() - results.earlier(), run.refused());
  return {};
}

Status run(const BatchOptions& options) {
  std::error_code ignored;
  const std::string folder =
      !options.folder.empty() ? options.folder : std::filesystem::temp_directory_path(ignored).string();
  TERN_ASSIGN_OR_RETURN(const std::string path, local_input(options, folder));
  TERN_ASSIGN_OR_RETURN(const BatchInput input, BatchInput::open(path));
  const bool fetched = path != options.input, sent = is_url(options.output);
  if (fetched) std::filesystem::remove(path, ignored);  // it stays open
  const Hash128 of = input.fingerprint();
  const std::string output =
      sent ? fmt::format("{}/tern-batch-{:016x}{:016x}.jsonl", folder, of.hi, of.lo) : options.output;
  TERN_ASSIGN_OR_RETURN(BatchResults results, BatchResults::open(output, of, input.size()));
  if (results.earlier() > 0) {
    fmt::print(stderr, "tern run-batch: {} of {} answers are there from an earlier run\n", results.earlier(),
               input.size());
  }
  if (results.earlier() < input.size()) TERN_RETURN_IF_ERROR(answer_all(options, input, results));
  TERN_RETURN_IF_ERROR(results.finish());
  return sent ? send_output(options.output, output) : Status();
}

}  // namespace

int run_batch(const std::vector<std::string>& args) {
  const auto options = parse_own(args);
  if (!options.ok()) return app::report(options.error());
  if (options->help) {
    fmt::print("{}", kHelp);
    return 0;
  }
  signal(SIGPIPE, SIG_IGN);
  signal(SIGINT, on_batch_interrupt);
  const Status status = run(*options);
  return status.ok() ? 0 : app::report(status.error());
}

}  // namespace tern::cli
