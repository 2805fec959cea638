// Qwen2.5-Math's reward models (models-newer.md 3): Qwen2 with a head of two layers. A model that judges steps has two
// labels, bad and good; the other one.
#include "model/arch/common.h"

namespace tern::model {

void read_qwen2(ConfigReader& config, DecoderSpec& spec);

void read_qwen2_reward(ConfigReader& config, DecoderSpec& spec) {
  read_qwen2(config, spec);
  spec.head = HeadKind::kReluMlp;
  spec.labels = spec.architecture == "Qwen2ForProcessRewardModel" ? 2 : 1;
}

}  // namespace tern::model
