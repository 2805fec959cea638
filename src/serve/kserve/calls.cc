#include "serve/kserve/calls.h"

#include <algorithm>

#include "serve/kserve/infer.h"

namespace tern::serve::kserve {
namespace {

constexpr std::string_view kTooSlow = "the client does not read its answers";
constexpr std::string_view kNoMemory = "the server has no memory for this request now; send it again";

int64_t ns(double seconds) { return static_cast<int64_t>(seconds * 1e9); }

}  // namespace

Call::Call(NewCall&& m, Calls& home)
    : Reader(m.call),
      home_(home),
      stream_(m.stream),
      from_(std::move(m.from)),
      name_(std::move(m.id)),
      cancelled_(std::move(m.cancelled)) {
  key_index = m.key_index;
  owner = m.owner;
}

void Call::touch() { home_.touch(*this); }
void Call::drop() { home_.drop(*this); }

void Call::end_stream() {
  if (gone_) return;
  home_.flush(*this, true);
  home_.forget(*this);
}

// Status 200 is an object of the protocol; anything else stands for an error of the stream.
void Call::respond(http::Response response) {
  if (gone_) return;
  if (response.status == 503) return home_.fail(*this, {Code::kUnavailable, std::string(kNoMemory)});
  if (response.status != 200) return home_.fail(*this, failed_to_process(response.body));
  out_ += response.body;
  if (!out_.ends_with('\n')) out_ += '\n';
  end_stream();
}

// What a gateway would say with code 500: the engine, not the request, is at fault.
bool Call::tell(const Error& error) {
  if (error.code != ErrorCode::kInternal && error.code != ErrorCode::kUnavailable) return false;
  if (gone_) return true;
  home_.flush(*this, false);
  home_.fail(*this, {Code::kUnavailable, error.message});
  return true;
}

bool Calls::unsent() const {
  return std::ranges::any_of(streams_, [](const auto& entry) { return entry.second.stream->unsent() > 0; });
}

Call* Calls::find(uint64_t id) {
  const auto it = all_.find(id);
  return it == all_.end() || it->second->gone_ ? nullptr : it->second.get();
}

void Calls::add(NewCall&& m) {
  const uint64_t stream = m.stream;
  auto call = std::make_unique<Call>(std::move(m), *this);
  if (call->from_->closed()) {
    if (call->cancelled_) call->cancelled_->store(true, std::memory_order_relaxed);
    return;
  }
  auto& state = streams_.try_emplace(stream, StreamState{StreamRef(*call->from_), {}, 0}).first->second;
  state.calls.push_back(call->id);
  state.lost_ns = 0;
  all_.emplace(call->id, std::move(call));
}

void Calls::close_stream(uint64_t stream) {
  const auto it = streams_.find(stream);
  if (it == streams_.end()) return;
  const std::vector<uint64_t> calls = std::move(it->second.calls);
  it->second.calls.clear();
  for (const uint64_t id : calls) {
    if (Call* call = find(id)) drop(*call);
  }
  streams_.erase(stream);
}

void Calls::touch(Call& call) {
  if (call.touched_ || call.gone_) return;
  call.touched_ = true;
  touched_.push_back(call.id);
}

// Each line is a message.
void Calls::flush(Call& call, bool last) {
  std::string_view rest = call.out_;
  size_t waiting = 0;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    message_.clear();
    append_ascii(message_, line);
    waiting = call.from_->send(call.id, call.name_, message_, last && rest.empty());
  }
  call.out_.clear();
  if (last || call.congested_ || waiting <= limits_.write_buffer_bytes) return;
  call.congested_ = true;
  call.from_->watch(call.id, limits_.write_buffer_bytes / 2);
}

void Calls::room(uint64_t id) {
  Call* const call = find(id);
  if (call == nullptr) return;
  call->congested_ = false;
  user_.on_room(*call);
}

void Calls::fail(Call& call, const CallStatus& status) {
  call.from_->fail(call.id, call.name_, status);
  forget(call);
}

// Its client has left, or it reads too slowly and learns so when it reads again; other calls of the stream go on.
void Calls::drop(Call& call) {
  if (call.gone_) return;
  const bool slow = !call.from_->closed();
  if (slow) call.from_->forget(call.id);
  if (call.cancelled_) call.cancelled_->store(true, std::memory_order_relaxed);
  if (slow) call.from_->fail(call.id, call.name_, {Code::kUnavailable, std::string(kTooSlow)});
  forget(call);
  user_.on_drop(call);
}

void Calls::forget(Call& call) {
  call.gone_ = true;
  call.streaming = false;
  gone_.push_back(call.id);
  const auto it = streams_.find(call.stream_);
  if (it != streams_.end()) std::erase(it->second.calls, call.id);
}

void Calls::end_all(const CallStatus& status) {
  for (auto& [number, state] : streams_) {
    for (const uint64_t id : std::vector<uint64_t>(state.calls)) {
      Call* const call = find(id);
      if (call == nullptr) continue;
      flush(*call, false);
      forget(*call);
      user_.on_drop(*call);
    }
    state.stream->finish(status);
  }
}

void Calls::sweep(int64_t now_ns) {
  for (auto& [number, state] : streams_) sweep_stream(state, now_ns);
}

// A stream of which the client takes nothing loses the calls that have something for it, and after as long again it
// ends.
void Calls::sweep_stream(StreamState& state, int64_t now_ns) {
  const int64_t since = state.stream->stalled_since_ns();
  if (since == 0 || now_ns - since <= ns(limits_.write_stall_timeout)) {
    state.lost_ns = 0;
    return;
  }
  for (const uint64_t id : std::vector<uint64_t>(state.calls)) {
    Call* const call = find(id);
    if (call != nullptr && state.stream->unsent(id) > 0) drop(*call);
  }
  if (state.lost_ns == 0) state.lost_ns = now_ns;
  if (now_ns - state.lost_ns > ns(limits_.write_stall_timeout)) state.stream->cancel();
}

void Calls::end_turn() {
  for (const uint64_t id : touched_) {
    Call* const call = find(id);
    if (call == nullptr) continue;
    call->touched_ = false;
    flush(*call, false);
  }
  touched_.clear();
  for (const uint64_t id : gone_) all_.erase(id);
  gone_.clear();
}

void Calls::close() {
  end_turn();
  all_.clear();
  streams_.clear();
}

}  // namespace tern::serve::kserve
