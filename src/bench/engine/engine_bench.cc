#include "bench/engine/engine_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "app/flags/json_text.h"
#include "app/hub/find_folder.h"

namespace tern::bench {
namespace {

constexpr const char* kOfServer[] = {"uds", "dry-run", "scripted", "paddlenlp", "exit-with-stdin"};

Status refuse_server_flags(const app::FlagSet& flags) {
  for (const app::FlagSpec& flag : app::flag_table()) {
    const bool of_server = flag.group == app::FlagGroup::kServer || flag.group == app::FlagGroup::kLimits ||
                           std::find(std::begin(kOfServer), std::end(kOfServer), flag.name) != std::end(kOfServer);
    if (of_server && flags.given(flag.name)) {
      return make_error(ErrorCode::kInvalidArgument,
                        fmt::format("--{} has no meaning here: the engine runs without a server", flag.name),
                        std::string(flag.name));
    }
  }
  return {};
}

Expected<app::Settings> engine_settings(const std::vector<std::string>& args) {
  TERN_ASSIGN_OR_RETURN(app::Arguments arguments, app::parse_arguments(args));
  app::FlagSet& flags = arguments.flags;
  TERN_RETURN_IF_ERROR(refuse_server_flags(flags));
  if (!flags.given("enable-prefix-caching"))
    flags.set("enable-prefix-caching", json::Value(false), app::Source::kCommandLine);
  TERN_ASSIGN_OR_RETURN(app::Environment environment, app::Environment::from(app::Environment::of_process()));
  TERN_ASSIGN_OR_RETURN(const std::string folder, app::obtain_folder(app::wish_of(flags), environment));
  TERN_ASSIGN_OR_RETURN(const app::ModelFacts facts, app::read_model_facts(folder, flags));
  return app::resolve(std::move(flags), std::move(environment), facts);
}

}  // namespace

Expected<std::unique_ptr<EngineBench>> load_engine_bench(const std::vector<std::string>& flags, bool trace) {
  auto bench = std::make_unique<EngineBench>();
  TERN_ASSIGN_OR_RETURN(bench->settings, engine_settings(flags));
  app::Settings& settings = bench->settings;
  TERN_ASSIGN_OR_RETURN(bench->text, app::load_text(settings.tokenizer_folder, settings.chat_template));
  if (bench->text.tokenizer != nullptr && bench->text.tokenizer->eos_id())
    settings.engine.eos_token_ids.push_back(*bench->text.tokenizer->eos_id());
  if (!settings.trace.empty()) {
    TERN_ASSIGN_OR_RETURN(bench->trace, app::TraceFile::open(settings.trace));
    bench->gate = std::make_unique<TraceGate>(*bench->trace, trace);
    settings.engine.trace = bench->gate.get();
  }
  TERN_ASSIGN_OR_RETURN(bench->offline, app::Offline::load(settings));
  TERN_RETURN_IF_ERROR(bench->offline->start_engine());
  return bench;
}

void detokenize(const EngineBench& bench, const app::OfflineRun& run) {
  if (bench.text.tokenizer != nullptr) (void)bench.text.tokenizer->decode(run.tokens, true);
}

SamplingParams plain_sampling() {
  SamplingParams sampling;
  sampling.temperature = 1, sampling.top_p = 1;
  return sampling;
}

Status write_result(const std::string& path, const char* flag, const json::Object& result) {
  std::ofstream out(path, std::ios::binary);
  out << app::json_page(result) << "\n";
  out.close();
  return out ? Status() : make_error(ErrorCode::kIo, fmt::format("cannot write {}", path), flag);
}

}  // namespace tern::bench
