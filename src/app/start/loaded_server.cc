#include "app/start/loaded_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <future>
#include <limits>

#include "app/flags/json_text.h"
#include "app/paddlenlp/grpc_library.h"
#include "app/start/script_file.h"
#include "base/clock.h"
#include "base/log.h"

namespace tern::app {
namespace {

// The page of /config-info with what the weights and the cache became, which is known when the model is loaded.
std::string with_formats(const std::string& page, const model::ModelInfo& info) {
  auto value = json::parse(page);
  if (!value.ok() || !value->is_object()) return page;
  if (!info.formats.empty()) value->get_object()["weight_formats"] = info.formats;
  value->get_object()["kv_cache_format"] = info.cache_format;
  return json_line(*value);
}

std::unique_ptr<engine::EngineClient> make_echoes(engine::EchoConfig echo, int count) {
  if (count == 1) return engine::make_echo_engine(echo);
  const auto news = std::make_shared<engine::NewsSignal>();
  echo.news = news.get();
  std::vector<std::unique_ptr<engine::EngineClient>> engines;
  for (int i = 0; i < count; ++i) engines.push_back(engine::make_echo_engine(echo));
  return std::make_unique<engine::Engines>(std::move(engines), news);
}

// Cache blocks of the engine that has fewest.
int fewest_blocks(const engine::EngineClient& engine) {
  int fewest = std::numeric_limits<int>::max();
  for (const engine::EngineStats& s : engine.parts()) fewest = std::min(fewest, s.total_blocks);
  return fewest;
}

void add_eos(std::vector<int32_t>& ids, const content::Tokenizer* tokenizer) {
  if (tokenizer == nullptr || !tokenizer->eos_id()) return;
  const int32_t id = *tokenizer->eos_id();
  if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
}

Expected<std::optional<answer::AnswerFormat>> load_parsers(const Settings& settings,
                                                           const content::Tokenizer* tokenizer) {
  if (settings.reasoning_parser.empty() && settings.tool_call_parser.empty()) {
    return std::optional<answer::AnswerFormat>();
  }
  if (tokenizer == nullptr) {
    return make_error(ErrorCode::kInvalidArgument,
                      "--reasoning-parser and --tool-call-parser need the tokenizer files of the model");
  }
  TERN_ASSIGN_OR_RETURN(auto format, answer::AnswerFormat::make(settings.reasoning_parser, settings.tool_call_parser,
                                                                answer::vocabulary_of(*tokenizer)));
  return std::optional(std::move(format));
}

// For guided decoding; null where it is off, and for a model without a tokenizer. The tokenizer must outlive it.
std::unique_ptr<content::GrammarCompiler> make_grammars(const Settings& settings, const content::Tokenizer* tokenizer,
                                                        const std::vector<int32_t>& ends) {
  if (!settings.serve.guided || tokenizer == nullptr || ends.empty()) return nullptr;
  return std::make_unique<content::GrammarCompiler>(
      [tokenizer, ends] { return content::GrammarVocabulary::make(*tokenizer, ends); },
      content::GrammarCompilerOptions{});
}

Status take_width(const model::ModelInfo& info, serve::PoolingConfig& pooling) {
  pooling.width = info.pooled;
  if (pooling.dimensions.value_or(1) <= info.pooled) return {};
  return make_error(ErrorCode::kInvalidArgument,
                    fmt::format("--override-pooler-config: dimensions {} is above the {} values of the model's vectors",
                                *pooling.dimensions, info.pooled),
                    "override-pooler-config");
}

}  // namespace

Expected<std::unique_ptr<LoadedServer>> LoadedServer::load(const Settings& settings) {
  std::unique_ptr<LoadedServer> loaded(new LoadedServer());
  TERN_RETURN_IF_ERROR(settings.scripted.empty() ? loaded->load_parts(settings) : loaded->load_scripted(settings));
  if (settings.spans.wanted) {
    loaded->spans_ = std::make_unique<SpanExporter>(settings.spans);
    loaded->config_.export_spans = [to = loaded->spans_.get()](std::string spans) { to->add(std::move(spans)); };
  }
  return loaded;
}

Status LoadedServer::load_parts(const Settings& settings) {
  const int64_t started = monotonic_ns();
  auto text =
      std::async(std::launch::async, [&] { return load_text(settings.tokenizer_folder, settings.chat_template); });
  TERN_ASSIGN_OR_RETURN(engines_, LoadedEngines::open(settings));
  device::Device& device = *engines_->first().device().device;
  TERN_INFO("device: {}", device.info().name);
  for (const std::string& note : device.notes()) TERN_INFO("device: {}", note);
  TERN_RETURN_IF_ERROR(engines_->load(settings));
  const model::ModelInfo& info = engines_->first().model().info();
  TERN_LOG(LogChannel::kWorker, LogLevel::kInfo,
           "{}: {} layers, {} parameters, {:.3f} GB of weights, loaded in {:.3f} s", info.architecture, info.layers,
           info.parameters, static_cast<double>(engines_->weight_bytes()) / 1e9,
           static_cast<double>(monotonic_ns() - started) / 1e9);
  TERN_ASSIGN_OR_RETURN(text_, text.get());
  TERN_ASSIGN_OR_RETURN(answers_, load_parsers(settings, text_.tokenizer.get()));
  TERN_ASSIGN_OR_RETURN(vision_, load_vision(settings, device, text_.tokenizer.get()));
  engine::EngineConfig engine_config = settings.engine;
  if (!settings.trace.empty()) {
    TERN_ASSIGN_OR_RETURN(trace_, TraceFile::open(settings.trace, engines_->count()));
    engine_config.trace = trace_.get();
  }
  add_eos(engine_config.eos_token_ids, text_.tokenizer.get());
  grammars_ = make_grammars(settings, text_.tokenizer.get(), engine_config.eos_token_ids);
  if (grammars_ == nullptr) engine_config.mask_threads = 0;
  if (vision_.tower) engine_config.vision = vision_config(settings, *vision_.profile, vision_.tower->info().merge);
  if (vision_.tower) TERN_RETURN_IF_ERROR(engines_->load_towers(settings, *vision_.tower));
  TERN_ASSIGN_OR_RETURN(engine_, engines_->start(engine_config));
  keep_learned(engines_->first().device());
  weights_ = std::make_unique<LoadedWeights>(settings, *engines_);
  config_ = settings.serve;
  config_.config_info = with_formats(config_.config_info, info);
  config_.vocab_size = info.vocab_size;
  if (config_.pooling) TERN_RETURN_IF_ERROR(take_width(info, *config_.pooling));
  config_.cache_config.emplace_back("num_gpu_blocks", std::to_string(fewest_blocks(*engine_)));
  if (config_.paddlenlp && device.own_memory()) gpus_ = GpuWatch::open();
  if (gpus_) config_.gpus = [gpus = gpus_.get()] { return gpus->figures(); };
  return {};
}

Status LoadedServer::load_scripted(const Settings& settings) {
  TERN_ASSIGN_OR_RETURN(text_, load_text(settings.tokenizer_folder, settings.chat_template));
  const content::Tokenizer* tokenizer = text_.tokenizer.get();
  if (tokenizer == nullptr) {
    return make_error(ErrorCode::kInvalidArgument, "--scripted needs the tokenizer files of a model", "scripted");
  }
  engine::EchoConfig echo;
  TERN_ASSIGN_OR_RETURN(echo.script, read_script(settings.scripted, *tokenizer));
  TERN_ASSIGN_OR_RETURN(answers_, load_parsers(settings, tokenizer));
  TERN_WARN("no model is loaded: {} answers are read from {}", echo.script.size(), settings.scripted);
  TERN_ASSIGN_OR_RETURN(vision_, load_media(settings, tokenizer));
  config_ = settings.serve;
  config_.vocab_size = std::max(static_cast<int32_t>(settings.model.vocab_size), tokenizer->vocab_size());
  std::vector<int32_t> eos = settings.engine.eos_token_ids;
  add_eos(eos, tokenizer);
  grammars_ = make_grammars(settings, tokenizer, eos);
  if (!eos.empty()) echo.eos_token_id = eos.front();
  echo.vocab_size = config_.vocab_size;
  echo.max_num_seqs = settings.engine.scheduler.max_num_seqs;
  echo.max_model_len = config_.max_model_len;
  echo.entropy = settings.engine.entropy;
  echo.kept_tokens = settings.engine.kept_tokens;
  engine_ = make_echoes(echo, settings.data_parallel.count);
  return {};
}

Status LoadedServer::listen() {
  const serve::Content content{text_.tokenizer.get(),
                               text_.chat_template.get(),
                               text_.tool_template.get(),
                               vision_.profile ? &*vision_.profile : nullptr,
                               vision_.media.get(),
                               answers_ ? &*answers_ : nullptr,
                               grammars_.get()};
  GrpcLibrary grpc;
  if (config_.paddlenlp && config_.paddlenlp->grpc_port >= 0) {
    TERN_ASSIGN_OR_RETURN(grpc, load_grpc_library());
  }
  TERN_ASSIGN_OR_RETURN(server_, serve::Server::start(config_, *engine_, content, grpc.start, weights_.get()));
  return {};
}

LoadedServer::~LoadedServer() {
  if (server_) server_->stop(0);
  if (engine_) engine_->shutdown(true);
}

}  // namespace tern::app
