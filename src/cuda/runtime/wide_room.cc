#include "cuda/runtime/wide_room.h"

#include <array>
#include <atomic>

namespace tern::cuda {
namespace {

constexpr int kMostDevices = 64;  // those after do without

struct Place {
  std::atomic<size_t> wanted{0};
  WideRoom room;  // written at start and at the end, by the thread that steps come from
};

Place* place_of(int ordinal) {
  static std::array<Place, kMostDevices> places;
  return ordinal < 0 || ordinal >= kMostDevices ? nullptr : &places[static_cast<size_t>(ordinal)];
}

}  // namespace

void want_wide_room(int ordinal, size_t bytes) {
  Place* const p = place_of(ordinal);
  if (p == nullptr) return;
  for (size_t seen = p->wanted.load(); seen < bytes && !p->wanted.compare_exchange_weak(seen, bytes);) {
  }
}

size_t wanted_wide_room(int ordinal) {
  const Place* const p = place_of(ordinal);
  return p == nullptr ? 0 : p->wanted.load();
}

void set_wide_room(int ordinal, WideRoom room) {
  if (Place* const p = place_of(ordinal); p != nullptr) p->room = room;
}

WideRoom wide_room(const StreamState& s) {
  const Place* const p = s.waits ? place_of(s.ordinal) : nullptr;  // of the compute stream alone blocks wait
  return p == nullptr ? WideRoom{} : p->room;
}

}  // namespace tern::cuda
