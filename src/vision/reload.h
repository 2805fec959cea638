// A tower's weights that are read again (model/reload.h).
#pragma once

#include <memory>

#include "model/reload.h"
#include "vision/tower.h"

namespace tern::vision {

Expected<std::unique_ptr<model::Reload>> open_tower_reload(const model::LoadOptions& options, const Tower& tower,
                                                           device::Device& device);

}  // namespace tern::vision
