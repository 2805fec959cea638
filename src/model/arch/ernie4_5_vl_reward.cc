// ERNIE-4.5-VL's reward model (models-newer.md 3): its decoder with a gated head of one label.
#include "model/arch/common.h"

namespace tern::model {

void read_ernie4_5_vl_moe(ConfigReader& config, DecoderSpec& spec);

void read_ernie4_5_vl_reward(ConfigReader& config, DecoderSpec& spec) {
  read_ernie4_5_vl_moe(config, spec);
  spec.head = HeadKind::kGatedMlp;
  spec.labels = 1;
}

}  // namespace tern::model
