// KServe over gRPC (paddlenlp-server.md 3): what the transport's library asks of the server. Its threads hand requests
// to the CPU pool; answers go back through the worker that a stream belongs to.
#pragma once

#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_map>

#include "base/error.h"
#include "serve/kserve/stream_ref.h"
#include "serve/worker/shared.h"

namespace tern::serve {

class KserveFront final : private kserve::Host {
 public:
  // Listens; the engine must be ready. Errors: a taken port, a library of another build.
  static Expected<std::unique_ptr<KserveFront>> start(Shared& shared, kserve::Start start);
  ~KserveFront();
  int port() const { return transport_->port(); }
  // Ends what is open; the workers have ended.
  void stop();

 private:
  struct OpenStream {
    kserve::StreamRef stream;
    int key_index = 0;
    uint64_t owner = 0;
    bool shares = false;  // the owner has a share of the memory
    AddressCounts::Lease place;
  };
  struct Asker {
    int key_index = 0;
    uint64_t owner = 0;
    bool shares = false;
  };
  explicit KserveFront(Shared& shared) : shared_(shared) {}

  int authorize(std::string_view authorization) override;
  bool stopping() override { return shared_.draining.load(std::memory_order_relaxed); }
  bool ready() override { return shared_.ready(); }
  kserve::CallStatus check_model(std::string_view model, std::string_view version) override;
  std::string_view server_version() override { return shared_.config.version; }
  bool on_stream(uint64_t number, kserve::Stream& stream, int key_index, std::string_view peer,
                 kserve::CallStatus& status) override;
  void on_request(uint64_t stream, kserve::Stream& from, const kserve::InferRequest& request) override;
  void on_room(uint64_t stream, uint64_t call) override;
  void on_closed(uint64_t stream) override;
  void log(bool error, std::string_view line) override;
  bool new_certificates(kserve::Certificates& certificates) override;
  void on_bad_handshake() override;

  void submit(uint64_t stream, kserve::Stream& from, uint64_t call, std::string_view id, std::string_view payload);
  int worker_of(uint64_t stream) const { return static_cast<int>(stream % shared_.workers.size()); }

  Shared& shared_;
  std::mutex mutex_;
  std::unordered_map<uint64_t, OpenStream> streams_;
  std::atomic<uint64_t> next_call_{1};
  std::shared_ptr<const tls::Context> shown_;  // whose certificates were told last; of new_certificates() alone
  bool stopped_ = false;
  std::unique_ptr<kserve::Transport> transport_;
};

}  // namespace tern::serve
