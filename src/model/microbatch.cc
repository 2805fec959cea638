#include "model/microbatch.h"

namespace tern::model {

Expected<std::unique_ptr<Microbatches>> Microbatches::make(device::Device& device) {
  if (device.microbatch_streams() < 2) return std::unique_ptr<Microbatches>();
  auto made = std::make_unique<Microbatches>();
  TERN_ASSIGN_OR_RETURN(made->begin_, device.make_event());
  for (int i = 0; i < device.microbatch_streams(); ++i) {
    TERN_ASSIGN_OR_RETURN(auto end, device.make_event());
    made->microbatches_.push_back({device.microbatch_stream(i), std::move(end)});
  }
  return made;
}

Status Microbatches::fork(device::Stream main, int count) const {
  TERN_RETURN_IF_ERROR(begin_->record(main));
  for (int i = 0; i < count; ++i) TERN_RETURN_IF_ERROR(begin_->wait_on(stream(i)));
  return {};
}

Status Microbatches::join(device::Stream main, int count) const {
  for (int i = 0; i < count; ++i) {
    const Part& part = microbatches_[static_cast<size_t>(i)];
    TERN_RETURN_IF_ERROR(part.end->record(part.stream));
    TERN_RETURN_IF_ERROR(part.end->wait_on(main));
  }
  return {};
}

}  // namespace tern::model
