// Memory, events and graphs.
#include <array>
#include <cstring>

#include "cuda/tests/harness.h"
#include "ops/linear.h"
#include "ops/norm.h"

namespace tern::cuda_test {
namespace {

// Whether memory is given back, as the driver says. Another process may take some between the two readings: tried
// again.
bool gives_back(Context& c, device::AddressRange& r) {
  for (int tries = 0; tries < 50; ++tries) {
    const size_t mapped = r.mapped(), before = c.device->memory_available();
    if (!r.shrink(0).ok() || r.mapped() != 0) return false;
    if (c.device->memory_available() >= before + mapped) return true;
    if (!r.grow(mapped).ok()) return false;
  }
  return false;
}

// Memory that grows at fixed addresses and keeps what is in it.
void ranges(Context& c) {
  const size_t unit = size_t{4} << 20;
  auto range = c.device->reserve(16 * unit);
  if (!range.ok()) return c.report(false, "reserve", range.error().message);
  device::AddressRange& r = **range;
  const Status first = r.grow(unit);
  if (!first.ok()) return c.report(false, "grow", first.error().message);
  std::vector<char> data(unit, 7), back(unit);
  c.device->copy_to_device(r.base(), data.data(), unit, c.gpu);
  (void)c.device->synchronize(c.gpu);
  char* const base = r.base();
  const Status second = r.grow(3 * unit + 5);
  c.device->copy_to_host(back.data(), r.base(), unit, c.gpu);
  (void)c.device->synchronize(c.gpu);
  c.report(second.ok() && r.base() == base && r.mapped() >= 3 * unit + 5 && back == data, "grow keeps", "");
  c.device->copy_to_host(back.data(), r.base() + 2 * unit, unit, c.gpu);
  (void)c.device->synchronize(c.gpu);
  c.report(back == std::vector<char>(unit, 0), "grown memory is zero", "");
  c.report(!r.grow(17 * unit).ok(), "grow beyond the range is refused", "");
  c.report(gives_back(c, r), "shrink gives memory back", "");
  const Status again = r.grow(unit);
  c.device->copy_to_host(back.data(), r.base(), unit, c.gpu);
  (void)c.device->synchronize(c.gpu);
  c.report(again.ok() && r.base() == base && back == std::vector<char>(unit, 0), "memory comes again, zero", "");
}

void events(Context& c) {
  Mirror m(c, DType::kF32, {4, 1000});
  m.random(1);
  auto event = c.device->make_event();
  if (!event.ok()) return c.report(false, "event", event.error().message);
  const device::Stream side = c.device->side_stream(device::StreamRole::kCopyOut);
  c.device->copy_to_device(m.device_data() + 3 * 4000, m.host() + 4000, 4000, c.gpu);
  const Status recorded = (*event)->record(c.gpu), waits = (*event)->wait_on(side);
  auto host = c.device->allocate_host(4000);
  if (!recorded.ok() || !waits.ok() || !host.ok()) return c.report(false, "events", "an error");
  c.device->copy_to_host(host->data(), m.device_data() + 3 * 4000, 4000, side);
  const Status done = c.device->synchronize(side);
  c.report(done.ok() && (*event)->done() && std::memcmp(host->data(), m.host() + 4000, 4000) == 0, "events", "");
}

// Two sets of host memory that a graph reads and writes in turn, and a turn that is given by hand.
void turns(Context& c) {
  constexpr size_t kWords = 3000, kColumns = 100;
  std::array<device::Buffer, 2> in, out;
  for (size_t i = 0; i < 2; ++i) {
    auto a = c.device->allocate_host(4 * kWords), b = c.device->allocate_host(4 * kWords);
    if (!a.ok() || !b.ok()) return c.report(false, "copy_in_turn", "no memory");
    in[i] = std::move(*a), out[i] = std::move(*b);
  }
  auto memory = c.device->allocate(4 * kWords), word = c.device->allocate(4);
  auto words = c.device->allocate_host(8);
  if (!memory.ok() || !word.ok() || !words.ok()) return c.report(false, "copy_in_turn", "no memory");
  reinterpret_cast<int32_t*>(words->data())[1] = 1;
  auto* const turn = reinterpret_cast<int32_t*>(word->data());
  // An odd head, and what is behind it as rows with gaps.
  const auto pieces = [&](char* to, const char* from) {
    return std::array<device::CopySpan, 2>{
        device::CopySpan{to, from, 28, 1, 0, 0},
        device::CopySpan{to + 32, from + 32, 4 * kColumns - 4, 29, 4 * kColumns, 4 * kColumns}};
  };
  const auto work = [&]() -> Status {
    const auto a = pieces(memory->data(), in[0].data()), b = pieces(memory->data(), in[1].data());
    TERN_RETURN_IF_ERROR(c.device->copy_in_turn({a, b}, {turn, false}, c.gpu));
    const auto d = pieces(out[0].data(), memory->data()), e = pieces(out[1].data(), memory->data());
    return c.device->copy_in_turn({d, e}, {turn, true}, c.gpu);
  };
  const Status begun = c.device->begin_capture(c.gpu), recorded = work();
  auto graph = c.device->end_capture(c.gpu);
  if (!begun.ok() || !recorded.ok() || !graph.ok()) return c.report(false, "copy_in_turn", "not captured");
  bool same = true;
  size_t now = 0;
  for (int step = 0; step < 40; ++step) {
    auto* const from = reinterpret_cast<int32_t*>(in[now].data());
    for (size_t i = 0; i < kWords; ++i) from[i] = static_cast<int32_t>(i) * 1000 + step;
    same = same && (*graph)->launch(c.gpu).ok() && c.device->synchronize(c.gpu).ok();
    const auto* to = reinterpret_cast<const int32_t*>(out[now].data());
    for (size_t i = 0; i < 7; ++i) same = same && to[i] == from[i];
    for (size_t i = 0; i < 29 * kColumns; ++i) same = same && to[8 + i] == (i % kColumns < 99 ? from[8 + i] : 0);
    now = 1 - now;
    if (step % 5 != 4) continue;
    const device::CopySpan given{turn, words->data() + 4 * (1 - now), 4, 1, 0, 0};  // the same one again
    same = same && c.device->copy_many({&given, 1}, c.gpu).ok();
    now = 1 - now;
  }
  c.report(same, "copy_in_turn", "40 steps");
}

}  // namespace

void test_device(Context& c) {
  c.report(c.device->memory_available() > 0, "memory_available", "");
  // Not under compute-sanitizer, which reports a refused allocation as a fault.
  auto big = c.device->allocate(c.smallest ? 1 : size_t{1} << 50);
  if (!c.smallest)
    c.report(!big.ok() && big.error().code == ErrorCode::kResourceExhausted, "too much memory is refused", "");
  c.report(c.device->synchronize(c.gpu).ok(), "the device lives on", "");
  ranges(c);
  events(c);
}

// A captured piece of a step gives the bits of the eager one, for inputs that change between replays.
void test_graph(Context& c) {
  Mirror x(c, DType::kBF16, {8, 512}), w(c, DType::kBF16, {512}), h(c, DType::kBF16, {8, 512}),
      out(c, DType::kF32, {8, 768}), source(c, DType::kBF16, {768, 512});
  w.random(1), source.random(2, 0.05f);
  auto packed = ops::pack_weight(*c.device, *ops::find_weight_format(device::DeviceKind::kCuda, "bf16"), source.cpu());
  if (!packed.ok()) return c.report(false, "graph", packed.error().message);
  const auto step = [&]() -> Status {
    TERN_RETURN_IF_ERROR(ops::rms_norm({x.gpu(), {}, w.gpu(), h.gpu(), 1e-6f}, c.gpu));
    return ops::linear({h.gpu(), &*packed, {}, out.gpu()}, c.gpu);
  };
  x.random(3);
  if (const Status s = step(); !s.ok()) return c.report(false, "graph", s.error().message);  // loads kernels
  (void)c.device->synchronize(c.gpu);
  const Status begun = c.device->begin_capture(c.gpu), recorded = step();
  auto graph = c.device->end_capture(c.gpu);
  if (!begun.ok() || !recorded.ok() || !graph.ok()) {
    return c.report(false, "capture", graph.ok() ? "an op refused" : graph.error().message);
  }
  bool same = true;
  for (uint32_t i = 0; i < 20; ++i) {
    x.random(10 + i);
    (void)step();
    const std::vector<char> eager = out.copy_to_host();
    x.random(10 + i);
    const Status s = (*graph)->launch(c.gpu);
    same = same && s.ok() && out.copy_to_host() == eager;
  }
  c.report(same, "graph replays", "20 inputs");
  turns(c);
}

}  // namespace tern::cuda_test
