// Streams of one device on which parts of one step run side by side. In a small model a layer is a chain of short
// kernels, each of which waits for the one before it; a second chain, of other sequences, has use for that time.
#pragma once

#include <memory>
#include <vector>

#include "base/error.h"
#include "device/device.h"

namespace tern::model {

class Microbatches {
 public:
  // Null when the device has but one.
  static Expected<std::unique_ptr<Microbatches>> make(device::Device& device);

  int count() const { return static_cast<int>(microbatches_.size()); }
  device::Stream stream(int part) const { return microbatches_[static_cast<size_t>(part)].stream; }
  // What the first `count` microbatches are given from here on waits for what `main` was given before.
  Status fork(device::Stream main, int count) const;
  // And the other way round.
  Status join(device::Stream main, int count) const;

 private:
  struct Part {
    device::Stream stream;
    std::unique_ptr<device::Event> end;
  };
  std::vector<Part> microbatches_;
  std::unique_ptr<device::Event> begin_;
};

}  // namespace tern::model
