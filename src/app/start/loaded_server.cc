#include "app/start/loaded_server.h"

#include <algorithm>
#include <future>

#include "base/clock.h"
#include "base/log.h"

namespace tern::app {
namespace {

void add_eos(std::vector<int32_t>& ids, const content::Tokenizer* tokenizer) {
  if (tokenizer == nullptr || !tokenizer->eos_id()) return;
  const int32_t id = *tokenizer->eos_id();
  if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
}

}  // namespace

Expected<std::unique_ptr<LoadedServer>> LoadedServer::load(const Settings& settings) {
  std::unique_ptr<LoadedServer> loaded(new LoadedServer());
  TERN_RETURN_IF_ERROR(loaded->load_parts(settings));
  return loaded;
}

Status LoadedServer::load_parts(const Settings& settings) {
  const int64_t started = monotonic_ns();
  auto text =
      std::async(std::launch::async, [&] { return load_text(settings.tokenizer_folder, settings.chat_template); });
  TERN_ASSIGN_OR_RETURN(device_, open_device(settings.device));
  device::Device& device = *device_.device;
  TERN_INFO("device: {}", device.info().name);
  TERN_ASSIGN_OR_RETURN(model_, load_with_progress(settings, device));
  TERN_LOG(LogChannel::kWorker, LogLevel::kInfo,
           "{}: {} layers, {} parameters, {:.3f} GB of weights, loaded in {:.3f} s", model_->info().architecture,
           model_->info().layers, model_->info().parameters, static_cast<double>(model_->info().weight_bytes) / 1e9,
           static_cast<double>(monotonic_ns() - started) / 1e9);
  TERN_ASSIGN_OR_RETURN(text_, text.get());
  TERN_ASSIGN_OR_RETURN(vision_, load_vision(settings, device, text_.tokenizer.get()));
  engine::EngineConfig engine_config = settings.engine;
  if (!settings.trace.empty()) {
    TERN_ASSIGN_OR_RETURN(trace_, TraceFile::open(settings.trace));
    engine_config.trace = trace_.get();
  }
  add_eos(engine_config.eos_token_ids, text_.tokenizer.get());
  if (vision_.tower) engine_config.vision = vision_config(settings, *vision_.profile, vision_.tower->info().merge);
  TERN_ASSIGN_OR_RETURN(engine_, engine::Engine::start(engine_config, *model_, device, vision_.tower.get()));
  keep_learned(device_);
  config_ = settings.serve;
  config_.vocab_size = model_->info().vocab_size;
  config_.cache_config.emplace_back("num_gpu_blocks", std::to_string(engine_->blocks().total));
  return {};
}

Status LoadedServer::listen() {
  const serve::Content content{text_.tokenizer.get(), text_.chat_template.get(), text_.tool_template.get(),
                               vision_.profile ? &*vision_.profile : nullptr, vision_.media.get()};
  TERN_ASSIGN_OR_RETURN(server_, serve::Server::start(config_, *engine_, content));
  return {};
}

LoadedServer::~LoadedServer() {
  if (server_) server_->stop(0);
  if (engine_) engine_->shutdown(true);
}

}  // namespace tern::app
