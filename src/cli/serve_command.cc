#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>

#include "app/config/settings.h"
#include "app/flags/json_text.h"
#include "app/report.h"
#include "app/start/service.h"
#include "app/start/signals.h"
#include "app/start/vision_parts.h"
#include "cli/commands.h"
#include "cli/engines_summary.h"
#include "cli/help.h"
#include "cli/serve_settings.h"
#include "model/loader.h"

namespace tern::cli {
namespace {

// What each rank takes, for every number of ranks that can share the model.
json::Array describe_ranks(const model::ModelSummary& summary) {
  json::Array out;
  for (const model::RankSummary& r : summary.ranks) {
    json::Object weights;
    for (const auto& [name, bytes] : r.weight_bytes) weights[name] = bytes;
    out.emplace_back(
        json::Object{{"count", r.count}, {"weight_bytes", weights}, {"kv_bytes_per_token", r.kv_bytes_per_token}});
  }
  return out;
}

int dry_run(const app::Settings& settings) {
  json::Object out = app::describe(settings);
  if (settings.model.folder.empty()) {
    out["note"] = "the model folder is not on this machine; its config.json was not read";
  } else {
    model::LoadOptions options = settings.load;
    const bool shared = settings.ranks.expert_parallel && settings.data_parallel.size > 1;
    options.shard = {0, settings.ranks.count, settings.ranks.expert_parallel};
    if (shared) options.shard.engines = settings.data_parallel.size;
    auto summary = model::summarize_model(options);
    if (!summary.ok()) return app::report(summary.error());
    json::Object& o = out["model"].as_object();
    o["parameters"] = summary->parameters;
    o["active_parameters"] = summary->active_parameters;
    o["layers"] = summary->layers;
    o["kv_bytes_per_token"] = summary->kv_bytes_per_token;
    o["ranks"] = describe_ranks(*summary);
    if (const int engines = settings.data_parallel.size; engines > 1) {
      o["data_parallel"] = describe_engines(*summary, engines, settings.ranks.count, shared);
    }
    o["kv_cache_format"] = summary->cache_format;
    o["bos_token_id"] = summary->bos_token_id;
    o["tied_embeddings"] = summary->tied;
    if (!summary->formats.empty()) o["weight_formats"] = summary->formats;
    for (const std::string& note : summary->notes) out["warnings"].as_array().emplace_back(note);
    auto profile = app::read_profile(settings, nullptr);
    if (!profile.ok()) return app::report(profile.error());
    if (*profile) o["vision"] = app::describe_profile(**profile);
  }
  if (settings.paddlenlp) out["paddlenlp_columns"] = paddlenlp_columns(settings);
  fmt::print("{}\n", app::json_page(out));
  return 0;
}

int show_help(const std::string& topic) {
  const bool paged = topic == "page";
  std::FILE* pager = nullptr;
  if (paged && ::isatty(STDOUT_FILENO) == 1) {
    signal(SIGPIPE, SIG_IGN);  // it may end before it has read all
    pager = ::popen("${PAGER:-less}", "w");
  }
  const std::string text = flag_help(paged ? "" : topic);
  std::fwrite(text.data(), 1, text.size(), pager != nullptr ? pager : stdout);
  return pager == nullptr || ::pclose(pager) == 0 ? 0 : app::kFailureExit;
}

// `tern serve NAME ...`: the first word is the model.
std::vector<std::string> with_model_flag(std::vector<std::string> args) {
  if (!args.empty() && !args[0].empty() && args[0][0] != '-') args.insert(args.begin(), "--model");
  return args;
}

int start(const std::vector<std::string>& args, bool paddlenlp_alone) {
  app::hold_hangup();
  auto arguments = app::parse_arguments(with_model_flag(args));
  if (!arguments.ok()) return app::report(arguments.error());
  if (arguments->help) {
    return show_help(arguments->help_topic);
  }
  const bool dry = arguments->flags.boolean("dry-run");
  auto settings = serve_settings(std::move(arguments->flags), paddlenlp_alone);
  if (!settings.ok()) return app::report(settings.error());
  if (dry) return dry_run(*settings);
  return app::run_service(*settings);
}

}  // namespace

int run_serve(const std::vector<std::string>& args) { return start(args, false); }
int run_serve_paddlenlp(const std::vector<std::string>& args) { return start(args, true); }

}  // namespace tern::cli
