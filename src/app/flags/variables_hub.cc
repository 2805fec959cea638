#include "app/flags/environment.h"

// Where models come from: FastDeploy's variables and those of the hubs' own clients.
namespace tern::app {
namespace {
using enum ValueType;
using enum VariableGroup;

constexpr VariableSpec text(std::string_view name, std::string_view meaning) {
  return {.name = name, .group = kSource, .meaning = meaning};
}
constexpr VariableSpec offline(std::string_view name) {
  return {.name = name,
          .group = kSource,
          .type = kBool,
          .fallback = "0",
          .meaning = "1: nothing is fetched from a hub, whichever it is."};
}

constexpr VariableSpec kVariables[] = {
    text("FD_MODEL_CACHE", "Folder in which models of hubs are looked for and kept; default: HOME."),
    {.name = "FD_MODEL_SOURCE",
     .group = kSource,
     .type = kEnum,
     .fallback = "AISTUDIO",
     .choices = "AISTUDIO|MODELSCOPE|HUGGINGFACE",
     .meaning = "Hub that models are fetched from."},
    {.name = "DOWNLOAD_SOURCE",
     .group = kSource,
     .type = kEnum,
     .choices = "aistudio|modelscope|huggingface|AISTUDIO|MODELSCOPE|HUGGINGFACE",
     .meaning = "The same, where FD_MODEL_SOURCE is not set."},
    text("HOME", "Where models of hubs are looked for and kept without FD_MODEL_CACHE; root of caches."),
    text("HF_ENDPOINT", "Address of Hugging Face or of a mirror."),
    text("HF_TOKEN", "Token for Hugging Face; default: the one in HF_HOME/token."),
    text("HUGGING_FACE_HUB_TOKEN", "The same, where HF_TOKEN is not set."),
    text("HF_HOME", "Folder of Hugging Face's clients: their token, and their cache in hub/."),
    text("HF_HUB_CACHE", "Cache of Hugging Face's clients, which is read."),
    text("HUGGINGFACE_HUB_CACHE", "The same, where HF_HUB_CACHE is not set."),
    offline("HF_HUB_OFFLINE"),
    offline("TRANSFORMERS_OFFLINE"),
    text("MODELSCOPE_ENDPOINT", "Address of ModelScope or of a mirror."),
    text("MODELSCOPE_DOMAIN", "The same, where MODELSCOPE_ENDPOINT is not set; without https://, too."),
    text("MODELSCOPE_API_TOKEN", "Token for ModelScope."),
    text("MODELSCOPE_CACHE", "Cache of ModelScope's clients, which is read."),
    offline("MODELSCOPE_OFFLINE"),
    text("AISTUDIO_ENDPOINT", "Address of AI Studio's git host or of a mirror."),
    text("STUDIO_GIT_HOST", "The same, where AISTUDIO_ENDPOINT is not set."),
    text("AISTUDIO_ACCESS_TOKEN", "Token for AI Studio."),
    offline("AISTUDIO_OFFLINE"),
};

}  // namespace

std::span<const VariableSpec> hub_variables() { return kVariables; }

}  // namespace tern::app
