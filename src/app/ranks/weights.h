// The weights of all engines and ranks, decoder and tower, which control orders give back and read again.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "app/config/settings.h"
#include "app/ranks/engines.h"
#include "model/reload.h"
#include "serve/control/weights.h"

namespace tern::app {

class LoadedWeights final : public serve::control::Weights {
 public:
  // `engines` have been loaded, with their towers, and outlive it.
  LoadedWeights(const Settings& settings, const LoadedEngines& engines)
      : load_(settings.load), root_(settings.weights_root), engines_(engines), folder_(settings.load.path) {}
  Status give_back() override;
  Status read(const serve::control::WeightsFrom& from) override;
  bool whole() const override { return whole_; }

 private:
  using Reloads = std::vector<std::unique_ptr<model::Reload>>;

  Expected<std::string> find_folder(const serve::control::WeightsFrom& from) const;
  Expected<Reloads> open(const std::string& folder) const;
  Status fill(const Reloads& reloads);

  const model::LoadOptions load_;
  const std::string root_;  // --weights-root
  const LoadedEngines& engines_;
  std::string folder_;  // what they were read from last
  bool whole_ = true;
};

}  // namespace tern::app
