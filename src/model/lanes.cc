#include "model/lanes.h"

namespace tern::model {

Expected<std::unique_ptr<Lanes>> Lanes::make(device::Device& device) {
  if (device.lanes() < 2) return std::unique_ptr<Lanes>();
  auto made = std::make_unique<Lanes>();
  TERN_ASSIGN_OR_RETURN(made->begin_, device.make_event());
  for (int i = 0; i < device.lanes(); ++i) {
    TERN_ASSIGN_OR_RETURN(auto end, device.make_event());
    made->lanes_.push_back({device.lane(i), std::move(end)});
  }
  return made;
}

Status Lanes::fork(device::Stream main, int count) const {
  TERN_RETURN_IF_ERROR(begin_->record(main));
  for (int i = 0; i < count; ++i) TERN_RETURN_IF_ERROR(begin_->wait_on(stream(i)));
  return {};
}

Status Lanes::join(device::Stream main, int count) const {
  for (int i = 0; i < count; ++i) {
    const Lane& lane = lanes_[static_cast<size_t>(i)];
    TERN_RETURN_IF_ERROR(lane.end->record(lane.stream));
    TERN_RETURN_IF_ERROR(lane.end->wait_on(main));
  }
  return {};
}

}  // namespace tern::model
